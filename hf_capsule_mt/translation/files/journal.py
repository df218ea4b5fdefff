"""What is finished of one output, with which settings and of which input: so that an interrupted run continues.

A folder keeps the finished parts, and the file state.json in it has the settings, the number of finished items of the
input, their hash, the code of the language of the last text, and the sizes of all files. A killed run may have written
more than its state says, which the next one cuts off.
"""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import LOCK, locked, naming, read_json, replace_text, replaced_file

from ..generation.model_options import changed_settings

_STATE = "state.json"
RECORD = "record.json"
"""Where the record of a whole output waits."""
_NAMES = ("lines", "report", "alignments", RECORD)
"""The files that a run may keep. One that an interrupted run has left need not be a file of the next one."""
_WHOLE = "whole"
"""How the name of the whole output begins, before it has its place."""


def folder_beside(output: Path) -> Path:
    """Return the folder for the unfinished parts of an output."""
    return Path(f"{output}.unfinished")


def kept_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of an interrupted run, or none.

    Raises:
        UserError: if its state is damaged.
    """
    state_file = folder / _STATE
    if state_file.is_file():
        return _read_state(state_file)["settings"]
    return {}


def _read_state(path: Path, names: Iterable[str] = ()) -> dict[str, Any]:
    """Return what state.json says of an interrupted run, with the sizes of the files `names`.

    Raises:
        UserError: if it is damaged.
    """
    state = {**dict.fromkeys(names, 0), "counts": {}, "seconds": 0.0, **read_json(path)}
    numbers = [state.get("input_lines"), *(state[name] for name in names)]
    are_numbers = all(isinstance(number, int) and number >= 0 for number in numbers)
    if not isinstance(state.get("settings"), dict) or not are_numbers:
        raise UserError(f"{path} is damaged. Delete its folder to start again.")
    return state


class Journal:
    """The finished parts of an output, and of what is written with it. Its folder exists, and is locked.

    Args:
        folder: keeps the parts.
        settings: everything that translations depend on.
        names: the files that are kept, "lines" first.

    Raises:
        UserError: if the folder is of a run with other settings.
        FileExistsError: if the folder holds something else.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], names: Iterable[str] = ("lines",)) -> None:
        self.folder = folder
        self._state_file = folder / _STATE
        self._names = tuple(names)
        self._hash = hashlib.sha256()
        self._state = {
            "settings": dict(settings),
            "input_lines": 0,
            "counts": {},
            "seconds": 0.0,
            **dict.fromkeys(self._names, 0),
        }
        if self._state_file.is_file():
            state = _read_state(self._state_file, self._names)
            self._check_settings(state["settings"], settings)
            # A run that was killed while it finished has moved some of the files, and all is translated again.
            if all(self._size(name) >= state[name] for name in self._names):
                self._state = state
        else:
            self._check_no_other_files()

    @classmethod
    @contextmanager
    def held(cls, folder: Path, settings: Mapping[str, Any], names: Iterable[str] = ("lines",)) -> Iterator["Journal"]:
        """Yield the journal of a folder, which is locked, and removed at the end if it is empty.

        Raises:
            BlockingIOError: if another process writes the output.
            UserError: as the journal does.
        """
        with locked(folder):
            yield cls(folder, settings, names)
        with suppress(OSError):
            folder.rmdir()

    def _check_settings(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        changed = changed_settings(before, now)
        if changed:
            raise UserError(
                f"{self.folder} is of an interrupted run with another {', '.join(changed)}. Repeat that run, or "
                "delete the folder to start again."
            )

    def _check_no_other_files(self) -> None:
        for path in self.folder.iterdir():
            # A run that was killed before it wrote its state has left its files.
            if path.name != LOCK and not _is_ours(path):
                raise FileExistsError(f"{self.folder} holds other files. Name another output, or move them.")

    def _size(self, name: str) -> int:
        """Return the bytes of a kept file, or -1 if it is not there."""
        path = self.folder / name
        if path.is_file():
            return path.stat().st_size
        return -1

    @property
    def code(self) -> str | None:
        """The code of a language that the last text had."""
        return self._state.get("code")

    @property
    def items(self) -> int:
        """How many items of the input are finished."""
        return self._state["input_lines"]

    @property
    def counts(self) -> dict[str, int]:
        """The sums of the numbers that were kept."""
        return self._state["counts"]

    @property
    def seconds(self) -> float:
        """How long the finished parts took, also those of earlier runs."""
        return self._state["seconds"]

    def pass_finished(self, hashed: Iterable[str]) -> None:
        """Check that what is finished is the beginning of the input.

        Args:
            hashed: the lines that were hashed of it, when it was appended.

        Raises:
            UserError: if it is another input.
        """
        self._add_to_hash(hashed)
        if self.items and self._hash.hexdigest() != self._state.get("input"):
            raise UserError(
                f"{self.folder} is of an interrupted run with another input. Repeat that run, or delete the folder to "
                "start again."
            )

    def append(
        self,
        items: int,
        hashed: Iterable[str],
        parts: Mapping[str, bytes],
        code: str = "",
        counts: Mapping[str, int] | None = None,
        seconds: float = 0.0,
    ) -> None:
        """Keep a finished part.

        Args:
            items: the number of items of the input that it is of.
            hashed: what tells these items from others.
            parts: what each file gets, by its name.
            code: the code of the language of the last text.
            counts: numbers that are summed.
            seconds: how long it took.

        Raises:
            UserError: if another process has removed or shortened what was kept.
        """
        self._check_kept()
        for name in self._names:
            self._append(name, parts[name])

        self._add_to_hash(hashed)
        state = self._state
        state["input_lines"] += items
        state["input"] = self._hash.hexdigest()
        state["code"] = code
        state["seconds"] += seconds
        for name, number in (counts or {}).items():
            state["counts"][name] = state["counts"].get(name, 0) + number
        replace_text(self._state_file, json.dumps(state))

    def _append(self, name: str, part: bytes) -> None:
        path = self.folder / name
        with naming(path), open(path, "ab") as kept:
            # A killed run may have written more than its state says.
            kept.truncate(self._state[name])
            kept.write(part)
            kept.flush()
            # Otherwise the state could be on the disk before the parts are, when the power fails.
            os.fsync(kept.fileno())
        self._state[name] += len(part)

    def _check_kept(self) -> None:
        for name in self._names:
            # Truncating a file that is too short would fill it with zeros.
            if max(self._size(name), 0) < self._state[name] or not self.folder.is_dir():
                raise UserError(
                    f"{self.folder} was changed by another process, so translations are lost. Make sure that only "
                    "one process writes this output, and start again."
                )

    def write(self, name: str, output: Path) -> None:
        """Write what was kept in a file as a whole one, compressed if its name ends in .gz or .zst."""
        with self.opened(name) as kept, replaced_file(output) as whole:
            shutil.copyfileobj(kept, whole)

    @contextmanager
    def opened(self, name: str = "lines") -> Iterator[BinaryIO]:
        """Yield a file of what was kept, from its beginning."""
        self._check_kept()
        with open(self.folder / name, "ab+") as kept:
            kept.truncate(self._state[name])
            kept.seek(0)
            yield kept

    def remember(self, heading: str, path: Path) -> None:
        """Write the lines that were kept behind a heading, for later runs."""
        unfinished = self.folder / f"{_WHOLE} units"
        with self.opened() as kept, open(unfinished, "wb") as whole:
            whole.write(f"{heading}\n".encode())
            shutil.copyfileobj(kept, whole)
        os.replace(unfinished, path)

    def whole_file(self, output: Path) -> Path:
        """Return where an output waits for its record. It has the ending, and so the compression, of the output."""
        return self.folder / f"{_WHOLE}{output.suffix}"

    @property
    def whole_report(self) -> Path:
        """Where a report waits for the record of its output."""
        return self.folder / f"{_WHOLE} report"

    def discard(self) -> None:
        """Delete what was kept."""
        self._state_file.unlink(missing_ok=True)
        for path in self.folder.iterdir():
            if _is_ours(path):
                path.unlink()

    def _add_to_hash(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._hash.update(f"{line}\n".encode(errors="surrogatepass"))


def _is_ours(path: Path) -> bool:
    """Return whether a run of this package may have left a file. One that is not whole begins with a dot."""
    return path.name in _NAMES or path.name.startswith((_WHOLE, "."))


class InMemory:
    """The finished parts of a small output that no folder keeps."""

    items = 0

    def __init__(self) -> None:
        self._lines = io.BytesIO()

    def append(self, items: int, hashed: Iterable[str], parts: Mapping[str, bytes], *others: Any) -> None:
        """Keep a finished part, see [`Journal.append`]."""
        self._lines.write(parts["lines"])

    @contextmanager
    def opened(self, name: str = "lines") -> Iterator[BinaryIO]:
        """Yield a file of what was kept, from its beginning."""
        self._lines.seek(0)
        yield self._lines
