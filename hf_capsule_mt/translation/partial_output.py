"""Translations kept beside an output file until it is whole, from which an interrupted run continues.

The input goes by windows of lines. OUT.partial has the lines of finished windows, and OUT.partial.json tells of which;
finished batches of the window after them are in journals. A report has its lines kept beside it likewise.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_capsule_mt.data.segments import text_bytes
from hf_capsule_mt.files import naming, open_to_append, read_json, replace_text, replaced_file

from .journal import Found, check_header, read_journals, remove_journals


class PartialOutput:
    """The finished windows of an output file.

    Args:
        output_file: the output file.
        report_file: a report of the translations, if there is one.
    """

    def __init__(self, output_file: Path, report_file: Path | None = None) -> None:
        self._output_file = output_file
        # By the name of what the index tells of them.
        self._files = {"bytes": output_file} | ({} if report_file is None else {"report": report_file})
        self._texts = {name: Path(f"{file}.partial") for name, file in self._files.items()}
        self._index = Path(f"{output_file}.partial.json")
        self._windows = self._kept() if self._index.is_file() else []

    def _kept(self) -> list[dict[str, Any]]:
        """Return what the index tells of finished windows: the header of each, and how long the texts are behind it."""
        windows = read_json(self._index).get("windows")
        whole = isinstance(windows, list) and all(map(_is_whole, windows))
        last = windows[-1] if whole and windows else {}
        sizes = {text: last[name] for name, text in self._texts.items() if name in last}
        # Without a text it tells nothing: the run that left it had only to delete it.
        if not all(text.is_file() for text in sizes):
            return []
        if not whole or any(text.stat().st_size < size for text, size in sizes.items()):
            raise ValueError(
                f"{self._index} is damaged, or shorter texts lie beside it; delete it and all others of its name to "
                "start afresh"
            )
        return windows

    def has(self, header: Mapping[str, Any]) -> bool:
        """Return whether a window is finished; its header says which it is, and all that its translations depend on.

        Raises:
            ValueError: if another was finished in its place.
        """
        if header["window"] >= len(self._windows):
            return False
        check_header(self._index, self._windows[header["window"]]["header"], header)
        return True

    def check_end(self, windows: int) -> None:
        """Raise a ValueError if more are finished than the `windows` of the input."""
        if len(self._windows) > windows:
            raise ValueError(
                f"{self._index} is from an interrupted run with a longer input: it finished {len(self._windows)} "
                f"windows, and now there are {windows}; repeat that run to finish it, or delete it and all others of "
                "its name to start afresh"
            )

    def unfinished(self, header: Mapping[str, Any]) -> dict[int, Found]:
        """Return the translations of a window that is not finished, by index; see [`read_journals`]."""
        return read_journals(self._output_file, header)

    def append(self, header: Mapping[str, Any], lines: Sequence[str], report: Sequence[str] = ()) -> None:
        """Keep the translations of the next window, and the lines of its report, and forget its journals.

        Raises:
            OSError: if they cannot be written; the message names the file.
        """
        sizes = {}
        for (name, path), new in zip(self._texts.items(), (lines, report)):
            text = text_bytes(new, self._files[name])
            sizes[name] = self._size(name) + len(text)
            with open_to_append(path) as file:
                # What an interrupted run wrote without having told of it.
                file.truncate(self._size(name))
                file.write(text)
                file.flush()
                with naming(path):
                    os.fsync(file.fileno())
        self._windows.append({"header": dict(header), **sizes})
        replace_text(self._index, json.dumps({"windows": self._windows}))
        remove_journals(self._output_file)

    def _size(self, name: str) -> int:
        return self._windows[-1].get(name, 0) if self._windows else 0

    def finish(self) -> None:
        """Make the files of the finished windows, compressed if their names end in .gz."""
        for name, partial in self._texts.items():
            with open_to_append(partial) as file:
                file.truncate(self._size(name))
        # What may lack room comes first: where one of them is missing, the others count for nothing.
        compressed = [name for name, whole in self._files.items() if whole.suffix == ".gz"]
        for name in compressed:
            with open(self._texts[name], "rb") as text, replaced_file(self._files[name]) as file:
                shutil.copyfileobj(text, file)
        for name in reversed(self._files):
            if name in compressed:
                self._texts[name].unlink()
            else:
                os.replace(self._texts[name], self._files[name])
        self._index.unlink(missing_ok=True)
        remove_journals(self._output_file)


def _is_whole(window: Any) -> bool:
    if not isinstance(window, dict) or not isinstance(window.get("header"), dict):
        return False
    return all(isinstance(size, int) for size in (window.get("bytes"), window.get("report", 0)))
