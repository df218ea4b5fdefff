"""Two processes train as one does with twice the batch, and go on after a kill as if nothing had been."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_run import arguments, files, write_corpus

from hf_capsule_mt.cli.train import main
from hf_capsule_mt.training.loss_terms import LOSS_TERMS

SEVERAL_RUNS = Path(__file__).with_name("several_runs.py")
TOKENS = {"method": "gdr", "max_tokens_per_batch": 60}
STREAM = {**TOKENS, "streaming": True, "shuffle_buffer": 12, "max_source_length": 20, "max_target_length": 20}
PAIRS = {"max_tokens_per_batch": 0, "per_device_train_batch_size": 6}
# Adam would blow up the last bits of gradients near zero.
SGD = {"optim": "sgd", "learning_rate": 0.1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of two processes: `tokens`, `pairs`, `stream`, and each as resumed from its checkpoint-6."""
    folder = write_corpus(tmp_path_factory.mktemp("two_processes"))
    lists = []
    kinds = ("tokens", TOKENS, 0), ("pairs", PAIRS, 0), ("dropout", TOKENS, 0.3), ("stream", STREAM, 0.3)
    for name, options, dropout in kinds:
        lists.append(options_of(folder, name, dropout, save_strategy="steps", save_steps=6, **options))
        checkpoint = folder / name / "checkpoint-6"
        lists.append(options_of(folder, f"{name}_resumed", dropout, resume_from_checkpoint=checkpoint, **options))
    (folder / "runs.json").write_text(json.dumps(lists))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(folder / "cache")}
    subprocess.run([*launch, str(SEVERAL_RUNS), str(folder / "runs.json")], env=environment, check=True, timeout=600)
    return folder


def options_of(folder, name, dropout, **options):
    validation = files(folder, "validation")
    options = {"max_steps": 8, "validation_file": validation, **SGD, **options}
    return arguments(folder, folder / name, f"dropout={dropout}", **options)


def results(folder):
    """Losses and their parts, BLEU and weights of a finished run, and the number of its processes."""
    state = json.loads((folder / "trainer_state.json").read_text())
    record = json.loads((folder / "run_record.json").read_text())
    losses = [entry[name] for entry in state["log_history"] for name in ("loss", *LOSS_TERMS) if name in entry]
    return losses, record["metrics"]["eval_bleu"], load_file(folder / "model.safetensors"), record["processes"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "twice_the_batch"),
    [("tokens", {**TOKENS, "gradient_accumulation_steps": 2}), ("pairs", {**PAIRS, "per_device_train_batch_size": 12})],
)
def test_two_processes_are_one_with_twice_the_batch(folder, tmp_path, name, twice_the_batch):
    main(options_of(folder, tmp_path, 0, **twice_the_batch))
    losses, bleu, weights, processes = results(folder / name)
    expected_losses, expected_bleu, expected_weights, _ = results(tmp_path)
    assert processes == 2
    assert len(losses) == (32 if name == "tokens" else 8)
    assert losses == pytest.approx(expected_losses, rel=1e-6)
    assert bleu == expected_bleu
    for key, weight in weights.items():
        torch.testing.assert_close(weight, expected_weights[key], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_one_process_read_for_both(folder):
    """All runs but the stream's have the same two corpora, whose text and ids are made once."""
    assert sorted(path.suffix for path in (folder / "cache" / "hf_capsule_mt").iterdir()) == ["", "", ".lock", ".lock"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tokens", "pairs", "dropout", "stream"])
def test_resumed_in_the_middle_of_an_epoch(folder, name):
    checkpoint = folder / name / "checkpoint-6"
    if name != "stream":
        assert 1 < json.loads((checkpoint / "trainer_state.json").read_text())["epoch"] < 2
    losses, _, weights, _ = results(folder / name)
    resumed_losses, _, resumed_weights, _ = results(folder / f"{name}_resumed")
    assert resumed_losses == losses
    assert all(torch.equal(weight, resumed_weights[key]) for key, weight in weights.items())
    assert not all(
        torch.equal(weight, weights[key]) for key, weight in load_file(checkpoint / "model.safetensors").items()
    )
