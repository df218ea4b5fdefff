"""Translation of files of rows, file by file and part by part, so that an interrupted run continues."""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hf_capsule_mt.data.reading_ahead import each_one_ahead
from hf_capsule_mt.data.row_formats import PART_SIZE, RowFile, open_rows
from hf_capsule_mt.environment import environment
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import LOCK, hash_file, hash_text, locked, read_json, replaced_file, write_json

from ..formats.messages import without_halves
from ..generation.model_options import changed_settings
from .output_folders import RECORDS, check_input_of, name_for_record, with_common_int8
from .rows import COUNTED, CorpusTranslator, RowCounts

_UNFINISHED = ".unfinished"
_SETTINGS = "settings.json"
_RECORD = "record.json"


def translate_row_files(outputs: Mapping[Path, Path], output_dir: Path, translator: CorpusTranslator) -> RowCounts:
    """Translate files of rows. An output has the format, the rows and the order of its input.

    A row of plain text is a line, and only its translation is in the output.

    A file that is complete is skipped. Finished parts of the others are kept in the folder `.unfinished`, and a killed
    run continues behind them with the same bytes. The folder `.records` has a record for each complete file.

    Args:
        outputs: the output of each file, as [`output_paths`] returns it.
        output_dir: the folder of the outputs.
        translator: translates a column. A column of reports is added if it has a name for one.

    Returns:
        The sums over all rows of these files, also of those that were complete before.

    Raises:
        UserError: if a file is no file of rows, or its output is of other settings.
        BlockingIOError: if another process translates one of the files.
    """
    decoding = with_common_int8(translator.decoding, output_dir)
    if decoding is not translator.decoding:
        # The caller's stays as it is.
        translator = copy(translator)
        translator.decoding = decoding
    total = RowCounts()
    for path, output in tqdm(outputs.items(), unit=" files"):
        file = _FileOfRows(path, output, output_dir, translator)
        if not file.is_complete():
            file.translate()
        total += file.counts()
    with suppress(OSError):
        # Of a run that was killed at its end.
        (output_dir / _UNFINISHED).rmdir()
    return total


def report_of_rows(outputs: Mapping[Path, Path], translator: CorpusTranslator) -> Iterator[dict[str, Any]]:
    """Yield what a report says of each row of translated files, with the names of a report of sentences.

    Args:
        outputs: the output of each file. All are complete.
        translator: has translated them, with a column of reports.
    """
    for path, output in outputs.items():
        rows = open_rows(output, translator.text_column)
        number = 0
        for part in rows.parts():
            sources = rows.texts(part)
            translations = rows.column(part, translator.translation_column)
            reports = rows.column(part, translator.report_column)
            for source, translation, counts in zip(sources, translations, reports, strict=True):
                number += 1
                place = {"file": str(path), "line": number, "sentence": 1}
                # JSON can spell half of a character, which UTF-8 cannot. The model has read U+FFFD.
                texts = {"source": without_halves(source or ""), "translation": translation or ""}
                faults = {name: RowCounts(counts)[name] > 0 for name in COUNTED}
                yield {**place, **texts, "segments": counts["segments"], **faults}


def share_of(outputs: Mapping[Path, Path], number: int, count: int) -> dict[Path, Path]:
    """Return share `number`, from 1 to `count`, of files and their outputs: every `count`-th by the output's name."""
    by_output = sorted(outputs, key=outputs.__getitem__)
    return {path: outputs[path] for path in by_output[number - 1 :: count]}


def _check_same(where: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise a UserError if a file is of other settings than those of now."""
    changed = changed_settings(before, now)
    if changed:
        raise UserError(
            f"{where} is of a run with another {', '.join(changed)}. Repeat that run, or name another folder."
        )


class _FileOfRows:
    """One file, and the folder of its finished parts."""

    def __init__(self, path: Path, output: Path, output_dir: Path, translator: CorpusTranslator) -> None:
        self.rows: RowFile = open_rows(path, translator.text_column)
        self.output = output
        self.output_dir = output_dir
        relative = output.relative_to(output_dir)
        self.record_file = output_dir / RECORDS / f"{relative}.json"
        self.folder = output_dir / _UNFINISHED / relative
        self.translator = translator
        self.settings = {**translator.settings, "part_size": PART_SIZE}

    def is_complete(self) -> bool:
        """Return whether there is nothing more to do, also nothing to remove."""
        return self.record_file.is_file() and self.output.is_file() and not self.folder.exists()

    def counts(self) -> RowCounts:
        """Return the sums of a complete file.

        Raises:
            UserError: if it is of another input, or of other settings.
        """
        record = read_json(self.record_file)
        check_input_of(record, self.rows.path, self.output, self.output_dir)
        _check_same(self.record_file, record["settings"], self.settings)
        if record["input_sha256"] != hash_file(self.rows.path):
            raise UserError(f"{self.output} is of another {self.rows.path}. Delete it to translate the file again.")
        return RowCounts(record["counts"])

    def translate(self) -> None:
        """Translate the parts that are not finished, join all, and write the record."""
        with locked(self.folder):
            # A run that was killed at its end has left only the folder.
            if not (self.record_file.is_file() and self.output.is_file()):
                self._translate()
            for path in self.folder.iterdir():
                if path.name != LOCK:
                    path.unlink()
        with suppress(OSError):
            self.folder.rmdir()
        with suppress(OSError):
            # Those above it, while they are empty.
            os.removedirs(self.folder.parent)

    def _translate(self) -> None:
        settings = {**self.settings, "input_sha256": hash_file(self.rows.path)}
        settings_file = self.folder / _SETTINGS
        if settings_file.is_file():
            _check_same(settings_file, read_json(settings_file), settings)
        else:
            write_json(settings_file, settings)
        records = []
        hashes = []
        for number, rows in enumerate(each_one_ahead(self.rows.parts())):
            records.append(self._part(number, rows))
            hashes.append(_hash(self.rows.texts(rows)))
        # A killed process leaves an unfinished file in this folder, which is removed at the end.
        whole_file = self.folder / f"whole-{self.output.name}"
        record_file = self.folder / _RECORD
        self._join(len(records), whole_file)
        record = self._record(records, settings["input_sha256"], hash_file(whole_file))
        self._check_rows(whole_file, hashes, record["rows"])
        write_json(record_file, record)
        self.record_file.parent.mkdir(parents=True, exist_ok=True)
        self.output.parent.mkdir(parents=True, exist_ok=True)
        os.replace(whole_file, self.output)
        os.replace(record_file, self.record_file)

    def _part(self, number: int, rows: Sequence[Any]) -> dict[str, Any]:
        """Translate a part, unless it is finished, and return its record."""
        data_file = self.folder / f"part-{number:06}"
        record_file = self.folder / f"part-{number:06}.json"
        # It is written behind the data.
        if record_file.is_file():
            return read_json(record_file)
        started = time.monotonic()
        texts = self.rows.texts(rows)
        translations, counts = self.translator.translate(texts)
        _check_translations(self.rows.path, texts, translations)
        columns: dict[str, list[Any]] = {self.translator.translation_column: translations}
        if self.translator.report_column is not None:
            columns[self.translator.report_column] = counts
        examples = {self.translator.translation_column: "", self.translator.report_column: RowCounts()}
        with replaced_file(data_file) as file:
            file.write(self.rows.new_part(rows, columns, examples))
        record = {
            "rows": len(rows),
            "counts": sum(counts, RowCounts()),
            "seconds": time.monotonic() - started,
        }
        write_json(record_file, record)
        return record

    def _join(self, parts: int, whole_file: Path) -> None:
        """Write the whole output."""
        with self.rows.written(whole_file) as write:
            for number in range(parts):
                write((self.folder / f"part-{number:06}").read_bytes())

    def _check_rows(self, whole_file: Path, hashes: Sequence[str], num_rows: int) -> None:
        """Check that every row is in the output once, in its place. A difference is a fault of the package."""
        written = open_rows(whole_file, self.translator.text_column)
        if self.rows.has_sources:
            is_whole = [_hash(written.texts(rows)) for rows in written.parts()] == hashes
        else:
            is_whole = sum(map(len, written.parts())) == num_rows
        if not is_whole:
            raise RuntimeError(f"{self.output} does not have the rows of {self.rows.path}.")

    def _record(self, parts: Sequence[dict[str, Any]], input_sha256: str, output_sha256: str) -> dict[str, Any]:
        counts = sum((RowCounts(part["counts"]) for part in parts), RowCounts())
        seconds = sum(part["seconds"] for part in parts)
        return {
            "rows": sum(part["rows"] for part in parts),
            "counts": counts,
            "seconds": round(seconds, 1),
            "words_per_second": round(counts["words"] / max(seconds, 1e-9), 1),
            "input": name_for_record(self.rows.path, self.output_dir),
            "input_bytes": self.rows.path.stat().st_size,
            "input_sha256": input_sha256,
            "output_sha256": output_sha256,
            "settings": self.settings,
            "environment": environment(),
        }


def _hash(texts: Sequence[str | None]) -> str:
    return hash_text(json.dumps(text) for text in texts)


def _check_translations(path: Path, texts: Sequence[str | None], translations: Sequence[str | None]) -> None:
    """Check that every text has a translation with the same line breaks. A difference is a fault of the package."""
    for text, translation in zip(texts, translations, strict=True):
        if (text is None) != (translation is None):
            raise RuntimeError(f"{path}: a row was lost: {text!r:.200}")
        if text is not None and text.count("\n") != translation.count("\n"):
            raise RuntimeError(f"{path}: line breaks were lost in {text!r:.200}")
