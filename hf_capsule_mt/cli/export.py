"""The command `export`. Its options stand in options/export_options.py."""

from collections.abc import Sequence

from hf_capsule_mt.hub.exporting import export_checkpoint

from .common import check_new_folder, import_code, report_user_errors
from .options.export_options import build_parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Export, and say what was found."""
    args = build_parser().parse_args(argv)
    import_code(args.imports)
    check_new_folder(args.output_dir)
    comparison = export_checkpoint(args.model, args.output_dir, args.format, args.revision or "main", args.dtype)
    files = sorted(file for file in args.output_dir.rglob("*") if file.is_file())
    names = [file.relative_to(args.output_dir).as_posix() for file in files]
    print(f"{args.output_dir}: {', '.join(names)}")
    print(f"largest difference from the model: {comparison.difference:.1e}")
    if comparison.same_tokens is not None:
        print(f"int8 finds the same next token best in {comparison.same_tokens:.1%} of steps with random tokens")
