"""`kill -9` at any moment of a command: the same command goes on, to the result of one that nobody killed."""

import random
import shutil
import signal
import time

import pytest
import torch
from forked_commands import end, run, start
from safetensors.torch import load_file
from tiny_checkpoints import tiny_checkpoint
from tiny_run import arguments, files

from hf_capsule_mt.training.checkpoint_folders import checkpoints, last_checkpoint, read_trainer_state

CHECKPOINT = tiny_checkpoint("capsule_aggregated_marian")
STATE = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")
UPDATES = 7


def training(corpus, folder):
    """The words of a run, or of how it goes on if it has begun."""
    last = last_checkpoint(folder)
    # Only what was saved to its end counts.
    how = {"overwrite_output_dir": True} if last is None else {"resume_from_checkpoint": "last"}
    options = {"max_steps": UPDATES, "method": "gdr", "save_strategy": "steps", "save_steps": 1, "save_total_limit": 3}
    return arguments(corpus, folder, "dropout=0.3", **options, **how)


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """The weights and losses of a run that nobody kills."""
    folder = tmp_path_factory.mktemp("whole")
    assert run("train", training(corpus, folder / "run"), folder / "log") == 0, (folder / "log").read_text()
    return result(folder / "run")


def result(folder):
    log = read_trainer_state(folder)["log_history"]
    return load_file(folder / "model.safetensors"), [entry["loss"] for entry in log if "loss" in entry]


def check_end(corpus, folder, log, whole):
    assert run("train", training(corpus, folder), log) == 0, log.read_text()
    weights, losses = result(folder)
    assert losses == whole[1]
    assert all(torch.equal(weights[name], tensor) for name, tensor in whole[0].items())


def test_training_inside_a_save(corpus, whole, tmp_path):
    """In each file of a checkpoint, one after the other, in one run."""
    run_folder = tmp_path / "run"
    for update, name in enumerate(STATE, start=2):
        death = ("in_a_file", name, f"checkpoint-{update}")
        assert run("train", training(corpus, run_folder), tmp_path / "log", death=death) == -9
        assert last_checkpoint(run_folder) == run_folder / f"checkpoint-{update - 1}", name
    check_end(corpus, run_folder, tmp_path / "log", whole)


def test_training_while_a_checkpoint_is_overwritten(corpus, whole, tmp_path):
    """Its older state must not vouch for its new weights."""
    run_folder = tmp_path / "run"
    assert run("train", training(corpus, run_folder), tmp_path / "log", death=("in_an_update", 3)) == -9
    # From that one the run cannot go on.
    (run_folder / "checkpoint-3" / "rng_state.pth").unlink()
    death = ("in_a_file", "model.safetensors", "checkpoint-3")
    assert run("train", training(corpus, run_folder), tmp_path / "log", death=death) == -9
    assert last_checkpoint(run_folder) == run_folder / "checkpoint-2"
    check_end(corpus, run_folder, tmp_path / "log", whole)
    assert [folder.name for folder in checkpoints(run_folder)] == [f"checkpoint-{step}" for step in (5, 6, 7)]


def decoding(command, corpus, folder):
    source, target = files(corpus, "train")
    options = ["--model", CHECKPOINT, "--device", "cpu", "--num_beams", "2", "--max_tokens_per_batch", "40"]
    if command == "translate":
        return [*options, "--input_file", source, "--output_file", folder / "out"]
    outputs = ["--output_file", folder / "out", folder / "out.2"]
    return [*options, "--train_file", source, target, "--chunk_size", "4", *outputs]


def outputs(folder):
    """Contents of the files, without what a manifest says of the time."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith(".manifest.json")}


@pytest.mark.parametrize("command", ["translate", "distill"])
def test_decoding_at_a_random_moment(corpus, tmp_path, command):
    moments, (once, killed) = random.Random(1), (tmp_path / name for name in ("once", "killed"))
    for folder in (once, killed):
        folder.mkdir()
    started = time.monotonic()
    assert run(command, decoding(command, corpus, once), tmp_path / "log") == 0, (tmp_path / "log").read_text()
    seconds, status = time.monotonic() - started, 0
    while status == 0:
        process = start(command, decoding(command, corpus, killed), tmp_path / "log")
        time.sleep(moments.uniform(0.2, 1) * seconds)
        process.kill()
        status = end(process)
        assert status in (0, -signal.SIGKILL), (tmp_path / "log").read_text()
        if status == 0:
            # It was faster than the other.
            seconds /= 2
            shutil.rmtree(killed)
            killed.mkdir()
    assert run(command, decoding(command, corpus, killed), tmp_path / "log") == 0, (tmp_path / "log").read_text()
    # What a killed process was writing has its number in its name.
    found = {name: content for name, content in outputs(killed).items() if not name.endswith(".tmp")}
    assert found == outputs(once)
