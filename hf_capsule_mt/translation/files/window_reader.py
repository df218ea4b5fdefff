"""Read a file window by window, and keep what becomes of each window."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import BinaryIO

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.lines import byte_lines, text_bytes
from hf_capsule_mt.errors import UserError

from ..preparation import TextReader
from ..quality.report import report_record
from ..terms.forcing import check_glossary
from ..text.segments import Segment
from ..translation import Sentence
from .options import STANDARD_INPUT, FileOptions
from .partial_output import PartialOutput
from .progress import Progress
from .windows import TranslatedSentence, Window

logger = logging.getLogger(__name__)


def input_lines(options: FileOptions) -> Iterator[str]:
    """Yield the lines of the input. If the shell opened a file, this continues where it was read last.

    Running text, and lines with tags, keep their carriage returns.
    """
    path = options.input_file
    begin = 0
    if path is None:
        path = STANDARD_INPUT
        if path.is_file():
            # By its name the file is opened again, at its beginning.
            begin = os.lseek(0, 0, os.SEEK_CUR)
    keep_returns = options.is_document or options.texts.tags
    for number, line in enumerate(byte_lines(path, begin, keep_returns=keep_returns), start=1):
        try:
            yield line.decode(errors=options.errors)
        except UnicodeDecodeError as error:
            raise UserError(f"{path}:{number}: not UTF-8. Convert the file, or give --errors replace.") from error


class WindowReader:
    """Makes the windows that are not finished, and keeps or reports what becomes of them."""

    def __init__(self, options: FileOptions, progress: Progress) -> None:
        self._options = options
        self._texts = options.texts
        self._progress = progress
        self._reader = TextReader(options.decoding.config(), options.decoding.tokenizer())
        self._direction = self._reader.languages.direction(options.source_lang, options.target_lang)
        if self._texts.glossary is not None:
            check_glossary(self._texts.glossary, self._reader.tokenizer, options.decoding.generation_config())
        self._has_warned = False
        self._kept = None
        if options.output_file is not None:
            self._kept = PartialOutput(options.output_file, options.settings(), options.more_files)

    def windows(self, lines: Iterator[str]) -> Iterator[Window]:
        """Yield the windows that are not finished."""
        done = 0
        if self._kept is not None:
            done = self._kept.skip(lines)
            self._progress.skip(done)
            if self._kept.code is not None:
                self._direction = replace(self._direction, code=self._kept.code)
        for window in self._parts(lines):
            yield self._window(window, done)
            done += len(window)

    def _parts(self, lines: Iterator[str]) -> Iterator[list[str]]:
        """Yield consecutive lines. A window of documents ends with a paragraph, and one with tags is all of it."""
        options = self._options
        if options.is_document and options.texts.tags:
            document = list(lines)
            if document:
                yield document
            return
        size = 1 if options.interactive else options.chunk_size
        while window := list(islice(lines, size)):
            if options.is_document:
                window += _rest_of_paragraph(window[-1], lines)
            yield window

    def _window(self, window: list[str], done: int) -> Window:
        """Return the window of some lines, before which `done` lines are."""
        segments = self._segments(window, done)
        if self._options.is_document:
            # A document has the code of the text before it.
            self._direction = replace(self._direction, code=segments[-1].code)
        self._warn_of_missing_codes(segments)
        numbers = [done + 1 + segment.line for segment in segments]
        sentences = self._reader.encode(segments, self._direction, numbers, self._texts.glossary)
        lengths = [len(sentence.token_ids) for sentence in sentences]
        batches = batch_by_tokens(lengths, self._options.decoding.max_tokens_per_batch, numbers)
        self._progress.skip(lengths.count(0))
        return Window(
            lines=window,
            sentences=sentences,
            numbers=numbers,
            batches=batches,
            decoding=self._options.decoding,
            code=self._direction.code,
            is_of_lines=not self._texts.has_segments,
            lines_before=done,
        )

    def _segments(self, window: Sequence[str], done: int) -> list[Segment]:
        """Return the segments of a window with their lines in it."""
        if self._options.is_document:
            text = "".join(f"{line}\n" for line in window)
            return self._reader.segments(text, self._texts, self._direction)
        segments = []
        for number, line in enumerate(window):
            text = f"{line}\n" if self._texts.has_segments else line
            try:
                of_line = self._reader.segments(text, self._texts, self._direction)
            except ValueError as error:
                raise UserError(f"line {done + 1 + number} of the input: {error}") from error
            segments += [replace(segment, line=segment.line + number) for segment in of_line]
        return segments

    def _warn_of_missing_codes(self, segments: Sequence[Segment]) -> None:
        codes = self._reader.codes
        if not self._has_warned and codes.are_missing(segment.source for segment in segments):
            self._has_warned = True
            logger.warning("%s, or give --target_lang %s.", codes.missing(), codes.languages[0])

    def keep(
        self, window: Window, translated: Mapping[int, TranslatedSentence], more_files: Mapping[str, BinaryIO]
    ) -> list[str] | None:
        """Keep the lines of a window for the output file, or return them if there is none.

        Args:
            window: the window.
            translated: the translations of the sentences that the model reads, by their index.
            more_files: where the lines of other files go if there is no output file.
        """
        finished = []
        for index, sentence in enumerate(window.sentences):
            finished.append(translated[index] if index in translated else self._unread(sentence))
        is_plain = self._options.n_best is None
        lines = window.output(finished) if is_plain else window.ranked_output(finished)
        more_lines = self._more_lines(window, finished)
        if self._kept is not None:
            self._kept.append(window.lines, {"lines": lines, **more_lines}, window.code)
            return None
        for name, file in more_files.items():
            file.write(text_bytes(more_lines[name]))
        return lines

    def _unread(self, sentence: Sentence) -> TranslatedSentence:
        """Return a sentence that the model does not read."""
        translation = sentence.unread(has_links=self._options.alignments_file is not None)
        return TranslatedSentence(translation, report_record(self._reader, sentence, None))

    def _more_lines(self, window: Window, finished: Sequence[TranslatedSentence]) -> dict[str, list[str]]:
        """Return the lines of the files next to the output."""
        options = self._options
        more_lines = {}
        if options.report_file is not None:
            more_lines["report"] = window.report(finished, options.calibration)
        if options.alignments_file is not None:
            more_lines["alignments"] = window.pharaoh(finished) if options.is_pharaoh else window.alignments(finished)
        return more_lines

    def finish(self) -> None:
        """Write the whole output file, if there is one."""
        if self._kept is not None:
            self._kept.finish()


def _rest_of_paragraph(last: str, lines: Iterator[str]) -> list[str]:
    """Return the lines up to the next blank one, unless the last line was blank."""
    rest = []
    while last.strip():
        last = next(lines, None)
        if last is None:
            break
        rest.append(last)
    return rest
