"""Choose the words of a language, with which large models decode faster.

    hf-capsule-mt shortlist --model facebook/nllb-200-distilled-600M --target_lang deu_Latn \\
        --input_file mono.de.gz --output_file de.words
    hf-capsule-mt translate --model facebook/nllb-200-distilled-600M --source_lang eng_Latn --target_lang deu_Latn \\
        --vocabulary de.words --input_file in.en --output_file out.de

NLLB has 256,206 words for 202 languages. The file has those of the text, the special tokens, the target language, and
all letters of its scripts, digits and punctuation, so that every other word can be spelled. Every tenth line is held
out. The command says how much of these lines the words cover.

Without text, --script Latn takes all words in a script. For Latin letters that saves little.
"""

import argparse
from pathlib import Path

from hf_capsule_mt.cli.parser import CommandParser, add_model, at_least


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    files = parser.add_argument_group("input and output")
    words = files.add_mutually_exclusive_group(required=True)
    words.add_argument("--input_file", type=Path, help="Text in the target language, one sentence a line. May be .gz.")
    words.add_argument("--script", help="Take all words in a script, such as Latn, instead of those of a text.")
    files.add_argument("--output_file", type=Path, required=True, help="File for the words.")
    files.add_argument(
        "--min_count", type=at_least(1), default=1, help="Leave out words that the text has less often (default: 1)."
    )

    model = parser.add_argument_group("model")
    add_model(model)
    model.add_argument("--target_lang", help="Language to write, for models that have several, such as deu_Latn.")
    return parser
