"""Execution of a study's commands: it resumes after a kill, and goes on with other rows after a failure."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hf_capsule_mt.checkpoints import checkpoints, is_whole
from hf_capsule_mt.files import locked, replace_bytes

from .results import OF_TRAINING
from .steps import LAUNCHED, Job, Step

COMMANDS = "hf_capsule_mt.cli"


def command_line(step: Step, launcher: str) -> list[str]:
    """Return the words of a step's command; `launcher` starts commands whose processes share the work."""
    start = shlex.split(launcher) if step.command in LAUNCHED else ["python"]
    return [*start, "-m", f"{COMMANDS}.{step.command}", *step.words()]


def run_jobs(jobs: Sequence[Job], runs: Path, launcher: str, say: Callable[[str], None] = print) -> list[str]:
    """Run the jobs that are not done, a command at a time, and publish the records of each that succeeds.

    Returns:
        What failed: a line for each job with the command that ended in error. Its other commands are not tried, but
        those of other jobs are.

    Raises:
        BlockingIOError: if another process works in `runs`, or in the folder of a run.
    """
    failures = []
    with locked(runs):
        for job in jobs:
            if job.done():
                continue
            failed = next((step for step in job.steps if not _run(job, step, launcher, say)), None)
            if failed is None:
                _publish(job)
                say(f"== {job.name}: done")
            else:
                failures.append(f"{job.name}: {shlex.join(command_line(failed, launcher))}")
    return failures


def _run(job: Job, step: Step, launcher: str, say: Callable[[str], None]) -> bool:
    """Do the step unless it is done; return whether it is done then."""
    if step.product.exists():
        return True
    step.product.parent.mkdir(parents=True, exist_ok=True)
    if step.command == "train":
        # A training that outlived its study, which was killed, still holds the lock of its own folder.
        with locked(step.product.parent):
            _prepare_run(job, step.product.parent)
    words = command_line(step, launcher)
    say(f"== {job.name}: {shlex.join(words)}")
    ended = subprocess.run(words, env=command_environment(), check=False)
    return ended.returncode == 0 and step.product.exists()


def command_environment() -> dict[str, str]:
    """Return the environment that commands run in."""
    return {
        # Without these, glibc returns the pages of the logits to the system after every update and faults them in
        # again.
        **{"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "20000000000", "MALLOC_TOP_PAD_": "500000000"},
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        **os.environ,
        # `python` and `accelerate` are those of this environment.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def _prepare_run(job: Job, run: Path) -> None:
    """Remove checkpoints that a killed run saved in part, and products of weights that will change."""
    made = [step.product for step in job.steps if run in step.product.parents and step.product.exists()]
    for path in [*made, *(folder for folder in checkpoints(run) if not is_whole(folder))]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _publish(job: Job) -> None:
    """Copy the records of a job; that of the run, without which there is no row, comes last."""
    for path, source in sorted(job.records.items(), key=lambda item: item[1].name == OF_TRAINING[0]):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(path, source.read_bytes())
