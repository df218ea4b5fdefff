"""Two processes of which one dies, in every phase of a command: the other ends too, and the command goes on later."""

import signal

import pytest
import torch
from forked_commands import end, run_both, start, start_both
from loopback import free_port
from safetensors.torch import load_file
from tiny_run import arguments, files, write_corpus

from hf_capsule_mt.training.resuming import last_checkpoint, read_trainer_state

LONGER = [pytest.mark.exhaustive, pytest.mark.slow]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


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


@pytest.mark.parametrize(
    ("rank", "death", "saved"),
    [
        (1, ("in_an_update", 3), 2),
        pytest.param(0, ("in_an_update", 0), None, marks=LONGER),
        pytest.param(0, ("in_a_file", "optimizer.pt", "checkpoint-4"), 2, marks=LONGER),
        pytest.param(1, ("in_a_file", "rng_state_1.pth", "checkpoint-4"), 2, marks=LONGER),
        pytest.param(1, ("in_evaluation",), 4, marks=LONGER),
    ],
)
def test_training(corpus, whole, tmp_path, rank, death, saved):
    deaths = [death if rank == dead else None for dead in range(2)]
    statuses = run_both("train", training(corpus, tmp_path / "run"), tmp_path / "log", deaths=deaths)
    assert statuses[rank] == -9
    assert statuses[1 - rank] == 1
    assert_says_one_line((tmp_path / f"log{1 - rank}").read_text())
    last = last_checkpoint(tmp_path / "run")
    if saved is not None:
        assert last == tmp_path / "run" / f"checkpoint-{saved}"
    how = {"resume_from_checkpoint": "last"} if last else {"overwrite_output_dir": True}
    words = training(corpus, tmp_path / "run", **how)
    assert run_both("train", words, tmp_path / "log") == [0, 0], (tmp_path / "log0").read_text()
    weights, losses = result(tmp_path / "run")
    assert losses == whole[1]
    assert all(torch.equal(weights[name], tensor) for name, tensor in whole[0].items())


def assert_says_one_line(log):
    assert "Traceback" not in log, log
    [line] = [line for line in log.splitlines() if "error: " in line]
    assert "error: Another process of this command died or does not answer" in line


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("stopped", [("in_an_update", 1, signal.SIGSTOP), None], ids=["at work", "never there"])
def test_one_does_not_answer(corpus, tmp_path, stopped):
    """The other waits as long as it was told to."""
    words = training(corpus, tmp_path / "run", ddp_timeout=5)
    first, *others = start_both("train", words, tmp_path / "log", deaths=(None, stopped)[: 1 + (stopped is not None)])
    assert end(first) == 1
    for other in others:
        other.kill()
    assert_says_one_line((tmp_path / "log0").read_text())


@pytest.mark.exhaustive
@pytest.mark.slow
def test_one_is_asked_to_end(corpus, whole, tmp_path):
    """Both end after the same update."""
    deaths, words = (None, ("in_an_update", 2, signal.SIGTERM)), training(corpus, tmp_path / "run")
    assert run_both("train", words, tmp_path / "log", deaths=deaths) == [143, 143], (tmp_path / "log0").read_text()
    assert last_checkpoint(tmp_path / "run") == tmp_path / "run" / "checkpoint-3"
    words = training(corpus, tmp_path / "run", resume_from_checkpoint="last")
    assert run_both("train", words, tmp_path / "log") == [0, 0], (tmp_path / "log0").read_text()
    assert result(tmp_path / "run")[1] == whole[1]


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
