"""The end of a command that runs in several processes."""

import atexit
import gc

import torch


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
