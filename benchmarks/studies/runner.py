"""Execution of a study's commands: it resumes after a kill, and goes on with other rows after a failure."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import IO

import psutil
import torch

from benchmarks.studies.results import OF_TRAINING
from benchmarks.studies.steps import LAUNCHED, Job, Step
from hf_capsule_mt.checkpoints import checkpoints, is_whole
from hf_capsule_mt.files import locked, replace_bytes

COMMANDS = "hf_capsule_mt.cli"


def command_line(step: Step, launcher: str) -> list[str]:
    """Return the words of a step's command; `launcher` starts commands whose processes share the work.

    Raises:
        ValueError: if the step has a precision of its own, and the launcher cannot be told.
    """
    if step.mixed_precision is not None:
        launcher, told = re.subn(r"(--mixed_precision)[ =]\S+", rf"\1 {step.mixed_precision}", launcher)
        if not told and step.mixed_precision != "no":
            raise ValueError(
                f"the launcher is {launcher!r:.200}, without --mixed_precision, and {step.product.parent} is to be "
                f"trained in {step.mixed_precision}; add that option"
            )
    start = shlex.split(launcher) if step.command in LAUNCHED else ["python"]
    package = __package__ if step.command == "export_text" else COMMANDS
    return [*start, "-m", f"{package}.{step.command}", *step.words()]


def run_jobs(
    jobs: Sequence[Job], runs: Path, launcher: str, say: Callable[[str], None] = print, at_once: int = 1
) -> list[str]:
    """Run the jobs that are not done, and publish the records of each that has all.

    Args:
        jobs: behind those that they need.
        runs: folder of their runs. Of several jobs at once, what the commands print goes to files in its folder `logs`.
        launcher: what starts training and decoding.
        say: is told which command begins, and what is done.
        at_once: how many jobs may run at the same time, each a command at a time.

    Returns:
        What failed: a line for each job with the command or the file that did. Its other commands are not tried, but
        those of other jobs are.

    Raises:
        BlockingIOError: if another process works in `runs`.
    """
    waiting = [job for job in jobs if not job.done()]
    products = {step.product: Lock() for job in waiting for step in job.steps}
    logs = runs / "logs" if at_once > 1 else None
    with locked(runs):
        worker = _Worker(launcher, say, logs, command_environment(at_once), products)
        return [failure for failure in _as_they_end(waiting, at_once, worker) if failure is not None]


def _as_they_end(jobs: list[Job], at_once: int, worker: "_Worker") -> Iterator[str | None]:
    """Do jobs, so many at once, each when those that it needs have ended; return what became of them."""
    running: dict[Future[str | None], Job] = {}
    with ThreadPoolExecutor(at_once) as pool:
        try:
            while jobs or running:
                not_ended = {job.name for job in (*jobs, *running.values())}
                ready = [job for job in jobs if not job.needs & not_ended]
                for job in ready[: at_once - len(running)]:
                    jobs.remove(job)
                    running[pool.submit(worker.do, job)] = job
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    del running[future]
                    yield future.result()
        except BaseException:
            # Before the pool waits for its threads.
            worker.stop()
            raise


@dataclass
class _Worker:
    """Does the steps of jobs, in several threads perhaps."""

    launcher: str
    say: Callable[[str], None]
    logs: Path | None
    environment: Mapping[str, str]
    products: Mapping[Path, Lock]
    """A lock for each, for jobs share some."""
    running: list[subprocess.Popen] = field(default_factory=list)
    """What was started, if it has ended too."""
    stopped: bool = False

    def do(self, job: Job) -> str | None:
        """Do the steps of a job up to the first that fails, and publish its records; return a line on what failed."""
        try:
            for step in job.asked():
                with self.products[step.product]:
                    if self.stopped or not self._run(job, step):
                        log = "" if self.logs is None else f" (see {self._log(job)})"
                        return f"{job.name}: {shlex.join(command_line(step, self.launcher))}{log}"
            done = _publish(job)
        except OSError as error:
            return f"{job.name}: {error}"
        self.say(f"== {job.name}: {'done' if done else 'done but for its scores'}")
        return None

    def stop(self) -> None:
        """End the commands that run, and start no other."""
        self.stopped = True
        for process in self.running:
            _ask_to_end(process)

    def _run(self, job: Job, step: Step) -> bool:
        """Do the step unless it is done; return whether it is done then."""
        if step.product.exists():
            return True
        step.product.parent.mkdir(parents=True, exist_ok=True)
        if step.command == "train":
            # A training that outlived its study, which was killed, still holds the lock of its own folder.
            with locked(step.product.parent):
                _prepare_run(job, step.product.parent)
        words = command_line(step, self.launcher)
        self.say(f"== {job.name}: {shlex.join(words)}")
        with nullcontext() if self.logs is None else self._log(job).open("ab") as log:
            status = run_command(words, self.environment, log, self._started)
        return status == 0 and step.product.exists()

    def _started(self, process: subprocess.Popen) -> None:
        self.running.append(process)
        if self.stopped:
            _ask_to_end(process)

    def _log(self, job: Job) -> Path:
        self.logs.mkdir(exist_ok=True)
        return self.logs / f"{job.row.name}-seed{job.seed}.log"


def run_command(
    words: Sequence[str],
    environment: Mapping[str, str],
    output: IO[bytes] | None,
    started: Callable[[subprocess.Popen], None],
) -> int:
    """Run a command to its end and return its status; `output` takes what it prints, `started` the process."""
    if words[0] == "python":
        # Where this one lies that may be another, or none.
        words = [sys.executable, *words[1:]]
    with subprocess.Popen(words, env=environment, stdout=output, stderr=output) as process:
        started(process)
    return process.returncode


def _ask_to_end(process: subprocess.Popen) -> None:
    """Send SIGTERM to a command that runs: not to its launcher, which would leave behind what it has started."""
    if process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            for each in psutil.Process(process.pid).children() or [process]:
                each.terminate()


def command_environment(at_once: int = 1) -> dict[str, str]:
    """Return the environment that commands run in, so many at once."""
    return {
        # Without these, glibc returns the pages of the logits to the system after every update and faults them in
        # again.
        **{"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "20000000000", "MALLOC_TOP_PAD_": "500000000"},
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        # Each would take every core.
        **({"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // at_once))} if at_once > 1 else {}),
        **os.environ,
        # `accelerate` is that of this environment.
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


def _publish(job: Job) -> bool:
    """Copy the records of a job, if all are made; that of the run, without which there is no row, comes last."""
    if not all(source.is_file() for source in job.records.values() if source.name != OF_TRAINING[1]):
        return False
    for path, source in sorted(job.records.items(), key=lambda item: item[1].name == OF_TRAINING[0]):
        if source.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_bytes(path, source.read_bytes())
    return True
