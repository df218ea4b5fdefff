"""Inputs as windows of units. The windows follow only from the input, so that a killed run continues exactly.

A unit is a text with its place: a line, a paragraph, the text of a row, a message.
"""

import codecs
import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from hf_capsule_mt.data.encoding import warn_of_cut
from hf_capsule_mt.data.languages import Direction
from hf_capsule_mt.data.lines import byte_lines, opened, without_compression
from hf_capsule_mt.data.row_formats import has_columns, open_rows
from hf_capsule_mt.environment import check_installed
from hf_capsule_mt.errors import UserError

from ..formats.base import Document, FileFormat, Text, TextPlace, unit_starts
from ..formats.messages import without_halves
from ..formats.recognition import FORMATS, HEAD_BYTES, recognise, recognise_contents
from ..formats.recognition import LINES as PLAIN
from ..formats.running_text import RunningText
from ..preparation import RawText, TextOptions, TextReader, TooLong, named_in_errors
from ..text.segments import Segment
from ..text.words import keep_pattern, with_own_flags
from ..translation import PreparedText
from .job import DOCUMENT, LINES, ROWS, STANDARD_INPUT, Job

logger = logging.getLogger(__name__)

_GROUP = 20_000
"""Characters of texts of a document that are decoded together, and then kept."""
_WRITTEN = (".gz", ".zst")
TEXT = RunningText()
"""The format of running text, which no name tells."""


class Unit(NamedTuple):
    """A text, and where it stands in its input."""

    source: RawText
    place: TextPlace


@dataclass(frozen=True)
class Window:
    """Units that are translated and kept together."""

    units: list[Unit]
    items: Sequence[Any]  # What the input has there: lines, texts of a document, rows.
    before: int  # Items of the input before it.
    code: str = ""  # The code of the language of its last text.

    def hashed(self) -> list[str]:
        """Return the texts of the window as lines, by which a continued run knows its input."""
        return [json.dumps([unit.source.text, unit.place.unit]) for unit in self.units]


class Source(ABC):
    """An input. It is read once, from its beginning.

    Args:
        job: says how it is translated.
        path: the file. None is standard input.
    """

    kind: str
    """One of the kinds of job.py."""
    unit = "units"
    """What progress counts."""

    def __init__(self, job: Job, path: Path | None) -> None:
        self.job = job
        self.path = path
        self.options = job.texts(self.kind)
        self.direction = Direction()

    @property
    def title(self) -> str:
        """What messages call it."""
        return str(self.path or STANDARD_INPUT)

    def begin(self, direction: Direction) -> None:
        """Begin to write these languages."""
        self.direction = direction

    @abstractmethod
    def total(self) -> int | None:
        """Return how many units there are, or None if only reading all of them would tell."""

    def units_in(self, window: Window) -> int:
        """Return how many units a window has, as `total` counts them."""
        return len(window.units)

    @abstractmethod
    def skip(self, items: int) -> Iterator[str]:
        """Pass the first items, which are finished. Yield what is hashed of them."""

    @abstractmethod
    def windows(self) -> Iterator[Window]:
        """Yield the windows behind the items that were passed."""

    def prepared(self, reader: TextReader, window: Window, units: Sequence[Unit]) -> list[PreparedText]:
        """Return the sentences of units of a window. Warn of those that are cut."""
        prepared = reader.prepare_all([unit.source for unit in units], self.direction, TooLong.CUT)
        cut = []
        for unit, text in zip(units, prepared, strict=True):
            cut += [self.line_of(unit, one.segment) for one in text.sentences if one.is_cut]
        warn_of_cut(cut, reader.limit)
        return prepared

    def line_of(self, unit: Unit, segment: Segment) -> int:
        """Return the line of the input, from 1, on which a sentence of a unit begins."""
        return unit.place.line + segment.line


def kind_of(path: Path, job: Job) -> str:
    """Return the kind of a file.

    Raises:
        UserError: if it cannot be read and written, or a language is missing.
    """
    if has_columns(path) and job.in_folder and (without_compression(path).suffix != ".json" or not job.documents):
        job.check_kind(ROWS, f"{path} has rows")
        open_rows(path, job.text_column)
        return ROWS
    if job.in_folder and without_compression(path) != path and path.suffix not in _WRITTEN:
        raise UserError(f"{path}: only .gz and .zst are written compressed.")
    file_format = format_of(path, job)
    if file_format is not None and file_format is not TEXT:
        check_readable(path, file_format, job)
        return DOCUMENT
    if job.fuzzy and not job.in_folder:
        raise UserError(f"--fuzzy is for files such as de.po and de.xlf, and {path} has lines of text.")
    return DOCUMENT if job.in_folder and job.is_running_text else LINES


def format_of(path: Path, job: Job) -> FileFormat | None:
    """Return the format of a file, or None for lines and running text.

    Raises:
        UserError: if it is of no format that is supported.
    """
    if not path.is_file():
        # Nothing can be told of a stream.
        return FORMATS.get(job.format)
    file_format = recognise(path, job.format, tags=job.tags)
    # Each line is a text with tags.
    has_lines = job.tags and job.documents is None and job.format is None
    if file_format is not None and file_format.has_tags and has_lines:
        return None
    return file_format


def check_readable(path: Path, file_format: FileFormat, job: Job) -> None:
    """Check that a file of a format can be read, before a model is loaded.

    Raises:
        UserError: if there is no language, an option does not go with it, or a library is missing.
    """
    what = f"{path} is {file_format.title}"
    job.check_kind(DOCUMENT, what)
    if job.tags and not file_format.has_tags:
        raise UserError(f"--tags is for lines of text, and {what}. Leave it out.")
    if job.fuzzy and not file_format.has_fuzzy and not job.in_folder:
        raise UserError(
            f"--fuzzy is for translations that wait for a review, and {file_format.title} has none. Leave it out."
        )
    if job.documents is None:
        raise UserError(
            f"{what}. Give the language of its sentences, such as --documents en. To translate each line as it is, "
            f"give --format {PLAIN}."
        )
    check_package(file_format)


def check_package(file_format: FileFormat) -> None:
    """Raise a UserError if the library that reads files of a format is missing."""
    if file_format.package is not None:
        check_installed(file_format.package, "files")


class LinesSource(Source):
    """Lines of text, or running text, of any length.

    Args:
        job: says how they are translated.
        path: the file. None is standard input.
        lines: are read instead of the file.
        number: how many these are.
    """

    kind = LINES
    unit = "lines"

    def __init__(
        self, job: Job, path: Path | None, lines: Iterator[str] | None = None, number: int | None = None
    ) -> None:
        super().__init__(job, path)
        self._given = lines
        self._number = number
        self._lines = self._read() if lines is None else lines
        self._done = 0
        self._has_warned = False

    @property
    def keeps_returns(self) -> bool:
        """Whether carriage returns at the ends of lines stay."""
        return self.job.is_running_text or self.options.tags

    def total(self) -> int | None:
        """Return how many lines there are. All are checked first, unless they are a stream, which comes only once."""
        path = self.path or STANDARD_INPUT
        if self._given is not None or self.options.has_segments or not path.is_file():
            return self._number
        return sum(1 for _ in self._read())

    def _read(self) -> Iterator[str]:
        """Yield the lines. If the shell opened the file, this continues where it was read last."""
        path = self.path
        begin = 0
        if path is None:
            path = STANDARD_INPUT
            if path.is_file():
                # By its name the file is opened again, at its beginning.
                begin = os.lseek(0, 0, os.SEEK_CUR)
        for number, line in enumerate(byte_lines(path, begin, keep_returns=self.keeps_returns), start=1):
            try:
                yield line.decode(errors=self.job.errors)
            except UnicodeDecodeError as error:
                raise UserError(f"{path}:{number}: not UTF-8. Convert the file, or give --errors replace.") from error

    def skip(self, items: int) -> Iterator[str]:
        """Pass the lines that are finished."""
        for line in islice(self._lines, items):
            self._done += 1
            yield line

    def windows(self) -> Iterator[Window]:
        """Yield the windows. One of running text ends with a paragraph, and one with tags is all of it."""
        for lines in self._parts():
            yield self._window(lines)
            self._done += len(lines)

    def _parts(self) -> Iterator[list[str]]:
        is_running = self.job.is_running_text
        if is_running and self.options.tags:
            document = list(self._lines)
            if document:
                yield document
            return

        size = 1 if self.job.interactive else self.job.chunk_size
        while lines := list(islice(self._lines, size)):
            if is_running:
                lines += _rest_of_paragraph(lines[-1], self._lines)
            yield lines

    def _window(self, lines: list[str]) -> Window:
        if self.job.is_running_text:
            text = RawText("".join(f"{line}\n" for line in lines), self.options)
            return LinesWindow([Unit(text, TextPlace(self._done + 1))], lines, self._done)

        units = []
        for number, line in enumerate(lines, self._done + 1):
            text = RawText(line, self.options, name=f"line {number} of the input")
            units.append(Unit(text, TextPlace(number)))
        return LinesWindow(units, lines, self._done)

    def prepared(self, reader: TextReader, window: Window, units: Sequence[Unit]) -> list[PreparedText]:
        """Return the sentences of units. Running text has the code of the text before it."""
        prepared = super().prepared(reader, window, units)
        sentences = [sentence for text in prepared for sentence in text.sentences]
        if self.job.is_running_text:
            self.direction = replace(self.direction, code=sentences[-1].segment.code)
        codes = reader.codes
        if not self._has_warned and codes.are_missing(sentence.segment.source for sentence in sentences):
            if self.job.in_folder:
                raise UserError(f"{codes.missing()}, or give --target_lang {codes.languages[0]}.")
            self._has_warned = True
            logger.warning("%s, or give --target_lang %s.", codes.missing(), codes.languages[0])
        return prepared


class LinesWindow(Window):
    """Lines, which are hashed as they are."""

    def hashed(self) -> list[str]:
        """Return the lines."""
        return list(self.items)


def _rest_of_paragraph(last: str, lines: Iterator[str]) -> list[str]:
    """Return the lines up to the next blank one, unless the last line was blank."""
    rest = []
    while last.strip():
        last = next(lines, None)
        if last is None:
            break
        rest.append(last)
    return rest


class DocumentSource(Source):
    """A file of a format, or running text, which is read at once.

    Args:
        job: says how it is translated.
        path: the file. It may be compressed.
        target_lang: code of the language to write, which some files name.
    """

    kind = DOCUMENT

    def __init__(self, job: Job, path: Path, target_lang: str | None = None) -> None:
        super().__init__(job, path)
        with opened(path) as file:
            data = file.read()
        recognised = recognise_contents(path, data[:HEAD_BYTES], job.format) or TEXT
        check_package(recognised)
        self.format = recognised.with_fuzzy() if job.fuzzy else recognised
        self.target_lang = target_lang
        self.mark = byte_order_mark(data)
        self.document = self.read(data)
        self._starts = unit_starts(self.document.texts)
        self._done = 0

    def read(self, data: bytes) -> Document:
        """Return a file of this format. Bytes that are not UTF-8 are replaced if the job says so."""
        if self.job.errors == "replace":
            data = data.decode(errors="replace").encode()
        with named_in_errors(str(self.path)):
            return self.format.read(data.removeprefix(self.mark), self.target_lang)

    @property
    def units(self) -> int:
        """How many messages, paragraphs, sentences of subtitles and so on there are to translate."""
        return sum(self._starts)

    def units_in(self, window: Window) -> int:
        """Return how many units begin in a window. The forms of a plural are one."""
        return sum(self._starts[window.before : window.before + len(window.items)])

    def total(self) -> int | None:
        """Return how many units there are."""
        return self.units

    def skip(self, items: int) -> Iterator[str]:
        """Pass the texts that are finished."""
        self._done = items
        yield from self._window(0, items).hashed()

    def windows(self) -> Iterator[Window]:
        """Yield groups of texts of about `_GROUP` characters."""
        texts = self.document.texts
        while self._done < len(texts):
            start = self._done
            size = 0
            while self._done < len(texts) and (self._done == start or size < _GROUP):
                size += len(texts[self._done].text)
                self._done += 1
            yield self._window(start, self._done)

    def _window(self, start: int, end: int) -> Window:
        texts = self.document.texts[start:end]
        return Window([self._unit(text) for text in texts], texts, start)

    def _unit(self, text: Text) -> Unit:
        return Unit(RawText(text.text, options_of(text, self.options), text.markup), text.place)

    def prepared(self, reader: TextReader, window: Window, units: Sequence[Unit]) -> list[PreparedText]:
        """Return the sentences of units."""
        with named_in_errors(str(self.path)):
            return super().prepared(reader, window, units)


def byte_order_mark(data: bytes) -> bytes:
    """Return the mark at the beginning of a file, or nothing. Some programs of Windows put it in front of UTF-8."""
    if data.startswith(codecs.BOM_UTF8):
        return codecs.BOM_UTF8
    return b""


def options_of(text: Text, reading: TextOptions) -> TextOptions:
    """Return how a text of a file is read: like all of them, but for its tags and for what is kept in it."""
    keep = reading.keep
    if text.keep is not None and keep is not None:
        keep = keep_pattern(f"{text.keep}|{with_own_flags(keep)}")
    elif text.keep is not None:
        keep = keep_pattern(text.keep)
    return replace(reading, tags=text.markup is not None, keep=keep)


class RowsSource(Source):
    """Rows with columns. A window is a part of the file, and an item of the window a row."""

    kind = ROWS
    unit = "rows"

    def __init__(self, job: Job, path: Path) -> None:
        super().__init__(job, path)
        self.rows = open_rows(path, job.text_column)
        self._parts = self.rows.parts()
        self._done = 0

    def total(self) -> int | None:
        """Return None: all rows would have to be read."""
        return None

    def skip(self, items: int) -> Iterator[str]:
        """Pass the parts whose rows are finished."""
        end = self._done + items
        while self._done < end:
            window = self._window(next(self._parts, []))
            if not window.items:
                return
            yield from window.hashed()

    def windows(self) -> Iterator[Window]:
        """Yield the parts."""
        for rows in self._parts:
            yield self._window(rows)

    def _window(self, rows: Sequence[Any]) -> Window:
        units = []
        for number, text in enumerate(self.rows.texts(rows), self._done + 1):
            if text is not None:
                # JSON can spell half of a character, which UTF-8 cannot.
                units.append(Unit(RawText(without_halves(text), self.options), TextPlace(number)))
        window = Window(units, rows, self._done)
        self._done += len(rows)
        return window

    def prepared(self, reader: TextReader, window: Window, units: Sequence[Unit]) -> list[PreparedText]:
        """Return the sentences of units."""
        prepared = super().prepared(reader, window, units)
        check_codes(reader, prepared)
        return prepared

    def line_of(self, unit: Unit, segment: Segment) -> int:
        """Return the number of the row, from 1. A row may have several lines."""
        return unit.place.line


def check_codes(reader: TextReader, prepared: Iterable[PreparedText]) -> None:
    """Raise a UserError if a sentence lacks the code of the language to write, which the model needs."""
    sources = (sentence.segment.source for text in prepared for sentence in text.sentences)
    if reader.codes.are_missing(sources):
        raise UserError(f"{reader.codes.missing()}, or give target_lang.")
