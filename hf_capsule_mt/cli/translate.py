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

Files of Markdown, HTML, subtitles, gettext, XLIFF, i18next, Android strings and Java properties are recognised by
their names and beginnings, and translated as a whole. They need --documents. With --output_file, the same command
continues after an interruption:

    hf-capsule-mt translate --model run --documents en --input_file README.md --output_file README.de.md

Files that are no text, and formats that are not supported, are refused.

--n_best 5 writes five translations of each line with their scores, and --alignments FILE which words belong together.

--tags puts tags of XML or HTML back around the translations of their words. Each line is a text with tags. With
--documents the whole input is one text. A page of HTML is translated as such, with or without --tags:

    hf-capsule-mt translate --model run --tags --documents en --keep '\\{\\w+\\}' < page.en.html > page.de.html

Several files, of plain text or of rows of Parquet and JSONL, such as web corpora: see docs/corpora.md.

    hf-capsule-mt translate --model run --input_file a.en b.en.gz --output_dir translated
    hf-capsule-mt translate --model run --sentences en --input_file shards/*.parquet --output_dir translated
"""

import argparse
import logging
import re
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
from hf_capsule_mt.translation.quality.calibration import Calibration
from hf_capsule_mt.translation.quality.report import faults, mean_score
from hf_capsule_mt.translation.terms.glossary import Glossary
from hf_capsule_mt.translation.text.segments import check_language
from hf_capsule_mt.translation.text.words import keep_pattern, with_addresses
from hf_capsule_mt.translation.text_translator import TextTranslator

from . import corpora, decoding
from .common import (
    check_distinct,
    check_output_file,
    check_text_file,
    import_code,
    leave_group_at_exit,
    report_user_errors,
)
from .parser import (
    CommandParser,
    add_decoding,
    add_glossary_languages,
    add_languages,
    add_model,
    add_vocabulary,
    at_least,
)

logger = logging.getLogger(__name__)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    _add_files(parser)
    model = parser.add_argument_group("model")
    add_model(model)
    add_languages(model)
    _add_texts(parser)
    _add_terms(parser)
    _add_answers(parser)
    _add_corpora(parser)
    search = parser.add_argument_group("decoding")
    add_decoding(search)
    search.add_argument(
        "--chunk_size",
        type=at_least(1),
        default=10_000,
        help="Number of input lines to read, sort and write at a time. Lower it to save memory (default: %(default)s).",
    )
    return parser


def _add_files(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the input and the output."""
    group = parser.add_argument_group("input and output")
    group.add_argument(
        "--input_file",
        type=Path,
        nargs="+",
        help="Text to translate, one sentence a line, may be .gz, .bz2, .xz or .zst (default: standard input). Several "
        "files with --output_dir.",
    )
    group.add_argument("--output_file", type=Path, help="May be .gz or .zst (default: standard output).")
    group.add_argument(
        "--output_dir",
        type=Path,
        help="Folder for the outputs of several files. Each has the name and the format of its input.",
    )
    group.add_argument(
        "--format",
        choices=[*FORMATS, LINES],
        help="Format of the input file (default: as its name and its beginning say). lines: plain text.",
    )
    group.add_argument(
        "--errors",
        choices=["strict", "replace"],
        default="strict",
        help="What to do with bytes that are not UTF-8. strict (default): stop. replace: read them as U+FFFD.",
    )
    group.add_argument("--interactive", action="store_true", help="Translate each line as soon as it arrives.")


def _add_answers(parser: argparse.ArgumentParser) -> None:
    """Add the options for what the model knows besides the best translation."""
    group = parser.add_argument_group("report and alternatives")
    group.add_argument(
        "--report_file",
        type=Path,
        help="Write a line of JSON for each sentence: its source, its translation, scores, and whether it looks wrong.",
    )
    group.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="A file by calibrate, of the same model. The report then has the expected quality, an interval, and the "
        "probability of a bad translation.",
    )
    group.add_argument(
        "--n_best",
        type=at_least(1),
        help="Write the N best translations of each line, each in a line of its own: the number of the source from 0, "
        "the translation and its score, between |||, as Moses and Marian do. It needs at least N beams.",
    )
    group.add_argument(
        "--alignments",
        type=Path,
        metavar="FILE",
        help="Write which words belong together. FILE.jsonl has a line of JSON for each sentence, with words and "
        "characters. Any other FILE has Pharaoh's format for each line, such as 0-0 1-2. Its words are between spaces.",
    )


def _add_texts(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how texts are cut, and what of them stays."""
    group = parser.add_argument_group("text")
    group.add_argument(
        "--sentences", metavar="LANGUAGE", help="Cut each line into sentences of a language, such as en."
    )
    group.add_argument(
        "--documents",
        metavar="LANGUAGE",
        help="Translate running text in this language, such as en, sentence by sentence. Only empty lines end a "
        "paragraph. Where each line is one, use --sentences.",
    )
    group.add_argument("--tags", action="store_true", help="Put tags of XML or HTML around the words they belong to.")
    group.add_argument(
        "--keep",
        metavar="REGEX",
        help=r"Regular expression. Text that matches it is copied, not translated. Example: '\{\w+\}' for placeholders "
        "such as {name}.",
    )
    group.add_argument(
        "--translate_addresses",
        action="store_true",
        help="Translate addresses of the Web and of e-mail like words. By default they are copied with --documents, "
        "--tags and --output_dir.",
    )


def _add_terms(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which words translations must have, or may have."""
    group = parser.add_argument_group("terms and words")
    group.add_argument(
        "--glossary",
        type=Path,
        metavar="FILE",
        help="Terms that translations must have: a .tsv, .csv or .tbx file of sources and targets. The report says "
        "which terms the model wrote by itself, which the search, and which are missing.",
    )
    add_glossary_languages(group)
    add_vocabulary(group)


def _add_corpora(parser: argparse.ArgumentParser) -> None:
    """Add the options for rows."""
    rows = parser.add_argument_group("corpora", "Files of plain text, or rows of Parquet and JSONL, with --output_dir.")
    rows.add_argument(
        "--text_column", default="text", metavar="NAME", help="Column to translate (default: %(default)s)."
    )
    rows.add_argument(
        "--translation_column",
        default="translation",
        metavar="NAME",
        help="New column for translations (default: %(default)s).",
    )
    rows.add_argument(
        "--report_column", metavar="NAME", help="Add a column with numbers of sentences: cut, empty, repeating ..."
    )
    rows.add_argument(
        "--part", type=_share, default=(1, 1), metavar="I/N", help="Translate share I of N of the files, such as 3/100."
    )


def _share(text: str) -> tuple[int, int]:
    """Return the two numbers of "3/100"."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"{text} is no share of the files. Write 3/100 for the third of 100.")
    return int(match[1]), int(match[2])


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Translate. Each process takes a share of the batches."""
    args = build_parser().parse_args(argv)
    import_code(args.imports)
    if args.output_dir is not None:
        corpora.translate_rows(args)
        return
    args.input_file = _one_file(args.input_file)
    _check_arguments(args)
    file_format = _file_format(args)
    state = decoding.process_state(args.device)
    if file_format is not None:
        _translate_file(args, file_format, state)
        return
    options = _options(args)
    for lines in translate_windows(options, state):
        sys.stdout.buffer.write(text_bytes(lines))
        sys.stdout.buffer.flush()
    if args.report_file is not None and state.is_main_process:
        warning = faults(each_line(args.report_file))
        if warning is not None:
            logger.warning("%s See %s.", warning, args.report_file)
        if options.calibration is not None:
            _warn_of_another_kind(options.calibration, args.report_file)
    leave_group_at_exit()


def _warn_of_another_kind(calibration: Calibration, report: Path) -> None:
    """Warn if the scores of a report are not like those of the calibration."""
    mean = mean_score(each_line(report))
    warning = None if mean is None else calibration.warning(mean)
    if warning is not None:
        logger.warning("%s", warning)


def _one_file(paths: Sequence[Path] | None) -> Path | None:
    if paths is None:
        return None
    if len(paths) > 1:
        raise UserError("--input_file names several files. Give --output_dir for their outputs, or translate one.")
    return paths[0]


def _check_arguments(args: argparse.Namespace) -> None:
    decoding.check_options(args)
    if args.input_file is not None:
        # Messages in JSON are no rows of pairs. Their format is checked later.
        is_json = args.format != LINES and without_compression(args.input_file).suffix == ".json"
        check_text_file("--input_file", args.input_file, any_kind=is_json)
    outputs = [(f"--{name}", getattr(args, name)) for name in ("output_file", "report_file", "alignments")]
    for _, path in outputs:
        check_output_file(path)
    inputs = [args.input_file or STANDARD_INPUT, args.calibration, args.glossary, args.vocabulary]
    check_distinct(outputs, inputs)
    if args.calibration is not None and args.report_file is None:
        raise UserError("--calibration adds fields to the report. Give --report_file.")
    _check_answers(args)
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
        return None
    for_lines = ["sentences", "tags", "interactive", "report_file", "n_best", "alignments"]
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
        glossary=file_options.texts.glossary,
        max_tokens_per_batch=args.max_tokens_per_batch,
        settings={**file_options.settings(), "format": file_format.name},
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
        calibration=None if args.calibration is None else Calibration.read(args.calibration),
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
    glossary = None
    if args.glossary is not None:
        glossary = Glossary.read(args.glossary, *(args.glossary_languages or ()))
    split = "paragraphs" if args.documents else "lines"
    return TextOptions(args.documents or args.sentences, args.tags, keep, glossary, split=split)
