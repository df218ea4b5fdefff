"""Report statistics and pictures of a model's routing over a corpus.

    hf-capsule-mt analyze --model outputs/run --input_file test.en --output_dir report
    The report: report/index.html
    ...
    hf-capsule-mt analyze --model outputs/run --input_file test.en --references test.de --output_dir report --lines 1 7

The report shows gamma, which says how far training has switched on the new layers. It shows what the capsules are
worth: the loss that is added if they are replaced by their mean. And it shows how sure and how diverse
routing is.

It begins at index.html, with the pictures of sentences. report.md has the tables, routing.json the numbers, and
figures/ the pictures.
mean_assignment.npz has what each layer or head gives to each output capsule.
Needs matplotlib: pip install -e ".[figures]".
"""

import argparse
from pathlib import Path

from hf_capsule_mt.cli.parser import CommandParser, add_decoding, add_model

_DRAWN = 3


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    files = parser.add_argument_group("input and output")
    files.add_argument("--input_file", type=Path, required=True, help="Sources, one sentence a line, may be .gz.")
    files.add_argument(
        "--references", type=Path, metavar="FILE", help="Analyze these translations (default: the model's own)."
    )
    files.add_argument("--lines", type=int, nargs="*", help=f"Lines to draw, from 1 (default: the first {_DRAWN}).")
    files.add_argument("--output_dir", type=Path, required=True, help="New folder for the report.")

    add_model(parser.add_argument_group("model"))
    # The assignments of a big model take a hundred kilobytes a position.
    add_decoding(parser.add_argument_group("decoding"), max_tokens_per_batch=1024)
    return parser
