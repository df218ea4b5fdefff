"""Send a checkpoint of this package to the Hub, in one commit.

    hf auth login
    hf-capsule-mt push_to_hub --model run/average --repo_id user/name
    hf-capsule-mt push_to_hub --model run/average --repo_id user/name --private --revision v2

The model is loaded and saved anew, so that a broken checkpoint is found before anything is sent. With it go its
source, the tokenizer and the model card, README.md in the folder (see `write_model_card`). Optimizer states, logs
and other files stay at home. The repository is made if it does not exist; of one that exists, files of an earlier model
are deleted and all others stay. After an interruption the same command goes on.

The token is that of `hf auth login` or of the environment variable HF_TOKEN.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from hf_capsule_mt.hub.push import push_checkpoint

from .common import CommandParser, report_user_errors


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the checkpoint's folder")
    parser.add_argument("--repo_id", required=True, help="user/name or organisation/name")
    parser.add_argument("--private", action="store_true", help="make a new repository private")
    parser.add_argument("--revision", help="branch to commit to, made if need be (default: the main branch)")
    parser.add_argument("--commit_message", help='default: "Upload" and the class of the model')
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Push, and say how the result loads."""
    args = build_parser().parse_args(argv)
    options = {name: getattr(args, name) for name in ("private", "revision", "commit_message")}
    pushed = push_checkpoint(args.model, args.repo_id, **options)
    for files, done in ((pushed.deleted, "deleted, of an earlier model"), (pushed.kept, "left as they were")):
        if files:
            print(f"{done}: {', '.join(files)}")
    print(
        f"{pushed.url}\n\n"
        f'pipeline("translation", model="{args.repo_id}", revision="{pushed.commit}", trust_remote_code=True)'
    )


if __name__ == "__main__":
    main()
