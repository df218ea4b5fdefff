"""The measurement at NLLB's shape, with a small model."""

from argparse import ArgumentParser

import torch

from benchmarks.decoding import nllb
from hf_capsule_mt.environment import environment

SMALL = ["--vocab_size", "700", "--layers", "4", "--d_model", "64", "--words", "300", "--length", "4", "--rounds", "2"]


def options(*more):
    parser = ArgumentParser()
    nllb.add_options(parser)
    return parser.parse_args([*SMALL, "--batch_sizes", "1", "2", "--precisions", "float32", *more])


def test_the_table_and_the_memory():
    args = options("--memory_tokens", "512")
    results, report = nllb.measure(args)
    decoders = {"generate()", "engine", "engine, words", "CTranslate2", "CTranslate2, words"}
    for seconds in results["seconds"]["float32"].values():
        assert set(seconds) == decoders
        assert all(len(times) == 2 and min(times) >= 0 for times in seconds.values())
    memory = results["memory"]
    # The engine has the sources once for all beams.
    assert memory["engine, sources"] < memory["generate(), sources"] / 2
    record = {**results, "settings": vars(args) | {"clock": "cpu"}, "environment": environment("cpu")}
    for of_sizes in record["seconds"].values():
        for seconds in of_sizes.values():
            for name in seconds:
                seconds[name] = [2.0, 2.0]
            seconds["engine"] = [1.0, 0.5]
            seconds["engine, words"] = [0.5, 0.25]
    table = report(record)
    assert "| float32 | 3.00 / 3.00 | 3.00 / 3.00 | 6.00 / 6.00 | 6.00 / 6.00 |" in table
    assert "| float32, goal | 1.6 / 1.4 |  | 3.0 / 1.3 |  |" in table
    assert "| seconds of generate() | 2.0 (2.0–2.0) | 2.0 (2.0–2.0) |  |  |" in table
    # The clock of the record, not the one that this process would take.
    assert "rounds of CPU time." in table
    record["settings"]["clock"] = "wall"
    assert "rounds of time that passed." in report(record)


def test_the_table_of_mbart_has_no_goals():
    """They are those of NLLB-600M."""
    args = options("--model", "mbart", "--memory_tokens", "0")
    results, report = nllb.measure(args)
    table = report({**results, "settings": vars(args) | {"clock": "cpu"}, "environment": environment("cpu")})
    assert "| float32 |" in table
    assert "goal" not in table


def test_the_conversion_changes_no_weight(monkeypatch):
    """Otherwise the others would decode with other weights, which may take longer."""
    models = []
    make = nllb.random_model
    monkeypatch.setattr(nllb, "random_model", lambda args: models.append(make(args)) or models[-1])
    args = options("--precisions", "int8", "--memory_tokens", "0")
    nllb.measure(args)
    for name, weight in make(args).state_dict().items():
        assert torch.equal(models[0].state_dict()[name], weight), name
