"""The tables of docs/coming_from.md: old names are gone, and new ones work."""

import re
from functools import partial

import pytest
import torch
import transformers
from code_blocks import ROOT
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
    assert all(len(row) == 2 for row in [*PYTHON, *COMMAND])


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
