"""The folders `checkpoint-<step>` of a training run, and the state that the Trainer saves in them."""

import re
from pathlib import Path
from typing import Any

from hf_capsule_mt.files import read_json

TRAINER_STATE = "trainer_state.json"
"""The file that is saved last."""


def step_of(checkpoint: Path) -> int | None:
    """Return the number of updates in a folder's name, `checkpoint-<step>`; None for a folder of another name."""
    match = re.fullmatch(r"checkpoint-(\d+)", checkpoint.name)
    return int(match[1]) if match else None


def checkpoints(run: str | Path) -> list[Path]:
    """Return the folders of a run's checkpoints, the oldest first."""
    return sorted((folder for folder in Path(run).glob("checkpoint-*") if step_of(folder) is not None), key=step_of)


def read_trainer_state(checkpoint: str | Path) -> dict[str, Any]:
    """Return the fields in the `trainer_state.json` of a checkpoint."""
    return read_json(Path(checkpoint) / TRAINER_STATE)


def is_whole(checkpoint: str | Path) -> bool:
    """Return whether the Trainer saved a checkpoint to its end: its state comes last."""
    try:
        read_trainer_state(checkpoint)
    except (OSError, ValueError):
        return False
    return True


def last_checkpoint(run: str | Path, *, with_state: bool = True) -> Path | None:
    """Return the newest checkpoint of a run that was saved to its end, or None.

    With `with_state`, a run can continue from it: see [`missing_state`].
    """
    whole = [folder for folder in checkpoints(run) if is_whole(folder)]
    usable = [folder for folder in whole if not with_state or not missing_state(folder)]
    return usable[-1] if usable else None


def missing_state(checkpoint: str | Path) -> list[str]:
    """Return the names of the files that a run needs to continue and a checkpoint lacks."""
    # DeepSpeed and FSDP save the optimizer's state in pieces.
    pieces = ("global_step*", "optimizer_*", "optimizer.bin", "rank*-optimizer.pt")
    wanted = [("optimizer.pt", *pieces), ("scheduler.pt", "global_step*"), ("rng_state*.pth",)]
    return [names[0] for names in wanted if not any(file for name in names for file in Path(checkpoint).glob(name))]
