"""Translate files of any size, window by window, on any number of processes."""

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from threading import Timer
from typing import BinaryIO

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from tqdm import tqdm

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.lines import byte_lines, text_bytes
from hf_capsule_mt.data.reading_ahead import each_one_ahead
from hf_capsule_mt.decoding.products import Int8Choice
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_file, replaced_file

from .decoding_options import DecodingOptions
from .documents import Segment
from .expected_quality import Calibration, settings_of
from .glossary import Glossary
from .marked_segments import keep_pattern
from .partial_output import PartialOutput, held_folder, kept_settings
from .term_writer import check_glossary
from .texts import TextOptions, TextReader, TextTranslator
from .windows import Job, Translated

logger = logging.getLogger(__name__)

STANDARD_INPUT = Path("/dev/stdin")
PATIENCE = 300
"""Seconds after which a process says that it waits for the others."""
_WAITS = (
    "This process has waited %d seconds for the other processes of the command. See whether one is slower, or stopped: "
    "ps shows T for it, and kill -CONT continues it."
)


@dataclass(frozen=True)
class FileTranslationOptions:
    """What is translated, and where the translations go.

    Args:
        decoding: the model, and how it decodes.
        input_file: the text, one sentence a line. None is standard input.
        output_file: where the translations go. None gives them to the caller.
        report_file: where a line of JSON for each sentence goes.
        device: name of the device. None is that of the process.
        chunk_size: number of lines that are read, sorted and written at a time.
        interactive: whether each line is translated as soon as it arrives.
        documents: language of running text, such as "en". Its sentences are translated one by one.
        sentences: language of lines that are cut into sentences.
        tags: whether there are tags of XML or HTML.
        keep: regular expression for parts that are not translated.
        source_lang: source language, for NLLB, M2M-100 and mBART.
        target_lang: language to write with these, and with multilingual OPUS-MT and MADLAD, until a text names another.
        glossary: file of terms that translations must have.
        glossary_languages: source and target language, for a glossary that has several.
        calibration: adds the expected quality to the lines of the report.
        errors: "strict", or "replace" for bytes that are not UTF-8.
        n_best: number of translations of each line, in lines of their own. None is one, without its number and score.
        alignments_file: where the alignments of words go: a line of JSON for each sentence if its name ends in .jsonl
            or .jsonl.gz, otherwise a line of Pharaoh's format for each line.
    """

    decoding: DecodingOptions
    input_file: Path | None = None
    output_file: Path | None = None
    report_file: Path | None = None
    device: str | None = None
    chunk_size: int = 10_000
    interactive: bool = False
    documents: str | None = None
    sentences: str | None = None
    tags: bool = False
    keep: str | None = None
    source_lang: str | None = None
    target_lang: str | None = None
    glossary: Path | None = None
    glossary_languages: tuple[str, str] | None = None
    calibration: Calibration | None = None
    errors: str = "strict"
    n_best: int | None = None
    alignments_file: Path | None = None

    @property
    def more_files(self) -> dict[str, Path]:
        """The files that are written next to the output, by their names in the folder of an unfinished one."""
        files = {"report": self.report_file, "alignments": self.alignments_file}
        return {name: file for name, file in files.items() if file is not None}

    @property
    def is_pharaoh(self) -> bool:
        """Whether alignments are in Pharaoh's format."""
        return not str(self.alignments_file).endswith((".jsonl", ".jsonl.gz"))

    @cached_property
    def of_texts(self) -> TextOptions:
        """How the texts are cut, and which terms they need."""
        pattern = keep_pattern(self.keep) if self.keep else None
        glossary = None
        if self.glossary is not None:
            glossary = Glossary.read(self.glossary, *(self.glossary_languages or ()))
        return TextOptions(self.documents or self.sentences, self.tags, pattern, glossary)

    def pinned(self) -> "FileTranslationOptions":
        """Return options for all processes, with the products in int8 of the interrupted run if there is one."""
        decoding = self.decoding
        if self.output_file is not None:
            choice = kept_settings(self.output_file).get("int8_choice")
            if choice is not None:
                decoding = replace(decoding, int8_choice=Int8Choice(**choice))
        return replace(self, decoding=decoding.pinned())

    def settings(self) -> dict[str, object]:
        """Return everything that the output depends on, except the input."""
        settings = self.decoding.settings()
        if self.decoding.int8_choice is not None:
            settings["int8_choice"] = asdict(self.decoding.int8_choice)
        for name in ("documents", "sentences", "tags", "keep", "source_lang", "target_lang"):
            value = getattr(self, name)
            if value:
                settings[name] = value
        if self.glossary is not None:
            settings["glossary"] = hash_file(self.glossary)
            if self.glossary_languages is not None:
                settings["glossary_languages"] = list(self.glossary_languages)
        if self.n_best is not None:
            settings["n_best"] = self.n_best
        if self.report_file is not None:
            settings["report_file"] = str(self.report_file.resolve())
        if self.alignments_file is not None:
            settings["alignments"] = str(self.alignments_file.resolve())
        if self.calibration is not None:
            settings["calibration"] = self.calibration.digest()
        return settings


class Progress(tqdm):
    """Shows lines and source tokens a second, and the time left."""

    def __init__(self, total: int | None, shown: bool = True) -> None:
        super().__init__(total=total, unit=" lines", disable=not shown)
        self._tokens = 0
        self._start = time.monotonic()

    def skip(self, lines: int) -> None:
        """Count lines that take no time: empty ones, and those that an earlier run has done."""
        if not self.disable:
            self.initial += lines
            self.update(lines)

    def add(self, lines: int, tokens: int) -> None:
        """Count lines that were done, and their source tokens."""
        self._tokens += tokens
        speed = self._tokens / max(time.monotonic() - self._start, 1e-9)
        self.set_postfix_str(f"{speed:.0f} tokens/s", refresh=False)
        self.update(lines)


class Worker:
    """Translates the batches of one process."""

    def __init__(self, options: FileTranslationOptions, state: PartialState, progress: Progress) -> None:
        self._decoding = options.decoding
        self._device = torch.device(options.device or state.device)
        self._answers = {
            "judges": options.report_file is not None,
            "return_scores": options.n_best is not None,
            "return_alignments": options.alignments_file is not None,
            "num_return_sequences": options.n_best or 1,
        }
        self._state = state
        self._progress = progress

    @cached_property
    def _translator(self) -> TextTranslator:
        return TextTranslator(*self._decoding.load(self._device))

    def translate(self, job: Job) -> dict[int, Translated]:
        """Return the translations of this process by the index of their sentence."""
        processes = self._state.num_processes
        batches = job.batches[self._state.process_index :: processes]
        self._decoding = job.decoding
        # Before anything is written: the checkpoint may be damaged.
        translator = self._translator
        options = self._decoding.generate_options()
        translated = {}
        for batch in translator.decode_batches(job.sentences, batches, **self._answers, **options):
            for index, translation in batch.items():
                translated[index] = Translated.of(translation, job.sentences[index])
            tokens = sum(len(job.sentences[index].token_ids) for index in batch)
            # Only this process shows progress. The others have shares of the same size, and are about as far.
            self._progress.add(len(batch) * processes, tokens * processes)
        return translated


def translate_windows(
    options: FileTranslationOptions,
    state: PartialState,
    lines: Iterator[str] | None = None,
    total: int | None = None,
) -> Iterator[list[str]]:
    """Translate a file window by window. Yield the lines of each window, unless they go to an output file.

    Finished windows, and the report, are kept next to the output file until all is done. Only the main process has
    lines. Each process takes a share of the batches.

    Args:
        options: what is translated, how, and where it goes.
        state: this process among the others.
        lines: are read instead of the input file.
        total: the number of these lines, for the progress bar.

    Raises:
        BlockingIOError: if another process writes the output file.
        UserError: if the input cannot be read, or is not that of the interrupted run, or the calibration is of another
            model.
    """
    if not state.is_main_process:
        worker = Worker(options, state, Progress(None, shown=False))
        while _translate_together(worker, None) is not None:
            pass
        return
    if lines is None:
        lines = _lines(options)
        # All lines are checked first, unless they are a stream, which comes only once.
        if not options.of_texts.has_segments and (options.input_file or STANDARD_INPUT).is_file():
            total = sum(1 for _ in _lines(options))
    with ExitStack() as stack:
        if options.output_file is not None:
            stack.enter_context(held_folder(options.output_file))
        progress = stack.enter_context(Progress(total, shown=not options.interactive))
        # Without an output file, the others are written as a whole at the end.
        more_files = {}
        if options.output_file is None:
            for name, file in options.more_files.items():
                more_files[name] = stack.enter_context(replaced_file(file))
        options = options.pinned()
        if options.calibration is not None:
            options.calibration.check(settings_of(options.decoding, options.source_lang, options.target_lang))
        windows = _WindowReader(options, progress)
        worker = Worker(options, state, progress)
        for job in each_one_ahead(windows.jobs(lines)):
            translated = _translate_together(worker, job)
            output = windows.keep(job, translated, more_files)
            if output is not None:
                yield output
        _translate_together(worker, None)
        windows.finish()


def _translate_together(worker: Worker, job: Job | None) -> dict[int, Translated] | None:
    """Translate a job of the main process on all processes, and return all translations. None ends the work."""
    with _telling_of_long_waits():
        [job] = broadcast_object_list([job])
    if job is None:
        return None
    own_share = worker.translate(job)
    with _telling_of_long_waits():
        shares = gather_object([own_share])
    translated: dict[int, Translated] = {}
    for share in shares:
        translated.update(share)
    return translated


@contextmanager
def _telling_of_long_waits() -> Iterator[None]:
    """Say so if the block takes long. A process that is stopped, but not dead, holds up the others for days."""
    timer = Timer(PATIENCE, logger.warning, (_WAITS, PATIENCE))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _lines(options: FileTranslationOptions) -> Iterator[str]:
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
    keep_returns = bool(options.documents or options.tags)
    for number, line in enumerate(byte_lines(path, begin, keep_returns=keep_returns), start=1):
        try:
            yield line.decode(errors=options.errors)
        except UnicodeDecodeError as error:
            raise UserError(f"{path}:{number}: not UTF-8. Convert the file, or give --errors replace.") from error


class _WindowReader:
    """Makes jobs of the windows that are not finished, and keeps or reports what becomes of them."""

    def __init__(self, options: FileTranslationOptions, progress: Progress) -> None:
        self._options = options
        self._of_texts = options.of_texts
        self._progress = progress
        self._reader = TextReader(options.decoding.config(), options.decoding.tokenizer())
        self._direction = self._reader.languages.direction(options.source_lang, options.target_lang)
        if self._of_texts.glossary is not None:
            check_glossary(self._of_texts.glossary, self._reader.tokenizer, options.decoding.generation_config())
        self._has_warned = False
        self._kept = None
        if options.output_file is not None:
            self._kept = PartialOutput(options.output_file, options.settings(), options.more_files)

    def jobs(self, lines: Iterator[str]) -> Iterator[Job]:
        """Yield the windows that are not finished."""
        done = 0
        if self._kept is not None:
            done = self._kept.skip(lines)
            self._progress.skip(done)
            if self._kept.code is not None:
                self._direction = replace(self._direction, code=self._kept.code)
        for window in self._windows(lines):
            yield self._job(window, done)
            done += len(window)

    def keep(self, job: Job, translated: dict[int, Translated], more_files: Mapping[str, BinaryIO]) -> list[str] | None:
        """Keep the lines of a window for the output file, or return them if there is none."""
        lines = job.output(translated) if self._options.n_best is None else job.ranked_output(translated)
        more_lines = self._more_lines(job, translated)
        if self._kept is not None:
            self._kept.append(job.lines, {"lines": lines, **more_lines}, job.code)
            return None
        for name, file in more_files.items():
            file.write(text_bytes(more_lines[name]))
        return lines

    def _more_lines(self, job: Job, translated: dict[int, Translated]) -> dict[str, list[str]]:
        """Return the lines of the files next to the output."""
        options = self._options
        more_lines = {}
        if options.report_file is not None:
            more_lines["report"] = job.report(translated, options.calibration)
        if options.alignments_file is not None:
            more_lines["alignments"] = job.pharaoh(translated) if options.is_pharaoh else job.alignments(translated)
        return more_lines

    def finish(self) -> None:
        """Write the whole output file, if there is one."""
        if self._kept is not None:
            self._kept.finish()

    def _windows(self, lines: Iterator[str]) -> Iterator[list[str]]:
        """Yield consecutive lines. A window of documents ends with a paragraph, and one with tags is all of it."""
        options = self._options
        if options.documents and options.tags:
            document = list(lines)
            if document:
                yield document
            return
        size = 1 if options.interactive else options.chunk_size
        while window := list(islice(lines, size)):
            if options.documents:
                window += _rest_of_paragraph(window[-1], lines)
            yield window

    def _job(self, window: list[str], done: int) -> Job:
        """Return the job of a window, before which `done` lines are."""
        segments = self._segments(window, done)
        if self._options.documents:
            # A document has the code of the text before it.
            self._direction = replace(self._direction, code=segments[-1].code)
        self._warn_of_missing_codes(segments)
        numbers = [done + 1 + segment.line for segment in segments]
        sentences = self._reader.encode(segments, self._direction, numbers, self._of_texts.glossary)
        lengths = [len(sentence.token_ids) for sentence in sentences]
        batches = batch_by_tokens(lengths, self._options.decoding.max_tokens_per_batch, numbers)
        self._progress.skip(lengths.count(0))
        return Job(
            lines=window,
            sentences=sentences,
            numbers=numbers,
            batches=batches,
            decoding=self._options.decoding,
            code=self._direction.code,
            is_of_lines=not self._of_texts.has_segments,
            lines_before=done,
        )

    def _segments(self, window: Sequence[str], done: int) -> list[Segment]:
        """Return the segments of a window with their lines in it."""
        if self._options.documents:
            text = "".join(f"{line}\n" for line in window)
            return self._reader.segments(text, self._of_texts, self._direction)
        segments = []
        for number, line in enumerate(window):
            text = f"{line}\n" if self._of_texts.has_segments else line
            try:
                of_line = self._reader.segments(text, self._of_texts, self._direction)
            except ValueError as error:
                raise UserError(f"line {done + 1 + number} of the input: {error}") from error
            segments += [replace(segment, line=segment.line + number) for segment in of_line]
        return segments

    def _warn_of_missing_codes(self, segments: Sequence[Segment]) -> None:
        codes = self._reader.codes
        if not self._has_warned and codes.are_missing(segment.source for segment in segments):
            self._has_warned = True
            logger.warning("%s, or give --target_lang %s.", codes.missing(), codes.languages[0])


def _rest_of_paragraph(last: str, lines: Iterator[str]) -> list[str]:
    """Return the lines up to the next blank one, unless the last line was blank."""
    rest = []
    while last.strip():
        last = next(lines, None)
        if last is None:
            break
        rest.append(last)
    return rest
