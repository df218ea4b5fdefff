"""Checkpoints of a run, and the number of a model's parameters."""

import json
from argparse import Namespace

import pytest
from safetensors.torch import load_file, save_file
from tiny_marian import save_tiny_marian, tiny_tokenizer
from tiny_run import arguments, small, write_corpus
from transformers import AutoModelForSeq2SeqLM

from benchmarks.speed.train import compare_with_plain
from hf_capsule_mt import METHODS, preset_config
from hf_capsule_mt.analysis.demo_answer import answer
from hf_capsule_mt.cli import train, translate
from hf_capsule_mt.training.resuming import checkpoints, last_checkpoint
from hf_capsule_mt.translation.loading import count_parameters, load_tokenizer

WEIGHTS = "model.safetensors"


def test_the_last_checkpoint_that_is_whole(tmp_path):
    assert last_checkpoint(tmp_path / "absent") is None
    for name, state in (("checkpoint-9", "{}"), ("checkpoint-10", "{}"), ("checkpoint-11", '{"a'), ("best", "{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text(state)
        for file in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
            (tmp_path / name / file).touch()
    (tmp_path / "checkpoint-12").mkdir()
    assert [folder.name for folder in checkpoints(tmp_path)] == [f"checkpoint-{step}" for step in (9, 10, 11, 12)]
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    # A run cannot go on from it.
    (tmp_path / "checkpoint-10" / "optimizer.pt").unlink()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-9"


def test_the_weights_of_others_may_have_more_than_is_used(tmp_path):
    """Such as what an older version of a model had."""
    weights = save_tiny_marian(tmp_path / "marian") / WEIGHTS
    tensors = load_file(weights)
    save_file({**tensors, "old": tensors["final_logits_bias"].clone()}, weights, {"format": "pt"})
    (tmp_path / "text").write_text("a b\n")
    translate.main(["--model", str(tmp_path / "marian"), "--input_file", str(tmp_path / "text"), "--num_beams", "1"])


@pytest.mark.parametrize("method", METHODS)
def test_parameters_are_those_of_the_file(method, tmp_path):
    """Tied ones are there once and sinusoids are not; Marian's bias is no parameter."""
    model = AutoModelForSeq2SeqLM.from_config(small_config(method))
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / WEIGHTS)
    saved = sum(tensor.numel() for name, tensor in tensors.items() if name != "final_logits_bias")
    assert count_parameters(model) == count_parameters(AutoModelForSeq2SeqLM.from_pretrained(tmp_path)) == saved


def small_config(method):
    fields = {name: int(value) for name, value in (field.split("=") for field in small(method))}
    return preset_config(method, "tiny", vocab_size=len(tiny_tokenizer()), **fields)


def test_card_record_benchmark_and_explorer_agree(tmp_path):
    train.main(arguments(write_corpus(tmp_path), tmp_path / "run", save_strategy="no"))
    counted = json.loads((tmp_path / "run" / "run_record.json").read_text())["parameters"]
    assert f"{counted:,} parameters" in (tmp_path / "run" / "README.md").read_text()
    work = {
        "max_tokens": 96,
        "batch_size": 1,
        "num_beams": 1,
        "new_tokens": 1,
        "rounds": 1,
        "warmup_rounds": 0,
        "seed": 0,
    }
    others = {"vocab_size": len(tiny_tokenizer()), "device": "cpu", "dtype": "float32"}
    compared = compare_with_plain(small_config("em-routing"), Namespace(**work, **others))
    assert compared["parameters"] == counted > compared["plain_parameters"]
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run"), load_tokenizer(tmp_path / "run")
    assert answer(lambda name: loaded, "run", "a b").architecture.endswith(f" {counted:,} parameters.")
