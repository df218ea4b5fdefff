"""Translate a file, or standard input, with a trained encoder-decoder.

    hf-capsule-mt translate --model outputs/run --num_beams 4 < in.en > out.de
    accelerate launch -m hf_capsule_mt.cli.translate --model outputs/run --input_file in.en.gz --output_file out.de
    accelerate launch --num_processes 4 -m hf_capsule_mt.cli.translate --model Helsinki-NLP/opus-mt-en-de \\
        --input_file in.en --output_file out.de --num_beams 5 --length_penalty 0.6 --dtype bfloat16

Line i of the output translates line i of the input; blank lines stay empty. With --output_file, finished batches are
kept beside it until it is complete, and the same command continues after an interruption.
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from tqdm import tqdm

from hf_capsule_mt.data.parallel_text import read_lines
from hf_capsule_mt.data.segments import text_bytes, unbroken, write_lines
from hf_capsule_mt.evaluation.journal import Journal, read_journals, remove_journals
from hf_capsule_mt.evaluation.translator import batch_by_tokens, encode_lines, source_limit, translate_batches

from . import decoding
from .errors import report_user_errors
from .output import check_output_file
from .parser import CommandParser
from .processes import leave_group_at_exit


@dataclass
class _Job:
    """Source tokens by line, batches of line numbers, and all that the translations depend on."""

    encoded: list[list[int]]
    batches: list[list[int]]
    settings: dict[str, Any]


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    decoding.add_options(parser)
    parser.add_argument("--input_file", type=Path, help="one segment a line, plain or .gz (default: standard input)")
    parser.add_argument("--output_file", type=Path, help="plain or .gz (default: standard output)")
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Translate; each process takes a share of the batches."""
    args = build_parser().parse_args(argv)
    _check_arguments(args)
    lines = translate_file(args, args.output_file)
    if args.output_file is None and lines is not None:
        sys.stdout.buffer.write(text_bytes(lines, "the translations"))
        sys.stdout.buffer.flush()
    leave_group_at_exit()


def translate_file(args: argparse.Namespace, output_file: Path | None) -> list[str] | None:
    """Translate `args.input_file` as the decoding options say, and return the lines in the main process alone.

    With an output file they are written to it, and finished batches are kept beside it until then.
    """
    state = decoding.process_state(args.device)
    job, translations = None, {}
    if state.is_main_process:
        job = _prepare(args)
        if output_file is not None:
            translations = read_journals(output_file, job.settings)
            job.batches = _unfinished(job.batches, translations)
    [job] = broadcast_object_list([job])
    shares = gather_object([_translate_share(args, output_file, job, state)])
    if not state.is_main_process:
        return None
    for share in shares:
        translations.update(share)
    lines = unbroken((translations.get(index, "") for index in range(len(job.encoded))), "translations")
    if output_file is not None:
        write_lines([output_file], [lines])
        remove_journals(output_file)
    return lines


def _check_arguments(args: argparse.Namespace) -> None:
    decoding.check_options(args)
    if args.input_file is not None and not args.input_file.is_file():
        raise FileNotFoundError(f"--input_file {args.input_file} is not a file")
    check_output_file(args.output_file)


def _prepare(args: argparse.Namespace) -> _Job:
    """Read the input and plan its batches."""
    lines = read_lines(args.input_file or "/dev/stdin")
    config, tokenizer = decoding.pin_revision(args), decoding.load_tokenizer(args)
    encoded = encode_lines(tokenizer, lines, source_limit(config, tokenizer))
    batches = batch_by_tokens([len(ids) for ids in encoded], args.max_tokens_per_batch)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return _Job(encoded, batches, {"input": digest, **decoding.settings(args)})


def _unfinished(batches: list[list[int]], done: dict[int, str]) -> list[list[int]]:
    # Planned from all lines and then thinned, so that a resumed run has the batches of an uninterrupted one.
    rest = ([index for index in batch if index not in done] for batch in batches)
    return [batch for batch in rest if batch]


def _translate_share(
    args: argparse.Namespace, output_file: Path | None, job: _Job, state: PartialState
) -> dict[int, str]:
    """Return the translations of this process by the index of the line."""
    batches = job.batches[state.process_index :: state.num_processes]
    args.revision = job.settings["revision"]
    model, tokenizer = decoding.load(args, state)
    options = decoding.generate_options(args)
    translations = {}
    with ExitStack() as stack:
        bar = tqdm(total=sum(map(len, batches)), unit=" lines", disable=not state.is_main_process)
        stack.enter_context(bar)
        if output_file is not None:
            journal = stack.enter_context(Journal(output_file, state.process_index, job.settings))
        for batch in translate_batches(model, tokenizer, job.encoded, batches, **options):
            translations.update(batch)
            if output_file is not None:
                journal.append(batch)
            bar.update(len(batch))
    return translations


if __name__ == "__main__":
    main()
