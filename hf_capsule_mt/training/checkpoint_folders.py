"""Checkpoints of a run as folders: which there are, whether they are whole, and whether a run may write there."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from safetensors import SafetensorError, safe_open

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import read_json

TRAINER_STATE = "trainer_state.json"
"""The file of a checkpoint that is saved last."""

_IDENTITY = "RunIdentity"
"""The Trainer saves a callback's attributes under the name of its class, here that of [`RunIdentity`]."""

_RESULTS = ("model*.safetensors*", "adapter", TRAINER_STATE, "run_record.json")
"""What a finished run leaves in its output folder."""
# Fields of the Trainer's state that it and we compute with.
_NUMBER = (int, float)
_STATE_TYPES: dict[str, type | tuple[type, ...]] = {
    "global_step": int,
    "max_steps": int,
    "epoch": _NUMBER,
    "total_flos": _NUMBER,
    "num_input_tokens_seen": int,
    "best_metric": _NUMBER,
    "best_global_step": int,
    "best_model_checkpoint": str,
    "log_history": list,
    "stateful_callbacks": dict,
}
_MAY_BE_NULL = ("epoch", "best_metric", "best_global_step", "best_model_checkpoint")
_IDENTITY_TYPES: dict[str, type | tuple[type, ...]] = {
    "run": str,
    "fixed": dict,
    "dealt_to": (int, type(None)),
    "scores_began": int,
}


def step_of(checkpoint: Path) -> int | None:
    """Return the number of updates in a folder's name, `checkpoint-<step>`, None for another name."""
    match = re.fullmatch(r"checkpoint-(\d+)", checkpoint.name)
    if match is None:
        return None
    return int(match[1])


def checkpoints(run: str | Path) -> list[Path]:
    """Return the folders of a run's checkpoints, the oldest first."""
    folders = [folder for folder in Path(run).glob("checkpoint-*") if step_of(folder) is not None]
    return sorted(folders, key=step_of)


def read_trainer_state(checkpoint: str | Path) -> dict[str, Any]:
    """Return the fields in the `trainer_state.json` of a checkpoint.

    Raises:
        OSError: if there is no such file.
        ValueError: if it is no JSON, or a field that a run continues from is of another type than the Trainer writes.
    """
    file = Path(checkpoint) / TRAINER_STATE
    state = read_json(file)

    for name, expected in _STATE_TYPES.items():
        is_null = name in _MAY_BE_NULL and state.get(name) is None
        if name in state and not is_null and not isinstance(state[name], expected):
            raise _damage(file, f"{name} is {state[name]!r}")

    for entry in state.get("log_history", []):
        if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
            raise _damage(file, f"log_history has {entry!r}")

    for name, value in identity_attributes(state, file).items():
        if name in _IDENTITY_TYPES and not isinstance(value, _IDENTITY_TYPES[name]):
            raise _damage(file, f"{name} is {value!r}")

    return state


def _damage(file: Path | None, what: str) -> UserError:
    """Return the error for a file that somebody or something has changed."""
    return UserError(f"{file} is damaged: {what}. Continue from another checkpoint.")


def identity_attributes(state: Mapping[str, Any], file: Path | None = None) -> dict[str, Any]:
    """Return what a run's identity has saved in a Trainer's state. A plain Trainer's state has nothing of it."""
    callbacks = state.get("stateful_callbacks", {})
    saved = callbacks.get(_IDENTITY, {})
    attributes = saved.get("attributes", {}) if isinstance(saved, dict) else None
    if not isinstance(attributes, dict):
        raise _damage(file, f"{_IDENTITY} is {saved!r}")
    return attributes


def is_whole(checkpoint: str | Path) -> bool:
    """Return whether the Trainer saved a checkpoint to its end: its state comes last."""
    try:
        read_trainer_state(checkpoint)
    except (OSError, ValueError):
        return False
    return True


def missing_state(checkpoint: str | Path) -> list[str]:
    """Return the names of the files that a run needs to continue, and that a checkpoint lacks or has only a part of."""
    folder = Path(checkpoint)
    missing = []

    # DeepSpeed and FSDP save the optimizer's state in pieces.
    if not _has_whole(folder, "optimizer.pt", "global_step*", "optimizer_*", "optimizer.bin", "rank*-optimizer.pt"):
        missing.append("optimizer.pt")
    if not _has_whole(folder, "scheduler.pt", "global_step*"):
        missing.append("scheduler.pt")
    if not _has_whole(folder, "rng_state*.pth"):
        missing.append("rng_state*.pth")

    # DeepSpeed and FSDP save weights in pieces too, and a Trainer of old wrote pickles.
    if not _paths(folder, "*.safetensors", "pytorch_model*", "adapter_model*", "global_step*"):
        missing.append("model.safetensors")
    # Also those of adapters, and the training weights next to averages.
    for file in sorted(folder.glob("*.safetensors")):
        if not _is_readable(file):
            missing.append(file.name)

    if not is_whole(folder):
        missing.append(TRAINER_STATE)
    return missing


def _is_readable(file: Path) -> bool:
    """Return whether a file of tensors has all the bytes that its header names."""
    try:
        with safe_open(file, "pt"):
            return True
    except (SafetensorError, OSError):
        return False


def _has_whole(folder: Path, *patterns: str) -> bool:
    """Return whether a folder has a file or a folder with one of these names, and all such files were written whole."""
    paths = _paths(folder, *patterns)
    # PyTorch writes a ZIP archive, whose table of contents is at its end.
    return bool(paths) and all(path.is_dir() or is_zipfile(path) for path in paths)


def _paths(folder: Path, *patterns: str) -> list[Path]:
    """Return what is in a folder with a name of one of these patterns."""
    return [path for pattern in patterns for path in folder.glob(pattern)]


def last_checkpoint(run: str | Path) -> Path | None:
    """Return the newest checkpoint of a run that the run can continue from, or None."""
    for folder in reversed(checkpoints(run)):
        if not missing_state(folder):
            return folder
    return None


def find_checkpoint(value: str | Path | bool | None, run: str | Path) -> str | None:
    """Return the checkpoint that `resume_from_checkpoint` names.

    Args:
        value: a folder, "last" or True for the newest complete checkpoint of the run, "auto", which allows none, or
            None to begin a run.
        run: the output folder of the run.

    Raises:
        UserError: if there is none, or a part of its state is missing or damaged.
    """
    if not value:
        return None

    if value in ("last", "auto", True):
        last = last_checkpoint(run)
        if last is not None:
            return str(last)
        if value == "auto":
            return None
        raise UserError(f"{run} holds no complete checkpoint to resume from.")

    missing = missing_state(value)
    if missing:
        raise UserError(f"{value} is not a complete checkpoint: {', '.join(missing)} is missing or damaged.")
    return str(value)


def claim_folder(args: Any, checkpoint: str | None, start: str | None = None, *, deletes: bool = True) -> None:
    """Make sure that the output folder is free for a run, or that of the run to continue.

    Args:
        args: training arguments. With `overwrite_output_dir` another run in `output_dir` is deleted.
        checkpoint: what the run continues from. It may be in the folder.
        start: the folder or name of the model that a new run starts from, which must not be deleted.
        deletes: whether to delete what may be deleted. Otherwise the folder is only checked.

    Raises:
        UserError: if the folder holds another run, or what the run starts from would be deleted.
    """
    folder = Path(args.output_dir)
    if checkpoint is not None and Path(checkpoint).resolve().parent == folder.resolve():
        return

    results = _paths(folder, *_RESULTS)
    if not args.overwrite_output_dir:
        # A kill in the first save leaves a folder that is no checkpoint.
        if results or any(is_whole(path) for path in checkpoints(folder)):
            raise UserError(
                f"{folder} holds another run. Name another folder, continue it with --resume_from_checkpoint last, or "
                "delete it with --overwrite_output_dir."
            )
        return

    paths = [*checkpoints(folder), *results]
    if paths and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        raise UserError(f"torchrun restarts this run, which would delete {folder}. Give --resume_from_checkpoint auto.")
    deleted = [path.resolve() for path in (folder, *paths)]
    if start and Path(start).resolve() in deleted:
        raise UserError(f"Training starts from {start}, which would be deleted. Name another output_dir.")

    if deletes:
        for path in paths:
            _delete(path)


def _delete(path: Path) -> None:
    """Delete a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


@contextmanager
def explained_full_disk(folder: str) -> Iterator[None]:
    """Raise an OSError that names the folder if PyTorch cannot write a file there."""
    try:
        yield
    except RuntimeError as error:
        if "inline_container" not in str(error):
            raise
        # PyTorch only says that a position is unexpected.
        raise OSError(f"{folder} cannot be written. Its disk is full.") from error
