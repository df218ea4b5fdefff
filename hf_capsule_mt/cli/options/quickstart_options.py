"""Translate with a ready model, then train a small one and show what it writes.

    hf-capsule-mt quickstart --output_dir outputs/quickstart
    ...
    == The checkpoint: outputs/quickstart/model

    == Now translate a sentence with it:

      echo 'The dog is sleeping under a table.' | hf-capsule-mt translate --model outputs/quickstart/model

In a clone it first translates with a model of checkpoints/. Then it writes the corpus, learns a tokenizer, trains,
translates the test sentences and scores them, by the same commands as for any other corpus. No test sentence is in the
training data. After twenty updates it says how long the training takes. After SIGTERM the same command continues it.
"""

import argparse
from pathlib import Path

from hf_capsule_mt.cli.parser import CommandParser, at_least
from hf_capsule_mt.methods import METHODS


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    output = parser.add_argument_group("input and output")
    output.add_argument(
        "--output_dir",
        type=Path,
        default=Path("outputs/quickstart"),
        help="Folder for everything (default: %(default)s).",
    )

    training = parser.add_argument_group("training")
    training.add_argument(
        "--method",
        choices=METHODS,
        default="em-routing",
        metavar="METHOD",
        help="Kind of model to train (default: %(default)s).",
    )
    training.add_argument("--max_steps", type=at_least(1), default=600, help="Training updates (default: %(default)s).")
    return parser
