"""Fine-tuning: its defaults, and the learning rate of the layers that are added to a trained model."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_marian import save_tiny_marian
from tiny_run import arguments, stop_at

from hf_capsule_mt.cli.train import _set_defaults, build_parser, main

START = {"size": None, "tokenizer_name": None, "config_overrides": None}
START |= {"max_source_length": 60, "max_target_length": 60}


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    return save_tiny_marian(tmp_path_factory.mktemp("marian"))


def train(corpus, folder, marian, **options):
    fixed = {"method": "em-routing", "model": marian, **START, "optim": "sgd", "max_grad_norm": 0}
    rates = {"learning_rate": 1e-9, "lr_scheduler_type": "constant", "warmup_steps": 0, "max_steps": 2}
    main(arguments(corpus, folder, **{**fixed, **rates, **options}))
    return load_file(Path(folder) / "model.safetensors")


def test_it_has_a_rate_of_its_own(corpus, marian, tmp_path):
    """At a rate of next to nothing the parent's weights stay, and what is added moves."""
    begun, trained = load_file(marian / "model.safetensors"), train(corpus, tmp_path, marian, added_learning_rate=1)
    for name, weight in trained.items():
        if name in begun:
            torch.testing.assert_close(weight, begun[name], rtol=0, atol=1e-6)
    assert all(trained[f"model.{side}.aggregation.gamma"].abs().max() > 1e-4 for side in ("encoder", "decoder"))


def test_a_resumed_run_keeps_it(corpus, marian, tmp_path, monkeypatch, caplog):
    options = {"learning_rate": 1e-3, "added_learning_rate": 1e-2, "optim": "adamw_torch", "max_steps": 4}
    options |= {"save_strategy": "steps", "save_steps": 2, "lr_scheduler_type": "linear"}
    whole = train(corpus, tmp_path / "whole", marian, **options)
    with monkeypatch.context() as patch:
        stop_at(patch, update=3)
        with pytest.raises(KeyboardInterrupt):
            train(corpus, tmp_path / "run", marian, **options)
    resumed = train(corpus, tmp_path / "run", marian, **options, resume_from_checkpoint="last")
    assert all(torch.equal(weight, whole[name]) for name, weight in resumed.items())
    # Tied weights are saved once.
    assert "missing keys" not in caplog.text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (2e-5, 1e-3)),
        ({"method": None}, (2e-5, None)),
        ({"learning_rate": 1e-4, "added_learning_rate": 1e-2}, (1e-4, 1e-2)),
        ({"method": None, "lora_rank": 2}, (1e-3, None)),
    ],
)
def test_defaults(corpus, marian, tmp_path, caplog, options, expected):
    fixed = {"method": "em-routing", "model": marian, **START, "warmup_steps": None, "max_steps": 20}
    main(arguments(corpus, tmp_path, **{**fixed, **options}))
    training = json.loads((tmp_path / "run_record.json").read_text())["training"]
    assert (training["learning_rate"], training["added_learning_rate"]) == expected
    assert training["warmup_steps"] == 2
    rate, added = expected
    assert (
        f"Fine-tuning with learning rate {rate}{'' if added is None else f', {added} for added layers'}." in caplog.text
    )


@pytest.mark.parametrize(
    ("words", "rate", "warmup"),
    [
        (["--method", "gdr"], 7e-4, 4000),
        (["--model=folder"], 2e-5, None),
        (["--model", "folder", "--lora-rank=2"], 1e-3, None),
    ],
)
def test_defaults_by_the_options_that_are_there(words, rate, warmup):
    parser = build_parser()
    _set_defaults(parser, words)
    assert (parser.get_default("learning_rate"), parser.get_default("warmup_steps")) == (rate, warmup)


def test_nothing_is_added_to_a_plain_model(corpus, marian, tmp_path, capsys):
    with pytest.raises(SystemExit):
        train(corpus, tmp_path, marian, added_learning_rate=1, method=None)
    assert "no added weights" in capsys.readouterr().err
