"""Corpora of many files in the command `translate`: its checks, its work, and what it says at the end."""

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from hf_capsule_mt.data.corpus_files import expand
from hf_capsule_mt.data.lines import text_bytes
from hf_capsule_mt.data.row_formats import has_columns, open_rows
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import replaced_file
from hf_capsule_mt.translation.files.output_folders import OutputName, output_paths
from hf_capsule_mt.translation.files.row_files import report_of_rows, share_of, translate_row_files
from hf_capsule_mt.translation.files.rows import CorpusTranslator
from hf_capsule_mt.translation.formats import recognise
from hf_capsule_mt.translation.quality.faults import named_with_numbers
from hf_capsule_mt.translation.quality.report_page import write_report_page

from . import decoding
from .common import check_distinct, check_output_file, check_output_folder, leave_group_at_exit

logger = logging.getLogger(__name__)

_OF_TEXT_FILES = (*("output_file", "interactive", "fuzzy", "n_best", "alignments"),)


def translate_rows(args: argparse.Namespace) -> None:
    """Translate this process's share of the files, and say how many sentences look wrong."""
    _check_arguments(args)
    outputs = output_paths(_files(args), args.output_dir, OutputName(args.output_name, args.target_lang))
    reports = [("--report_file", args.report_file), ("--report_page", args.report_page)]
    check_distinct(reports, [*outputs, *outputs.values()])
    state = decoding.process_state(args.device)
    number, count = args.part
    if args.report_file is not None and state.num_processes * count > 1:
        raise UserError("A report is of all files, so one process writes it. Leave out --report_file or --report_page.")
    # The processes of a launcher share the files of their part.
    number = (number - 1) * state.num_processes + state.process_index + 1
    outputs = share_of(outputs, number, count * state.num_processes)
    if args.sentences is None and any(map(has_columns, outputs)):
        logger.warning("Without --sentences a line with several sentences is translated as one, or cut.")
    translator = CorpusTranslator(
        **vars(decoding.decoding_options(args)),
        text_column=args.text_column,
        translation_column=args.translation_column,
        report_column=args.report_column,
        sentences=args.sentences,
        tags=args.tags,
        keep=args.keep,
        translate_addresses=args.translate_addresses,
        glossary=decoding.glossary_of(args),
        source_lang=args.source_lang,
        target_lang=args.target_lang,
        device=str(args.device or state.device),
    )
    counts = translate_row_files(outputs, args.output_dir, translator)
    files = "1 file is" if len(outputs) == 1 else f"{len(outputs)} files are"
    print(f"{files} complete: {counts['segments']} sentences, {counts['words']} words.")
    faults = named_with_numbers(counts)
    if faults:
        logger.warning("Of %d sentences there are %s.", counts["segments"], faults)
    if args.report_file is not None:
        _write_report(args, outputs, translator)
    leave_group_at_exit()


def _write_report(args: argparse.Namespace, outputs: Mapping[Path, Path], translator: CorpusTranslator) -> None:
    """Write a line for each row, and the page of them."""
    with replaced_file(args.report_file) as file:
        for record in report_of_rows(outputs, translator):
            file.write(text_bytes([json.dumps(record, ensure_ascii=False)]))
    if args.report_page is not None:
        write_report_page([args.report_file], args.report_page, str(args.output_dir))


def _check_arguments(args: argparse.Namespace) -> None:
    for name in _OF_TEXT_FILES:
        if getattr(args, name):
            raise UserError(f"--{name} is for one file of text. Leave it out with --output_dir.")
    if not args.input_file:
        raise UserError("--output_dir needs --input_file with the files.")
    check_output_folder(args.output_dir)
    check_output_file(args.report_file)
    check_output_file(args.report_page)
    if args.errors != "strict":
        raise UserError("--errors replace is for one file of text. Leave it out with --output_dir.")


def _files(args: argparse.Namespace) -> list[Path]:
    """Return the files that the words and patterns of `--input_file` name."""
    paths: list[Path] = []
    for word in args.input_file:
        paths += expand(word, "--input_file")
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"--input_file: there is no file {path}.")
    _check_kinds(args, paths)
    return paths


def _check_kinds(args: argparse.Namespace, paths: Sequence[Path]) -> None:
    """Refuse files of several kinds, and what does not go with theirs."""
    for path in paths:
        if has_columns(path) != has_columns(paths[0]):
            raise UserError(f"{paths[0]} and {path} are of two kinds, text and rows. Translate each kind by itself.")
        # It refuses other formats. Nothing is read yet.
        open_rows(path, args.text_column)
    if has_columns(paths[0]):
        if args.format is not None:
            raise UserError(f"--format is for text, and {paths[0]} has rows. Leave it out.")
        if args.report_file is not None and args.report_column is None:
            raise UserError("A report of rows is made of their numbers. Name a column for these with --report_column.")
        return
    if args.report_file is not None:
        raise UserError("A report of lines is for one file. Use --output_file, or --documents for running text.")
    check_no_rows(args, f"{paths[0]} is plain text")
    for path in paths:
        file_format = recognise(path, args.format, tags=args.tags)
        has_lines = file_format is None or (args.tags and file_format.has_tags)
        if not has_lines:
            raise UserError(
                f"{path} is {file_format.title}. Give the language of its sentences, such as --documents en."
            )


def check_no_rows(args: argparse.Namespace, reason: str) -> None:
    """Raise a UserError, with its reason, if an option is given that is for rows."""
    for name, default in (("text_column", "text"), ("translation_column", "translation"), ("report_column", None)):
        if getattr(args, name) != default:
            raise UserError(f"--{name} is for rows, and {reason}. Leave it out.")
