"""Finished translations in a folder next to an output file, so that an interrupted run can continue."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from hf_capsule_mt.data.lines import text_bytes
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import LOCK, locked, naming, read_json, replace_text, replaced_file

from ..generation.model_options import changed_settings

_STATE = "state.json"
_NAMES = ("lines", "report", "alignments")
"""The files that a run may keep. One that an interrupted run has left need not be a file of the next one."""


def folder_beside(output: Path) -> Path:
    """Return the folder for the unfinished parts of an output."""
    return Path(f"{output}.unfinished")


@contextmanager
def held_folder(output: Path) -> Iterator[None]:
    """Hold the folder for the unfinished parts of an output, and remove it at the end if it is empty."""
    with locked(folder_beside(output)):
        yield
    with suppress(OSError):
        folder_beside(output).rmdir()


def kept_settings(output: Path) -> dict[str, Any]:
    """Return the settings of an interrupted run, or none.

    Raises:
        UserError: if its state is damaged.
    """
    state_file = folder_beside(output) / _STATE
    if state_file.is_file():
        return _read_state(state_file)["settings"]
    return {}


def _read_state(path: Path, names: Iterable[str] = ()) -> dict[str, Any]:
    """Return what state.json says of an interrupted run, with the sizes of the files `names`.

    Raises:
        UserError: if it is damaged.
    """
    state = {**dict.fromkeys(names, 0), **read_json(path)}
    numbers = [state.get("input_lines"), *(state[name] for name in names)]
    are_numbers = all(isinstance(number, int) and number >= 0 for number in numbers)
    if not isinstance(state.get("settings"), dict) or not are_numbers:
        raise UserError(f"{path} is damaged. Delete its folder to start again.")
    return state


class PartialOutput:
    """The finished lines of an output and of files that go with it. The folder next to it exists, and is locked.

    The file state.json has the settings, the number of finished input lines, their hash, the code of the language of
    the last text, and the sizes of all files.

    Args:
        output: the file that the lines become.
        settings: everything that translations depend on.
        more_files: the other files that are written with it, by their names in the folder, such as "report".

    Raises:
        UserError: if the folder is of a run with other settings.
        FileExistsError: if the folder holds something else.
    """

    def __init__(self, output: Path, settings: Mapping[str, Any], more_files: Mapping[str, Path] | None = None) -> None:
        self._folder = folder_beside(output)
        self._state_file = self._folder / _STATE
        self._outputs = {"lines": output, **(more_files or {})}
        self._hash = hashlib.sha256()
        self._state = {"settings": dict(settings), "input_lines": 0, **dict.fromkeys(self._outputs, 0)}
        if self._state_file.is_file():
            state = _read_state(self._state_file, self._outputs)
            self._check_settings(state["settings"], settings)
            # A run that was killed while it finished has moved some of the files, and all is translated again.
            if all(self._size(name) >= state[name] for name in self._outputs):
                self._state = state
        else:
            self._check_no_other_files()

    def _check_settings(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        changed = changed_settings(before, now)
        if changed:
            raise UserError(
                f"{self._folder} is of an interrupted run with another {', '.join(changed)}. Repeat that run, or "
                "delete the folder to start again."
            )

    def _check_no_other_files(self) -> None:
        for path in self._folder.iterdir():
            # A run that was killed before it wrote its state has left its files.
            is_ours = path.name in (LOCK, *_NAMES) or path.name.startswith(".")
            if not is_ours:
                raise FileExistsError(f"{self._folder} holds other files. Name another output, or move them.")

    def _size(self, name: str) -> int:
        """Return the bytes of a kept file, or -1 if it is not there."""
        path = self._folder / name
        if path.is_file():
            return path.stat().st_size
        return -1

    @property
    def code(self) -> str | None:
        """The code of a language that the last text had."""
        return self._state.get("code")

    def skip(self, lines: Iterator[str]) -> int:
        """Pass the lines of the input that are done, and return how many they are.

        Raises:
            UserError: if they are not those that were translated.
        """
        done = self._state["input_lines"]
        self._add_to_hash(islice(lines, done))
        if done and self._hash.hexdigest() != self._state.get("input"):
            raise UserError(
                f"{self._folder} is of an interrupted run with another input. Repeat that run, or delete the folder to "
                "start again."
            )
        return done

    def append(self, source: Sequence[str], lines: Mapping[str, Sequence[str]], code: str) -> None:
        """Keep the lines of all files for the next lines of the `source`.

        Args:
            source: the lines of the input that were translated.
            lines: their translations as "lines", and the lines of the other files.
            code: the code of the language of the last text.

        Raises:
            UserError: if another process has removed or shortened what was kept.
        """
        self._check_kept()
        for name in self._outputs:
            self._append(name, text_bytes(lines[name]))
        self._add_to_hash(source)
        self._state["input_lines"] += len(source)
        self._state["input"] = self._hash.hexdigest()
        self._state["code"] = code
        replace_text(self._state_file, json.dumps(self._state))

    def _append(self, name: str, text: bytes) -> None:
        path = self._folder / name
        with naming(path), open(path, "ab") as kept:
            # A killed run may have written more than its state says.
            kept.truncate(self._state[name])
            kept.write(text)
            kept.flush()
            # Otherwise the state could be on the disk before the lines are, when the power fails.
            os.fsync(kept.fileno())
        self._state[name] += len(text)

    def _check_kept(self) -> None:
        for name in self._outputs:
            # Truncating a file that is too short would fill it with zeros.
            if max(self._size(name), 0) < self._state[name] or not self._folder.is_dir():
                raise UserError(
                    f"{self._folder} was changed by another process, so translations are lost. Make sure that only "
                    "one process writes this output, and start again."
                )

    def finish(self) -> None:
        """Write the whole files, compressed if their names end in .gz or .zst, and delete the rest."""
        self._check_kept()
        for name, output in self._outputs.items():
            path = self._folder / name
            with open(path, "ab") as kept:
                kept.truncate(self._state[name])
            with open(path, "rb") as text, replaced_file(output) as whole:
                shutil.copyfileobj(text, whole)
        self.discard()

    def kept_lines(self, name: str = "lines") -> list[str]:
        """Return the finished lines of the output, or of another file that is written with it."""
        if not self._state["input_lines"]:
            return []
        self._check_kept()
        kept = (self._folder / name).read_bytes()[: self._state[name]]
        return kept.decode().splitlines()

    def discard(self) -> None:
        """Delete what was kept."""
        self._state_file.unlink(missing_ok=True)
        for name in _NAMES:
            (self._folder / name).unlink(missing_ok=True)

    def _add_to_hash(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._hash.update(f"{line}\n".encode(errors="surrogatepass"))
