"""Files of formats into a folder in the command `translate`: its checks, its work, and what it says at the end."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from tqdm.contrib.logging import logging_redirect_tqdm

from hf_capsule_mt.data.corpus_files import matching_files
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files.many_files import Outcome, translate_files
from hf_capsule_mt.translation.files.options import FileOptions
from hf_capsule_mt.translation.files.output_folders import OutputName, output_paths, with_common_int8
from hf_capsule_mt.translation.formats.base import Reason
from hf_capsule_mt.translation.text_translator import TextTranslator

from . import corpora, decoding
from .common import check_distinct, check_output_file, check_output_folder

_MOST_PLACES = 10
"""The most units that the last line names."""
_NOT_OF_FOLDERS = (*("output_file", "interactive", "sentences", "tags", "n_best", "alignments"),)


def translate_many(args: argparse.Namespace, options: FileOptions) -> bool:
    """Translate files into a folder, and say at the end what became of them.

    Args:
        args: the options of the command.
        options: what they stand for.

    Returns:
        Whether all files are complete.
    """
    name = OutputName(args.output_name, args.target_lang)
    outputs = output_paths(_files(args.input_file), args.output_dir, name)
    others = [args.glossary, args.vocabulary]
    reports = [("--report_file", args.report_file), ("--report_page", args.report_page)]
    check_distinct(reports, [*outputs, *outputs.values(), *others])
    state = decoding.process_state(args.device)
    if state.num_processes > 1:
        raise UserError("One process translates files of formats. Start only one.")
    model = with_common_int8(options.decoding.pinned(), args.output_dir)
    # Translations do not depend on what the report says of them.
    settings = replace(options, decoding=model, report_file=None).settings()
    started = time.monotonic()
    with logging_redirect_tqdm():
        outcome = translate_files(
            outputs,
            args.output_dir,
            lambda: TextTranslator(*model.load(decoding.device_of(args, state))),
            args.documents,
            file_format=args.format,
            settings=settings,
            source_lang=args.source_lang,
            target_lang=args.target_lang,
            keep=args.keep,
            translate_addresses=args.translate_addresses,
            fuzzy=args.fuzzy,
            glossary=options.texts.glossary,
            report_file=args.report_file,
            max_tokens_per_batch=args.max_tokens_per_batch,
            **model.generate_options(),
        )
    for error in outcome.errors:
        print(f"error: {error}", file=sys.stderr)
    print(_last_line(outcome, len(outputs), time.monotonic() - started))
    return not outcome.errors


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse options that do not go with files of formats in a folder, before anything is read.

    Raises:
        UserError: if there is such an option, or no input.
        OSError: if the folder cannot be written.
    """
    if not args.input_file:
        raise UserError("--output_dir needs --input_file with the files.")
    check_output_folder(args.output_dir)
    check_output_file(args.report_file)
    check_output_file(args.report_page)
    for name in _NOT_OF_FOLDERS:
        if getattr(args, name):
            raise UserError(f"--{name} does not go with --documents and --output_dir. Leave it out.")
    if args.errors != "strict":
        raise UserError("--errors replace is for one file of text. Leave it out with --output_dir.")
    if args.part != (1, 1):
        raise UserError("--part is for corpora, and --documents for files of formats. Leave out one of both.")
    corpora.check_no_rows(args, "--documents is for files of formats and running text")


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


def _last_line(outcome: Outcome, num_files: int, seconds: float) -> str:
    """Return a line about the files, their units, those that stay as they are with the reasons, and the seconds."""
    places = []
    units = 0
    reasons: Counter[str] = Counter()
    for path, file in outcome.files.items():
        units += file.units - len(file.left)
        lines_by_reason = {Reason.LOST_MARKS.value: file.left, **file.kept}
        for reason, lines in lines_by_reason.items():
            reasons[reason] += len(lines)
        lines = sorted(chain.from_iterable(lines_by_reason.values()))
        places += [f"{path}:{line}" for line in lines]
    complete = f"{len(outcome.files)} of {num_files} files are complete"
    if outcome.num_complete_before:
        complete += f", {outcome.num_complete_before} of them since an earlier run"
    left = f"Units left as they were: {len(places)}"
    if places:
        counts = ", ".join(f"{reason}: {number}" for reason, number in reasons.items() if number)
        named = ", ".join(places[:_MOST_PLACES])
        if len(places) > _MOST_PLACES:
            named += " and others"
        left += f" ({counts}), in {named}"
    return f"{complete}. Units translated: {units}. {left}. {seconds:.1f} seconds."
