"""What the translations of windows become: lines, n-best lists, alignments, rows with columns, documents, and reports.

A sink makes bytes of each window, which a journal keeps, and the whole output of these. That of documents knows what
an earlier run has translated, so that a changed sentence costs one sentence.
"""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from hf_capsule_mt.data.lines import text_bytes, unbroken
from hf_capsule_mt.files import hash_text, replaced_file

from ..alignment.links import pharaoh_links
from ..formats.base import lines_kept, lines_left
from ..quality.counts import RowCounts
from ..translation import PreparedText, Translation
from .job import Job, is_pharaoh
from .journal import InMemory, Journal
from .sources import DocumentSource, LinesSource, RowsSource, Source, Unit, Window

Record = dict[str, Any]
Kept = Journal | InMemory
_LENGTH = 8
"""Bytes of the number in front of a part of rows."""


class FinishedUnit(NamedTuple):
    """A unit that was translated."""

    unit: Unit
    text: PreparedText
    translation: Translation

    def counts(self) -> RowCounts:
        """Return the numbers of its sentences, which were judged."""
        return RowCounts.of(self.text, self.translation)

    def records(self) -> list[tuple[int, Record]]:
        """Return for each of its sentences its line in the unit, from 0, and what a report says of it."""
        records = []
        for sentence, translated in zip(self.text.sentences, self.translation.sentences):
            if sentence.segment.text:
                records.append((sentence.segment.line, translated.record))
        return records


class Sink(ABC):
    """Where the translations of an input go.

    Args:
        job: says what is written.
        source: the input.
    """

    def __init__(self, job: Job, source: Source) -> None:
        self.job = job
        self.source = source

    @property
    def names(self) -> tuple[str, ...]:
        """The files that it makes: "lines", and what is written beside them."""
        return ("lines", *self.job.more_files)

    def file_in_report(self) -> str | None:
        """Return how a report names the input, or None if it is the only one."""
        return str(self.source.path) if self.job.in_folder else None

    def new_units(self, window: Window) -> list[Unit]:
        """Return the units of a window that must be translated: those that no earlier run has translated."""
        return window.units

    def counts(self, window: Window, finished: Sequence[FinishedUnit]) -> RowCounts:
        """Return the numbers of the sentences of a window, which were judged."""
        return sum((one.counts() for one in finished), RowCounts())

    @abstractmethod
    def parts(self, window: Window, finished: Sequence[FinishedUnit]) -> dict[str, bytes]:
        """Return what each file gets of a window.

        Args:
            window: the window.
            finished: its new units.
        """

    @abstractmethod
    def write(self, journal: Journal, output: Path) -> None:
        """Write the whole output of what was kept."""

    def write_report(self, journal: Journal, report: Path) -> None:
        """Write the whole report of what was kept. It is called behind `write`."""
        journal.write("report", report)

    def numbers(self) -> Record:
        """Return what a record says of the output, beside the number of its units: the lines of what stays as it is."""
        return {"left": [], "kept": {}}


class LinesSink(Sink):
    """Lines for lines, or running text for running text."""

    source: LinesSource

    def parts(self, window: Window, finished: Sequence[FinishedUnit]) -> dict[str, bytes]:
        """Return the lines of a window."""
        return {name: text_bytes(lines) for name, lines in self.lines(window, finished).items()}

    def lines(self, window: Window, finished: Sequence[FinishedUnit]) -> dict[str, list[str]]:
        """Return the lines that each file gets of a window."""
        lines = {"lines": self._output(window, finished)}
        if self.job.report_file is not None:
            lines["report"] = self._report(finished)
        if self.job.alignments is not None:
            written = self._alignments
            if is_pharaoh(self.job.alignments):
                written = self._pharaoh
            lines["alignments"] = written(window, finished)
        return lines

    def write(self, journal: Journal, output: Path) -> None:
        """Write the lines."""
        journal.write("lines", output)

    def _output(self, window: Window, finished: Sequence[FinishedUnit]) -> list[str]:
        texts = [one.translation.text for one in finished]
        if self.job.n_best is not None:
            return self._ranked(window, finished)
        if self.job.is_running_text:
            [text] = texts
            return text.removesuffix("\n").split("\n")
        if self.source.keeps_returns:
            return texts
        return unbroken(texts, "translations")

    def _ranked(self, window: Window, finished: Sequence[FinishedUnit]) -> list[str]:
        """Return the lines of the output with several translations of each line, as Moses and Marian write them.

        A line has the number of its source from 0, the translation, and the score twice: as a feature, and in all.
        """
        lines = []
        for number, one in enumerate(finished, window.before):
            for ranked in (one.translation, *one.translation.alternatives):
                # What is copied is certain.
                score = f"{ranked.score or 0.0:.4f}"
                [text] = unbroken([ranked.text.removesuffix("\n")], "translations")
                lines.append(f"{number} ||| {text} ||| score= {score} ||| {score}")
        return lines

    def _report(self, finished: Sequence[FinishedUnit]) -> list[str]:
        """Return the lines of a report, one for each sentence."""
        file = self.file_in_report()
        lines = []
        for line, place, one, index in self._places(finished):
            of_place = {"line": line, "sentence": place}
            if file is not None:
                of_place = {"file": file, **of_place}
            lines.append(_json({**of_place, **one.translation.sentences[index].record}))
        return lines

    def _pharaoh(self, window: Window, finished: Sequence[FinishedUnit]) -> list[str]:
        """Return a line for each line of the input, with the numbers of words that belong together, such as "0-0 1-2".

        Words stand between white space.
        """
        lines = []
        for line, one in zip(window.items, finished, strict=True):
            pairs = pharaoh_links(one.translation.links, line, one.translation.text)
            lines.append(" ".join(f"{source}-{target}" for source, target in pairs))
        return lines

    def _alignments(self, window: Window, finished: Sequence[FinishedUnit]) -> list[str]:
        """Return a line of JSON for each sentence, with its words and the places of their characters."""
        lines = []
        for line, place, one, index in self._places(finished):
            translation = one.translation.sentences[index]
            links = translation.links or ()
            record = {
                "line": line,
                "sentence": place,
                "source": one.text.sentences[index].segment.text,
                "translation": translation.text,
                "words": [(link.source, link.target) for link in links],
                "characters": [(link.source_span, link.target_span) for link in links],
            }
            lines.append(_json(record))
        return lines

    def _places(self, finished: Sequence[FinishedUnit]) -> Iterator[tuple[int, int, FinishedUnit, int]]:
        """Yield the line of each sentence, its number in the line from 1, its text, and its number in that from 0."""
        places = []
        for one in finished:
            for index, sentence in enumerate(one.text.sentences):
                places.append((self.source.line_of(one.unit, sentence.segment), one, index))
        for line, of_line in groupby(places, key=itemgetter(0)):
            for place, (_, one, index) in enumerate(of_line, 1):
                yield line, place, one, index


class RowsSink(Sink):
    """Rows with new columns. A kept part has the length of its bytes in front."""

    source: RowsSource

    def parts(self, window: Window, finished: Sequence[FinishedUnit]) -> dict[str, bytes]:
        """Return a part of the output, and of the report."""
        by_row = {one.unit.place.line - window.before - 1: one for one in finished}
        of_rows = [by_row.get(number) for number in range(len(window.items))]
        columns: dict[str, list[Any]] = {self.job.translation_column: [self._value(one) for one in of_rows]}
        examples: dict[str, Any] = {self.job.translation_column: "" if self.job.n_best is None else [""]}
        if self.job.report_column is not None:
            columns[self.job.report_column] = [RowCounts() if one is None else one.counts() for one in of_rows]
            examples[self.job.report_column] = RowCounts()

        self._check(window, columns[self.job.translation_column])
        part = self.source.rows.new_part(window.items, columns, examples)
        parts = {"lines": len(part).to_bytes(_LENGTH, "big") + part}
        if self.job.report_file is not None:
            parts["report"] = text_bytes(map(_json, self._records(finished)))
        return parts

    def _value(self, one: FinishedUnit | None) -> str | list[str] | None:
        """Return what the new column has of a row: its translation, or its n best ones."""
        if one is None:
            return None
        if self.job.n_best is None:
            return one.translation.text
        return [ranked.text for ranked in (one.translation, *one.translation.alternatives)]

    def _check(self, window: Window, translations: Sequence[Any]) -> None:
        """Check that every text has a translation with the same line breaks. A difference is a fault of the package."""
        texts = self.source.rows.texts(window.items)
        for text, translation in zip(texts, translations, strict=True):
            if (text is None) != (translation is None):
                raise RuntimeError(f"{self.source.path}: a row was lost: {text!r:.200}")
            of_row = [translation] if isinstance(translation, str) else translation or ()
            if any(one.count("\n") != text.count("\n") for one in of_row):
                raise RuntimeError(f"{self.source.path}: line breaks were lost in {text!r:.200}")

    def _records(self, finished: Sequence[FinishedUnit]) -> Iterator[Record]:
        """Yield what a report says of each sentence."""
        for one in finished:
            for number, (_, record) in enumerate(one.records(), 1):
                place = {"file": self.file_in_report(), "line": one.unit.place.line, "sentence": number}
                yield {**place, **record}

    def write(self, journal: Journal, output: Path) -> None:
        """Write the rows, and check that every one is in the output once, in its place."""
        with journal.opened() as kept, self.source.rows.written(output) as write:
            while length := kept.read(_LENGTH):
                write(kept.read(int.from_bytes(length, "big")))

        sources = type(self.source)(self.job, self.source.path).rows
        written = type(sources)(output, self.job.text_column)
        if _hashes(written) != _hashes(sources):
            raise RuntimeError(f"{output} does not have the rows of {self.source.path}.")


def _hashes(rows: Any) -> list[str]:
    """Return the hash of each part of rows, by their texts."""
    return [hash_text(json.dumps(text) for text in rows.texts(part)) for part in rows.parts()]


class KnownText(NamedTuple):
    """A text of a document that was translated, as a journal keeps it."""

    key: str
    """What its translation depends on, beside the settings: the text, what is kept in it, and its terms."""
    translation: str
    counts: dict[str, int]
    """The numbers of its sentences, if they were judged."""
    records: list[tuple[int, Record]] | None = None
    """For each of its sentences its line in the text, and what a report says of it. None without a report."""


class DocumentSink(Sink):
    """A file of a format with translations instead of its texts. What is kept is a line of JSON for each text.

    Args:
        job: says what is written.
        source: the input.
        known: what earlier runs with these settings have translated.
    """

    source: DocumentSource

    def __init__(self, job: Job, source: DocumentSource, known: Iterable[KnownText] = ()) -> None:
        super().__init__(job, source)
        self._known = {}
        for text in known:
            # A report reads translations again.
            if text.records is not None or job.report_file is None:
                self._known[text.key] = text

    @property
    def names(self) -> tuple[str, ...]:
        """The file that it makes, which has what the report says too."""
        return ("lines",)

    def new_units(self, window: Window) -> list[Unit]:
        """Return the units of a window whose translation is not known."""
        return [unit for unit in window.units if self._key(unit) not in self._known]

    def counts(self, window: Window, finished: Sequence[FinishedUnit]) -> RowCounts:
        """Return the numbers of the sentences of a window."""
        self._learn(finished)
        return sum((RowCounts(self._known[self._key(unit)].counts) for unit in window.units), RowCounts())

    def parts(self, window: Window, finished: Sequence[FinishedUnit]) -> dict[str, bytes]:
        """Return the translations of the texts of a window, and what the report says of them."""
        self._learn(finished)
        return {"lines": text_bytes(json.dumps(self._known[self._key(unit)]) for unit in window.units)}

    def _learn(self, finished: Sequence[FinishedUnit]) -> None:
        for one in finished:
            key = self._key(one.unit)
            records = None if self.job.report_file is None else one.records()
            counts = dict(one.counts()) if self.job.judges else {}
            self._known[key] = KnownText(key, one.translation.text, counts, records)

    def _key(self, unit: Unit) -> str:
        """Return what the translation of a unit depends on."""
        text = unit.source.text
        options = unit.source.options
        keep = None if options.keep is None else options.keep.pattern
        terms = [] if self.job.glossary is None else self.job.glossary.terms(text)
        return hash_text([json.dumps([text, keep, options.tags, repr(terms)])])

    def write(self, journal: Kept, output: Path | None) -> None:
        """Write the document, to standard output if it has no name."""
        content = self.content([text.translation for text in known_texts(journal)])
        if output is None:
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
            return
        with replaced_file(output) as file:
            file.write(content)

    def content(self, translations: Sequence[str]) -> bytes:
        """Return the file with these translations."""
        return self.source.mark + self.source.document.written(translations)

    def write_report(self, journal: Kept, report: Path) -> None:
        """Write the report of a document that was written."""
        records = [text.records or [] for text in known_texts(journal)]
        with replaced_file(report) as file:
            file.write(text_bytes(map(_json, self.report(records))))

    def report(self, records_of_texts: Iterable[Sequence[tuple[int, Record]]]) -> list[Record]:
        """Return what the report says of each sentence of a file that was written, in the order of their lines."""
        document = self.source.document
        left = set(document.left)
        records = []
        for number, (text, of_text) in enumerate(zip(document.texts, records_of_texts, strict=True)):
            for line, record in of_text:
                place = {
                    "file": str(self.source.path),
                    "line": text.place.line + line,
                    "unit": text.place.unit,
                    "context": text.place.context,
                    "sentence": 0,
                }
                details = document.details.get(number, {})
                records.append({**place, **record, "left": number in left, **details})
        # Words in attributes and images are not between the other texts.
        records.sort(key=itemgetter("line"))
        for _, of_unit in groupby(records, key=itemgetter("line", "unit", "context")):
            for number, record in enumerate(of_unit, 1):
                record["sentence"] = number
        return records

    def numbers(self) -> Record:
        """Return the numbers of a document that was written."""
        document = self.source.document
        return {"units": self.source.units, "left": lines_left(document), "kept": lines_kept(document)}


def known_texts(journal: Kept) -> list[KnownText]:
    """Return the texts of a document that a journal has kept."""
    with journal.opened() as kept:
        return [KnownText(*json.loads(line)) for line in kept]


def sink_of(job: Job, source: Source, known: Iterable[KnownText] = ()) -> Sink:
    """Return the sink for an input. Arguments: [`DocumentSink`]."""
    if isinstance(source, DocumentSource):
        return DocumentSink(job, source, known)
    if isinstance(source, RowsSource):
        return RowsSink(job, source)
    return LinesSink(job, source)


def _json(record: Mapping[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False)
