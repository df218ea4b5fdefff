"""Translate a file, or standard input, with a trained encoder-decoder.

    hf-capsule-mt translate --model outputs/run --num_beams 4 < in.en > out.de
    hf-capsule-mt translate --model outputs/run --interactive
    accelerate launch -m hf_capsule_mt.cli.translate --model outputs/run --input_file in.en.gz --output_file out.de
    accelerate launch --num_processes 4 -m hf_capsule_mt.cli.translate --model Helsinki-NLP/opus-mt-en-de \\
        --input_file in.en --output_file out.de --num_beams 5 --length_penalty 0.6 --dtype bfloat16

Line i of the output translates line i of the input; blank lines stay empty. The input is read a window of lines at a
time, the first ones small, so that memory does not grow with it. With --output_file, finished windows and batches are
kept beside it until it is complete, and the same command continues after an interruption.

With --documents en the input is running text in that language instead: paragraphs, which blank lines separate, are
kept, and their sentences translated, however long.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.data.parallel_text import each_line
from hf_capsule_mt.data.segments import text_bytes, unbroken
from hf_capsule_mt.documents import Segment, cut_document
from hf_capsule_mt.evaluation.journal import Journal
from hf_capsule_mt.evaluation.partial_output import PartialOutput
from hf_capsule_mt.evaluation.translator import (
    batch_by_tokens,
    encode_lines,
    translate_batches,
    translate_lines,
)
from hf_capsule_mt.files import hash_text
from hf_capsule_mt.source_limits import source_limit

from . import decoding
from .arrivals import arrivals
from .errors import report_user_errors
from .output import check_output_file
from .parser import CommandParser
from .processes import leave_group_at_exit
from .progress import Progress

WINDOW = 100_000
"""Lines that are read, tokenised and sorted by length together."""
_FIRST_WINDOW, _GROWTH = 1_000, 4
"""Lines of the first window, which has to be tokenised before the first batch, and how fast they become more."""
_ARRIVALS = 64
"""The most lines that are answered together where somebody waits for them."""
_STANDARD_INPUT = Path("/dev/stdin")


@dataclass
class _Job:
    """A window of lines.

    Attributes:
        encoded: source tokens of every line.
        batches: indices of the lines that are left to do.
        header: which window it is, and all that its translations depend on.
        done: translations by index that an interrupted run has left.
        segments: of documents, what stands in the place of the lines.
    """

    encoded: list[list[int]]
    batches: list[list[int]]
    header: dict[str, Any]
    done: dict[int, str]
    segments: list[Segment] | None = None

    def output(self, translations: dict[int, str]) -> list[str]:
        """Return the lines of the output, of the translations by index."""
        lines = unbroken((translations.get(index, "") for index in range(len(self.encoded))), "translations")
        if self.segments is None:
            return lines
        return "".join(map(Segment.around, self.segments, lines)).removesuffix("\n").split("\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    decoding.add_options(parser)
    parser.add_argument("--input_file", type=Path, help="one segment a line, plain or .gz (default: standard input)")
    parser.add_argument("--output_file", type=Path, help="plain or .gz (default: standard output)")
    parser.add_argument(
        "--window",
        type=int,
        default=WINDOW,
        help="lines that are read and sorted by length together, and written together (default: %(default)s)",
    )
    parser.add_argument(
        "--interactive",
        action="store_true",
        help="answer each line of standard input at once, or those together that arrived meanwhile",
    )
    parser.add_argument(
        "--documents", metavar="LANGUAGE", help="translate running text in a language, such as en, sentence by sentence"
    )
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Translate; each process takes a share of the batches."""
    args = build_parser().parse_args(argv)
    _check_arguments(args)
    if args.interactive:
        _answer(args)
        return
    for lines in translate_windows(args, args.output_file, args.window, args.documents):
        if args.output_file is None:
            _print(lines)
    leave_group_at_exit()


def translate_windows(
    args: argparse.Namespace, output_file: Path | None, window: int = WINDOW, documents: str | None = None
) -> Iterator[list[str]]:
    """Translate `args.input_file` as the decoding options say, window by window.

    With an output file, that is where the lines go, and finished batches are kept beside it until it is complete.
    With a language of `documents`, the input is running text.

    Yields:
        The lines of each window, in the main process, if there is no output file.
    """
    state = decoding.process_state(args.device)
    is_main = state.is_main_process
    partial = PartialOutput(output_file) if is_main and output_file is not None else None
    with Progress(_number_of_lines(args) if is_main and not documents else None, shown=is_main) as progress:
        jobs = _jobs(args, partial, window, documents, progress) if is_main else iter(())
        worker = _Worker(args, output_file, state, progress)
        while (job := broadcast_object_list([next(jobs, None)])[0]) is not None:
            translations = _merged(job.done, gather_object([worker.translate(job)]))
            if partial is not None:
                partial.append(job.header, job.output(translations))
            elif is_main:
                yield job.output(translations)
    if partial is not None:
        partial.finish()


def _check_arguments(args: argparse.Namespace) -> None:
    decoding.check_options(args)
    if args.window < 1:
        raise ValueError(f"--window is {args.window}; it must be at least 1")
    if args.interactive and (args.input_file or args.output_file or args.documents):
        raise ValueError("--interactive answers lines; leave out --input_file, --output_file and --documents")
    if args.input_file is not None and not args.input_file.is_file():
        raise FileNotFoundError(f"--input_file {args.input_file} is not a file")
    check_output_file(args.output_file)
    if args.documents:
        cut_document("", args.documents, bool)


def _number_of_lines(args: argparse.Namespace) -> int | None:
    """Return the lines of the input, all of which are checked; None of a stream, which comes but once."""
    path = args.input_file or _STANDARD_INPUT
    return sum(1 for _ in each_line(path)) if path.is_file() else None


def _windows(lines: Iterable[str], most: int, documents: bool) -> Iterator[list[str]]:
    """Yield consecutive lines: few at first, so that translating begins soon, and at most `most`.

    Of documents a window ends with a paragraph, so it may have more.
    """
    lines = iter(lines)
    size = _FIRST_WINDOW
    while window := list(islice(lines, min(size, most))):
        while documents and window[-1].strip() and (more := list(islice(lines, 1))):
            window += more
        yield window
        size *= _GROWTH


def _jobs(
    args: argparse.Namespace, partial: PartialOutput | None, window: int, documents: str | None, progress: Progress
) -> Iterator[_Job]:
    """Yield the windows that are not finished."""
    config, tokenizer = decoding.pin_revision(args), decoding.load_tokenizer(args)
    settings, limit = decoding.settings(args), source_limit(config, tokenizer)
    settings |= {"documents": documents} if documents else {}
    first = 1
    for number, lines in enumerate(_windows(each_line(args.input_file or _STANDARD_INPUT), window, bool(documents))):
        header = {"window": number, "input": hash_text(lines), "lines of a window": window, **settings}
        if partial is not None and partial.has(header):
            progress.skip(len(lines))
        else:
            segments = _segments(lines, documents, tokenizer, limit) if documents else None
            texts = lines if segments is None else [segment.text for segment in segments]
            encoded = encode_lines(tokenizer, texts, limit, first)
            batches = batch_by_tokens([len(ids) for ids in encoded], args.max_tokens_per_batch, first)
            done = {} if partial is None else partial.unfinished(header)
            batches = _unfinished(batches, done)
            progress.skip(len(texts) - sum(map(len, batches)))
            yield _Job(encoded, batches, header, done, segments)
        first += len(lines)


def _segments(lines: Sequence[str], language: str, tokenizer: PreTrainedTokenizerBase, limit: int) -> list[Segment]:
    text = "".join(f"{line}\n" for line in lines)
    return cut_document(text, language, lambda part: len(tokenizer(part)["input_ids"]) <= limit)


def _unfinished(batches: list[list[int]], done: dict[int, str]) -> list[list[int]]:
    # Planned from all lines and then thinned, so that a resumed run has the batches of an uninterrupted one.
    rest = ([index for index in batch if index not in done] for batch in batches)
    return [batch for batch in rest if batch]


def _merged(done: dict[int, str], shares: Iterable[dict[int, str]]) -> dict[int, str]:
    return {index: text for share in (done, *shares) for index, text in share.items()}


class _Worker:
    """The part of a process in translating windows."""

    def __init__(
        self, args: argparse.Namespace, output_file: Path | None, state: PartialState, progress: Progress
    ) -> None:
        self._args, self._output_file, self._state, self._progress = args, output_file, state, progress

    @cached_property
    def _loaded(self) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        return decoding.load(self._args, self._state)

    def translate(self, job: _Job) -> dict[int, str]:
        """Return the translations of this process by the index of the line."""
        state = self._state
        self._args.revision = job.header["revision"]
        batches = job.batches[state.process_index :: state.num_processes]
        # Before anything is written, since the checkpoint may be damaged.
        model, tokenizer = self._loaded
        journal = None
        if self._output_file is not None:
            journal = Journal(self._output_file, state.process_index, job.header)
        translations = {}
        with journal or nullcontext():
            options = decoding.generate_options(self._args)
            for batch in translate_batches(model, tokenizer, job.encoded, batches, **options):
                translations.update(batch)
                if journal is not None:
                    journal.append(batch)
                # As if the others were as far.
                tokens = sum(len(job.encoded[index]) for index in batch)
                self._progress.add(len(batch) * state.num_processes, tokens * state.num_processes)
        return translations


def _answer(args: argparse.Namespace) -> None:
    """Answer standard input as it comes."""
    state = decoding.process_state(args.device)
    if state.num_processes > 1:
        raise ValueError(f"--interactive runs in one process, not in {state.num_processes}")
    decoding.pin_revision(args)
    model, tokenizer = decoding.load(args, state)
    options = {"max_tokens_per_batch": args.max_tokens_per_batch, **decoding.generate_options(args)}
    for lines in arrivals(each_line(_STANDARD_INPUT), _ARRIVALS):
        _print(translate_lines(model, tokenizer, lines, **options))


def _print(lines: Sequence[str]) -> None:
    sys.stdout.buffer.write(text_bytes(lines, "the translations"))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
