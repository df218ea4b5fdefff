"""The command `average_checkpoints`. Its options stand in options/average_checkpoints_options.py."""

from collections.abc import Sequence

from hf_capsule_mt.training.averaging import average_checkpoints, best_checkpoints, last_checkpoints

from .common import import_code, report_user_errors
from .options.average_checkpoints_options import build_parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Average the chosen checkpoints into a new folder."""
    parser = build_parser()
    args = parser.parse_args(argv)
    import_code(args.imports)
    if (args.run_dir is None) != (args.last is None and args.best is None):
        parser.error("--run_dir needs --last N or --best N, and --checkpoints takes neither.")

    checkpoints = args.checkpoints
    if args.last is not None:
        checkpoints = last_checkpoints(args.run_dir, args.last)
    elif args.best is not None:
        checkpoints = best_checkpoints(args.run_dir, args.best, args.metric)

    average_checkpoints(checkpoints, args.output_dir)
    print(f"{args.output_dir} is the average of {', '.join(map(str, checkpoints))}")
