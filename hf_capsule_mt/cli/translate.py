"""Translate a file, or standard input.

    echo "a dog runs through the snow ." | hf-capsule-mt translate --model checkpoints/multi30k-en-de-transformer
    ein hund rennt durch den schnee .

    hf-capsule-mt translate --model Helsinki-NLP/opus-mt-en-de --input_file in.en --output_file out.de --num_beams 4
    accelerate launch -m hf_capsule_mt.cli.translate --model run --input_file in.en.gz --output_file out.de

Line i of the output translates line i of the input. Lines without letters are copied. The input may have any size.
With --output_file, finished lines are kept in the folder OUTPUT.unfinished. After an interruption the same command
continues.

Most models read one sentence a line, and lose the rest of a line with several. --sentences en cuts each line into
sentences. With --documents en the input is running text in that language. Its paragraphs are kept, and its sentences
are translated.

--tags puts tags of XML or HTML back around the translations of their words. Each line is a text with tags. With
--documents the whole input is one text, such as a page of HTML:

    hf-capsule-mt translate --model run --tags --documents en --keep '\\{\\w+\\}' < page.en.html > page.de.html
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.encoding import batch_by_tokens, cut_lines, shortened, source_limit, tokenize_lines
from hf_capsule_mt.data.parallel_text import byte_lines, each_line, text_bytes, unbroken
from hf_capsule_mt.files import locked, replaced_file
from hf_capsule_mt.translation.attention import aligner, cross_attention
from hf_capsule_mt.translation.documents import Fits, Segment, check_language, cut_document, cut_text
from hf_capsule_mt.translation.language_codes import LanguageCodes
from hf_capsule_mt.translation.marked_segments import MarkedSegment, keep_pattern, marked_segments
from hf_capsule_mt.translation.partial_output import PartialOutput, folder_beside
from hf_capsule_mt.translation.translation_report import Judgement, faults, judge, report_line, sequence_scores
from hf_capsule_mt.translation.translator import (
    Written,
    leave_out_copies,
    pad_rows,
    translate_batches,
    translate_lines,
)

from . import decoding
from .common import (
    CommandParser,
    Progress,
    at_least,
    check_distinct,
    check_output_file,
    check_text_file,
    leave_group_at_exit,
    report_user_errors,
)

logger = logging.getLogger(__name__)

WINDOW = 10_000
"""Lines that are read, tokenized and sorted by length together."""
_FIRST_WINDOW, _GROWTH = 1_000, 4
"""Lines of the first window, which are tokenized before the first batch, and how fast windows grow."""
_ARRIVALS = 64
"""The most lines that are answered together when somebody waits for them."""
_STANDARD_INPUT = Path("/dev/stdin")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    decoding.add_options(parser)
    parser.add_argument(
        "--input_file", type=Path, help="Text to translate, one sentence a line, may be .gz (default: standard input)."
    )
    parser.add_argument("--output_file", type=Path, help="May be .gz (default: standard output).")
    parser.add_argument(
        "--chunk_size",
        type=at_least(1),
        default=WINDOW,
        help="Number of input lines to read, sort and write at a time. Lower it to save memory (default: %(default)s).",
    )
    parser.add_argument(
        "--interactive",
        action="store_true",
        help="Translate each line of standard input as soon as it arrives.",
    )
    parser.add_argument(
        "--documents",
        metavar="LANGUAGE",
        help="Translate running text in this language, such as en, sentence by sentence.",
    )
    parser.add_argument(
        "--sentences", metavar="LANGUAGE", help="Cut each line into sentences of this language, such as en."
    )
    parser.add_argument(
        "--target_lang", help="Language to write, for multilingual OPUS-MT: pt puts >>pt<< in front of every source."
    )
    parser.add_argument(
        "--tags", action="store_true", help="Put tags of XML or HTML around the translations of their words."
    )
    parser.add_argument(
        "--keep",
        metavar="REGEX",
        help=r"Regular expression. Text that matches it is copied, not translated. Example: '\{\w+\}' for placeholders "
        "such as {name}.",
    )
    parser.add_argument(
        "--errors",
        choices=["strict", "replace"],
        default="strict",
        help="What to do with bytes that are not UTF-8. strict (default): stop. replace: read them as U+FFFD.",
    )
    parser.add_argument(
        "--report_file",
        type=Path,
        metavar="FILE",
        help="Write a line of JSON for each translation: its score, its length, and whether it looks wrong.",
    )
    return parser


@dataclass(frozen=True)
class Reading:
    """How the input is read.

    Attributes:
        documents: the language of running text; None if the input has lines.
        sentences: the language of lines that may have several sentences.
        tags: whether the input has tags of XML or HTML.
        keep: a regular expression for parts that are not translated.
        report: the file of the report.
        target_lang: the language of the translations, for models that need its code.
    """

    documents: str | None = None
    tags: bool = False
    keep: str | None = None
    report: str | None = None
    sentences: str | None = None
    target_lang: str | None = None

    @property
    def are_segments(self) -> bool:
        """Whether segments are translated instead of lines."""
        return bool(self.documents or self.sentences or self.tags or self.keep is not None)

    def settings(self) -> dict[str, Any]:
        """Return the settings that translations depend on."""
        return {name: value for name, value in vars(self).items() if value is not None and value is not False}

    def segments(
        self, lines: Sequence[str], fits: Fits, first: int, put: Callable[[list[Segment]], list[Segment]] = list
    ) -> list[Segment] | None:
        """Return the segments of lines; None if lines are translated whole.

        Args:
            lines: of the input.
            fits: whether the model can read a text.
            first: the number of the first line.
            put: adds the code of the language to the segments of a text.

        Raises:
            ValueError: if tags of a line are wrong, or `keep` searches for too long.
        """
        if not self.are_segments:
            return None
        pattern = None if self.keep is None else keep_pattern(self.keep)
        language = self.documents or self.sentences
        cut = partial(cut_text, language=language, fits=fits) if language else None
        if self.documents:
            text = "".join(f"{line}\n" for line in lines)
            if not self.tags and pattern is None:
                return put(cut_document(text, self.documents, fits))
            return put(marked_segments(text, self.tags, pattern, cut))
        found = []
        for number, line in enumerate(lines):
            try:
                segments = marked_segments(f"{line}\n", self.tags, pattern, cut)
            except ValueError as error:
                raise ValueError(f"line {first + number} of the input: {error}") from error
            found += put([segment.on_line(number) for segment in segments])
        return found


@dataclass
class Job:
    """A window of lines.

    Attributes:
        lines: of the input.
        encoded: source tokens of every line or segment.
        batches: indices of those that the model reads.
        numbers: their lines in the input, from 1.
        revision: of the model.
        segments: what is translated instead of the lines, if anything.
        cut: indices of those that are longer than the model reads.
        copies: those that are their own translations, by index.
        code: of the language of the last text.
    """

    lines: list[str]
    encoded: list[list[int]]
    batches: list[list[int]]
    numbers: list[int]
    revision: str | None = None
    segments: list[Segment] | None = None
    cut: Set[int] = frozenset()
    copies: dict[int, str] = field(default_factory=dict)
    code: str = ""

    def output(self, translations: dict[int, dict[str, Any]]) -> list[str]:
        """Return the lines of the output from the translations by index."""
        found = {**self.copies, **{index: found["text"] for index, found in translations.items()}}
        if self.segments is None:
            return unbroken((found.get(index, "") for index in range(len(self.encoded))), "translations")
        for index, segment in enumerate(self.segments):
            # The tokenizer may make nothing of the words between tags.
            if index not in found:
                found[index] = segment.put_back("") if isinstance(segment, MarkedSegment) else ""
        texts = [segment.around(found[index]) for index, segment in enumerate(self.segments)]
        return "".join(texts).removesuffix("\n").split("\n")

    def report(self, translations: dict[int, dict[str, Any]]) -> list[str]:
        """Return the lines of a report, one for each sentence."""
        lines = []
        for index, number in enumerate(self.numbers):
            judged = {name: value for name, value in translations.get(index, {}).items() if name != "text"}
            lines.append(report_line(number, Judgement(**judged | {"source_cut": index in self.cut})))
        return lines


class Worker:
    """Translates the batches of one process.

    Args:
        args: the decoding options.
        state: of this process.
        progress: is told of each batch.
        reports: whether translations are judged.
    """

    def __init__(self, args: argparse.Namespace, state: PartialState, progress: Progress, reports: bool) -> None:
        self._args, self._state, self._progress, self._reports = args, state, progress, reports

    @cached_property
    def _loaded(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        return decoding.load(self._args, self._state)

    def translate(self, job: Job) -> dict[int, dict[str, Any]]:
        """Return the translations of this process by index: the `text`, and the fields of a `Judgement`."""
        state = self._state
        self._args.revision = job.revision
        batches = job.batches[state.process_index :: state.num_processes]
        # Before anything is written: the checkpoint may be damaged.
        model, tokenizer = self._loaded
        options = {"finish": partial(self._finish, job), **decoding.generate_options(self._args)}
        translations = {}
        for batch in translate_batches(model, tokenizer, job.encoded, batches, **options):
            translations.update(batch)
            # The other processes are about as far.
            tokens = sum(len(job.encoded[index]) for index in batch)
            self._progress.add(len(batch) * state.num_processes, tokens * state.num_processes)
        return translations

    def _finish(
        self, job: Job, batch: Sequence[int], generated: Tensor, written: Sequence[Written], texts: list[str]
    ) -> list[dict[str, Any]]:
        """Judge the translations of a batch, and put tags and kept parts back."""
        model, _ = self._loaded
        sources, judged = [job.encoded[index] for index in batch], [{}] * len(batch)
        if self._reports:
            scores = sequence_scores(model, sources, [each.ids for each in written])
            rows = zip(sources, written, texts, scores, strict=True)
            judged = [vars(judge(source, each.words, each.end is not None, *rest)) for source, each, *rest in rows]
        if job.segments is not None:
            segments = [job.segments[index] for index in batch]
            texts = self._put_back(segments, sources, generated, written, unbroken(texts, "translations of a batch"))
        return [{"text": text, **judgement} for text, judgement in zip(texts, judged, strict=True)]

    def _put_back(
        self,
        segments: Sequence[Segment],
        sources: Sequence[list[int]],
        generated: Tensor,
        written: Sequence[Written],
        texts: list[str],
    ) -> list[str]:
        model, tokenizer = self._loaded
        marked = [row for row, segment in enumerate(segments) if isinstance(segment, MarkedSegment)]
        aligned = [row for row in marked if segments[row].needs_alignment]
        attention = {}
        if aligned:
            input_ids, mask = pad_rows([sources[row] for row in aligned], model.config.pad_token_id, model.device)
            found = cross_attention(model, generated[aligned], input_ids=input_ids, attention_mask=mask.long())
            attention = dict(zip(aligned, found))
        texts = list(texts)
        for row in marked:
            align = None
            if row in attention:
                align = aligner(attention[row], tokenizer, segments[row].text, sources[row], written[row].words)
            texts[row] = segments[row].put_back(texts[row], align)
        return texts


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Translate; each process takes a share of the batches."""
    args = build_parser().parse_args(argv)
    _check_arguments(args)
    if args.interactive:
        _answer(args)
        return
    report = None if args.report_file is None else str(args.report_file.resolve())
    reading = Reading(args.documents, args.tags, args.keep, report, args.sentences, args.target_lang)
    for lines in translate_windows(args, args.output_file, args.chunk_size, reading, args.report_file):
        if args.output_file is None:
            _print(lines)
    leave_group_at_exit()


def translate_windows(
    args: argparse.Namespace,
    output_file: Path | None,
    window: int = WINDOW,
    reading: Reading | None = None,
    report_file: Path | None = None,
) -> Iterator[list[str]]:
    """Translate `args.input_file` as the decoding options say, window by window.

    With an output file, that is where the lines go, and finished windows are kept beside it until it is complete, those
    of the report too.

    Yields:
        The lines of each window, in the main process, if there is no output file.

    Raises:
        BlockingIOError: if another process writes that file.
    """
    state = decoding.process_state(args.device)
    is_main, reading = state.is_main_process, reading or Reading()
    # The first process writes for all.
    writes = is_main and output_file is not None
    counted = is_main and not reading.are_segments
    # Without an output file, a report is written as a whole at the end.
    alone = replaced_file(report_file) if is_main and report_file and not writes else nullcontext()
    with (
        locked(folder_beside(output_file)) if writes else nullcontext(),
        Progress(_number_of_lines(args) if counted else None, shown=is_main) as progress,
        alone as report,
    ):
        jobs, partial = iter(()), None
        if is_main:
            config, tokenizer = decoding.pin_revision(args), decoding.load_tokenizer(args)
            settings = decoding.settings(args) | reading.settings()
            partial = PartialOutput(output_file, settings, report_file) if writes else None
            limit = source_limit(config, tokenizer)
            jobs = _jobs(args, tokenizer, limit, partial, window, reading, progress)
        worker = Worker(args, state, progress, reading.report is not None)
        while (job := broadcast_object_list([next(jobs, None)])[0]) is not None:
            translations = dict(chain.from_iterable(found.items() for found in gather_object([worker.translate(job)])))
            judged = job.report(translations) if is_main and reading.report else []
            if partial is not None:
                partial.append(job.lines, job.output(translations), judged, job.code)
            elif is_main:
                if report is not None:
                    report.write(text_bytes(judged))
                yield job.output(translations)
        if partial is not None:
            partial.finish()
    if writes:
        with suppress(OSError):
            folder_beside(output_file).rmdir()
    if is_main and report_file is not None and (found := faults(each_line(report_file))) is not None:
        logger.warning("%s; see %s", found, report_file)


def _check_arguments(args: argparse.Namespace) -> None:
    decoding.check_options(args)
    others = ("input_file", "output_file", "documents", "sentences", "tags", "keep", "report_file")
    given = [f"--{name}" for name in others if getattr(args, name)]
    if args.interactive and given:
        raise ValueError(f"--interactive answers lines; leave out {', '.join(given)}")
    if args.input_file is not None:
        check_text_file("--input_file", args.input_file)
    check_output_file(args.output_file)
    check_output_file(args.report_file)
    outputs = (("--output_file", args.output_file), ("--report_file", args.report_file))
    check_distinct(outputs, [args.input_file or _STANDARD_INPUT])
    for language in filter(None, (args.documents, args.sentences)):
        check_language(language)
    if args.keep is not None:
        keep_pattern(args.keep)


def _number_of_lines(args: argparse.Namespace) -> int | None:
    """Return the lines of the input, all of which are checked; None of a stream, which comes but once."""
    path = args.input_file or _STANDARD_INPUT
    return sum(1 for _ in _lines(args)) if path.is_file() else None


def _lines(args: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the input: of a file that the shell opened, what nobody has read before.

    Running text, and lines with tags, keep their carriage returns.
    """
    path, begin = args.input_file, 0
    if path is None:
        # By its name the file is opened again, at its beginning.
        path, begin = _STANDARD_INPUT, os.lseek(0, 0, os.SEEK_CUR) if _STANDARD_INPUT.is_file() else 0
    keep_returns = bool(getattr(args, "documents", None) or getattr(args, "tags", False))
    for number, line in enumerate(byte_lines(path, begin, keep_returns=keep_returns), start=1):
        try:
            yield line.decode(errors=getattr(args, "errors", "strict"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}:{number}: not UTF-8. Convert the file, or give --errors replace.") from error


def _windows(lines: Iterable[str], most: int, reading: Reading) -> Iterator[list[str]]:
    """Yield consecutive lines: few at first, so that translating begins soon, and at most `most`.

    Of documents a window ends with a paragraph, so it may have more; one with tags is a window.
    """
    lines = iter(lines)
    if reading.documents and reading.tags:
        yield from filter(None, [list(lines)])
        return
    size = _FIRST_WINDOW
    while window := list(islice(lines, min(size, most))):
        while reading.documents and window[-1].strip() and (more := list(islice(lines, 1))):
            window += more
        yield window
        size *= _GROWTH


def _jobs(
    args: argparse.Namespace,
    tokenizer: PreTrainedTokenizerBase,
    limit: int,
    partial: PartialOutput | None,
    window: int,
    reading: Reading,
    progress: Progress,
) -> Iterator[Job]:
    """Yield the windows that are not finished."""
    codes, lines = LanguageCodes(tokenizer), _lines(args)
    code, has_warned, done = codes.of(reading.target_lang, "target_lang"), False, 0

    def fits(part: str) -> bool:
        # A code takes one token.
        return len(tokenizer(shortened(tokenizer, part, limit))["input_ids"]) <= limit - bool(codes)

    def put(segments: list[Segment]) -> list[Segment]:
        return codes.put(segments, code)

    if partial is not None:
        done = partial.skip(lines)
        code = code if partial.code is None else partial.code
        progress.skip(done)
    for part in _windows(lines, window, reading):
        segments = reading.segments(part, fits, done + 1, put)
        # A document has the code of the text before it.
        if segments and reading.documents:
            code = segments[-1].code
        texts = codes.sources(part, code) if segments is None else [segment.source for segment in segments]
        has_warned = has_warned or _warns(codes, texts)
        numbers = [done + 1 + (index if segments is None else segments[index].line) for index in range(len(texts))]
        encoded = tokenize_lines(tokenizer, texts, limit)
        cut = cut_lines(tokenizer, texts, encoded, limit, numbers)
        copies = leave_out_copies(part if segments is None else [segment.text for segment in segments], encoded)
        batches = batch_by_tokens([len(ids) for ids in encoded], args.max_tokens_per_batch, numbers)
        progress.skip(len(texts) - sum(map(len, batches)))
        yield Job(part, encoded, batches, numbers, args.revision, segments, cut, copies, code)
        done += len(part)


def _warns(codes: LanguageCodes, texts: Iterable[str]) -> bool:
    """Warn if a model must be told which language to write, and a text does not; return whether it did."""
    if missing := codes.are_missing(texts):
        logger.warning("%s", codes.missing("--target_lang {}"))
    return missing


def _answer(args: argparse.Namespace) -> None:
    """Answer standard input as it comes."""
    state = decoding.process_state(args.device)
    if state.num_processes > 1:
        raise ValueError(f"--interactive runs in one process, not in {state.num_processes}")
    decoding.pin_revision(args)
    model, tokenizer = decoding.load(args, state)
    options = {"max_tokens_per_batch": args.max_tokens_per_batch, **decoding.generate_options(args)}
    codes = LanguageCodes(tokenizer)
    code, has_warned, answered = codes.of(args.target_lang, "target_lang"), False, 0
    for lines in arrivals(_lines(args), _ARRIVALS):
        numbers = range(answered + 1, answered + len(lines) + 1)
        sources = codes.sources(lines, code)
        has_warned = has_warned or _warns(codes, sources)
        _print(translate_lines(model, tokenizer, sources, numbers=numbers, **options))
        answered += len(lines)


def arrivals(lines: Iterable[str], most: int) -> Iterator[list[str]]:
    """Yield what has arrived of `lines` whenever the last is dealt with: at least one line, and at most `most`.

    An error in reading is raised here, after the lines before it.
    """
    # Text, and at the end None or an error.
    waiting: Queue[str | Exception | None] = Queue(most)
    Thread(target=_read, args=(lines, waiting), daemon=True).start()
    last: str | Exception | None = ""
    while isinstance(last, str):
        found = []
        while isinstance(last := waiting.get(), str):
            found.append(last)
            if len(found) == most or waiting.empty():
                break
        if found:
            yield found
    if last is not None:
        raise last


def _read(lines: Iterable[str], waiting: Queue) -> None:
    try:
        for line in lines:
            waiting.put(line)
    except Exception as error:
        waiting.put(error)
    else:
        waiting.put(None)


def _print(lines: Sequence[str]) -> None:
    sys.stdout.buffer.write(text_bytes(lines))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
