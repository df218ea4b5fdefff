"""Write a model card, and send the checkpoint to the Hub in one commit.

    hf-capsule-mt push_to_hub --model run/average --repo_id user/name --license apache-2.0 \\
        --evaluations run/test_2016.json run/test_2017.json --dry_run
    The card is run/average/README.md. These files would be sent: README.md, config.json, ...

    hf auth login
    hf-capsule-mt push_to_hub --model run/average --repo_id user/name
    hf-capsule-mt push_to_hub --model run/average --repo_id user/name --private --revision v2

The model is loaded first, so that a broken checkpoint is found before anything is sent. Its source, its tokenizer and
the card, README.md, go with it. Optimizer states, logs and other files stay at home. Weights, tokenizers and Python
files of an earlier model in the repository are deleted. The repository keeps its other files.

The card is written if there is no README.md, or an option of the card is given. You may change it after a --dry_run:
without an option of the card it is then sent as you left it. USER/NAME in a card by `train` becomes the --repo_id.

The token is that of `hf auth login` or of the environment variable HF_TOKEN.
"""

import argparse
from dataclasses import fields
from pathlib import Path

from hf_capsule_mt.cli.parser import CommandParser, add_import
from hf_capsule_mt.hub.card_details import CardDetails

_RECORD = "run_record.json"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    files = parser.add_argument_group("input and output")
    files.add_argument("--model", type=Path, required=True, metavar="FOLDER", help="Folder of the checkpoint.")
    files.add_argument("--repo_id", required=True, metavar="NAME", help="user/name or organisation/name.")
    files.add_argument("--revision", metavar="BRANCH", help="Branch to commit to (default: main).")
    files.add_argument(
        "--run_record",
        type=Path,
        metavar="FILE",
        help=f"Record of the training run (default: {_RECORD} in the folder or the one above).",
    )
    files.add_argument(
        "--evaluations", type=Path, nargs="+", default=[], metavar="FILE", help="Records of hf-capsule-mt evaluate."
    )
    add_import(files)

    upload = parser.add_argument_group("upload")
    upload.add_argument("--dry_run", action="store_true", help="Write the card, list the files, and send nothing.")
    upload.add_argument("--private", action="store_true", help="Make a new repository private.")
    upload.add_argument("--commit_message", help="Message of the commit (default: Upload and the class of the model).")

    card = parser.add_argument_group("card")
    for detail in fields(CardDetails):
        if "help" in detail.metadata:
            card.add_argument(f"--{detail.name}", metavar="TEXT", help=detail.metadata["help"])
    return parser
