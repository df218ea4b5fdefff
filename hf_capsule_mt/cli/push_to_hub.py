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
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from hf_capsule_mt.files import read_json, replace_text
from hf_capsule_mt.hub.model_card import CardDetails, make_model_card
from hf_capsule_mt.hub.push import CARD, files_to_push, push_checkpoint
from hf_capsule_mt.training.averaging import averaged_checkpoints

from .common import import_code, report_user_errors
from .parser import CommandParser, add_import

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
    for each in fields(CardDetails):
        if "help" in each.metadata:
            card.add_argument(f"--{each.name}", metavar="TEXT", help=each.metadata["help"])
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Write the card where it is needed, push, and say how the result loads."""
    args = build_parser().parse_args(argv)
    import_code(args.imports)
    _write_card(args)
    if args.dry_run:
        print(f"The card is {args.model / CARD}. These files would be sent: {', '.join(files_to_push(args.model))}")
        return
    options = {name: getattr(args, name) for name in ("private", "revision", "commit_message")}
    pushed = push_checkpoint(args.model, args.repo_id, **options)
    print(
        f"{pushed.commit_url}\n\n"
        f'pipeline("translation", model="{args.repo_id}", revision="{pushed.oid}", trust_remote_code=True)'
    )


def _write_card(args: argparse.Namespace) -> None:
    given = {each.name: getattr(args, each.name, None) for each in fields(CardDetails) if each.name != "repo_id"}
    given = {name: value for name, value in given.items() if value is not None}
    wanted = args.run_record or args.evaluations or given
    if not wanted and (args.model / CARD).is_file():
        return
    places = [args.run_record] if args.run_record else [args.model / _RECORD, args.model.absolute().parent / _RECORD]
    record = next((path for path in places if path.is_file()), None)
    if record is None:
        if wanted or args.dry_run:
            raise FileNotFoundError(f"{places[0]} does not exist. Name the run's record with --run_record.")
        return
    if averaged := averaged_checkpoints(args.model):
        given["weights"] = f"the mean of {', '.join(averaged)}"
    elif args.model.name.startswith("checkpoint-"):
        given["weights"] = f"those of {args.model.name}"
    evaluations = [read_json(path) for path in args.evaluations]
    card = make_model_card(read_json(record), evaluations, CardDetails(repo_id=args.repo_id, **given))
    replace_text(args.model / CARD, str(card))
