"""Translate a file, or standard input.

    echo "Where did you buy that coat?" | hf-capsule-mt translate --model checkpoints/tatoeba-en-de-transformer
    Wo hast du diesen Mantel gekauft?

    hf-capsule-mt translate --model Helsinki-NLP/opus-mt-en-de --input_file in.en --output_file out.de --num_beams 4
    accelerate launch -m hf_capsule_mt translate --model run --input_file in.en.gz --output_file out.de

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
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence, Set
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
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
from hf_capsule_mt.data.language_codes import LanguageCodes
from hf_capsule_mt.data.parallel_text import byte_lines, each_line, text_bytes, unbroken
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import locked, replaced_file
from hf_capsule_mt.translation.attention import aligner, cross_attention
from hf_capsule_mt.translation.documents import (
    Fits,
    Segment,
    check_language,
    cut_text,
    segments_with_codes,
    texts_with_codes,
)
from hf_capsule_mt.translation.marked_segments import keep_pattern, marked_segments
from hf_capsule_mt.translation.partial_output import PartialOutput, folder_beside
from hf_capsule_mt.translation.translation_report import Judgement, faults, judge, sequence_scores
from hf_capsule_mt.translation.translator import Written, leave_out_copies, pad_rows, translate_batches

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

_STANDARD_INPUT = Path("/dev/stdin")
_SETTINGS = ("documents", "sentences", "tags", "keep", "target_lang", "report_file")
"""Options that the output depends on, and that are not about decoding."""


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
        default=10_000,
        help="Number of input lines to read, sort and write at a time. Lower it to save memory (default: %(default)s).",
    )
    parser.add_argument("--interactive", action="store_true", help="Translate each line as soon as it arrives.")
    parser.add_argument(
        "--documents",
        metavar="LANGUAGE",
        help="Translate running text in this language, such as en, sentence by sentence.",
    )
    parser.add_argument("--sentences", metavar="LANGUAGE", help="Cut lines into sentences of a language, such as en.")
    parser.add_argument("--target_lang", help="Language to write with multilingual OPUS-MT: pt stands for >>pt<<.")
    parser.add_argument("--tags", action="store_true", help="Put tags of XML or HTML around the words they belong to.")
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


@dataclass
class Job:
    """A window of lines."""

    lines: list[str]  # The input.
    encoded: list[list[int]]  # Source tokens of every line or segment.
    batches: list[list[int]]  # Indices of those that the model reads.
    numbers: list[int]  # Their lines in the input, from 1.
    revision: str | None  # The model's commit.
    segments: list[Segment] | None  # Translated instead of the lines, if there are any.
    cut: Set[int]  # Indices of those that are longer than the model reads.
    copies: dict[int, str]  # The lines or segments that are copied, by index.
    code: str  # The code of the language of the last text.

    def output(self, translations: dict[int, dict[str, Any]]) -> list[str]:
        """Return the lines of the output from the translations by index."""
        found = {**self.copies, **{index: found["text"] for index, found in translations.items()}}
        if self.segments is None:
            return unbroken((found.get(index, "") for index in range(len(self.encoded))), "translations")
        # The tokenizer may make nothing of the words between tags.
        texts = [
            segment.around(found[index] if index in found else segment.put_back(""))
            for index, segment in enumerate(self.segments)
        ]
        return "".join(texts).removesuffix("\n").split("\n")

    def report(self, translations: dict[int, dict[str, Any]]) -> list[str]:
        """Return the lines of a report, one for each sentence."""
        lines = []
        for index, number in enumerate(self.numbers):
            judged = {name: value for name, value in translations.get(index, {}).items() if name != "text"}
            lines.append(json.dumps({"line": number, **vars(Judgement(**judged | {"source_cut": index in self.cut}))}))
        return lines


class Worker:
    """Translates the batches of one process, by the options of the command."""

    def __init__(self, args: argparse.Namespace, state: PartialState, progress: Progress) -> None:
        self._args, self._state, self._progress = args, state, progress

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
        model, tokenizer = self._loaded
        sources, judged = [job.encoded[index] for index in batch], [{}] * len(batch)
        if self._args.report_file is not None:
            scores = sequence_scores(model, sources, [each.ids for each in written])
            rows = zip(sources, written, texts, scores, strict=True)
            judged = [vars(judge(source, each.words, each.end is not None, *rest)) for source, each, *rest in rows]
        if job.segments is not None:
            segments, aligners = [job.segments[index] for index in batch], {}
            texts = unbroken(texts, "translations of a batch")
            if rows := [row for row, segment in enumerate(segments) if segment.needs_alignment]:
                read, mask = pad_rows([sources[row] for row in rows], model.config.pad_token_id, model.device)
                found = cross_attention(model, generated[rows], input_ids=read, attention_mask=mask.long())
                for row, attention in zip(rows, found):
                    words = segments[row].text, sources[row], written[row].words
                    aligners[row] = aligner(attention, tokenizer, *words)
            texts = [
                segment.put_back(text, aligners.get(row))
                for row, (segment, text) in enumerate(zip(segments, texts, strict=True))
            ]
        return [{"text": text, **judgement} for text, judgement in zip(texts, judged, strict=True)]


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Translate. Each process takes a share of the batches."""
    args = build_parser().parse_args(argv)
    _check_arguments(args)
    for lines in translate_windows(args):
        sys.stdout.buffer.write(text_bytes(lines))
        sys.stdout.buffer.flush()
    has_report = args.report_file is not None and PartialState().is_main_process
    if has_report and (found := faults(each_line(args.report_file))) is not None:
        logger.warning("%s See %s.", found, args.report_file)
    leave_group_at_exit()


def options_like(args: argparse.Namespace, **changes: Any) -> argparse.Namespace:
    """Return options of this command, with the values that `args` of another command have, and `changes`."""
    options = build_parser().parse_args(["--model", args.model])
    vars(options).update({name: value for name, value in vars(args).items() if name in options}, **changes)
    return options


def translate_windows(
    args: argparse.Namespace, lines: Iterator[str] | None = None, total: int | None = None
) -> Iterator[list[str]]:
    """Translate `args.input_file`, or `lines`, of which there are `total`. Yield the lines of each window.

    With an output file, the lines go there. Finished windows, and the report, are kept next to it until all is done.
    Only the main process has lines.

    Raises:
        BlockingIOError: if another process writes that file.
    """
    state = decoding.process_state(args.device)
    is_main = state.is_main_process
    # The first process writes for all. Without an output file, a report is written as a whole at the end.
    output, report_file = (args.output_file, args.report_file) if is_main else (None, None)
    if lines is None:
        lines = _lines(args)
        # All lines are checked first, unless they are a stream, which comes only once.
        if is_main and not _has_segments(args) and (args.input_file or _STANDARD_INPUT).is_file():
            total = sum(1 for _ in _lines(args))
    with (
        nullcontext() if output is None else locked(folder_beside(output)),
        Progress(total, shown=is_main and not args.interactive) as progress,
        nullcontext() if report_file is None or output is not None else replaced_file(report_file) as report,
    ):
        jobs, kept = iter(()), None
        if is_main:
            config = decoding.pin_revision(args)
            tokenizer = decoding.load_tokenizer(args.model, args.revision)
            given = {name: getattr(args, name) for name in _SETTINGS if getattr(args, name)}
            given |= {"report_file": str(report_file.resolve())} if report_file else {}
            kept = PartialOutput(output, decoding.settings(args) | given, report_file) if output else None
            jobs = _ahead(_jobs(args, lines, tokenizer, source_limit(config, tokenizer), kept, progress))
        worker = Worker(args, state, progress)
        while (job := broadcast_object_list([next(jobs, None)])[0]) is not None:
            translations = dict(chain.from_iterable(found.items() for found in gather_object([worker.translate(job)])))
            judged = job.report(translations) if report_file is not None else []
            if kept is not None:
                kept.append(job.lines, job.output(translations), judged, job.code)
            elif is_main:
                if report is not None:
                    report.write(text_bytes(judged))
                yield job.output(translations)
        if kept is not None:
            kept.finish()
    if output is not None:
        with suppress(OSError):
            folder_beside(output).rmdir()


def _check_arguments(args: argparse.Namespace) -> None:
    decoding.check_options(args)
    if args.input_file is not None:
        check_text_file("--input_file", args.input_file)
    outputs = (("--output_file", args.output_file), ("--report_file", args.report_file))
    for _, path in outputs:
        check_output_file(path)
    check_distinct(outputs, [args.input_file or _STANDARD_INPUT])
    for language in filter(None, (args.documents, args.sentences)):
        check_language(language)
    if args.keep is not None:
        keep_pattern(args.keep)


def _lines(args: argparse.Namespace) -> Iterator[str]:
    """Yield the lines of the input. If the shell opened a file, this continues where it was read last.

    Running text, and lines with tags, keep their carriage returns.
    """
    path, begin = args.input_file, 0
    if path is None:
        # By its name the file is opened again, at its beginning.
        path, begin = _STANDARD_INPUT, os.lseek(0, 0, os.SEEK_CUR) if _STANDARD_INPUT.is_file() else 0
    for number, line in enumerate(byte_lines(path, begin, keep_returns=bool(args.documents or args.tags)), start=1):
        try:
            yield line.decode(errors=args.errors)
        except UnicodeDecodeError as error:
            raise UserError(f"{path}:{number}: not UTF-8. Convert the file, or give --errors replace.") from error


def _windows(args: argparse.Namespace, lines: Iterator[str]) -> Iterator[list[str]]:
    """Yield consecutive lines. A window of documents ends with a paragraph, and one with tags is all of it."""
    if args.documents and args.tags:
        yield from filter(None, [list(lines)])
        return
    while window := list(islice(lines, 1 if args.interactive else args.chunk_size)):
        while args.documents and window[-1].strip() and (more := list(islice(lines, 1))):
            window += more
        yield window


def _has_segments(args: argparse.Namespace) -> bool:
    """Whether segments are translated instead of lines."""
    return bool(args.documents or args.sentences or args.tags or args.keep)


def _segments(args: argparse.Namespace, lines: Sequence[str], fits: Fits, first: int) -> list[list[Segment]]:
    """Return the segments of each text of a window, whose first line has the number `first`."""
    pattern = keep_pattern(args.keep) if args.keep else None
    language = args.documents or args.sentences
    cut = partial(cut_text, language=language, fits=fits) if language else None
    if args.documents:
        return [marked_segments("".join(f"{line}\n" for line in lines), args.tags, pattern, cut)]
    texts = []
    for number, line in enumerate(lines):
        try:
            segments = marked_segments(f"{line}\n", args.tags, pattern, cut)
        except ValueError as error:
            raise UserError(f"line {first + number} of the input: {error}") from error
        texts.append([replace(segment, line=segment.line + number) for segment in segments])
    return texts


def _ahead(jobs: Iterator[Job]) -> Iterator[Job]:
    """Yield jobs. Meanwhile a thread makes the next two. Its error is raised after the jobs before it."""
    waiting: Queue[Job | BaseException | None] = Queue(1)

    def make() -> None:
        try:
            for job in jobs:
                waiting.put(job)
            waiting.put(None)
        # A panic inside the library tokenizers is no Exception.
        except BaseException as error:
            waiting.put(error)

    Thread(target=make, daemon=True).start()
    while isinstance(job := waiting.get(), Job):
        yield job
    if job is not None:
        raise job


def _jobs(
    args: argparse.Namespace,
    lines: Iterator[str],
    tokenizer: PreTrainedTokenizerBase,
    limit: int,
    kept: PartialOutput | None,
    progress: Progress,
) -> Iterator[Job]:
    """Yield the windows that are not finished."""
    codes, has_warned, done = LanguageCodes(tokenizer), False, 0
    code = codes.of(args.target_lang, "target_lang")

    def fits(part: str) -> bool:
        # A code takes one token.
        return len(tokenizer(shortened(tokenizer, part, limit))["input_ids"]) <= limit - bool(codes)

    if kept is not None:
        done = kept.skip(lines)
        code = code if kept.code is None else kept.code
        progress.skip(done)
    for window in _windows(args, lines):
        segments = None
        if _has_segments(args):
            texts = _segments(args, window, fits, done + 1)
            segments = list(chain.from_iterable(segments_with_codes(codes, text, code) for text in texts))
            # A document has the code of the text before it.
            code = segments[-1].code if args.documents else code
        sources = (
            texts_with_codes(codes, window, code) if segments is None else [segment.source for segment in segments]
        )
        if not has_warned and codes.are_missing(sources):
            has_warned = True
            logger.warning("%s, or give --target_lang %s.", codes.missing(), codes.languages[0])
        places = range(len(window)) if segments is None else [segment.line for segment in segments]
        numbers = [done + 1 + place for place in places]
        encoded = tokenize_lines(tokenizer, sources, limit)
        copies = leave_out_copies(window if segments is None else [segment.text for segment in segments], encoded)
        cut = cut_lines(tokenizer, sources, encoded, limit, numbers)
        batches = batch_by_tokens([len(ids) for ids in encoded], args.max_tokens_per_batch, numbers)
        progress.skip(len(sources) - sum(map(len, batches)))
        yield Job(window, encoded, batches, numbers, args.revision, segments, cut, copies, code)
        done += len(window)
