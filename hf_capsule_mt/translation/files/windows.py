"""Windows of the lines of a file: how they are read, and what their translations become in the files of the command."""

import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import BinaryIO

from tqdm import tqdm

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import warn_of_cut
from hf_capsule_mt.data.lines import byte_lines, text_bytes, unbroken
from hf_capsule_mt.errors import UserError

from ..alignment.links import pharaoh_links
from ..generation.model_options import DecodingOptions
from ..preparation import RawText, TextReader, TooLong
from ..terms.forcing import check_glossary
from ..text_translator import finish_unread
from ..translation import PreparedText, Sentence, Translation
from .options import STANDARD_INPUT, FileOptions, is_pharaoh
from .partial_output import PartialOutput

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Window:
    """A window of lines."""

    lines: list[str]  # The input.
    texts: list[PreparedText]  # The lines, or all of them as one text.
    numbers: list[int]  # The lines of all sentences in the input, from 1.
    batches: list[list[int]]  # Indices of the sentences that the model reads.
    decoding: DecodingOptions  # Those of the main process, with the commit of the model.
    code: str  # The code of the language of the last text.
    is_document: bool = False  # Whether the lines are one text.
    keeps_returns: bool = False  # Whether carriage returns at the ends of lines stay.
    lines_before: int = 0  # Lines of the input before this window.

    @property
    def sentences(self) -> list[Sentence]:
        """The sentences of all texts."""
        return [sentence for text in self.texts for sentence in text.sentences]

    def output(self, finished: Sequence[Translation]) -> list[str]:
        """Return the lines of the output."""
        texts = [translation.text for translation in self._joined(finished)]
        if self.is_document:
            [text] = texts
            return text.removesuffix("\n").split("\n")
        if self.keeps_returns:
            return texts
        return unbroken(texts, "translations")

    def report(self, finished: Sequence[Translation]) -> list[str]:
        """Return the lines of a report, one for each sentence."""
        lines = []
        for index, number, place in self._places():
            record = {"line": number, "sentence": place, **finished[index].record}
            lines.append(json.dumps(record, ensure_ascii=False))
        return lines

    def ranked_output(self, finished: Sequence[Translation]) -> list[str]:
        """Return the lines of the output with several translations of each line, as Moses and Marian write them.

        A line has the number of its source from 0, the translation, and the score twice: as a feature, and in all.
        """
        lines = []
        for number, translation in enumerate(self._joined(finished), self.lines_before):
            for ranked in (translation, *translation.alternatives):
                # What is copied is certain.
                score = f"{ranked.score or 0.0:.4f}"
                [text] = unbroken([ranked.text.removesuffix("\n")], "translations")
                lines.append(f"{number} ||| {text} ||| score= {score} ||| {score}")
        return lines

    def pharaoh(self, finished: Sequence[Translation]) -> list[str]:
        """Return a line for each line of the input, with the numbers of words that belong together, such as "0-0 1-2".

        Words stand between white space.
        """
        lines = []
        for line, translation in zip(self.lines, self._joined(finished, has_links=True), strict=True):
            pairs = pharaoh_links(translation.links, line, translation.text)
            lines.append(" ".join(f"{source}-{target}" for source, target in pairs))
        return lines

    def alignments(self, finished: Sequence[Translation]) -> list[str]:
        """Return a line of JSON for each sentence, with its words and the places of their characters."""
        lines = []
        sentences = self.sentences
        for index, number, place in self._places():
            translation = finished[index]
            links = translation.links or ()
            record = {
                "line": number,
                "sentence": place,
                "source": sentences[index].segment.text,
                "translation": translation.text,
                "words": [(link.source, link.target) for link in links],
                "characters": [(link.source_span, link.target_span) for link in links],
            }
            lines.append(json.dumps(record, ensure_ascii=False))
        return lines

    def _places(self) -> Iterator[tuple[int, int, int]]:
        """Yield the index of each sentence, the line it begins on, and its number among those of the line, from 1."""
        for number, indices in groupby(range(len(self.numbers)), key=self.numbers.__getitem__):
            for place, index in enumerate(indices, 1):
                yield index, number, place

    def _joined(self, finished: Sequence[Translation], *, has_links: bool = False) -> Iterator[Translation]:
        """Yield the translations of the texts from those of their sentences."""
        remaining = iter(finished)
        for text in self.texts:
            yield text.join(list(islice(remaining, len(text.sentences))), has_links=has_links)


class Progress(tqdm):
    """Shows lines and source tokens a second, and the time left."""

    def __init__(self, total: int | None, shown: bool = True) -> None:
        # With a delay it appears with the first line, and not before an error.
        super().__init__(total=total, unit=" lines", disable=not shown, delay=1e-6)
        self._tokens = 0
        self._start = time.monotonic()

    def skip(self, lines: int) -> None:
        """Count lines that take no time: empty ones, and those that an earlier run has done."""
        self.delay = 0
        if not self.disable:
            self.initial += lines
            self.update(lines)

    def add(self, lines: int, tokens: int) -> None:
        """Count lines that were done, and their source tokens."""
        self.delay = 0
        self._tokens += tokens
        speed = self._tokens / max(time.monotonic() - self._start, 1e-9)
        self.set_postfix_str(f"{speed:.0f} tokens/s", refresh=False)
        self.update(lines)


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
        size = options.chunk_size
        if options.interactive:
            size = 1
        while window := list(islice(lines, size)):
            if options.is_document:
                window += _rest_of_paragraph(window[-1], lines)
            yield window

    def _window(self, window: list[str], done: int) -> Window:
        """Return the window of some lines, before which `done` lines are."""
        texts = self._prepared(window, done)
        sentences = [sentence for text in texts for sentence in text.sentences]
        if self._options.is_document:
            # A document has the code of the text before it.
            self._direction = replace(self._direction, code=sentences[-1].segment.code)
        numbers = self._numbers(texts, done)
        self._warn_of_missing_codes(sentences)
        warn_of_cut([number for number, sentence in zip(numbers, sentences) if sentence.is_cut], self._reader.limit)
        lengths = [len(sentence.token_ids) for sentence in sentences]
        batches = batch_by_tokens(lengths, self._options.decoding.max_tokens_per_batch, numbers)
        self._progress.skip(lengths.count(0))
        return Window(
            lines=window,
            texts=texts,
            numbers=numbers,
            batches=batches,
            decoding=self._options.decoding,
            code=self._direction.code,
            is_document=self._options.is_document,
            keeps_returns=self._options.texts.tags,
            lines_before=done,
        )

    def _prepared(self, window: Sequence[str], done: int) -> list[PreparedText]:
        """Return the lines of a window, or its text."""
        options = replace(self._texts, split="paragraphs")
        if self._options.is_document:
            sources = [RawText("".join(f"{line}\n" for line in window), options)]
        else:
            sources = []
            for number, line in enumerate(window, done + 1):
                sources.append(RawText(line, options, name=f"line {number} of the input"))
        return self._reader.prepare_all(sources, self._direction, TooLong.CUT)

    def _numbers(self, texts: Sequence[PreparedText], done: int) -> list[int]:
        """Return the lines of the sentences in the input."""
        numbers = []
        for number, text in enumerate(texts, done + 1):
            numbers += [number + sentence.segment.line for sentence in text.sentences]
        return numbers

    def _warn_of_missing_codes(self, sentences: Sequence[Sentence]) -> None:
        codes = self._reader.codes
        if not self._has_warned and codes.are_missing(sentence.segment.source for sentence in sentences):
            self._has_warned = True
            logger.warning("%s, or give --target_lang %s.", codes.missing(), codes.languages[0])

    def keep(
        self, window: Window, translated: Mapping[int, Translation], more_files: Mapping[str, BinaryIO]
    ) -> list[str] | None:
        """Keep the lines of a window for the output file, or return them if there is none.

        Args:
            window: the window.
            translated: the translations of the sentences that the model reads, by their index.
            more_files: where the lines of other files go if there is no output file.
        """
        finished = []
        for index, sentence in enumerate(window.sentences):
            if index in translated:
                finished.append(translated[index])
            else:
                finished.append(self._unread(sentence))
        written = window.output
        if self._options.n_best is not None:
            written = window.ranked_output
        lines = written(finished)
        more_lines = self._more_lines(window, finished)
        if self._kept is not None:
            self._kept.append(window.lines, {"lines": lines, **more_lines}, window.code)
            return None
        for name, file in more_files.items():
            file.write(text_bytes(more_lines[name]))
        return lines

    def _unread(self, sentence: Sentence) -> Translation:
        """Return a sentence that the model does not read."""
        options = self._options
        return finish_unread(
            self._reader,
            sentence,
            has_links=options.alignments_file is not None,
            has_record=options.report_file is not None,
        )

    def _more_lines(self, window: Window, finished: Sequence[Translation]) -> dict[str, list[str]]:
        """Return the lines of the files next to the output."""
        options = self._options
        more_lines = {}
        if options.report_file is not None:
            more_lines["report"] = window.report(finished)
        if options.alignments_file is not None:
            written = window.alignments
            if is_pharaoh(options.alignments_file):
                written = window.pharaoh
            more_lines["alignments"] = written(finished)
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
