"""Make a model smaller: keep the words of a few languages only.

    hf-capsule-mt trim --model facebook/nllb-200-distilled-600M --languages eng_Latn deu_Latn \\
        --input_file mono.en.gz mono.de.gz --words 32000 --output_dir nllb-en-de

NLLB has 256,206 words for 202 languages. The folder has a model of the same kind, which other tools read too, with the
words of the texts, the special tokens, the languages, and all letters of their scripts, digits and punctuation. For the
same source tokens it translates as the whole model does with --vocabulary of the same words.

Every tenth line is held out. The command says how much of these lines the words cover, how many lines are now cut into
other words, and how much smaller the model is.
"""

import argparse
from pathlib import Path

from hf_capsule_mt.cli.parser import CommandParser, add_model, at_least


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    files = parser.add_argument_group("input and output")
    files.add_argument(
        "--input_file",
        nargs="+",
        type=Path,
        default=[],
        help="Texts in the languages, one sentence a line. May be .gz. For Marian a text to read, and one to write.",
    )
    files.add_argument(
        "--vocabulary",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="Words to keep, by hf-capsule-mt shortlist. One file for each language.",
    )
    files.add_argument("--output_dir", type=Path, required=True, help="Folder to make. It must not hold files.")

    words = parser.add_argument_group("words")
    words.add_argument(
        "--languages",
        nargs="+",
        default=[],
        metavar="LANGUAGE",
        help="Languages to keep, such as eng_Latn deu_Latn, for models that have several.",
    )
    words.add_argument(
        "--words",
        type=at_least(1),
        help="Keep so many words at most, those that the texts have most often. Give texts of similar length.",
    )
    words.add_argument(
        "--min_count", type=at_least(1), default=1, help="Leave out words that the texts have less often (default: 1)."
    )

    add_model(parser.add_argument_group("model"))
    return parser
