"""Folders with the outputs of several files: where each output is, which are complete, and what all have in common.

The folder `.records` has a record for each complete output: its settings, the path of its input, and hashes of both.
It is written before the output gets its place. What is unfinished stands in a folder beside the record.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from hf_capsule_mt.data.lines import each_line, without_compression
from hf_capsule_mt.decoding.products.int8 import Int8Choice
from hf_capsule_mt.environment import environment
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import LOCK, hash_file, hash_text, locked, read_json, write_json

from ..formats.recognition import recognise
from ..generation.model_options import DecodingOptions, changed_settings
from .job import DOCUMENT, Job
from .journal import RECORD, Journal

RECORDS = ".records"
"""The folder of records in a folder of outputs. It is hidden, so that nobody publishes it with them."""
_OLD_RECORDS = "_records"
"""Its name in folders of earlier clones."""
_INT8_CHOICE = "int8_choice.json"
_OLD_UNFINISHED = ".unfinished"
"""The folder of unfinished parts of earlier clones, and the ending of such folders."""


@dataclass(frozen=True)
class OutputName:
    """How outputs are called: a pattern such as "{stem}.{lang}{suffix}", or "values-{lang}/{name}".

    It stands for as many of the last parts of a path as it has itself. "{name}" is the name of the input, "{stem}" what
    is in front of its endings, and "{suffix}" its endings, also those of a compression.

    Args:
        pattern: the pattern.
        lang: what "{lang}" stands for, or None.

    Raises:
        UserError: if there is another name in braces, no language, another ending, or the pattern leaves the folder.
    """

    pattern: str = "{name}"
    lang: str | None = None

    def __post_init__(self) -> None:
        try:
            example = self.of(Path("a", "b.md"))
        except (KeyError, ValueError, IndexError, AttributeError) as error:
            raise UserError(
                f"--output_name {self.pattern!r} cannot be read. Names in braces are {{name}}, {{stem}}, {{suffix}} "
                "and {lang}."
            ) from error
        if "{lang}" in self.pattern and self.lang is None:
            raise UserError(
                f"--output_name {self.pattern!r} needs --target_lang. Give it, or write the language in the name."
            )
        if example.is_absolute() or ".." in example.parts:
            raise UserError(f"--output_name {self.pattern!r} leaves the output folder. Name a path in it.")
        if example.suffix != ".md":
            raise UserError(f"--output_name {self.pattern!r} must end as the input does: with {{name}} or {{suffix}}.")

    def of(self, relative: Path) -> Path:
        """Return the path of an output, from that of its input in a folder."""
        # Of "1.2.de.md.gz" the endings are ".md.gz".
        plain = without_compression(relative)
        stem = plain.stem
        suffix = relative.name.removeprefix(stem)
        name = Path(self.pattern.format(name=relative.name, stem=stem, suffix=suffix, lang=self.lang))
        kept = relative.parts[: max(len(relative.parts) - len(name.parts), 0)]
        return Path(*kept, name)


def output_paths(paths: Sequence[Path], output_dir: Path, name: OutputName | None = None) -> dict[Path, Path]:
    """Return the output of each file: in the output folder, its path from a folder that has all files.

    This is the folder of an earlier run if it has them. Otherwise it is the nearest folder that they have in common.
    So a run over a part of the files finds their outputs where the run over all has put them.

    A file that is named twice comes once.

    Args:
        paths: the files.
        output_dir: the folder of the outputs.
        name: how outputs are called. By default as their inputs.

    Raises:
        UserError: if an output would replace one of the files or another output, a file is an output of an earlier run,
            an output would be among the records, or outputs of an earlier run would get other places.
    """
    _rename_old_records(output_dir)
    name = name or OutputName()
    # Links stay: each of two names of a file has an output.
    absolute = {_absolute(path): path for path in paths}
    base = _common_folder(absolute, output_dir, name)
    outputs: dict[Path, Path] = {}
    input_of: dict[Path, Path] = {}
    for whole_path, path in absolute.items():
        relative = name.of(whole_path.relative_to(base))
        if relative.parts[0] == RECORDS:
            raise UserError(f"{output_dir / RECORDS} is for records, so {path} cannot have its output there.")
        if Path(f"{relative}.json").parts[0] == _INT8_CHOICE:
            raise UserError(f"{path} cannot be translated into a folder, which has its own {_INT8_CHOICE}. Rename it.")
        other = input_of.setdefault(relative, path)
        if other is not path:
            raise UserError(f"{other} and {path} would both be written to {relative}. Give another --output_name.")
        outputs[path] = output_dir / relative
    replaced = {output.resolve() for output in outputs.values()}
    for path in outputs:
        if path.resolve() in replaced:
            raise UserError(f"--output_dir {output_dir} has {path}, which would be lost. Name another folder.")
        if _has_record(path, output_dir):
            raise UserError(
                f"{path} is an output in --output_dir {output_dir}. Leave it out of --input_file, or name another "
                "folder."
            )
    return outputs


def _rename_old_records(output_dir: Path) -> None:
    """Give the records of an earlier clone their place, so that finished outputs stay finished."""
    old = output_dir / _OLD_RECORDS
    new = output_dir / RECORDS
    if any(old.rglob("*.json")) and not new.exists():
        with suppress(OSError):
            # Of processes that begin together one is the first.
            old.rename(new)


def name_for_record(path: Path, output_dir: Path) -> str:
    """Return the path of an input as a record has it: from the output folder, so that both may move together."""
    return os.path.relpath(_absolute(path), output_dir.resolve())


def check_input_of(record: Mapping[str, Any], path: Path, output: Path, output_dir: Path) -> None:
    """Check that a record is not of another input that still exists. Old records do not name theirs.

    Args:
        record: the record of the output.
        path: what would be translated into the output.
        output: the output.
        output_dir: the folder of the outputs.

    Raises:
        UserError: if the output is of another file.
    """
    earlier = _input_of(record, output_dir)
    if earlier is not None and not earlier.samefile(path):
        raise UserError(
            f"{output} is the translation of {earlier}, and that of {path} would replace it. Name another folder."
        )


def _input_of(record: Mapping[str, Any], output_dir: Path) -> Path | None:
    """Return the input of a record, or None if it names none or the file is no longer there."""
    name = record.get("input")
    if not isinstance(name, str):
        return None
    path = _absolute(output_dir.resolve() / name)
    if not path.is_file():
        return None
    return path


class TranslatedFile(NamedTuple):
    """What became of a file."""

    units: int
    """How many messages, paragraphs, sentences of subtitles, lines or rows there were to translate."""
    left: Sequence[int] = ()
    """The lines, from 1, of those that stay as they are, because a translation lacks a mark or a placeholder."""
    kept: Mapping[str, list[int]] = MappingProxyType({})
    """The lines of other words that stay in the language of the file, by the reasons: values of [`Reason`]."""
    counts: Mapping[str, int] = MappingProxyType({})
    """The numbers of its sentences, see [`RowCounts`], if they were judged."""
    new: int = 0
    """How many texts were translated now, and not by an earlier run."""


@dataclass(frozen=True)
class FileOfFolder:
    """A file, its output in a folder, and where its record is.

    Args:
        path: the file.
        output: its output.
        output_dir: the folder of the outputs.
        kind: of the file.
        job: what is done with it.
    """

    path: Path
    output: Path
    output_dir: Path
    kind: str
    job: Job

    @property
    def record_file(self) -> Path:
        """Where the record is."""
        return _beside(self.output, self.output_dir, ".json")

    @property
    def report_file(self) -> Path:
        """Where its part of the report is."""
        return report_beside(self.output, self.output_dir)

    @property
    def units_file(self) -> Path:
        """Where the translations of the texts of a document are, for a later run."""
        return _beside(self.output, self.output_dir, ".units.jsonl")

    @property
    def unfinished(self) -> Path:
        """The folder for what is not complete."""
        return _beside(self.output, self.output_dir, ".unfinished")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Everything that the translations depend on, except the file."""
        settings = self.job.settings(self.kind)
        if self.kind == DOCUMENT:
            file_format = recognise(self.path, self.job.format, tags=self.job.tags)
            has_fuzzy = file_format is not None and file_format.has_fuzzy
            settings["format"] = "text" if file_format is None else file_format.name
            settings["fuzzy"] = self.job.fuzzy and has_fuzzy
        return settings

    @contextmanager
    def held(self) -> Iterator[Journal]:
        """Yield the journal of the output.

        Raises:
            BlockingIOError: if another process translates the file.
            UserError: if what is unfinished is of another input, or of other settings.
        """
        old = (self.output_dir / _OLD_UNFINISHED, Path(f"{self.output}{_OLD_UNFINISHED}"))
        for folder in filter(Path.exists, old):
            raise UserError(f"{folder} is of an interrupted run of an earlier version. Delete it to start again.")
        names = ["lines"]
        if self.job.report_file is not None and self.kind != DOCUMENT:
            names.append("report")
        # Two runs over other files would otherwise take each other's parts.
        settings = {**self.settings, "input": name_for_record(self.path, self.output_dir)}
        self.output.parent.mkdir(parents=True, exist_ok=True)
        self.unfinished.parent.mkdir(parents=True, exist_ok=True)
        with Journal.held(self.unfinished, settings, names) as journal:
            yield journal

    def complete(self) -> TranslatedFile | None:
        """Return what became of a file if an earlier run has translated it as it is now, or None.

        Raises:
            UserError: if the output is of another file, nobody knows of what it is, or it would be lost.
        """
        if self.unfinished.exists():
            self._complete_move()
        if not self.output.exists():
            return None
        if not self.record_file.is_file():
            raise UserError(
                f"{self.output} is there, and has no record that this command wrote it. Move it, or name another "
                "folder."
            )
        record = read_json(self.record_file)
        check_input_of(record, self.path, self.output, self.output_dir)
        changed = changed_settings(record["settings"], self.settings)
        if record["input_sha256"] != hash_file(self.path):
            changed.append(str(self.path))
        was_reported = record.get("report") and self.report_file.is_file()
        if self.job.report_file is not None and not was_reported:
            changed.append("report")
        if not changed:
            return _translated_file(record)
        self._check_replaceable(record, changed)
        return None

    @property
    def heading(self) -> str:
        """The first line of the file of units: what all its translations depend on.

        Which terms of a glossary a text has is kept with the text.
        """
        settings = {name: value for name, value in self.settings.items() if name != "glossary"}
        return hash_text([json.dumps(settings, sort_keys=True, default=str)])

    def known_lines(self) -> list[str]:
        """Return what an earlier run with the same settings has translated of a document, a line for each text."""
        if self.kind != DOCUMENT or not self.units_file.is_file():
            return []
        heading, *lines = each_line(self.units_file)
        return lines if heading == self.heading else []

    def _check_replaceable(self, record: Mapping[str, Any], changed: Sequence[str]) -> None:
        """Raise a UserError if an output must not be written again."""
        names = ", ".join(changed)
        if self.kind != DOCUMENT:
            raise UserError(
                f"{self.output} was translated with another {names}. It may have taken long, so it is not replaced. "
                "Delete it to translate the file again, or name another folder."
            )
        if record["output_sha256"] != hash_file(self.output):
            raise UserError(
                f"{self.output} was changed after it was translated, and now {names} is another. Move it to have it "
                "translated again."
            )

    def _complete_move(self) -> None:
        """Give an output its place if a run was killed between its record and its move."""
        with locked(self.unfinished):
            for whole in self.unfinished.glob(f"whole{self.output.suffix}"):
                is_recorded = self.record_file.is_file() and _hash_in(self.record_file) == hash_file(whole)
                if is_recorded:
                    os.replace(whole, self.output)
                    _empty(self.unfinished)
            is_moved = self.output.exists() and self.record_file.is_file()
            if is_moved and _hash_in(self.record_file) == hash_file(self.output):
                _empty(self.unfinished)
        with suppress(OSError):
            self.unfinished.rmdir()

    def finish(self, whole: Path, translated: TranslatedFile, input_sha256: str, seconds: float) -> None:
        """Write the record of a whole output, and move the output to its place.

        Args:
            whole: the output.
            translated: what became of the file.
            input_sha256: the hash of the file when it was read.
            seconds: how long it took.
        """
        record = {
            "units": translated.units,
            "left": list(translated.left),
            "kept": dict(translated.kept),
            "counts": dict(translated.counts),
            "seconds": round(seconds, 1),
            "words_per_second": round(translated.counts.get("words", 0) / max(seconds, 1e-9), 1),
            "input": name_for_record(self.path, self.output_dir),
            "input_bytes": self.path.stat().st_size,
            "input_sha256": input_sha256,
            "output_sha256": hash_file(whole),
            "settings": self.settings,
            "report": self.job.report_file is not None,
            "environment": environment(),
        }
        if self.output.exists():
            shutil.copymode(self.output, whole)
        unfinished_record = whole.with_name(RECORD)
        write_json(unfinished_record, record)
        os.replace(unfinished_record, self.record_file)
        os.replace(whole, self.output)


def report_beside(output: Path, output_dir: Path) -> Path:
    """Return where the part of the report is that is of an output."""
    return _beside(output, output_dir, ".report.jsonl")


def _beside(output: Path, output_dir: Path, ending: str) -> Path:
    relative = output.relative_to(output_dir)
    return output_dir / RECORDS / f"{relative}{ending}"


def _translated_file(record: Mapping[str, Any]) -> TranslatedFile:
    """Return what became of a file, from its record. Those of earlier clones name rows, or have no counts."""
    units = record.get("units", record.get("rows", 0))
    return TranslatedFile(units, record.get("left", []), record.get("kept", {}), record.get("counts", {}))


def _hash_in(record_file: Path) -> str | None:
    return read_json(record_file).get("output_sha256")


def _empty(folder: Path) -> None:
    """Remove the files of a folder that nobody needs, but for its lock."""
    for path in folder.iterdir():
        if path.name != LOCK:
            path.unlink()


def share_of(outputs: Mapping[Path, Path], number: int, count: int) -> dict[Path, Path]:
    """Return share `number`, from 1 to `count`, of files and their outputs: every `count`-th by the output's name."""
    by_output = sorted(outputs, key=outputs.__getitem__)
    return {path: outputs[path] for path in by_output[number - 1 :: count]}


def _absolute(path: Path) -> Path:
    """Return the absolute path of a file without `..`. Only links in front of `..` are followed."""
    path = Path.cwd() / path
    absolute = Path(path.anchor)
    for part in path.parts[1:]:
        if part != "..":
            absolute /= part
        elif absolute.is_symlink():
            # The folder above it is not the one in front of it.
            absolute = absolute.resolve().parent
        else:
            absolute = absolute.parent
    return absolute


def _common_folder(paths: Iterable[Path], output_dir: Path, name: OutputName) -> Path:
    """Return the folder from which outputs have their paths.

    Raises:
        UserError: if outputs of an earlier run would get other places.
    """
    common = Path(os.path.commonpath([path.parent for path in paths]))
    earlier_folders = _earlier_folders(output_dir, name)
    for earlier in sorted(earlier_folders):
        if common.is_relative_to(earlier):
            return earlier
    for earlier in sorted(earlier_folders):
        if earlier.is_relative_to(common):
            raise UserError(
                f"--output_dir {output_dir} has the files of {earlier}. With files of {common} they would get other "
                "places. Name another folder."
            )
    return common


def _earlier_folders(output_dir: Path, name: OutputName) -> set[Path]:
    """Return the folders from which outputs of earlier runs have their paths, while inputs and outputs are there."""
    folders = set()
    records = output_dir / RECORDS
    for record_file in records.rglob("*.json"):
        relative = record_file.relative_to(records).with_suffix("")
        if not (output_dir / relative).is_file():
            continue
        # What is wrong with a record is said with its file.
        with suppress(UserError, OSError):
            path = _input_of(read_json(record_file), output_dir)
            if path is not None:
                folders.update(folder for folder in path.parents if name.of(path.relative_to(folder)) == relative)
    return folders


def _has_record(path: Path, output_dir: Path) -> bool:
    """Return whether a file is an output of an earlier run."""
    path = path.resolve()
    output_dir = output_dir.resolve()
    if not path.is_relative_to(output_dir):
        return False
    return (output_dir / RECORDS / f"{path.relative_to(output_dir)}.json").is_file()


def with_common_int8(decoding: DecodingOptions, output_dir: Path) -> DecodingOptions:
    """Return options that compute int8 as all other processes do that write, or wrote, into the folder."""
    if decoding.int8_choice is None:
        return decoding
    path = output_dir / RECORDS / _INT8_CHOICE
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            own_choice = Path(folder, path.name)
            write_json(own_choice, decoding.int8_choice)
            # Of processes that begin together the first one chooses. A file that is replaced would be the last one's.
            with suppress(FileExistsError):
                path.hardlink_to(own_choice)
    return replace(decoding, int8_choice=Int8Choice(**read_json(path)))
