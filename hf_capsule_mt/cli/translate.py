"""The command `translate`. Its options stand in options/translate_options.py."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from accelerate import PartialState

from hf_capsule_mt.data.lines import each_line, text_bytes, without_compression
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.files.lines import translate_windows
from hf_capsule_mt.translation.files.options import STANDARD_INPUT, FileOptions, is_pharaoh
from hf_capsule_mt.translation.files.whole import check_readable
from hf_capsule_mt.translation.formats import FORMATS, LINES, FileFormat, recognise
from hf_capsule_mt.translation.preparation import TextOptions
from hf_capsule_mt.translation.quality.report import is_report, summary
from hf_capsule_mt.translation.quality.report_page import write_report_page
from hf_capsule_mt.translation.text.segments import check_language
from hf_capsule_mt.translation.text.words import keep_pattern, with_addresses
from hf_capsule_mt.translation.text_translator import TextTranslator

from . import corpora, decoding, many_files
from .common import (
    check_distinct,
    check_output_file,
    check_text_file,
    import_code,
    leave_group_at_exit,
    report_user_errors,
)
from .options.translate_options import build_parser

logger = logging.getLogger(__name__)


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Translate. Each process takes a share of the batches."""
    args = build_parser().parse_args(argv)
    import_code(args.imports)
    if args.report_page is not None and args.report_file is None:
        # The page is made of the lines, which continue after an interruption.
        args.report_file = args.report_page.with_suffix(".jsonl")
        _check_no_other_file(args.report_file, args.report_page)
    if args.output_dir is not None:
        _translate_into_folder(args)
        return
    args.input_file = _one_file(args.input_file)
    _check_arguments(args)
    file_format = _file_format(args)
    state = decoding.process_state(args.device)
    if file_format is not None:
        _translate_file(args, file_format, state)
    else:
        for lines in translate_windows(_options(args), state):
            sys.stdout.buffer.write(text_bytes(lines))
            sys.stdout.buffer.flush()
    if args.report_file is not None and state.is_main_process:
        _finish_report(args)
    leave_group_at_exit()


def _check_no_other_file(report: Path, page: Path) -> None:
    """Raise a UserError if the lines of a page would replace a file that is no report. Nobody has named it."""
    if report.is_file() and not is_report(report):
        raise UserError(
            f"--report_page {page} writes {report} too, which is there and no report. Move it, or name another file "
            "for the lines with --report_file."
        )


def _translate_into_folder(args: argparse.Namespace) -> None:
    """Translate several files: by their formats with --documents, otherwise rows and lines."""
    _check_texts(args)
    if args.documents is None:
        corpora.translate_rows(args)
        return
    many_files.check_arguments(args)
    are_complete = many_files.translate_many(args, _options(args))
    if args.report_file is not None:
        _finish_report(args)
    leave_group_at_exit()
    if not are_complete:
        raise SystemExit(1)


def _finish_report(args: argparse.Namespace) -> None:
    """Write the page of a report, and say how many translations look wrong."""
    report = args.report_file
    if args.report_page is not None:
        title = args.output_dir or args.input_file or "standard input"
        write_report_page([report], args.report_page, str(title))
    warning = summary(each_line(report))
    if warning is not None:
        logger.warning("%s See %s.", warning, args.report_page or report)


def _one_file(paths: Sequence[Path] | None) -> Path | None:
    if paths is None:
        return None
    if len(paths) > 1:
        raise UserError("--input_file names several files. Give --output_dir for their outputs, or translate one.")
    return paths[0]


def _check_arguments(args: argparse.Namespace) -> None:
    if args.input_file is not None:
        # Messages in JSON are no rows of pairs. Their format is checked later.
        is_json = args.format != LINES and without_compression(args.input_file).suffix == ".json"
        check_text_file("--input_file", args.input_file, any_kind=is_json)
    outputs = [
        (f"--{name}", getattr(args, name)) for name in ("output_file", "report_file", "report_page", "alignments")
    ]
    for _, path in outputs:
        check_output_file(path)
    inputs = [args.input_file or STANDARD_INPUT, args.glossary, args.vocabulary]
    check_distinct(outputs, inputs)
    _check_answers(args)
    _check_texts(args)


def _check_texts(args: argparse.Namespace) -> None:
    """Check how texts are cut, what they need, and how they are decoded."""
    decoding.check_options(args)
    for language in filter(None, (args.documents, args.sentences)):
        check_language(language)
    if args.keep is not None:
        keep_pattern(args.keep)
    if args.glossary is not None and args.engine == "transformers":
        raise UserError("--glossary needs --engine fast. Leave out --engine.")
    if args.glossary is not None and args.vocabulary is not None:
        raise UserError("--vocabulary may lack words of a --glossary. Leave out one of both.")


def _check_answers(args: argparse.Namespace) -> None:
    """Refuse what has no several translations, or no alignments."""
    if args.n_best is not None:
        if args.documents is not None:
            raise UserError("--n_best is for lines, and --documents joins them. Give --sentences instead.")
        if args.n_best > 1 and args.glossary is not None:
            raise UserError("--glossary gives one translation of a sentence. Leave out --n_best.")
        if args.num_beams is not None and args.num_beams < args.n_best:
            raise UserError(f"--n_best {args.n_best} needs as many beams. Give --num_beams {args.n_best} or more.")
    if args.alignments is None:
        return
    if args.tags or args.keep is not None:
        raise UserError("--alignments is for text without tags and kept parts. Leave out --tags and --keep.")
    if is_pharaoh(args.alignments) and args.documents is not None:
        raise UserError("Pharaoh's format is for lines, and --documents joins them. Give --alignments FILE.jsonl.")


def _file_format(args: argparse.Namespace) -> FileFormat | None:
    """Return the format of the input, or None for lines of text.

    Raises:
        UserError: if the input is no text, or an option does not go with its format.
    """
    path = args.input_file or STANDARD_INPUT
    # Nothing can be told of a stream.
    is_stream = not path.is_file()
    file_format = FORMATS.get(args.format) if is_stream else recognise(path, args.format, tags=args.tags)
    if file_format is None:
        if args.fuzzy:
            raise UserError(f"--fuzzy is for files such as de.po and de.xlf, and {path} has lines of text.")
        return None
    for_lines = ["sentences", "tags", "interactive", "n_best", "alignments"]
    remedy = "Leave it out."
    if args.tags and file_format.has_tags:
        if args.documents is None and args.format is None:
            # Each line is a text with tags.
            return None
        for_lines.remove("tags")
        remedy = f"Leave it out, or give --format {LINES}, which leaves the attributes as they are."
    for name in for_lines:
        if getattr(args, name):
            raise UserError(f"--{name} is for lines of text, and {path} is {file_format.title}. {remedy}")
    if args.fuzzy and not file_format.has_fuzzy:
        raise UserError(f"--fuzzy is for translations that wait for a review, and {file_format.title} has none.")
    check_readable(file_format, args.documents)
    return file_format


def _translate_file(args: argparse.Namespace, file_format: FileFormat, state: PartialState) -> None:
    """Translate the input as a whole."""
    if state.num_processes > 1:
        raise UserError(f"The input is {file_format.title}, which one process translates. Start only one.")
    file_options = _options(args).pinned()
    options = file_options.decoding
    translate_file(
        TextTranslator(*options.load(decoding.device_of(args, state))),
        args.input_file or STANDARD_INPUT,
        args.output_file,
        args.documents,
        file_format=file_format.name,
        source_lang=args.source_lang,
        target_lang=args.target_lang,
        keep=args.keep,
        translate_addresses=args.translate_addresses,
        fuzzy=args.fuzzy,
        glossary=file_options.texts.glossary,
        max_tokens_per_batch=args.max_tokens_per_batch,
        report_file=args.report_file,
        settings={**file_options.settings(), "format": file_format.name, "fuzzy": args.fuzzy},
        **options.generate_options(),
    )


def _options(args: argparse.Namespace) -> FileOptions:
    return decoding.file_options(
        args,
        decoding.decoding_options(args),
        texts=_text_options(args),
        input_file=args.input_file,
        output_file=args.output_file,
        report_file=args.report_file,
        alignments_file=args.alignments,
        chunk_size=args.chunk_size,
        interactive=args.interactive,
        errors=args.errors,
        n_best=args.n_best,
    )


def _text_options(args: argparse.Namespace) -> TextOptions:
    """Return how the texts are cut, and which terms they need."""
    keep = keep_pattern(args.keep) if args.keep else None
    # Words are not aligned with kept parts.
    keeps_addresses = (args.documents or args.tags) and not args.translate_addresses
    if keeps_addresses and args.alignments is None:
        keep = with_addresses(keep)
    split = "paragraphs" if args.documents else "lines"
    return TextOptions(args.documents or args.sentences, args.tags, keep, decoding.glossary_of(args), split=split)
