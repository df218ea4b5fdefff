"""The files that a command reads and writes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_capsule_mt.files import replace_text


def check_output_file(path: Path) -> None:
    """Raise an OSError if a file cannot be written at `path`, before the work that would fill it is done."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"the folder of {path} does not exist; create it first")


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write `record` as JSON, whole or not at all; what JSON does not know, such as a path, becomes text."""
    replace_text(path, json.dumps(record, indent=2, ensure_ascii=False, default=str) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds no JSON object.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file")
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} holds no JSON: {error}") from error
    if not isinstance(record, dict):
        raise ValueError(f"{path} holds no JSON object")
    return record
