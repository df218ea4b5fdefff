"""A process leaves its group when its work is done, and only then."""

import sys
from pathlib import Path

import pytest
import torch
from packaging.version import Version
from tiny_run import arguments

from hf_capsule_mt.cli import common
from hf_capsule_mt.cli.common import report_user_errors
from hf_capsule_mt.cli.train import main


@pytest.fixture
def at_exit(monkeypatch):
    """What would be done at the end of this process."""
    registered = []
    monkeypatch.setattr(common.atexit, "register", registered.append)
    return registered


def test_the_group_is_left_once(at_exit):
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    common.leave_group_at_exit()
    assert torch.distributed.is_initialized()
    for leave in at_exit * 2:
        leave()
        assert not torch.distributed.is_initialized()


@pytest.mark.skipif(
    sys.platform != "linux" or Version(torch.__version__) < Version("2.13"),
    reason="reads the names of threads from /proc, which old versions of PyTorch do not set",
)
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
    common.leave_group_at_exit()
    at_exit[0]()
    assert "pt_gloo_runloop" not in threads()


def test_a_training_that_ended_well_leaves_it(at_exit, corpus, tmp_path):
    main(arguments(corpus, tmp_path / "run"))
    assert at_exit.count(common._leave_group) == 1


def test_a_training_that_failed_does_not(at_exit, corpus, tmp_path):
    with pytest.raises(SystemExit):
        main(arguments(corpus, tmp_path / "run", max_tokens_per_batch=1))
    assert common._leave_group not in at_exit


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[/w/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:1."),
        torch.distributed.DistStoreError("no client\nframe 0"),
        RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "),
    ],
)
def test_the_death_of_another_process(capsys, error):
    with pytest.raises(SystemExit, match=r"^1$"), report_user_errors():
        raise error
    assert capsys.readouterr().err.startswith("error: Another process of this command died")
