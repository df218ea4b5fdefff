"""What there is to do for a study: jobs, and the commands of each."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.studies.results import record_name
from benchmarks.studies.study import Row, Study, Test
from hf_capsule_mt.errors import UserError

_LAUNCHED = ("train", "distill", "translate")
"""Commands that may run in several processes."""
_FREE = {"seeds", "against", "published", "updates_per_second"}
"""Fields of a row that change nothing in its run."""


class Job(NamedTuple):
    """A row to train with a seed."""

    row: str
    seed: int

    @property
    def title(self) -> str:
        """Return how messages name the job."""
        return f"{self.row}, seed {self.seed}"


@dataclass(frozen=True)
class Step:
    """A command, and the file or folder that is there when it is done."""

    command: str
    options: Mapping[str, Any]
    product: Path
    mixed_precision: str | None = None
    """Replaces the launcher's."""

    def command_line(self, launcher: str) -> list[str]:
        """Return the words of the command. Options that are None are left out."""
        package = "benchmarks.studies" if self.command == "export" else "hf_capsule_mt"
        line = [*self._start(launcher), "-m", package, self.command]
        for name, value in self.options.items():
            line += self._option(name, value)
        return line

    def _start(self, launcher: str) -> list[str]:
        if self.command not in _LAUNCHED:
            return ["python"]
        if self.mixed_precision is not None:
            launcher = re.sub(r" --mixed_precision[ =]\S+", "", launcher)
            launcher += f" --mixed_precision {self.mixed_precision}"
        return shlex.split(launcher)

    def _option(self, name: str, value: Any) -> list[str]:
        if value is None:
            return []
        if value is True:
            return [f"--{name}"]
        # Only training has options that are on unless they are told False.
        if value is False and self.command != "train":
            return []
        values = value if isinstance(value, list | tuple) else [value]
        return [f"--{name}", *map(_word, values)]


def _word(value: Any) -> str:
    if isinstance(value, dict | bool):
        return json.dumps(value)
    return str(value)


@dataclass(frozen=True)
class Plan:
    """A study, the folder of its runs, and its file of records."""

    study: Study
    runs: Path
    records: Path

    def jobs(self) -> list[Job]:
        """Return all rows with all seeds: the first of every row, then the second; each behind those that it needs."""
        ordered: dict[Job, None] = {}
        most_seeds = max(len(row.seeds) for row in self.study.rows)
        for number in range(most_seeds):
            for row in self.study.rows:
                if number < len(row.seeds):
                    self._add(Job(row.name, row.seeds[number]), ordered)
        return list(ordered)

    def _add(self, job: Job, ordered: dict[Job, None]) -> None:
        for needed in self.needs(job):
            self._add(needed, ordered)
        ordered.setdefault(job)

    def needs(self, job: Job) -> list[Job]:
        """Return the jobs whose models this one starts from or learns from."""
        row = self.study.row(job.row)
        needed = []
        start = self.study.row(row.start)
        if start is not None:
            needed.append(Job(start.name, job.seed))
        teacher = self.study.row(row.teacher)
        if teacher is not None:
            needed.append(Job(teacher.name, teacher.seeds[0]))
        return needed

    def run_of(self, job: Job) -> Path:
        """Return the folder that a job trains in."""
        return self.runs / job.row / f"seed{job.seed}"

    def model(self, job: Job) -> Path:
        """Return the folder of the weights that translate."""
        if "average_checkpoints" in self.study.options:
            return self.run_of(job) / "average"
        return self.run_of(job)

    def files_of(self, job: Job) -> dict[str, Path]:
        """Return the files that become records, by the names of the records."""
        row = self.study.row(job.row)
        files = {}
        tests = [test.name for test in self.study.tests]
        for kind in ("run_record", *tests, "trainer_state"):
            name = record_name(self.study, row, job.seed, kind)
            files[name] = self.run_of(job) / f"{kind}.json"
        return files

    def is_done(self, job: Job, known: Mapping[str, Any]) -> bool:
        """Return whether the job's records are among those that are known."""
        files = self.files_of(job)
        # The Trainer's log may be missing.
        needed = [name for name, file in files.items() if file.stem != "trainer_state"]
        return all(name in known for name in needed)

    def row_file(self, job: Job) -> Path:
        """Return the file in the folder of a run that says which row it is of."""
        return self.run_of(job) / "row.json"

    def row_text(self, job: Job) -> str:
        """Return what this file has for the row as it is now."""
        fields = asdict(self.study.row(job.row))
        return json.dumps({name: value for name, value in fields.items() if name not in _FREE})

    def check_folder(self, job: Job) -> None:
        """Check that the folder of a run is new, or of this row.

        Raises:
            UserError: if it is of another row, whose records would go under this name.
        """
        file = self.row_file(job)
        if not file.exists():
            return
        saved_row = json.loads(file.read_text("utf-8"))
        if saved_row != json.loads(self.row_text(job)):
            raise UserError(f"{file} is of another row. Rename the row, or the file of the study.")

    def steps(self, job: Job) -> Iterator[Step]:
        """Yield the steps of a job in order."""
        study = self.study
        row = study.row(job.row)
        run = self.run_of(job)
        if row.start is None and study.tokenizer is None:
            yield self._train_tokenizer()
        if row.teacher is not None:
            yield self._distill(row)
            if self._exports_validation(row):
                yield self._export("validation")
        options = {
            **self._model_options(row, job.seed),
            **self._data_options(row),
            **row.train,
            "seed": job.seed,
            "output_dir": run,
            # Without a checkpoint, what a kill left is deleted.
            "resume_from_checkpoint": "auto",
            "overwrite_output_dir": True,
        }
        yield Step("train", options, run / "run_record.json", row.mixed_precision)
        if "average_checkpoints" in study.options:
            average = {"run_dir": run, **study.options["average_checkpoints"], "output_dir": run / "average"}
            yield Step("average_checkpoints", average, run / "average")
        for test in study.tests:
            yield from self._test(job, test)

    def _data_options(self, row: Row) -> dict[str, Any]:
        """Return the options of training that say what is read. A row with a teacher reads its translations."""
        if row.teacher is None:
            return dict(self.study.data)
        data = self._given("source_lang", "target_lang", "validation_file")
        if self._exports_validation(row):
            data["validation_file"] = self._exported("validation")
        data["train_file"] = self._distilled(row)
        return data

    def _exports_validation(self, row: Row) -> bool:
        """Whether validation text must become a file: with files to train on, `train` reads no split of a data set."""
        is_evaluated = row.train.get("eval_strategy", "no") != "no"
        return is_evaluated and "validation_file" not in self.study.data

    def _model_options(self, row: Row, seed: int) -> dict[str, Any]:
        """Return the options of training that say what is trained."""
        fields = [f"{name}={json.dumps(value)}" for name, value in row.config.items()]
        overrides = fields or None
        if row.start is None:
            return {
                "method": row.method,
                "size": row.size,
                "config_overrides": overrides,
                "tokenizer_name": self._tokenizer(),
            }
        # The tokenizer is that of the start: with another one, its embeddings would mean other words.
        start = self.study.row(row.start)
        if start is None:
            return {"method": row.method, "model": row.start, "config_overrides": overrides}
        method = None if start.method == row.method else row.method
        return {"method": method, "model": self.model(Job(start.name, seed)), "config_overrides": overrides}

    def _tokenizer(self) -> Path:
        return Path(self.study.tokenizer or self.runs / "tokenizer")

    def _train_tokenizer(self) -> Step:
        folder = self._tokenizer()
        options = {
            **self._training_text(),
            **self.study.options["train_tokenizer"],
            "output_dir": folder,
            "overwrite_output_dir": True,
        }
        return Step("train_tokenizer", options, folder / "tokenizer_config.json")

    def _distill(self, row: Row) -> Step:
        """Return the step that makes a teacher's translations."""
        teacher = self.study.row(row.teacher)
        model = row.teacher if teacher is None else self.model(Job(teacher.name, teacher.seeds[0]))
        files = self._distilled(row)
        asked = self.study.options.get("distill", {})
        options = {"model": model, **self._training_text(), **asked, "output_file": files}
        manifest = f"{files[0].name}.manifest.json"
        return Step("distill", options, files[0].with_name(manifest))

    def _distilled(self, row: Row) -> list[Path]:
        """Return the files of a teacher's translations and their sources."""
        # A teacher may be the name of a model, which has slashes.
        name = re.sub(r"[^\w.=+-]", "-", row.teacher)
        folder = self.runs / "distilled"
        return [folder / f"{name}.{language}" for language in self._languages()]

    def _test(self, job: Job, test: Test) -> Iterator[Step]:
        """Yield the steps that translate and score a test set."""
        files = test.files
        if test.split is not None:
            yield self._export(test.split)
            files = self._exported(test.split)
        source, *references = files
        _, target_language = self._languages()
        written = self.run_of(job) / f"{test.name}.{target_language}"
        translate = {
            "model": self.model(job),
            "input_file": source,
            "output_file": written,
            **self.study.options.get("translate", {}),
        }
        yield Step("translate", translate, written)
        scores = self.run_of(job) / f"{test.name}.json"
        evaluate = {
            "hypotheses": written,
            "references": references,
            "output_file": scores,
            **self._evaluation_options(source),
        }
        yield Step("evaluate", evaluate, scores)

    def _evaluation_options(self, source: str | Path) -> dict[str, Any]:
        """Return the options that the study gives to the evaluation of a test set, and the files that these need."""
        asked = self.study.options.get("evaluate", {})
        options: dict[str, Any] = {}
        if {"adequacy", "length_buckets", "length_edges"} & asked.keys():
            options["input_file"] = source
        text = self.study.data.get("train_file", ())
        aligns_by_attention = {"model", "aligner"} & asked.keys()
        if asked.get("adequacy") and not aligns_by_attention and len(text) == 2:
            # More text makes word alignment better.
            options["alignment_data"] = text
        return {**options, **asked}

    def _export(self, split: str) -> Step:
        """Return the step that writes a split of the data set as files."""
        files = self._exported(split)
        data_set = {name: value for name, value in self.study.data.items() if not name.endswith("_file")}
        return Step("export", {**data_set, "split": split, "output_file": files}, files[-1])

    def _exported(self, split: str) -> list[Path]:
        folder = self.runs / "data"
        return [folder / f"{split}.{language}" for language in self._languages()]

    def _training_text(self) -> dict[str, Any]:
        return {name: value for name, value in self.study.data.items() if name != "validation_file"}

    def _given(self, *names: str) -> dict[str, Any]:
        """Return those of the names that the study's data has, with their values."""
        return {name: self.study.data[name] for name in names if name in self.study.data}

    def _languages(self) -> Sequence[str]:
        """Return the different endings of the training files, or else the languages that the data names."""
        data = self.study.data
        endings = []
        for file in data.get("train_file", ()):
            path = Path(file.removesuffix(".gz"))
            endings.append(path.suffix[1:])
        if len(set(endings)) == 2:
            return endings
        return data.get("source_lang", "source"), data.get("target_lang", "target")
