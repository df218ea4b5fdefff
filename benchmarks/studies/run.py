"""Train, average, translate and score the rows of a study.

    python -m benchmarks.studies run benchmarks/multi30k/multi30k.yaml --dry_run
    python -m benchmarks.studies run benchmarks/multi30k/multi30k.yaml --rows transformer "em-*" --jobs 2

Every step is a command, which --dry_run prints. What is done is not done again, so the same call continues after a
kill, and training resumes from its last checkpoint. A row is done when its records are in the file of records. What the
commands of several --jobs print goes to the folder `logs` of the runs.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Lock
from typing import Any

import psutil
import torch

from benchmarks.common.records import append_records, read_records
from benchmarks.studies.plan import Job, Plan, Step
from benchmarks.studies.report import add_study_options, print_table, records_of
from benchmarks.studies.study import Study
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import locked, replace_text


class Runner:
    """Runs the steps of jobs, in several threads perhaps."""

    def __init__(self, plan: Plan, launcher: str, at_once: int = 1, with_scores: bool = True) -> None:
        """Make a runner.

        Args:
            plan: has the steps of the jobs.
            launcher: the beginning of the commands that may run in several processes.
            at_once: how many jobs run at the same time.
            with_scores: whether translations are scored.
        """
        self.plan = plan
        self.launcher = launcher
        self.at_once = at_once
        self.with_scores = with_scores
        self.stopped = False
        self.running: list[subprocess.Popen] = []
        # Two jobs may need the same product, such as the tokenizer.
        self._product_locks: dict[Path, Lock] = {}
        self._records_lock = Lock()

    def run(self, jobs: Sequence[Job]) -> list[str]:
        """Run jobs; return a line for each that failed."""
        futures: dict[Job, Future] = {}
        with locked(self.plan.runs), ThreadPoolExecutor(self.at_once) as pool:
            try:
                for job in jobs:
                    needed = [futures[other] for other in self.plan.needs(job) if other in futures]
                    futures[job] = pool.submit(self._do, job, needed)
                results = [future.result() for future in futures.values()]
            except BaseException:
                self.stopped = True
                for process in self.running:
                    end(process)
                raise
        return [failure for failure in results if failure is not None]

    def _do(self, job: Job, needed: Sequence[Future]) -> str | None:
        """Run a job. Return a line that says what failed, or None."""
        if any(future.result() is not None for future in needed):
            return f"{job.title}: a row that it needs failed"
        try:
            self._claim(job)
            failed = self._run_steps(job)
        except (OSError, UserError) as error:
            return f"{job.title}: {error}"
        if failed is not None:
            return f"{job.title}: {shlex.join(failed)}"
        is_done = self._publish(job)
        print(f"== {job.title}: {'done' if is_done else 'done but for its scores'}", flush=True)
        return None

    def _claim(self, job: Job) -> None:
        """Write down the row in the folder of its run."""
        self.plan.check_folder(job)
        file = self.plan.row_file(job)
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, self.plan.row_text(job))

    def _run_steps(self, job: Job) -> list[str] | None:
        """Run the steps that are not done. Return the command that failed, or None."""
        for step in self.plan.steps(job):
            if step.command == "evaluate" and not self.with_scores:
                continue
            command = step.command_line(self.launcher)
            lock = self._product_locks.setdefault(step.product, Lock())
            with lock:
                if self.stopped:
                    return command
                if not step.product.exists() and not self._run(job, step, command):
                    return command
        return None

    def _run(self, job: Job, step: Step, command: Sequence[str]) -> bool:
        """Run a step. Return whether it has made its product."""
        step.product.parent.mkdir(parents=True, exist_ok=True)
        print(f"== {job.title}: {shlex.join(command)}", flush=True)
        log = self.plan.runs / "logs" / f"{job.row.replace(' ', '')}-seed{job.seed}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") if self.at_once > 1 else nullcontext() as output:
            status = run_command(command, environment(self.at_once), output, self.running)
        return status == 0 and step.product.exists()

    def _publish(self, job: Job) -> bool:
        """Add the job's records to the file of records if all are there. Return whether they are."""
        files = {name: file for name, file in self.plan.files_of(job).items() if file.is_file()}
        is_done = self.plan.is_done(job, files)
        if is_done:
            records = {name: json.loads(file.read_text("utf-8")) for name, file in files.items()}
            with self._records_lock:
                append_records(self.plan.records, records)
        return is_done


def run_command(
    command: Sequence[str], variables: Mapping[str, str], output: Any, running: list[subprocess.Popen]
) -> int:
    """Run a command to its end.

    Args:
        command: its words. The first one, "python", stands for this Python.
        variables: its environment.
        output: file of what it prints; None for that of this process.
        running: gets the process, so that another thread can end it.

    Returns:
        The exit status.
    """
    if command[0] == "python":
        command = [sys.executable, *command[1:]]
    with subprocess.Popen(command, env=variables, stdout=output, stderr=output) as process:
        running.append(process)
    return process.returncode


def end(process: subprocess.Popen) -> None:
    """Ask a command to end: not its launcher, which would leave behind what it has started."""
    if process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            for started in psutil.Process(process.pid).children() or [process]:
                started.terminate()


def environment(at_once: int) -> dict[str, str]:
    """Return the variables that commands run with. Those of this process come first."""
    variables = {
        # Otherwise glibc gives the pages of the logits back after every update, and asks for them again.
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "20000000000",
        "MALLOC_TOP_PAD_": "500000000",
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    }
    if at_once > 1:
        variables["OMP_NUM_THREADS"] = str(max(1, torch.get_num_threads() // at_once))
    variables |= os.environ
    # Launchers such as `accelerate` lie next to this Python.
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    return variables


def estimate(study: Study, jobs: Sequence[Job]) -> str:
    """Return the GPU hours of training, by the speeds that the study names: updates divided by updates per second."""
    seconds = []
    for job in jobs:
        row = study.row(job.row)
        speed = row.updates_per_second or study.cost.get("updates_per_second")
        if speed and "max_steps" in row.train:
            seconds.append(float(row.train["max_steps"]) / speed)
    hours = sum(seconds) / 3600
    gpus = study.cost["gpus"]
    text = (
        f"about {hours * gpus:,.0f} hours of one {study.cost['gpu']}: {len(seconds)} run(s), {hours:,.0f} hours on "
        f"{gpus}. {study.cost.get('source', '')}"
    )
    unknown = len(jobs) - len(seconds)
    if unknown:
        text += f" Not counted: {unknown} run(s) of unknown speed."
    return text


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_study_options(parser)
    parser.add_argument("--output_dir", type=Path, help="for checkpoints and translations (default: outputs/STUDY)")
    parser.add_argument("--rows", nargs="+", default=["*"], help='names or patterns: "em-*" (default: all)')
    parser.add_argument("--launcher", help="what starts training and decoding (default: the study's)")
    parser.add_argument("--jobs", type=int, default=1, help="rows at once, on the same devices (default: %(default)s)")
    parser.add_argument("--without_scores", action="store_true", help="only train and translate; a later call scores")
    parser.add_argument("--dry_run", action="store_true", help="print the commands and run nothing")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is not done, and print the table of what is."""
    parser = build_parser()
    args = parser.parse_args(argv)
    plan = Plan(args.study, args.output_dir or Path("outputs", args.study.name), records_of(args))
    launcher = args.launcher or args.study.launcher
    try:
        jobs = _chosen(plan, args.rows)
        for job in jobs:
            plan.check_folder(job)
    except UserError as error:
        parser.error(str(error))
    known = read_records(plan.records)
    waiting = [job for job in jobs if not plan.is_done(job, known)]
    if args.dry_run:
        _print_commands(plan, jobs, waiting, launcher)
        return
    signal.signal(signal.SIGTERM, _exit_on_signal)
    failures = Runner(plan, launcher, args.jobs, not args.without_scores).run(waiting)
    print_table(args.study, plan.records)
    if failures:
        raise SystemExit("These failed, the same call tries them again:\n" + "\n".join(failures))


def _exit_on_signal(number: int, frame: Any) -> None:
    sys.exit(128 + number)


def _chosen(plan: Plan, patterns: Sequence[str]) -> list[Job]:
    """Return the jobs whose rows fit a pattern.

    Raises:
        UserError: if a pattern fits no row.
    """
    jobs = plan.jobs()
    names = sorted({job.row for job in jobs})
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UserError(f"no row is called {pattern}. There are {', '.join(names)}.")
    return [job for job in jobs if any(fnmatchcase(job.row, pattern) for pattern in patterns)]


def _print_commands(plan: Plan, jobs: Sequence[Job], waiting: Sequence[Job], launcher: str) -> None:
    """Print the commands of the waiting jobs, and what their training costs."""
    for job in jobs:
        if job not in waiting:
            print(f"# {job.title}: done")
            continue
        print(f"# {job.title}: to do")
        for step in plan.steps(job):
            done = "# done: " if step.product.exists() else ""
            print(f"{done}{shlex.join(step.command_line(launcher))}")
    if plan.study.cost:
        print(f"# {estimate(plan.study, waiting)}")
