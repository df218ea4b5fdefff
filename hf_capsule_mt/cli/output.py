"""The files and folders that a command writes."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hf_capsule_mt.files import replace_text
from hf_capsule_mt.json_fields import encode


def check_output_file(path: Path) -> None:
    """Raise an OSError if a file cannot be written at `path`, before the work that would fill it is done."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder of {path} does not exist; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{path} cannot be written, for its folder is read-only; name another")


def check_output_folder(path: Path, option: str = "--output_dir") -> None:
    """Raise an OSError if `path` is no folder that can be written, nor can become one with those above it."""
    nearest = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    if not nearest.is_dir():
        raise NotADirectoryError(f"{option} is {path}, but {nearest} is a file; name a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"{option} is {path}, but {nearest} is read-only; name another folder")


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write `record` as JSON, whole or not at all; what JSON does not know, such as a path, becomes text."""
    replace_text(path, json.dumps(encode(record), indent=2, ensure_ascii=False, default=str) + "\n")


def check_new_folder(path: Path) -> None:
    """Raise an OSError if no folder can be made at `path`, or one with files in it is there."""
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise FileExistsError(f"{path} is there and not empty; name another folder")
    if not path.is_dir():
        check_output_file(path)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder that is found at `path` after the block, or nowhere if the block does not end."""
    import tempfile

    with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=f".{path.name}.") as temporary:
        folder = Path(temporary, "report")
        folder.mkdir()
        yield folder
        folder.replace(path)
