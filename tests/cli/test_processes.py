"""A process leaves its group when its work is done, and only then; one that should be several says so."""

import logging
import sys
from pathlib import Path

import pytest
import torch
from tiny_run import arguments, write_corpus

from hf_capsule_mt.cli import processes
from hf_capsule_mt.cli.common import report_user_errors
from hf_capsule_mt.cli.processes import death_of_another
from hf_capsule_mt.cli.train import main


class Parent:
    """A process that started this one."""

    def __init__(self, command):
        self.cmdline = command.split
        self.parent = lambda: self


@pytest.mark.parametrize(
    ("command", "environment", "warned"),
    [
        ("accelerate launch --cpu --num_processes 2 -m hf_capsule_mt.cli.train", {}, True),
        ("python -m accelerate.commands.launch --num_processes=2 train.py", {}, True),
        ("accelerate launch --cpu --num_processes 1 -m hf_capsule_mt.cli.train", {}, False),
        ("accelerate launch --cpu -m hf_capsule_mt.cli.train", {}, False),
        ("accelerate launch --num_processes 2 -m hf_capsule_mt.cli.train", {"WORLD_SIZE": "2"}, False),
    ],
)
def test_one_process_instead_of_several_is_told(command, environment, warned, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("hf_capsule_mt.cli.processes"), "propagate", True)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    for name, value in {"ACCELERATE_MIXED_PRECISION": "no", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processes.psutil, "Process", lambda: Parent(command))
    processes.warn_if_alone("hf_capsule_mt.cli.train", "--use_cpu")
    line = "torchrun --nproc_per_node 2 -m hf_capsule_mt.cli.train --use_cpu"
    assert [line in record.getMessage() for record in caplog.records] == [True] * warned


def test_no_launcher_no_warning(monkeypatch, caplog):
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    monkeypatch.setattr(processes.psutil, "Process", lambda: Parent("make --num_processes 2"))
    processes.warn_if_alone("hf_capsule_mt.cli.train", "--use_cpu")
    assert not caplog.records


@pytest.fixture
def at_exit(monkeypatch):
    """What would be done at the end of this process."""
    registered = []
    monkeypatch.setattr(processes.atexit, "register", registered.append)
    return registered


def test_the_group_is_left_once(at_exit):
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    processes.leave_group_at_exit()
    assert torch.distributed.is_initialized()
    for leave in at_exit * 2:
        leave()
        assert not torch.distributed.is_initialized()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the names of threads from /proc")
def test_its_threads_end_though_a_cycle_holds_it(at_exit):
    def threads():
        return {file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")}

    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    # A thread has its name once it works.
    torch.distributed.all_reduce(torch.ones(1))
    cycle = [torch.distributed.group.WORLD]
    cycle.append(cycle)
    del cycle
    assert "pt_gloo_runloop" in threads()
    processes.leave_group_at_exit()
    at_exit[0]()
    assert "pt_gloo_runloop" not in threads()


def test_a_training_that_ended_well_leaves_it(at_exit, tmp_path):
    main(arguments(write_corpus(tmp_path), tmp_path / "run"))
    assert at_exit.count(processes._leave_group) == 1


def test_a_training_that_failed_does_not(at_exit, tmp_path):
    with pytest.raises(SystemExit):
        main(arguments(write_corpus(tmp_path), tmp_path / "run", max_tokens_per_batch=1))
    assert processes._leave_group not in at_exit


def test_the_death_of_another_process(capsys):
    """Gloo, the store of a group, and loaders tell of it each in its own way."""
    gloo = (
        "[/w/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:1. This is typical. GLHF!"
    )
    assert "does not answer (Connection closed by peer [::1]:1); see" in death_of_another(RuntimeError(gloo))
    assert "(no client); see" in death_of_another(torch.distributed.DistStoreError("no client\nframe 0"))
    worker = RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")
    with pytest.raises(SystemExit, match=r"^1$"), report_user_errors():
        raise worker
    message = "error: another process of this command has died, or does not answer (DataLoader worker (pid 7) is killed"
    assert capsys.readouterr().err.startswith(message)
    with pytest.raises(RuntimeError, match="a mistake of ours"), report_user_errors():
        raise RuntimeError("a mistake of ours")
