"""Translate many files into a folder, each by its own format. A file that is complete is not translated again.

The folder `.records` has a record for each complete file: its settings, the path of its input, and hashes of input and
output.
"""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hf_capsule_mt.data.lines import without_compression
from hf_capsule_mt.data.row_formats import has_columns
from hf_capsule_mt.environment import environment
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_file, read_json, replaced_file, write_json

from ..formats.base import FileFormat
from ..formats.recognition import LINES, recognise
from ..generation.model_options import changed_settings
from ..terms.glossary import Glossary
from ..text.segments import check_language
from ..text_translator import TextTranslator
from .output_folders import RECORDS, check_input_of, name_for_record
from .whole import TEXT, TranslatedFile, check_package, checked_direction, number_of_units, translate_file

_WRITTEN = (".gz", ".zst")


@dataclass
class Outcome:
    """What became of many files."""

    files: dict[Path, TranslatedFile] = field(default_factory=dict)
    """The files that are complete now, also those that were before."""
    num_complete_before: int = 0
    """How many of them an earlier run has translated."""
    errors: list[str] = field(default_factory=list)
    """What is wrong with the others. Each error names its file."""

    @contextmanager
    def noting(self, path: Path) -> Iterator[None]:
        """Note a mistake of the user, or of the user's machine, with a file. The others are translated all the same."""
        try:
            yield
        except (UserError, OSError) as error:
            text = str(error)
            if str(path) not in text:
                text = f"{path}: {text}"
            self.errors.append(text)


def translate_files(
    outputs: Mapping[Path, Path],
    output_dir: Path,
    load: Callable[[], TextTranslator],
    language: str,
    *,
    file_format: str | None = None,
    settings: Mapping[str, Any],
    source_lang: str | None = None,
    target_lang: str | None = None,
    fuzzy: bool = False,
    glossary: Glossary | None = None,
    report_file: Path | None = None,
    **options: Any,
) -> Outcome:
    """Translate files of formats and plain text. A wrong file stops nothing.

    A file is complete if its record has these settings and the hash of the file as it is now. A changed file, and a
    file with other settings, are translated again, unless somebody has changed the output since it was written.

    Args:
        outputs: the output of each file, as [`output_paths`] returns it.
        output_dir: the folder of the outputs, which holds their records.
        load: loads the model. It is called once, and only if there is something to translate.
        language: two letters of the language of the files.
        file_format: the format of all files, "lines" for plain text. By default names and beginnings tell.
        settings: everything that the translations depend on, except the files and their formats.
        source_lang: code of the source language, for models that need it.
        target_lang: code of the language to write.
        fuzzy: whether fuzzy translations of catalogues are replaced.
        glossary: terms that translations must have.
        report_file: where a line of JSON for each sentence of all complete files goes.
        **options: more arguments of [`translate_file`].

    Raises:
        UserError: if there is no such language, the model cannot write a term, or a library that reads one of the
            formats is missing.
    """
    check_language(language)
    outcome = Outcome()
    has_report = report_file is not None
    files = []
    for path, found in _formats(outcome, outputs, file_format).items():
        of_format = {"format": found.name, "fuzzy": fuzzy and found.has_fuzzy}
        files.append(_File(path, outputs[path], output_dir, found, {**settings, **of_format}, has_report))
    waiting, num_units = _waiting(outcome, files, target_lang, fuzzy)
    if waiting:
        translator = load()
        # What is wrong for all files is said once.
        checked_direction(translator, source_lang, target_lang, glossary)
        languages = {"source_lang": source_lang, "target_lang": target_lang}
        texts = {"fuzzy": fuzzy, "glossary": glossary}
        with tqdm(total=num_units, unit=" units") as progress:
            for file in waiting:
                with outcome.noting(file.path):
                    outcome.files[file.path] = file.translate(
                        translator, language, **languages, **texts, **options, advance=progress.update
                    )
    if has_report:
        _join([file.report_file for file in files if file.path in outcome.files], report_file)
    return outcome


def _waiting(
    outcome: Outcome, files: Iterable["_File"], target_lang: str | None, fuzzy: bool
) -> tuple[list["_File"], int]:
    """Return the files that are not complete, and the number of their units. Note those that are."""
    waiting = []
    num_units = 0
    for file in files:
        with outcome.noting(file.path):
            complete = file.complete()
            if complete is None:
                num_units += number_of_units(file.path, file.format_name, target_lang, fuzzy)
                waiting.append(file)
            else:
                outcome.files[file.path] = complete
                outcome.num_complete_before += 1
    return waiting, num_units


def _formats(outcome: Outcome, paths: Iterable[Path], name: str | None) -> dict[Path, FileFormat]:
    """Return the formats of files, and note what is wrong with the others.

    Raises:
        UserError: if a library that reads one of the formats is missing.
    """
    formats = {}
    for path in paths:
        with outcome.noting(path):
            formats[path] = _format_of(path, name)
    for file_format in set(formats.values()):
        check_package(file_format)
    return formats


def _join(parts: Iterable[Path], whole_file: Path) -> None:
    """Write a file of the bytes of others."""
    with replaced_file(whole_file) as whole:
        for part in parts:
            with open(part, "rb") as content:
                shutil.copyfileobj(content, whole)


def _format_of(path: Path, name: str | None) -> FileFormat:
    """Return the format of a file, [`TEXT`] for lines.

    Raises:
        UserError: if it is of no format that can be read and written.
    """
    # Messages of programs are JSON too.
    if has_columns(path) and without_compression(path).suffix != ".json":
        raise UserError(f"{path} has rows, which are translated with --sentences and without --documents.")
    if without_compression(path) != path and path.suffix not in _WRITTEN:
        raise UserError(f"{path}: only .gz and .zst are written compressed.")
    return recognise(path, name) or TEXT


@dataclass(frozen=True)
class _File:
    """A file, its output, and where its record is."""

    path: Path
    output: Path
    output_dir: Path
    file_format: FileFormat
    settings: dict[str, Any]
    has_report: bool
    """Whether a report is asked for."""

    @property
    def format_name(self) -> str:
        """The format as [`translate_file`] takes it."""
        if self.file_format is TEXT:
            return LINES
        return self.file_format.name

    @property
    def record_file(self) -> Path:
        """Where the record is, which is written behind the output."""
        return self._beside("json")

    @property
    def report_file(self) -> Path:
        """Where its part of the report is."""
        return self._beside("report.jsonl")

    def _beside(self, ending: str) -> Path:
        relative = self.output.relative_to(self.output_dir)
        return self.output_dir / RECORDS / f"{relative}.{ending}"

    def complete(self) -> TranslatedFile | None:
        """Return what became of a file if an earlier run has translated it as it is now, or None.

        Raises:
            UserError: if an output would be lost that somebody else has written, or changed.
        """
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
        if self.has_report and not was_reported:
            changed.append("report")
        if not changed:
            return TranslatedFile(record["units"], record["left"], record.get("kept", {}))
        if record["output_sha256"] != hash_file(self.output):
            raise UserError(
                f"{self.output} was changed after it was translated, and now {', '.join(changed)} is another. Move "
                "it to have it translated again."
            )
        return None

    def translate(self, translator: TextTranslator, language: str, **options: Any) -> TranslatedFile:
        """Translate the file, and write its record."""
        started = time.monotonic()
        # What is read may be changed meanwhile. Then the next run translates it again.
        input_sha256 = hash_file(self.path)
        self.output.parent.mkdir(parents=True, exist_ok=True)
        self.record_file.parent.mkdir(parents=True, exist_ok=True)
        report_file = None
        if self.has_report:
            report_file = self.report_file
        translated = translate_file(
            translator,
            self.path,
            self.output,
            language,
            file_format=self.format_name,
            report_file=report_file,
            settings={**self.settings, "report": self.has_report},
            **options,
        )
        record = {
            "units": translated.units,
            "left": translated.left,
            "kept": translated.kept,
            "seconds": round(time.monotonic() - started, 1),
            "input": name_for_record(self.path, self.output_dir),
            "input_sha256": input_sha256,
            "output_sha256": hash_file(self.output),
            "settings": self.settings,
            "report": self.has_report,
            "environment": environment(translator.model.device),
        }
        write_json(self.record_file, record)
        return translated
