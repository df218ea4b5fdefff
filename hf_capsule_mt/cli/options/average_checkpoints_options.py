"""Average the weights of several checkpoints.

    hf-capsule-mt average_checkpoints --run_dir run --last 2 --output_dir run/average
    run/average is the average of run/checkpoint-1500, run/checkpoint-2000

    hf-capsule-mt average_checkpoints --run_dir run --best 5 --metric bleu --output_dir run/average
    hf-capsule-mt average_checkpoints --checkpoints run/checkpoint-* --output_dir run/average

With --run_dir the command chooses the checkpoints.
"""

import argparse
from pathlib import Path

from hf_capsule_mt.cli.parser import CommandParser, add_import, at_least


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    folders = parser.add_argument_group("input and output")
    source = folders.add_mutually_exclusive_group(required=True)
    source.add_argument("--checkpoints", type=Path, nargs="+", metavar="FOLDER", help="Folders to average.")
    source.add_argument("--run_dir", type=Path, help="Output folder of a training run, with --last or --best.")
    folders.add_argument("--output_dir", type=Path, required=True, help="Folder to make. It must not exist.")
    add_import(folders)

    choice = parser.add_argument_group("choice", "The checkpoints of --run_dir.")
    number = choice.add_mutually_exclusive_group()
    number.add_argument("--last", type=at_least(1), metavar="N", help="Take the N newest checkpoints of the run.")
    number.add_argument("--best", type=at_least(1), metavar="N", help="Take the N checkpoints with the best --metric.")
    choice.add_argument("--metric", default="bleu", help="bleu, loss, ... for --best (default: %(default)s).")
    return parser
