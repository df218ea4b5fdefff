"""The tables of docs/coming_from.md: old names are gone, and new ones work."""

import importlib
import re
from functools import partial

import pytest
import sacrebleu
import torch
import transformers
from accelerate import Accelerator
from code_blocks import ROOT
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    MarianMTModel,
    NllbTokenizer,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    pipeline,
)

import hf_capsule_mt
import hf_capsule_mt_command
from hf_capsule_mt.cli import train
from hf_capsule_mt.training.arguments import TranslationTrainingArguments

PAGE = (ROOT / "docs" / "coming_from.md").read_text(encoding="utf-8")


def rows(title):
    """The cells of the table below a title."""
    section = PAGE.partition(f"\n### {title}\n")[2].partition("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def code(cell):
    return re.findall("`([^`]+)`", cell)


PYTHON = [row for title in ("Pipelines", "Tokenizers and models", "Training in Python") for row in rows(title)]
COMMAND = rows("`run_translation.py`")
TOOLS = rows("Evaluate, Accelerate and PEFT")


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the tables speak of."""
    folder = tmp_path_factory.mktemp("coming_from")
    name = str(ROOT / "checkpoints" / "tatoeba-en-de-transformer")
    arguments = partial(Seq2SeqTrainingArguments, output_dir=str(folder / "run"), report_to="none", use_cpu=True)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    return {
        "NAME": name,
        "pipeline": pipeline,
        "translator": pipeline("translation", model=name, max_new_tokens=4),
        "tokenizer": tokenizer,
        "model": model,
        "arguments": arguments,
        "trainer": Seq2SeqTrainer(model, arguments(), processing_class=tokenizer),
        "sources": ["two dogs"],
        "targets": ["zwei Hunde"],
        "torch": torch,
        "transformers": transformers,
        "hf_capsule_mt": hf_capsule_mt,
        "MarianMTModel": MarianMTModel,
        "NllbTokenizer": NllbTokenizer,
        "Seq2SeqTrainer": Seq2SeqTrainer,
        "TranslationTrainingArguments": partial(TranslationTrainingArguments, report_to="none", use_cpu=True),
    }


def test_the_tables_are_read():
    assert len(PYTHON) > 40
    assert len(COMMAND) > 10
    assert len(TOOLS) > 7
    assert all(len(row) == 2 for row in [*PYTHON, *COMMAND, *TOOLS])


@pytest.mark.parametrize(("old", "new"), PYTHON)
def test_python(names, old, new, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    (old_code,) = code(old)
    if "the same" in new or "still works" in new:
        eval(old_code, names)
    else:
        # Each of these says that the name, the argument or the task is not known.
        with pytest.raises((AttributeError, TypeError, KeyError, ValueError)):
            eval(old_code, names)
    for new_code in code(new):
        if new_code.startswith("hf-capsule-mt "):
            assert new_code.split()[1] in hf_capsule_mt_command.COMMANDS
        elif re.search(r"[.(]", new_code):
            eval(new_code, names)


@pytest.mark.parametrize(("old", "new"), COMMAND)
def test_command(old, new):
    known = {option for action in train.build_parser()._actions for option in action.option_strings}
    for new_code in code(new):
        if new_code.startswith("--"):
            assert new_code in known
        elif new_code.startswith("hf-capsule-mt "):
            assert new_code.split()[1] in hf_capsule_mt_command.COMMANDS
    for old_code in code(old):
        assert old_code.startswith("--")


@pytest.mark.parametrize(("old", "new"), TOOLS)
def test_commands_of_other_tools(old, new):
    for command in code(new):
        words = command.replace("accelerate launch ", "").replace("-m hf_capsule_mt", "hf-capsule-mt").split()
        if words[0] == "hf-capsule-mt":
            parser = importlib.import_module(f"hf_capsule_mt.cli.{words[1]}").build_parser()
            known = {option for action in parser._actions for option in action.option_strings}
            assert {word for word in words if word.startswith("--")} <= known


def test_scores_of_sacrebleu():
    [python] = [cell for _, new in TOOLS for cell in code(new) if "corpus_bleu" in cell]
    texts = ["Zwei Hunde laufen schnell."]
    assert eval(python, {"sacrebleu": sacrebleu, "hypotheses": texts, "references": texts}).score == pytest.approx(100)


def test_a_loop_of_ones_own_with_an_adapter(names):
    """As with any model of Transformers: Accelerate prepares it, and PEFT wraps it."""
    model = AutoModelForSeq2SeqLM.from_pretrained(ROOT / "checkpoints" / "tatoeba-en-de-em-routing")
    targets = hf_capsule_mt.LORA_TARGETS[model.config.model_type]
    model = get_peft_model(model, LoraConfig(r=2, task_type="SEQ_2_SEQ_LM", target_modules=targets))
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-2)
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    batch = names["tokenizer"](names["sources"], text_target=names["targets"], return_tensors="pt")
    losses = []
    for _ in range(3):
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
