"""The command `push_to_hub`. Its options stand in options/push_to_hub_options.py."""

import argparse
from collections.abc import Sequence
from dataclasses import fields

from hf_capsule_mt.files import read_json, replace_text
from hf_capsule_mt.hub.card_details import CardDetails
from hf_capsule_mt.hub.model_card import make_model_card
from hf_capsule_mt.hub.push import CARD, files_to_push, push_checkpoint
from hf_capsule_mt.training.averaging import averaged_checkpoints

from .common import import_code, report_user_errors
from .options.push_to_hub_options import _RECORD, build_parser


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
