"""Errors in saving a checkpoint, explained, and no part of one left."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import extract_tb

from safetensors import SafetensorError
from torch import serialization
from transformers.utils import CONFIG_NAME

from hf_capsule_mt.trainer_state import TRAINER_STATE, step_of


@contextmanager
def explained_saving(folder: Path, remedy: str = "make room", *, name: Path | None = None) -> Iterator[None]:
    """Name the folder in errors that a full or failing disk raises while a checkpoint or a model is saved there.

    What was written of a checkpoint is removed, or of the weights of a model.

    Args:
        folder: where it is saved.
        remedy: the end of the error.
        name: what a temporary folder becomes, to be named in its place.

    Raises:
        OSError: if it cannot be saved.
    """
    before = _kept(folder)
    try:
        yield
    except _Unsaved:
        raise
    except (OSError, SafetensorError, RuntimeError) as error:
        # PyTorch's writer has no class of its own for its errors; and after the state nothing is saved.
        is_of_writer = any(frame.filename == serialization.__file__ for frame in extract_tb(error.__traceback__))
        is_whole = step_of(folder) is not None and (folder / TRAINER_STATE).is_file()
        if (isinstance(error, RuntimeError) and not is_of_writer) or is_whole:
            raise
        _remove_parts(folder, before)
        reason = str(error).partition("\n")[0]
        raise _Unsaved(f"{name or folder} cannot be saved: {reason} ({_free(folder)}); {remedy}") from error


def begin_saving(folder: Path) -> None:
    """Take the state away that says that a checkpoint was saved to its end, if one is to be overwritten.

    That of a run's own folder is its history, and stays.
    """
    if step_of(folder) is not None:
        (folder / TRAINER_STATE).unlink(missing_ok=True)


def _remove_parts(folder: Path, before: Mapping[Path, object]) -> None:
    """Remove a checkpoint that was not saved to its end, or weights that were not there before, or had another
    configuration.
    """
    if step_of(folder) is not None:
        shutil.rmtree(folder, ignore_errors=True)
    after = _kept(folder)
    is_same = after.pop(folder / CONFIG_NAME, None) == before.get(folder / CONFIG_NAME)
    for file, found in after.items():
        if not is_same or found != before.get(file):
            file.unlink(missing_ok=True)


def _kept(folder: Path) -> dict[Path, object]:
    """Return what tells a model's configuration, and each file of its weights, from another in its place."""
    config = folder / CONFIG_NAME
    found: dict[Path, object] = {config: config.read_bytes()} if config.is_file() else {}
    for file in folder.glob("model*.safetensors*"):
        with suppress(FileNotFoundError):
            state = file.lstat()
            found[file] = state.st_ino, state.st_mtime_ns
    return found


class _Unsaved(OSError):
    """An error that is explained."""


def _free(folder: Path) -> str:
    nearest = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return f"{shutil.disk_usage(nearest).free // 2**20} MiB are free"
