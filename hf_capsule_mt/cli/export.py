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
    difference = export_checkpoint(args.model, args.output_dir, args.format, args.revision or "main")
    names = sorted(file.name for file in args.output_dir.iterdir())
    print(f"{args.output_dir}: {', '.join(names)}")
    print(f"largest difference from the model: {difference:.1e}")
