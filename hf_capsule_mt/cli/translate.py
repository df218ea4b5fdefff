"""The command `translate`. Its options stand in options/translate_options.py, and what they do in a `Job`."""

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from hf_capsule_mt.data.corpus_files import matching_files
from hf_capsule_mt.data.lines import each_line, text_bytes, without_compression
from hf_capsule_mt.data.row_formats import has_columns
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files.job import DOCUMENT, STANDARD_INPUT, Job
from hf_capsule_mt.translation.files.output_folders import OutputName, output_paths, share_of
from hf_capsule_mt.translation.files.run import Outcome, translate_document, translate_files, translated_lines
from hf_capsule_mt.translation.files.sources import kind_of
from hf_capsule_mt.translation.formats import LINES
from hf_capsule_mt.translation.formats.base import Reason
from hf_capsule_mt.translation.quality.faults import named_with_numbers
from hf_capsule_mt.translation.quality.report import is_report, summary
from hf_capsule_mt.translation.quality.report_page import write_report_page

from . import decoding
from .common import (
    check_distinct,
    check_output_file,
    check_output_folder,
    check_text_file,
    import_code,
    leave_group_at_exit,
    report_user_errors,
)
from .options.translate_options import build_parser

logger = logging.getLogger(__name__)

_MOST_PLACES = 10
"""The most units that the last line names."""


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Translate one input with all processes, or many files into a folder."""
    args = build_parser().parse_args(argv)
    import_code(args.imports)
    _name_report(args)
    decoding.check_options(args)
    _check_outputs(args)

    job = Job.of(
        vars(args),
        decoding=decoding.decoding_options(args),
        glossary=decoding.glossary_of(args),
        in_folder=args.output_dir is not None,
    )
    job.check()
    is_complete = _translate_folder(args, job) if job.in_folder else _translate_one(args, job)
    leave_group_at_exit()
    if not is_complete:
        raise SystemExit(1)


def _name_report(args: argparse.Namespace) -> None:
    """Name the lines of a report that only its page was asked for: it is made of them."""
    if args.report_page is None or args.report_file is not None:
        return
    args.report_file = args.report_page.with_suffix(".jsonl")
    if args.report_file.is_file() and not is_report(args.report_file):
        # Nobody has named it.
        raise UserError(
            f"--report_page {args.report_page} writes {args.report_file} too, which is there and no report. Move it, "
            "or name another file for the lines with --report_file."
        )


def _check_outputs(args: argparse.Namespace) -> None:
    """Check that what is written can be written, and replaces nothing that is read."""
    outputs = [
        (f"--{name}", getattr(args, name)) for name in ("output_file", "report_file", "report_page", "alignments")
    ]
    for _, path in outputs:
        check_output_file(path)
    inputs = args.input_file or [STANDARD_INPUT]
    check_distinct(outputs, [*inputs, args.glossary, args.vocabulary])
    if args.output_dir is None:
        return
    check_output_folder(args.output_dir)
    if args.output_file is not None or not args.input_file:
        raise UserError("--output_dir is for the files of --input_file. Name these, and leave out --output_file.")


def _translate_one(args: argparse.Namespace, job: Job) -> bool:
    """Translate one input, and finish its report."""
    paths = args.input_file or [STANDARD_INPUT]
    if len(paths) > 1:
        raise UserError("--input_file names several files. Give --output_dir for their outputs, or translate one.")
    [path] = paths
    if args.input_file is not None:
        # Messages in JSON are no rows of pairs. Their format is checked later.
        is_json = args.format != LINES and without_compression(path).suffix == ".json"
        check_text_file("--input_file", path, any_kind=is_json)

    kind = kind_of(path, job)
    state = decoding.process_state(args.device)
    if kind == DOCUMENT:
        translate_document(job, state, path, args.output_file)
    else:
        input_file = None if args.input_file is None else path
        for lines in translated_lines(job, state, input_file, args.output_file):
            sys.stdout.buffer.write(text_bytes(lines))
            sys.stdout.buffer.flush()
    if args.report_file is not None and state.is_main_process:
        _finish_report(args, "standard input" if args.input_file is None else str(path))
    return True


def _translate_folder(args: argparse.Namespace, job: Job) -> bool:
    """Translate many files, say what became of them, and return whether all are complete."""
    outputs = output_paths(_files(args.input_file), args.output_dir, OutputName(args.output_name, args.target_lang))
    reports = [("--report_file", args.report_file), ("--report_page", args.report_page)]
    check_distinct(reports, [*outputs, *outputs.values(), args.glossary, args.vocabulary])
    _check_rows(outputs, job)
    outputs = share_of(outputs, *args.part)

    state = decoding.process_state(args.device)
    started = time.monotonic()
    outcome = translate_files(job, outputs, args.output_dir, state)
    if state.is_main_process:
        for error in outcome.errors:
            print(f"error: {error}", file=sys.stderr)
        print(_last_line(outcome, len(outputs), time.monotonic() - started))
        _finish_folder(args, outcome)
    return not outcome.errors


def _files(words: Sequence[Path]) -> list[Path]:
    """Return the files that words and patterns name."""
    paths: list[Path] = []
    for word in words:
        paths += matching_files(word, "--input_file")
    for path in paths:
        if path.is_dir():
            raise UserError(f"--input_file: {path} is a folder. Name its files, such as '{path}/**/*.md'.")
        if not path.is_file():
            raise FileNotFoundError(f"--input_file: there is no file {path}.")
    return paths


def _check_rows(paths: Mapping[Path, Path], job: Job) -> None:
    """Refuse options for rows where there are none, and warn if rows are not cut into sentences."""
    if any(map(has_columns, paths)):
        if job.documents is None and job.sentences is None:
            logger.warning("Without --sentences a line with several sentences is translated as one, or cut.")
        return
    for name, default in (("text_column", "text"), ("translation_column", "translation"), ("report_column", None)):
        if getattr(job, name) != default:
            raise UserError(f"--{name} is for rows, and no file has any. Leave it out.")


def _finish_report(args: argparse.Namespace, title: str) -> None:
    """Write the page of a report, and say how many translations look wrong."""
    report = args.report_file
    if args.report_page is not None:
        write_report_page([report], args.report_page, title)
    warning = summary(each_line(report))
    if warning is not None:
        logger.warning("%s See %s.", warning, args.report_page or report)


def _finish_folder(args: argparse.Namespace, outcome: Outcome) -> None:
    """Say how many translations of a folder look wrong, and where to see them."""
    if args.report_file is not None:
        _finish_report(args, str(args.output_dir))
        return
    counts = outcome.counts()
    faults = named_with_numbers(counts)
    if faults:
        logger.warning("Of %d sentences there are %s.", counts["segments"], faults)


def _last_line(outcome: Outcome, num_files: int, seconds: float) -> str:
    """Return a line about the files, their units, those that stay as they are with the reasons, and the seconds."""
    places = []
    units = 0
    new = 0
    reasons: Counter[str] = Counter()
    for path, file in outcome.files.items():
        units += file.units - len(file.left)
        new += file.new
        lines_by_reason = {Reason.LOST_MARKS.value: file.left, **file.kept}
        for reason, lines in lines_by_reason.items():
            reasons[reason] += len(lines)
        lines = sorted(chain.from_iterable(lines_by_reason.values()))
        places += [f"{path}:{line}" for line in lines]

    complete = f"{len(outcome.files)} of {num_files} files are complete"
    if outcome.num_complete_before:
        complete += f", {outcome.num_complete_before} of them since an earlier run"
    counts = outcome.counts()
    translated = f"Units translated: {units} ({counts['segments']} sentences, {counts['words']} words). New: {new}"
    left = f"Units left as they were: {len(places)}"
    if places:
        numbers = ", ".join(f"{reason}: {number}" for reason, number in reasons.items() if number)
        named = ", ".join(places[:_MOST_PLACES])
        if len(places) > _MOST_PLACES:
            named += " and others"
        left += f" ({numbers}), in {named}"
    return f"{complete}. {translated}. {left}. {seconds:.1f} seconds."
