"""`train --lora_rank`: adapters as checkpoints, and a whole model at the end."""

import shutil
import warnings
from types import SimpleNamespace

import peft
import pytest
import torch
from families import logits
from plug_table import FAMILIES, promised
from safetensors.torch import load_file
from tiny_marian import tiny_tokenizer
from tiny_run import arguments, write_corpus
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt.cli import train, translate
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.lora import LORA_PARAMETERS, LORA_TARGETS, merge_adapter, with_adapter
from hf_capsule_mt.training.options import ModelArguments
from hf_capsule_mt.training.trainer import TranslationTrainer

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"), pairs=12)


def base_of(folder, family):
    """A checkpoint of the family, with its tokenizer."""
    FAMILIES[family]().save_pretrained(folder)
    return folder


def run(corpus, base, output_dir, **options):
    """Train an adapter for `base`."""
    defaults = {"method": None, "size": None, "config_overrides": None, "model": base, "lora_rank": 2}
    defaults |= {"max_source_length": 32, "max_target_length": 32}
    train.main(arguments(corpus, output_dir, **{**defaults, **options}))


def adapter(folder):
    return load_file(folder / "adapter_model.safetensors")


@promised("`train --lora_rank`")
def test_the_run_holds_a_model_and_its_adapter(family, corpus, tmp_path):
    base = base_of(tmp_path / "base", family)
    run(corpus, base, tmp_path / "run")
    model = FAMILIES[family]()
    before = logits(model)
    with_adapter = peft.PeftModel.from_pretrained(model, tmp_path / "run" / "adapter")
    merged = logits(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run"))
    torch.testing.assert_close(logits(with_adapter), merged, rtol=1e-4, atol=1e-4)
    assert not torch.equal(merged, before)
    assert with_adapter.peft_config["default"].base_model_name_or_path == str(base)
    # Whoever may read other files may read the adapter.
    modes = {file.stat().st_mode for file in (tmp_path / "run" / "adapter").iterdir()}
    assert len(modes) == 1


def test_translate_and_resume(corpus, tmp_path, capsys):
    base = base_of(tmp_path / "base", "CapsNMT")
    options = {"save_strategy": "steps", "save_steps": 1, "max_steps": 3}
    run(corpus, base, tmp_path / "run", **options)
    source = ["--input_file", str(corpus / "validation.source"), "--output_file", str(tmp_path / "out")]
    translate.main(["--model", str(tmp_path / "run"), *source])
    assert len((tmp_path / "out").read_text().splitlines()) == 12
    checkpoint = tmp_path / "run" / "checkpoint-1"
    with pytest.raises(SystemExit):
        translate.main(["--model", str(checkpoint), *source])
    assert f"error: The configuration of {checkpoint} cannot be read" in capsys.readouterr().err
    shutil.copytree(checkpoint, tmp_path / "again" / "checkpoint-1")
    run(corpus, base, tmp_path / "again", **options, resume_from_checkpoint="last")
    expected = adapter(tmp_path / "run" / "adapter")
    torch.testing.assert_close(adapter(tmp_path / "again" / "adapter"), expected, rtol=0, atol=0)
    for option, value, words in (
        ("lora_rank", 3, "now it is of rank 3"),
        ("model", tmp_path / "run", f"now it is of rank 2 for {tmp_path / 'run'}"),
        ("lora_rank", None, "had weights "),
    ):
        with pytest.raises(SystemExit):
            run(corpus, base, tmp_path / "no", resume_from_checkpoint=checkpoint, **{option: value})
        assert words in capsys.readouterr().err


def test_checkpoints_of_adapters_are_not_pushed(corpus, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(corpus, "base", tmp_path / "run", push_to_hub="true")
    assert "--lora_rank" in capsys.readouterr().err


@pytest.mark.parametrize("family", ["`MarianMTModel`", "RNMT", "CapsNMT"])
def test_an_adapter_is_of_the_rank_and_the_model_that_are_asked_for(family):
    model = FAMILIES[family]()
    kind = model.config.model_type
    recurrent = {name.rpartition(".")[0] for name in LORA_PARAMETERS.get(kind, ())}
    places = {name for name, _ in model.named_modules() if name.rpartition(".")[2] in {*LORA_TARGETS[kind], *recurrent}}
    adapted = with_adapter(model, ModelArguments(model="user/base", revision="v1", lora_rank=3))
    config = adapted.peft_config["default"]
    assert (config.base_model_name_or_path, config.revision) == ("user/base", "v1")
    # What an adapter adds is multiplied by alpha / rank.
    assert (config.r, config.lora_alpha) == (3, 6)
    assert type(adapted) is peft.PeftModelForSeq2SeqLM
    trained = [name for name, weight in adapted.named_parameters() if weight.requires_grad]
    assert places
    assert bool(recurrent) == (family != "`MarianMTModel`")
    for place in places:
        assert any(f".{place}." in name for name in trained), place


def test_the_default_branch_is_no_revision():
    adapted = with_adapter(FAMILIES["`MarianMTModel`"](), ModelArguments(model="user/base", lora_rank=3))
    assert adapted.peft_config["default"].revision is None


@pytest.mark.parametrize("is_first", [True, False])
def test_one_process_writes_the_adapter_and_all_merge_it(tmp_path, is_first):
    adapted = with_adapter(FAMILIES["`MarianMTModel`"](), ModelArguments(model="user/base", lora_rank=3))
    merged = []
    trainer = SimpleNamespace(
        model=adapted,
        args=SimpleNamespace(output_dir=tmp_path),
        is_world_process_zero=lambda: is_first,
        replace_model=merged.append,
    )
    merge_adapter(trainer)
    assert (tmp_path / "adapter").exists() == is_first
    assert type(merged[0]) is type(adapted.get_base_model())


def test_saving_an_adapter_does_not_look_for_its_model(tmp_path):
    """It has none of its embeddings. PEFT would ask the Hub for each checkpoint."""
    adapted = with_adapter(FAMILIES["`MarianMTModel`"](), ModelArguments(model="user/base", lora_rank=3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adapted.save_pretrained(tmp_path)
    assert all(".lora_" in name for name in adapter(tmp_path))


def logged(family, folder, **options):
    """What is logged of the first update of an adapter. Dropout is off."""
    model = FAMILIES[family]()
    for module in model.modules():
        if hasattr(module, "dropout"):
            module.dropout = 0.0
    adapted = with_adapter(model, ModelArguments(model="user/base", lora_rank=3))
    rows = [{"input_ids": [3] * length + [2], "labels": [4] * (7 - length) + [2]} for length in range(1, 7)]
    options = {"max_steps": 1, "logging_steps": 1, "save_strategy": "no", "report_to": "none", **options}
    args = TranslationTrainingArguments(folder, use_cpu=True, **options)
    trainer = TranslationTrainer(adapted, args, train_dataset=rows, processing_class=tiny_tokenizer())
    trainer.train()
    return trainer.state.log_history[0]


def test_batches_of_an_update_count_as_without_an_adapter(tmp_path):
    """Marian of Transformers ignores the number of labels of an update."""
    whole = logged("`MarianMTModel`", tmp_path, per_device_train_batch_size=6)
    parts = logged("`MarianMTModel`", tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=3)
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-5)


def test_an_adapter_has_rdrop_if_its_model_has(tmp_path):
    assert "rdrop_loss" in logged("layer aggregation", tmp_path, rdrop_alpha=1.0)
