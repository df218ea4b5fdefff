"""The files and folders that a command writes."""

import os
from collections.abc import Iterable
from pathlib import Path

from hf_capsule_mt.data.pair_files import is_only_read
from hf_capsule_mt.files import check_empty


def check_output_file(path: Path | None) -> None:
    """Raise an OSError if no file can be written at `path`, before the work that fills it, a ValueError if none of its
    format can; None stands for no file.
    """
    if path is None:
        return
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file")
    if path.exists() and (not path.is_file() or {Path("/dev"), Path("/proc")} & {*path.absolute().parents}):
        raise OSError(
            f"{path} is a device or a pipe, which a file would replace; name a file, or leave the option out and let "
            "the shell lead what is printed there"
        )
    if is_only_read(path):
        raise ValueError(f"{path}: of compressed files only .gz are written; name it so, or without that ending")
    _check_beside(path)


def _check_beside(path: Path) -> None:
    """Raise an OSError if nothing can be made in the folder of `path`."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder of {path} does not exist; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be written, for its folder is read-only; name another")


def check_distinct(outputs: Iterable[tuple[str, Path | None]], inputs: Iterable[Path | None]) -> None:
    """Raise a ValueError if an output file, which comes with its option, is an input or another output by whatever
    name; None stands for no file.
    """
    taken = {path.resolve() for path in inputs if path is not None}
    for option, path in outputs:
        if path is not None:
            if path.resolve() in taken:
                raise ValueError(
                    f"{option} names {path}, which is another file of this command, and would be lost; name another"
                )
            taken.add(path.resolve())


def check_output_folder(path: Path, option: str = "--output_dir") -> None:
    """Raise an OSError if `path` is no folder that can be written, nor can become one with those above it."""
    nearest = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(f"{option} is {path}, but {nearest} is a file; name a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"{option} is {path}, but {nearest} is read-only; name another folder")


def check_new_folder(path: Path) -> None:
    """Raise an OSError if no folder can be made at `path`, or one is there with files in it, or that must stay."""
    check_empty(path)
    check_replaceable(path)
    _check_beside(path)


def check_replaceable(path: Path) -> None:
    """Raise an OSError if a folder is at `path` that a whole one, made beside it, cannot replace."""
    if path.is_symlink() or os.path.ismount(path) or path.resolve() == Path.cwd():
        raise FileExistsError(f"{path} is there and cannot be replaced; name a folder in it, such as {path / 'new'}")
    if path.is_dir():
        _check_beside(path)
