"""Two processes of which one dies, in every phase of a command: the other ends too, and the command goes on later."""

import pytest
import torch
from forked_commands import end, run_both, start
from loopback import free_port
from safetensors.torch import load_file
from tiny_run import arguments, files

from hf_capsule_mt.training.checkpoint_folders import last_checkpoint, read_trainer_state


def training(corpus, folder, **options):
    validation = files(corpus, "validation")
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "validation_file": validation, **options}
    return arguments(corpus, folder, "dropout=0.3", method="transformer", **options)


def result(folder):
    return load_file(folder / "model.safetensors"), [
        entry.get("loss") for entry in read_trainer_state(folder)["log_history"]
    ]


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """The result of a run of which no process dies."""
    folder = tmp_path_factory.mktemp("whole")
    assert run_both("train", training(corpus, folder / "run"), folder / "log") == [0, 0], (folder / "log0").read_text()
    return result(folder / "run")


def test_training(corpus, whole, tmp_path):
    deaths = [None, ("in_an_update", 3)]
    statuses = run_both("train", training(corpus, tmp_path / "run"), tmp_path / "log", deaths=deaths)
    assert statuses == [1, -9]
    log = (tmp_path / "log0").read_text()
    assert "Traceback" not in log
    assert "error: Another process of this command died or does not answer" in log
    assert last_checkpoint(tmp_path / "run") == tmp_path / "run" / "checkpoint-2"
    words = training(corpus, tmp_path / "run", resume_from_checkpoint="last")
    assert run_both("train", words, tmp_path / "log") == [0, 0], (tmp_path / "log0").read_text()
    weights, losses = result(tmp_path / "run")
    assert losses == whole[1]
    assert all(torch.equal(weights[name], tensor) for name, tensor in whole[0].items())


def test_before_they_meet(corpus, tmp_path):
    """The one that waits gives up after minutes; here, seconds."""
    words = ["--model", "unused/model", "--input_file", files(corpus, "train")[0], "--device", "cpu"]
    death = ("nobody_comes", 3)
    for rank in range(2):
        group = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        group |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        log = tmp_path / f"log{rank}"
        assert end(start("translate", words, log, death=death, environment=group)) == 2, log.read_text()
        assert "error: Not all processes of this command started within 0:00:03" in log.read_text()


def test_they_wait_longer_for_work(tmp_path):
    """A process may work longer than the meeting lasts, and the others wait for it."""
    late = ("late_to_work", 4, 7)
    assert run_both("translate", [], tmp_path / "log", deaths=(late, late)) == [0, 0], (tmp_path / "log0").read_text()
