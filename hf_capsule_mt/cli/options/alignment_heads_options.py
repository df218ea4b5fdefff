"""Find the heads of a model's attention that align words, and store them with it.

    hf-capsule-mt alignment_heads --model run --input_file val.en --references val.de

Each head, each layer and the default is rated by its links on parallel text, which needs no alignments. A few hundred
sentences are enough. The best is stored in the folder of the model, as `alignment_heads` in generation_config.json.
Alignments, tags, reports and evaluate --aligner attention use it from then on.
"""

import argparse
from pathlib import Path

from hf_capsule_mt.cli.parser import CommandParser, add_batches, add_import, add_languages


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    files = parser.add_argument_group("input and output")
    files.add_argument("--model", required=True, metavar="FOLDER", help="Folder of a checkpoint. The heads go there.")
    add_import(files)
    files.add_argument("--input_file", type=Path, required=True, help="Sources, one sentence a line.")
    files.add_argument("--references", type=Path, required=True, metavar="FILE", help="Their translations.")
    add_languages(parser.add_argument_group("languages"))
    add_batches(parser.add_argument_group("computing"))
    return parser
