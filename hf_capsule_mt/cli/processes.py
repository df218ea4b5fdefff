"""The beginning and the end of a command that runs in several processes."""

import atexit
import gc
import os
import re
from datetime import timedelta

import psutil
import torch
from accelerate import PartialState
from torch.distributed import distributed_c10d
from transformers.utils import logging

logger = logging.get_logger(__name__)

MEETING = timedelta(minutes=10)
"""How long a process waits for the others to start: one may have died."""
WORK = timedelta(days=7)
"""How long it waits for them afterwards: whichever has done its share first waits for all. One that dies is noticed."""


def meet(*, cpu: bool) -> PartialState:
    """Return the state of this process among those launched together, when all have come.

    Raises:
        TimeoutError: if one does not come within [`MEETING`].
    """
    try:
        state = PartialState(cpu=cpu, timeout=MEETING)
    except torch.distributed.DistError as error:
        raise TimeoutError(
            f"the processes of this command did not all come within {MEETING}; see whether one of them failed, and "
            "start all again"
        ) from error
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        distributed_c10d._set_pg_timeout(WORK)
    return state


def check_alone(state: PartialState) -> None:
    """Raise a ValueError for one process of several, of a command that does all by itself."""
    if state.num_processes > 1:
        raise ValueError(f"there are {state.num_processes} processes; start this command in one, without accelerate")


def death_of_another(error: RuntimeError) -> str | None:
    """Return what there is to say of an error that PyTorch raises when another process has died; None of others."""
    message = str(error)
    is_of_group = isinstance(error, torch.distributed.DistError) or "/gloo/" in message
    if not is_of_group and not message.startswith("DataLoader worker"):
        return None
    # Without the place in the source, and what a reader of the source might do.
    reason = re.sub(r"^\[[^]]*\] ", "", message).partition("\n")[0].partition(". ")[0]
    return (
        f"another process of this command has died, or does not answer ({reason}); see what it printed, and start all "
        "again: train goes on with --resume_from_checkpoint last, other commands by themselves"
    )


def warn_if_alone(module: str, on_cpus: str = "--device cpu") -> None:
    """Warn if `accelerate launch` was asked for several processes and started this one alone.

    It does so in silence on CPUs, and with fewer than two GPUs.

    Args:
        module: of the command.
        on_cpus: its option that leaves out accelerators.
    """
    # By its own variable the launcher is known; a launcher of several processes tells each how many they are.
    if "ACCELERATE_MIXED_PRECISION" not in os.environ or "WORLD_SIZE" in os.environ:
        return
    asked = re.search(r"--num[_-]processes[= ](\d+)", " ".join(_words_of_launcher()))
    if asked and int(asked[1]) > 1:
        logger.warning(
            f"accelerate launch was asked for {asked[1]} processes and started one, as it does on CPUs and with fewer "
            f"than two GPUs. On CPUs, {asked[1]} are started by: torchrun --nproc_per_node {asked[1]} -m {module} "
            f"{on_cpus} ..."
        )


def _words_of_launcher() -> list[str]:
    """Words of the command that started this process; none if that may not be read."""
    try:
        parent = psutil.Process().parent()
        return [] if parent is None else parent.cmdline()
    except psutil.Error:
        return []


def leave_group_at_exit() -> None:
    """Let this process leave its group before it exits: with the group alive it can abort in gloo's threads.

    To be called when the work is done: a process that failed must not wait for those that wait for it.
    """
    atexit.register(_leave_group)


def _leave_group() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        # Its threads end with the last reference, and a Trainer is part of reference cycles.
        gc.collect()
