"""Train, average, translate and score the rows of a study.

    python -m benchmarks.studies run benchmarks/studies/multi30k.yaml --dry_run
    python -m benchmarks.studies run benchmarks/studies/multi30k.yaml --rows transformer "em-*" --jobs 2

Every step is a command, which --dry_run prints. What is done is not done again, so the same call continues after a
kill, and training resumes from its last checkpoint. A row is done when its records are in the file of records. What the
commands of several --jobs print goes to the folder `logs` of the runs.
"""

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Lock
from typing import Any

import psutil
import torch

from benchmarks.records import append_records, read_records
from benchmarks.studies.report import add_study_options, print_table, records_of
from benchmarks.studies.results import record_name
from benchmarks.studies.study import Study, Test
from hf_capsule_mt.files import locked, replace_text

Job = tuple[str, int]
"""The name of a row, and a seed."""
_LAUNCHED = ("train", "distill", "translate")
_FREE = {"seeds", "against", "published", "updates_per_second"}
"""Fields of a row that change nothing in its run."""


@dataclass(frozen=True)
class Step:
    """A command, and the file or folder that is there when it is done."""

    command: str
    options: Mapping[str, Any]
    product: Path
    mixed_precision: str | None = None

    def words(self, launcher: str) -> list[str]:
        """Return the command line; options that are None or False are left out, but training is told of False."""
        start = ["python"]
        if self.command in _LAUNCHED:
            if self.mixed_precision is not None:
                launcher = re.sub(r" --mixed_precision[ =]\S+", "", launcher)
                launcher += f" --mixed_precision {self.mixed_precision}"
            start = shlex.split(launcher)
        package = "benchmarks.studies" if self.command == "export" else "hf_capsule_mt"
        words = [*start, "-m", package, self.command]
        for name, value in self.options.items():
            if value is True:
                words.append(f"--{name}")
            elif value is not None and (value is not False or self.command == "train"):
                values = value if isinstance(value, list | tuple) else [value]
                words.append(f"--{name}")
                words += [json.dumps(one) if isinstance(one, dict | bool) else str(one) for one in values]
        return words


@dataclass(frozen=True)
class Plan:
    """A study, the folder of its runs, and its file of records."""

    study: Study
    runs: Path
    records: Path

    def jobs(self) -> list[Job]:
        """Return all rows with all seeds: the first of every row, then the second; each behind those that it needs."""
        found: dict[Job, None] = {}

        def add(job: Job) -> None:
            for needed in self.needs(job):
                add(needed)
            found.setdefault(job)

        for number in range(max(len(row.seeds) for row in self.study.rows)):
            for row in self.study.rows:
                for seed in row.seeds[number : number + 1]:
                    add((row.name, seed))
        return list(found)

    def needs(self, job: Job) -> list[Job]:
        """Return the jobs whose models this one starts from or learns from."""
        row, seed = self.study.row(job[0]), job[1]
        teacher = self.study.row(row.teacher)
        start = [(row.start, seed)] if self.study.row(row.start) is not None else []
        return start + ([(teacher.name, teacher.seeds[0])] if teacher is not None else [])

    def run_of(self, job: Job) -> Path:
        """Return the folder that a job trains in."""
        return self.runs / job[0] / f"seed{job[1]}"

    def model(self, job: Job) -> Path:
        """Return the folder of the weights that translate."""
        return self.run_of(job) / ("average" if "average_checkpoints" in self.study.options else "")

    def files_of(self, job: Job) -> dict[str, Path]:
        """Return the files that become records, by the names of the records."""
        row, run = self.study.row(job[0]), self.run_of(job)
        kinds = ("run_record", *(test.name for test in self.study.tests), "trainer_state")
        return {record_name(self.study, row, job[1], kind): run / f"{kind}.json" for kind in kinds}

    def is_done(self, job: Job, known: Mapping[str, Any]) -> bool:
        """Return whether the job's records are among those that are known."""
        return all(name in known for name, file in self.files_of(job).items() if file.stem != "trainer_state")

    def check_folder(self, job: Job) -> tuple[Path, str]:
        """Return the file that describes the row in the folder of a run, and the row. Refuse the folder of another."""
        row, file = asdict(self.study.row(job[0])), self.run_of(job) / "row.json"
        text = json.dumps({name: value for name, value in row.items() if name not in _FREE})
        if file.exists() and json.loads(file.read_text("utf-8")) != json.loads(text):
            raise ValueError(f"{file} is of another row. Rename the row, or the file of the study.")
        return file, text

    def steps(self, job: Job) -> Iterator[Step]:
        """Yield the steps of a job in order."""
        study, row, run = self.study, self.study.row(job[0]), self.run_of(job)
        data, options = dict(study.data), study.options
        corpus = {name: value for name, value in data.items() if name != "validation_file"}
        tokenizer = Path(study.tokenizer or self.runs / "tokenizer")
        if study.tokenizer is None:
            where = {"output_dir": tokenizer, "overwrite_output_dir": True}
            train = {**corpus, **options["train_tokenizer"], **where}
            yield Step("train_tokenizer", train, tokenizer / "tokenizer_config.json")
        if row.teacher is not None:
            name, teacher = re.sub(r"[^\w.=+-]", "-", row.teacher), self.study.row(row.teacher)
            files = [self.runs / "distilled" / f"{name}.{language}" for language in self._languages()]
            model = row.teacher if teacher is None else self.model((teacher.name, teacher.seeds[0]))
            distill = {"model": model, **corpus, **options.get("distill", {}), "output_file": files}
            yield Step("distill", distill, files[0].with_name(f"{files[0].name}.manifest.json"))
            data = {name: data[name] for name in ("source_lang", "target_lang", "validation_file") if name in data}
            if "validation_file" not in data and row.train.get("eval_strategy", "no") != "no":
                yield self._export("validation")
                data["validation_file"] = self._exported("validation")
            data["train_file"] = files
        model = {"method": row.method, "size": row.size}
        if row.start is not None:
            start = study.row(row.start)
            method = None if start is not None and start.method == row.method else row.method
            path = row.start if start is None else self.model((row.start, job[1]))
            model = {"method": method, "model": path}
        overrides = [f"{name}={json.dumps(value)}" for name, value in row.config.items()] or None
        model |= {"config_overrides": overrides, "tokenizer_name": tokenizer}
        # Without a checkpoint, what a kill left is deleted.
        where = {"seed": job[1], "output_dir": run, "resume_from_checkpoint": "auto", "overwrite_output_dir": True}
        yield Step("train", {**model, **data, **row.train, **where}, run / "run_record.json", row.mixed_precision)
        if "average_checkpoints" in options:
            average = {"run_dir": run, **options["average_checkpoints"], "output_dir": run / "average"}
            yield Step("average_checkpoints", average, run / "average")
        for test in study.tests:
            yield from self._test(job, test)

    def _test(self, job: Job, test: Test) -> Iterator[Step]:
        if test.split is not None:
            yield self._export(test.split)
        source, *references = self._exported(test.split) if test.split is not None else test.files
        asked = self.study.options.get("evaluate", {})
        written = self.run_of(job) / f"{test.name}.{self._languages()[1]}"
        translate = {"model": self.model(job), "input_file": source, "output_file": written}
        yield Step("translate", {**translate, **self.study.options.get("translate", {})}, written)
        scores = self.run_of(job) / f"{test.name}.json"
        evaluate: dict[str, Any] = {"hypotheses": written, "references": references, "output_file": scores}
        if {"adequacy", "length_buckets", "length_edges"} & asked.keys():
            evaluate["input_file"] = source
        # More text makes word alignment better.
        text, by_attention = self.study.data.get("train_file", ()), {"model", "aligner"} & asked.keys()
        if asked.get("adequacy") and not by_attention and len(text) == 2:
            evaluate["alignment_data"] = text
        yield Step("evaluate", {**evaluate, **asked}, scores)

    def _export(self, split: str) -> Step:
        files = self._exported(split)
        data = {name: value for name, value in self.study.data.items() if not name.endswith("_file")}
        return Step("export", {**data, "split": split, "output_file": files}, files[-1])

    def _exported(self, split: str) -> list[Path]:
        return [self.runs / "data" / f"{split}.{language}" for language in self._languages()]

    def _languages(self) -> tuple[str, str]:
        data = self.study.data
        ends = [Path(file.removesuffix(".gz")).suffix[1:] for file in data.get("train_file", ())]
        named = data.get("source_lang", "source"), data.get("target_lang", "target")
        return tuple(ends) if len(set(ends)) == 2 else named


class Runner:
    """Runs the steps of jobs, in several threads perhaps."""

    def __init__(self, plan: Plan, launcher: str, at_once: int = 1, with_scores: bool = True) -> None:
        self.plan, self.launcher, self.at_once, self.with_scores = plan, launcher, at_once, with_scores
        self.locks: dict[Path, Lock] = {}
        self.publishing, self.stopped = Lock(), False
        self.running: list[subprocess.Popen] = []

    def run(self, jobs: Sequence[Job]) -> list[str]:
        """Run jobs; return a line for each that failed."""
        futures: dict[Job, Future] = {}
        with locked(self.plan.runs), ThreadPoolExecutor(self.at_once) as pool:
            try:
                for job in jobs:
                    needed = [futures[other] for other in self.plan.needs(job) if other in futures]
                    futures[job] = pool.submit(self._do, job, needed)
                return [failure for future in futures.values() if (failure := future.result())]
            except BaseException:
                self.stopped = True
                for process in self.running:
                    end(process)
                raise

    def _do(self, job: Job, needed: Sequence[Future]) -> str | None:
        name = f"{job[0]}, seed {job[1]}"
        if any(future.result() for future in needed):
            return f"{name}: a row that it needs failed"
        try:
            self._claim(job)
            for step in self.plan.steps(job):
                if step.command == "evaluate" and not self.with_scores:
                    continue
                with self.locks.setdefault(step.product, Lock()):
                    words = step.words(self.launcher)
                    if self.stopped or not (step.product.exists() or self._run(step, words, name)):
                        return f"{name}: {shlex.join(words)}"
        except (OSError, ValueError) as error:
            return f"{name}: {error}"
        files = {record: file for record, file in self.plan.files_of(job).items() if file.is_file()}
        if self.plan.is_done(job, files):
            with self.publishing:
                records = {record: json.loads(file.read_text("utf-8")) for record, file in files.items()}
                append_records(self.plan.records, records)
        print(f"== {name}: {'done' if self.plan.is_done(job, files) else 'done but for its scores'}", flush=True)
        return None

    def _claim(self, job: Job) -> None:
        """Write down the row in the folder of its run."""
        file, row = self.plan.check_folder(job)
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, row)

    def _run(self, step: Step, words: Sequence[str], name: str) -> bool:
        step.product.parent.mkdir(parents=True, exist_ok=True)
        print(f"== {name}: {shlex.join(words)}", flush=True)
        log = self.plan.runs / "logs" / f"{name.replace(', ', '-').replace(' ', '')}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") if self.at_once > 1 else nullcontext() as output:
            return run_command(words, environment(self.at_once), output, self.running) == 0 and step.product.exists()


def run_command(words: Sequence[str], variables: Mapping[str, str], output: Any, running: list[Any]) -> int:
    """Run a command to its end and return its status."""
    words = [sys.executable, *words[1:]] if words[0] == "python" else words
    with subprocess.Popen(words, env=variables, stdout=output, stderr=output) as process:
        running.append(process)
    return process.returncode


def end(process: subprocess.Popen) -> None:
    """Ask a command to end: not its launcher, which would leave behind what it has started."""
    if process.poll() is None:
        with suppress(psutil.NoSuchProcess):
            for each in psutil.Process(process.pid).children() or [process]:
                each.terminate()


def environment(at_once: int) -> dict[str, str]:
    """Return the variables that commands run with."""
    return {
        # Otherwise glibc gives the pages of the logits back after every update, and asks for them again.
        **{"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "20000000000", "MALLOC_TOP_PAD_": "500000000"},
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        **({"OMP_NUM_THREADS": str(max(1, torch.get_num_threads() // at_once))} if at_once > 1 else {}),
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }


def estimate(study: Study, jobs: Sequence[Job]) -> str:
    """Return the GPU hours of training, by the speeds that the study names: updates divided by updates per second."""
    rows = [study.row(name) for name, _ in jobs]
    speeds = [(row, row.updates_per_second or study.cost.get("updates_per_second")) for row in rows]
    seconds = [float(row.train["max_steps"]) / speed for row, speed in speeds if speed and "max_steps" in row.train]
    hours, gpus = sum(seconds) / 3600, study.cost["gpus"]
    unknown = f" Not counted: {len(jobs) - len(seconds)} run(s) of unknown speed." if len(seconds) < len(jobs) else ""
    return (
        f"about {hours * gpus:,.0f} hours of one {study.cost['gpu']}: {len(seconds)} run(s), {hours:,.0f} hours on "
        f"{gpus}. {study.cost.get('source', '')}{unknown}"
    )


def export(argv: Sequence[str]) -> None:
    """Write a split of a data set of the Hub as a file for each language."""
    from datasets import load_dataset

    parser = argparse.ArgumentParser(description=export.__doc__)
    for name in ("dataset_name", "dataset_config_name", "source_lang", "target_lang", "split"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--output_file", nargs=2)
    args = parser.parse_args(argv)
    pairs = load_dataset(args.dataset_name, args.dataset_config_name, split=args.split)["translation"]
    for language, file in zip((args.source_lang, args.target_lang), args.output_file, strict=True):
        # A line break inside a sentence would shift all lines behind it.
        replace_text(Path(file), "".join(" ".join(pair[language].splitlines()) + "\n" for pair in pairs))


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is not done, and print the table of what is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_study_options(parser)
    parser.add_argument("--output_dir", type=Path, help="for checkpoints and translations (default: outputs/STUDY)")
    parser.add_argument("--rows", nargs="+", default=["*"], help='names or patterns: "em-*" (default: all)')
    parser.add_argument("--launcher", help="what starts training and decoding (default: the study's)")
    parser.add_argument("--jobs", type=int, default=1, help="rows at once, on the same devices (default: %(default)s)")
    parser.add_argument("--without_scores", action="store_true", help="only train and translate; a later call scores")
    parser.add_argument("--dry_run", action="store_true", help="print the commands and run nothing")
    args = parser.parse_args(argv)
    study = args.study
    plan = Plan(study, args.output_dir or Path("outputs", study.name), records_of(args))
    launcher, known = args.launcher or study.launcher, read_records(plan.records)
    jobs = [job for job in plan.jobs() if any(fnmatchcase(job[0], pattern) for pattern in args.rows)]
    names = {name for name, _ in plan.jobs()}
    if unknown := [pattern for pattern in args.rows if not any(fnmatchcase(name, pattern) for name in names)]:
        parser.error(f"no row is called {unknown[0]}. There are {', '.join(sorted(names))}.")
    waiting = [job for job in jobs if not plan.is_done(job, known)]
    try:
        for job in jobs:
            plan.check_folder(job)
    except ValueError as error:
        parser.error(str(error))
    if args.dry_run:
        for name, seed in jobs:
            print(f"# {name}, seed {seed}: {'to do' if (name, seed) in waiting else 'done'}")
            for step in plan.steps((name, seed)) if (name, seed) in waiting else ():
                print(f"{'# done: ' if step.product.exists() else ''}{shlex.join(step.words(launcher))}")
        if study.cost:
            print(f"# {estimate(study, waiting)}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    failures = Runner(plan, launcher, args.jobs, not args.without_scores).run(waiting)
    print_table(study, plan.records)
    if failures:
        raise SystemExit("These failed, the same call tries them again:\n" + "\n".join(failures))
