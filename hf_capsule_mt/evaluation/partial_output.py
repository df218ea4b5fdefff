"""Translations kept beside an output file until it is whole, from which an interrupted run continues.

The input goes by windows of lines. OUT.partial has the lines of finished windows, and OUT.partial.json tells of which;
finished batches of the window after them are in journals.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_capsule_mt.data.segments import text_bytes
from hf_capsule_mt.files import open_to_append, read_json, replace_text, replaced_file

from .journal import check_header, read_journals, remove_journals


class PartialOutput:
    """The finished windows of an output file.

    Args:
        output_file: the output file.
    """

    def __init__(self, output_file: Path) -> None:
        self._output_file = output_file
        self._text = Path(f"{output_file}.partial")
        self._index = Path(f"{output_file}.partial.json")
        # Without the text an index tells nothing: the run that left it had only to delete it.
        found = self._text.is_file() and self._index.is_file()
        self._windows: list[dict[str, Any]] = read_json(self._index)["windows"] if found else []

    def has(self, header: Mapping[str, Any]) -> bool:
        """Return whether a window is finished; its header says which it is, and all that its translations depend on.

        Raises:
            ValueError: if another was finished in its place.
        """
        if header["window"] >= len(self._windows):
            return False
        check_header(self._index, self._windows[header["window"]]["header"], header)
        return True

    def unfinished(self, header: Mapping[str, Any]) -> dict[int, str]:
        """Return the translations of a window that is not finished, by index; see [`read_journals`]."""
        return read_journals(self._output_file, header)

    def append(self, header: Mapping[str, Any], lines: Sequence[str]) -> None:
        """Keep the translations of the next window, and forget its journals."""
        size = self._windows[-1]["bytes"] if self._windows else 0
        text = text_bytes(lines, self._output_file)
        with open_to_append(self._text) as file:
            # What an interrupted run wrote without having told of it.
            file.truncate(size)
            file.buffer.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._windows.append({"header": dict(header), "bytes": size + len(text)})
        replace_text(self._index, json.dumps({"windows": self._windows}))
        remove_journals(self._output_file)

    def finish(self) -> None:
        """Make the output file of the finished windows, compressed if its name ends in .gz."""
        size = self._windows[-1]["bytes"] if self._windows else 0
        with open_to_append(self._text) as file:
            file.truncate(size)
        if self._output_file.suffix == ".gz":
            with open(self._text, "rb") as text, replaced_file(self._output_file) as file:
                shutil.copyfileobj(text, file)
            self._text.unlink()
        else:
            os.replace(self._text, self._output_file)
        self._index.unlink(missing_ok=True)
        remove_journals(self._output_file)
