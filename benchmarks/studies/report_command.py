"""Make a report from the records of a study: tables, figures and examples.

    python -m benchmarks.studies report benchmarks/studies/multi30k.yaml --output_dir outputs/report
    python -m benchmarks.studies report benchmarks/studies/multi30k.yaml --page benchmarks/multi30k.md

The report's page is index.html; its figures need matplotlib: pip install -e ".[figures]". Lengths and
examples come from the translations in the folder of runs, and hf-capsule-mt analyze looks into its checkpoints, as far
as they are there; all else, significance too, comes from the records alone. --page writes the study's own page, from
the template that it names. Nothing is trained; python -m benchmarks.studies run does that.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.page import render_page
from benchmarks.studies.report import write_report
from benchmarks.studies.run import add_study_options, read_plan
from hf_capsule_mt.analysis.figures import check_matplotlib
from hf_capsule_mt.cli.common import (
    CommandParser,
    check_distinct,
    check_new_folder,
    check_output_file,
    report_user_errors,
)
from hf_capsule_mt.files import new_folder, replace_text


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    add_study_options(parser)
    parser.add_argument("--output_dir", type=Path, help="a new folder for the report")
    parser.add_argument("--page", type=Path, help="the file of the study's own page")
    return parser


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Write the report, the page or both."""
    args = build_parser().parse_args(argv)
    if args.output_dir is None and args.page is None:
        raise ValueError("name a folder for the report as --output_dir, a file for the study's page as --page, or both")
    plan = read_plan(args)
    if args.page is not None:
        check_output_file(args.page)
        template = plan.study.page and Path(plan.study.page)
        check_distinct([("--page", args.page)], [args.study, template])
    if args.output_dir is not None:
        check_matplotlib()
        check_new_folder(args.output_dir)
    if args.page is not None:
        replace_text(args.page, render_page(plan))
        print(args.page)
    if args.output_dir is not None:
        with new_folder(args.output_dir) as folder:
            write_report(plan, folder)
        print(args.output_dir / "index.html")


if __name__ == "__main__":
    main()
