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

Many files go into a folder, each by its own format. Their folders and names stay. A second run does what is left, and
translates only what is new or changed in documents:

    hf-capsule-mt translate --model run --documents en --input_file README.md 'docs/**/*.md' *.po --output_dir out

Files that are no text, and formats that are not supported, are refused.

--n_best 5 writes five translations of each line with their scores, and --alignments FILE which words belong together.

--tags puts tags of XML or HTML back around the translations of their words. Each line is a text with tags. With
--documents the whole input is one text. A page of HTML is translated as such, with or without --tags:

    hf-capsule-mt translate --model run --tags --documents en --keep '\\{\\w+\\}' < page.en.html > page.de.html

Files of lines, and rows of Parquet and JSONL, such as web corpora, go into folders too: see docs/corpora.md.

    hf-capsule-mt translate --model run --input_file a.en b.en.gz --output_dir translated
    hf-capsule-mt translate --model run --sentences en --input_file shards/*.parquet --output_dir translated
"""

import argparse
import re
from pathlib import Path

from hf_capsule_mt.cli.parser import (
    CommandParser,
    add_decoding,
    add_glossary_languages,
    add_languages,
    add_model,
    add_vocabulary,
    at_least,
)
from hf_capsule_mt.translation.formats import FORMATS, LINES


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
        help="Text to translate, may be .gz, .bz2, .xz or .zst (default: standard input). Several files with "
        "--output_dir. In quotes, ** of a pattern stands for any folders.",
    )

    group.add_argument("--output_file", type=Path, help="May be .gz or .zst (default: standard output).")
    group.add_argument(
        "--output_dir",
        type=Path,
        help="Folder for the outputs of several files. Each has the name and the format of its input, behind the "
        "folder that all inputs have in common. A run over a part of them finds their outputs.",
    )

    group.add_argument(
        "--output_name",
        default="{name}",
        metavar="PATTERN",
        help="How outputs are called in --output_dir, such as '{stem}.{lang}{suffix}' or 'values-{lang}/{name}'. It "
        "stands for the last parts of their paths. {lang} is --target_lang (default: %(default)s).",
    )
    group.add_argument(
        "--format",
        choices=[*FORMATS, LINES],
        help="Format of all input files (default: as their names and beginnings say). lines: plain text.",
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
        help="Write a line of JSON for each sentence: its place, its source, its translation, scores, and whether it "
        "looks wrong. In a file with a format the place has the name of the unit, such as a key.",
    )
    group.add_argument(
        "--report_page",
        type=Path,
        metavar="FILE.html",
        help="Write the report as a page for a browser, with the worst translations first, filters and a search. The "
        "lines of --report_file are written, too, by default to FILE.jsonl.",
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
        help="Write which words belong together. FILE.jsonl has a line of JSON for each sentence. Any other FILE has "
        "Pharaoh's format for each line, such as 0-0 1-2, for words between spaces.",
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
    group.add_argument(
        "--fuzzy",
        action="store_true",
        help="Also replace translations that wait for a review: fuzzy messages of .po, and targets of XLIFF 1.2 whose "
        "state is new or needs something. By default they stay.",
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
