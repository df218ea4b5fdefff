"""Finished batches of a window of lines beside an output file, from which an interrupted run continues.

Process r appends to `OUT.partial.r.jsonl`. Each run begins with a line, the header, that says which window it
translates and how; then comes a line for every batch. A run without a finished batch leaves nothing.
"""

import glob
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from hf_capsule_mt.files import open_to_append, parse_json

Found: TypeAlias = dict[str, Any]
"""A translation as its `text`, and what a report says of it."""


class Journal:
    """Appends one process's translations, a batch at a time; an OSError that it raises names the journal."""

    def __init__(self, output_file: Path, process: int, header: Mapping[str, Any]) -> None:
        self._path = Path(f"{output_file}.partial.{process}.jsonl")
        self._file = open_to_append(self._path)
        self._header: Mapping[str, Any] | None = header

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()
        if self._path.is_file() and self._path.stat().st_size == 0:
            self._path.unlink()

    def append(self, translations: Mapping[int, Found]) -> None:
        """Keep a batch's translations by index."""
        if self._header is not None:
            # An interrupted run may have left half a line.
            self._file.write(b"\n")
            self._append({"header": self._header})
            self._header = None
        self._append(translations)

    def _append(self, entry: Mapping) -> None:
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()


def read_journals(output_file: Path, header: Mapping[str, Any]) -> dict[int, Found]:
    """The translations, by index, that interrupted runs left beside `output_file` of the window of `header`.

    Raises:
        ValueError: if one of these runs had another header, but for the window.
    """
    translations = {}
    for journal in _journals(output_file):
        # Of batches before the first header that can be read, nobody knows how they were made.
        is_known = False
        for entry in map(_parse, journal.read_text(encoding="utf-8", errors="replace").split("\n")):
            if "header" in entry:
                is_known = entry["header"].get("window") == header.get("window")
                # Of another window all must be the same but its text.
                of_window = () if is_known else ("window", "input")
                expected = {name: value for name, value in header.items() if name not in of_window}
                check_header(journal, entry["header"], expected)
            elif is_known:
                translations.update({int(index): found for index, found in entry.items()})
    return translations


def remove_journals(output_file: Path) -> None:
    """Delete the journals of a finished output."""
    for journal in _journals(output_file):
        journal.unlink()


def _journals(output_file: Path) -> list[Path]:
    return sorted(output_file.parent.glob(f"{glob.escape(output_file.name)}.partial.*.jsonl"))


def _parse(line: str) -> dict:
    """Return a header or a batch; an empty batch, which is translated again, of half a line or a damaged one."""
    try:
        entry = parse_json(line)
    except ValueError:
        return {}
    if not isinstance(entry, dict) or "\ufffd" in line:
        return {}
    if isinstance(entry.get("header"), dict):
        return entry
    return entry if all(index.isdecimal() and _is_found(found) for index, found in entry.items()) else {}


def _is_found(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("text"), str)


def check_header(file: Path, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise a ValueError, about the file that an interrupted run left, unless its header is the expected one."""
    # A setting that one of them lacks is another one; the two that tell the window are compared if they are expected.
    names = [*expected, *(name for name in found if name not in {*expected, "window", "input"})]
    different = [name for name in names if found.get(name) != expected.get(name)]
    if different:
        raise ValueError(
            f"{file} is from an interrupted run with another {', '.join(different)}; repeat that run to finish it, "
            "or delete it and all others of its name to start afresh"
        )
