"""Train, average, translate, score and tabulate the rows of a YAML file.

    python -m benchmarks.studies run benchmarks/studies/multi30k.yaml --dry_run
    python -m benchmarks.studies run benchmarks/studies/multi30k.yaml
    python -m benchmarks.studies run benchmarks/studies/dou2019_wmt14_en_de.yaml --rows transformer "em-routing*" \\
        --launcher "accelerate launch --num_processes 8 --num_machines 1 --mixed_precision bf16 --dynamo_backend no"

benchmarks/studies/study_file.py describes the file. Every step is a command of its own, which --dry_run prints.
The same command goes on after a kill: what is done is not done again, training resumes from its last checkpoint. A row
is done when its records are in the folder of records; the table is made from these alone. Small models fill a large
device only together: --jobs 8 trains eight rows at once. A machine that trains and translates may leave the scores to
another that has the folder of runs: --without_scores.
"""

import argparse
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.studies import export_text
from benchmarks.studies.checks import check_files, check_study
from benchmarks.studies.estimate import estimate
from benchmarks.studies.results import read_results, read_speed
from benchmarks.studies.runner import command_line, run_jobs
from benchmarks.studies.steps import Job, Plan
from benchmarks.studies.study_file import read_study
from benchmarks.studies.table import caption, score_table
from hf_capsule_mt.cli import average_checkpoints, distill, evaluate, train, train_tokenizer, translate
from hf_capsule_mt.cli.common import CommandParser, at_least, check_output_folder, report_user_errors
from hf_capsule_mt.markdown import table_in_markdown


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = CommandParser(__doc__)
    add_study_options(parser)
    parser.add_argument(
        "--rows", nargs="+", metavar="NAME", help='rows to train, also as patterns in quotes: "em-*" (default: all)'
    )
    parser.add_argument("--launcher", help="what starts training and decoding (default: the study's, else one process)")
    parser.add_argument(
        "--jobs",
        type=at_least(1),
        default=1,
        metavar="N",
        help="rows to work on at once, on the same devices; what they print goes to files (default: %(default)s)",
    )
    parser.add_argument(
        "--without_scores",
        action="store_true",
        help="train and translate alone; a later call scores, elsewhere perhaps",
    )
    parser.add_argument("--dry_run", action="store_true", help="print the commands and what is done, and run nothing")
    return parser


def add_study_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the study and its folders."""
    parser.add_argument("study", type=Path, help="the YAML file")
    parser.add_argument("--runs_dir", type=Path, help="for checkpoints and translations (default: outputs/STUDY)")
    parser.add_argument("--records_dir", type=Path, help="(default: the study's, else records in the folder of runs)")


@report_user_errors()
def main(argv: Sequence[str] | None = None) -> None:
    """Run the jobs that are not done, and print the table of those that are."""
    args = build_parser().parse_args(argv)
    plan = read_plan(args)
    check_study(plan.study, command_parsers())
    jobs = [replace(job, without_scores=args.without_scores) for job in _selected(plan, args.rows)]
    launcher = args.launcher or plan.study.launcher
    for job in jobs:
        for step in job.steps:
            command_line(step, launcher)
    if args.dry_run:
        _print_plan(plan, jobs, launcher)
        return
    check_output_folder(plan.runs, "--runs_dir")
    check_output_folder(plan.records, "--records_dir")
    check_files(plan, [job for job in jobs if not job.done()])
    # What the table would refuse after hours.
    read_results(plan.study, plan.records)
    read_speed(plan.study)
    with _ended_by_sigterm():
        failures = run_jobs(jobs, plan.runs, launcher, lambda line: print(line, flush=True), args.jobs)
    print_table(plan)
    if failures:
        raise ChildProcessError("these failed; the same call of ablate tries again: " + "; ".join(failures))


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process as an error does, by which the commands that run are ended first."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def read_plan(args: argparse.Namespace) -> Plan:
    """Read the study that the command line names, and choose its folders."""
    study = read_study(args.study)
    runs = args.runs_dir or Path("outputs") / study.name
    records = args.records_dir or (Path(study.records) if study.records else runs / "records")
    return Plan(study, runs, records)


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands that a study runs, by name."""
    modules = [average_checkpoints, distill, evaluate, export_text, train, train_tokenizer, translate]
    return {module.__name__.rpartition(".")[2]: module.build_parser() for module in modules}


def _selected(plan: Plan, patterns: Sequence[str] | None) -> list[Job]:
    jobs = plan.jobs()
    if patterns is None:
        return jobs
    names = [row.name for row in plan.study.rows]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"--rows has {pattern!r}; the study has {', '.join(names)}")
    return [job for job in jobs if any(fnmatchcase(job.row.name, pattern) for pattern in patterns)]


def _print_plan(plan: Plan, jobs: Sequence[Job], launcher: str) -> None:
    shown = set()
    for job in jobs:
        print(f"# {job.name}: {'done' if job.done() else 'to do'}")
        for step in [] if job.done() else job.asked():
            if step.product not in shown:
                shown.add(step.product)
                print(f"{'# done: ' if step.product.exists() else ''}{shlex.join(command_line(step, launcher))}")
    cost = estimate(plan.study, [job for job in jobs if not job.done()])
    if cost is not None:
        print(f"# {cost}")


def print_table(plan: Plan) -> None:
    """Print the table of the rows that have records."""
    results = read_results(plan.study, plan.records)
    if results:
        table = score_table(plan.study, results, read_speed(plan.study))
        print(f"\n{table_in_markdown(table)}\n\n{caption(plan.study, results)}")


if __name__ == "__main__":
    main()
