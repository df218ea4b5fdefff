"""The state of a training run in a checkpoint, as the Trainer saves it beside the weights."""

import dataclasses
import re
from pathlib import Path
from textwrap import shorten
from typing import Any

from transformers import TrainerState

from .files import read_json

TRAINER_STATE = "trainer_state.json"
"""The file that is saved last."""
# Of a field's type: the types of what JSON makes of it.
_NUMBERS = {int: (int, float), bool: bool, float: (int, float, type(None))}


def step_of(checkpoint: Path) -> int | None:
    """Return the number of updates in a folder's name, `checkpoint-<step>`; None for a folder of another name."""
    match = re.fullmatch(r"checkpoint-(\d+)", checkpoint.name)
    return int(match[1]) if match else None


def read_trainer_state(checkpoint: str | Path) -> dict[str, Any]:
    """Return the fields in the `trainer_state.json` of a checkpoint.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged: no JSON, a field or a value that the Trainer would not write, or another update
            than the folder's name says.
    """
    file = Path(checkpoint) / TRAINER_STATE
    try:
        state = read_json(file)
    except ValueError as error:
        raise ValueError(f"{error}; copy it again") from error
    known = {field.name: field for field in dataclasses.fields(TrainerState)}
    for name, value in state.items():
        if name not in known or not _may_hold(known[name], value):
            raise ValueError(f"{file} is damaged: {name!r} is {shorten(repr(value), 80)}; copy it again")
    step = step_of(file.absolute().parent)
    if step is not None and state.get("global_step", step) != step:
        raise ValueError(f"{file} is damaged: global_step is {state['global_step']}, in {file.parent}; copy it again")
    return state


def _may_hold(field: dataclasses.Field, value: Any) -> bool:
    """Return whether the Trainer could have written `value` in a field of its state."""
    if field.name == "log_history":
        return value is None or (isinstance(value, list) and all(isinstance(entry, dict) for entry in value))
    if field.name == "stateful_callbacks":
        return value is None or isinstance(value, dict)
    if field.name == "best_model_checkpoint":
        return value is None or isinstance(value, str)
    if field.name == "global_step":
        return isinstance(value, int)
    return field.type not in _NUMBERS or isinstance(value, _NUMBERS[field.type])


def missing_state(checkpoint: str | Path, processes: int | None = None) -> list[str]:
    """Return the names of files that a checkpoint lacks of the state that a run goes on from.

    Args:
        checkpoint: a folder of a run on `processes` processes, each with a file of random states; None: unknown.
    """
    rng = ["rng_state*.pth"] if processes is None else [f"rng_state_{process}.pth" for process in range(processes)]
    # Of DeepSpeed and FSDP, which have the optimizer's state in pieces.
    pieces = ("global_step*", "optimizer_*", "optimizer.bin", "rank*-optimizer.pt")
    wanted = [("optimizer.pt", *pieces), ("scheduler.pt", "global_step*")]
    wanted += [("rng_state.pth",)] if processes == 1 else [(name,) for name in rng]
    return [names[0] for names in wanted if not any(file for name in names for file in Path(checkpoint).glob(name))]
