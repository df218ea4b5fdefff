"""The beginning and the end of a command that runs in several processes."""

import atexit
import gc
from datetime import timedelta

import torch
from accelerate import PartialState
from torch.distributed import distributed_c10d

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
