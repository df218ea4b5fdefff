"""Finished translations in a folder next to an output file, so that an interrupted run can continue."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from hf_capsule_mt.data.lines import text_bytes
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import LOCK, naming, read_json, replace_text, replaced_file


def folder_beside(output: Path) -> Path:
    """Return the folder for the unfinished parts of an output."""
    return Path(f"{output}.unfinished")


class PartialOutput:
    """The finished lines of an output and of its report. The folder next to the output exists, and is locked.

    The file state.json has the number of finished input lines, their hash, and the sizes of both files. `settings` has
    everything that translations depend on.

    Raises:
        UserError: if the folder is of a run with other settings.
        FileExistsError: if the folder holds something else.
    """

    def __init__(self, output: Path, settings: Mapping[str, Any], report: Path | None = None) -> None:
        self._folder = folder_beside(output)
        self._state_file = self._folder / "state.json"
        files = {"lines": output} if report is None else {"lines": output, "report": report}
        self._files = {name: (self._folder / name, file) for name, file in files.items()}
        self._hash = hashlib.sha256()
        new = {"settings": dict(settings), "input_lines": 0, "input": "", "code": None, **dict.fromkeys(files, 0)}
        self._state = new
        if self._state_file.is_file():
            found = read_json(self._state_file)
            before = found.get("settings", {})
            if names := sorted(name for name in {*before, *settings} if before.get(name) != settings.get(name)):
                raise UserError(
                    f"{self._folder} is of an interrupted run with another {', '.join(names)}. Repeat that run, or "
                    "delete the folder to start again."
                )
            # A run that was killed while it finished has moved some of them.
            if all(path.is_file() and path.stat().st_size >= found[name] for name, (path, _) in self._files.items()):
                self._state = found
        # A run that was killed before it wrote its state has left its other files.
        elif any(path.name not in (LOCK, *files) and path.name[0] != "." for path in self._folder.iterdir()):
            raise FileExistsError(f"{self._folder} holds other files. Name another output, or move them.")

    @property
    def code(self) -> str | None:
        """The code of a language that the last text had."""
        return self._state["code"]

    def skip(self, lines: Iterator[str]) -> int:
        """Pass the lines of the input that are done, and return how many they are.

        Raises:
            UserError: if they are not those that were translated.
        """
        done = self._state["input_lines"]
        self._add(islice(lines, done))
        if done and self._hash.hexdigest() != self._state["input"]:
            raise UserError(
                f"{self._folder} is of an interrupted run with another input. Repeat that run, or delete the folder to "
                "start again."
            )
        return done

    def append(self, source: Sequence[str], lines: Sequence[str], report: Sequence[str], code: str) -> None:
        """Keep the lines, and the lines of the report, for the next lines of the `source`.

        Args:
            source: the lines of the input that were translated.
            lines: their translations.
            report: lines of the report, if there is one.
            code: the code of the language of the last text.

        Raises:
            UserError: if another process has removed or shortened what was kept.
        """
        self._check_kept()
        for (name, (path, _)), new in zip(self._files.items(), (lines, report)):
            text = text_bytes(new)
            with naming(path), open(path, "ab") as kept:
                # A killed run may have written more than its state says.
                kept.truncate(self._state[name])
                kept.write(text)
                kept.flush()
                os.fsync(kept.fileno())
            self._state[name] += len(text)
        self._add(source)
        self._state["input_lines"] += len(source)
        self._state["input"] = self._hash.hexdigest()
        self._state["code"] = code
        replace_text(self._state_file, json.dumps(self._state))

    def _check_kept(self) -> None:
        for name, (path, _) in self._files.items():
            size = path.stat().st_size if path.is_file() else 0
            # Truncating a file that is too short would fill it with zeros.
            if size < self._state[name] or not self._folder.is_dir():
                raise UserError(
                    f"{self._folder} was changed by another process, so translations are lost. Make sure that only "
                    "one process writes this output, and start again."
                )

    def finish(self) -> None:
        """Write the whole files, compressed if their names end in .gz, and delete the rest."""
        if self._state["input_lines"]:
            self._check_kept()
        for name, (path, file) in self._files.items():
            with open(path, "ab") as kept:
                kept.truncate(self._state[name])
            with open(path, "rb") as text, replaced_file(file) as whole:
                shutil.copyfileobj(text, whole)
        for path in (self._state_file, *(path for path, _ in self._files.values())):
            path.unlink(missing_ok=True)

    def _add(self, lines: Iterator[str] | Sequence[str]) -> None:
        for line in lines:
            self._hash.update(f"{line}\n".encode(errors="surrogatepass"))
