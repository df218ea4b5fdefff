"""The steps that make a study's records, in order: commands, each with the file or folder that it makes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.studies.results import OF_TRAINING, record_name
from benchmarks.studies.study import DISTILLED, Row, Study, Test, distilled_name
from hf_capsule_mt.checkpoints import last_checkpoint

# Commands whose processes share the work.
LAUNCHED = ("train", "distill", "translate")


def needs_eflomal(evaluate: Mapping[str, Any]) -> bool:
    """Return whether evaluations with these options align by eflomal: a model that is named is to align instead."""
    aligner = evaluate.get("aligner", "attention" if "model" in evaluate else "eflomal")
    return bool(evaluate.get("adequacy")) and aligner == "eflomal"


@dataclass(frozen=True)
class Step:
    """A command and its options."""

    command: str
    options: Mapping[str, Any]
    product: Path
    """The file or folder that exists, complete, when the step is done."""
    mixed_precision: str | None = None
    """What it has in the place of the launcher's."""

    def words(self) -> list[str]:
        """Return the words of the command line; options that are None are left out."""
        words = []
        for name, value in self.options.items():
            # Options of train take a value, and some, which may be undecided, need it; those of others are switches.
            if value is True and self.command != "train":
                words.append(f"--{name}")
            elif value is not None:
                values = value if isinstance(value, list | tuple) else [value]
                words += [f"--{name}", *map(_word, values)]
        return words


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | bool) else str(value)


@dataclass(frozen=True)
class Job:
    """A row with one of its seeds."""

    row: Row
    seed: int
    steps: tuple[Step, ...]
    records: Mapping[Path, Path]
    """Published path of each record of the job, and the file that it is a copy of."""
    needs: frozenset[str] = frozenset()
    """Names of the jobs whose models it starts from or is taught by."""
    without_scores: bool = False
    """Whether its scores are left for a later call."""

    @property
    def name(self) -> str:
        """Name in messages."""
        return _job_name(self.row, self.seed)

    def done(self) -> bool:
        """Return whether all records exist; the trainer's state, which older runs lack, is not required."""
        return all(path.is_file() for path, source in self.records.items() if source.name != OF_TRAINING[1])

    def asked(self) -> list[Step]:
        """Return the steps that are to be done now."""
        return [step for step in self.steps if not (self.without_scores and step.command == "evaluate")]


def _job_name(row: Row, seed: int) -> str:
    return f"{row.name}, seed {seed}"


@dataclass(frozen=True)
class Plan:
    """A study with its folders, and the jobs that fill them."""

    study: Study
    runs: Path
    """For tokenizers, checkpoints and translations."""
    records: Path

    def jobs(self) -> list[Job]:
        """Return all rows with all seeds: the first of every row, then the second; each behind those that it needs."""
        found: dict[tuple[str, int], Row] = {}
        for number in range(max(len(row.seeds) for row in self.study.rows)):
            for row in self.study.rows:
                if number < len(row.seeds):
                    self._add(row, row.seeds[number], found)
        return [self._job(row, seed) for (_, seed), row in found.items()]

    def _add(self, row: Row, seed: int, found: dict[tuple[str, int], Row]) -> None:
        """Add a row to those that are found, behind what it needs."""
        for other, its_seed in self._needed(row, seed):
            self._add(other, its_seed, found)
        found.setdefault((row.name, seed), row)

    def _needed(self, row: Row, seed: int) -> Iterator[tuple[Row, int]]:
        """Return the rows whose models this one starts from or is taught by, with their seeds."""
        if (start := self.study.row(row.start)) is not None:
            yield start, seed
        if (teacher := self.study.row(row.teacher)) is not None:
            yield teacher, teacher.seeds[0]

    def run_folder(self, row: Row, seed: int) -> Path:
        """Return the folder that the row is trained in."""
        return self.runs / row.name / f"seed{seed}"

    def model(self, row: Row, seed: int) -> Path:
        """Return the folder of the weights that translate."""
        run = self.run_folder(row, seed)
        return run / "average" if "average_checkpoints" in self.study.sections else run

    def translations(self, row: Row, seed: int, test: Test) -> Path:
        """Return the file of a row's translations."""
        return self.run_folder(row, seed) / f"{test.name}.{self.study.languages[1]}"

    def test_files(self, test: Test) -> tuple[Path, ...]:
        """Return the files of the source and the references."""
        if test.split is None:
            return (Path(test.source), *map(Path, test.references))
        return self._exported(test.split)

    def tokenizer(self) -> Path:
        """Return the folder of the tokenizer of all rows."""
        return Path(self.study.tokenizer) if self.study.tokenizer is not None else self.runs / "tokenizer"

    def _job(self, row: Row, seed: int) -> Job:
        run, own = self.run_folder(row, seed), self.study.tests
        records = {file: file for file in OF_TRAINING} | {test.name: f"{test.name}.json" for test in own}
        published = {
            self.records / record_name(self.study, row, seed, kind): run / file for kind, file in records.items()
        }
        needs = frozenset(_job_name(*other) for other in self._needed(row, seed))
        return Job(row, seed, tuple(self._steps(row, seed)), published, needs)

    def _steps(self, row: Row, seed: int) -> Iterator[Step]:
        run, sections = self.run_folder(row, seed), self.study.sections
        if self.study.tokenizer is None:
            folder = self.tokenizer()
            options = {**self._corpus(), **sections["train_tokenizer"]}
            where = {"output_dir": folder, "overwrite_output_dir": True}
            yield Step("train_tokenizer", {**options, **where}, folder / "tokenizer_config.json")
        data = dict(self.study.data)
        if row.teacher is not None:
            yield from self._distillation(row)
            data = self._student_data(row)
        yield self._training(row, seed, data)
        if "average_checkpoints" in sections:
            options = {"run_dir": run, **sections["average_checkpoints"], "output_dir": run / "average"}
            yield Step("average_checkpoints", options, run / "average")
        for test in self.study.tests:
            yield from self._test_steps(row, seed, test)

    def _training(self, row: Row, seed: int, data: Mapping[str, Any]) -> Step:
        run = self.run_folder(row, seed)
        checkpoint = last_checkpoint(run)
        # As JSON, so that text which looks like a number stays text.
        overrides = [f"{name}={json.dumps(value)}" for name, value in row.config.items()]
        options = {
            **self._beginning(row, seed),
            "config_overrides": overrides or None,
            # What an interruption left there is of no use, if it is no checkpoint.
            "overwrite_output_dir": True if checkpoint is None else None,
            **{"tokenizer_name": self.tokenizer(), **data, **row.train, "seed": seed, "output_dir": run},
            "resume_from_checkpoint": checkpoint,
        }
        return Step("train", options, run / OF_TRAINING[0], row.mixed_precision)

    def _beginning(self, row: Row, seed: int) -> dict[str, Any]:
        """Return the options that name the model before training."""
        if row.start is None:
            return {"method": row.method, "size": row.size}
        other = self.study.row(row.start)
        # A model that has been trained by a method keeps it.
        method = row.method if other is None or other.method != row.method else None
        return {"method": method, "model_name_or_path": row.start if other is None else self.model(other, seed)}

    def _test_steps(self, row: Row, seed: int, test: Test) -> Iterator[Step]:
        if test.split is not None:
            yield self._export(test.split)
        source, *references = self.test_files(test)
        written, sections = self.translations(row, seed, test), self.study.sections
        options = {"model": self.model(row, seed), "input_file": source, "output_file": written}
        yield Step("translate", {**options, **sections["translate"]}, written)
        scores = self.run_folder(row, seed) / f"{test.name}.json"
        options = {"hypotheses": written, "references": references, **self._of_sources(source), "output_file": scores}
        yield Step("evaluate", {**options, **sections["evaluate"]}, scores)

    def _of_sources(self, source: Path) -> dict[str, Any]:
        """Return the options of an evaluation that looks at the sources too."""
        asked = self.study.sections["evaluate"]
        if not {"adequacy", "length_buckets", "length_edges"} & asked.keys():
            return {}
        text = self.study.data.get("train_file", ())
        return {"sources": source, "alignment_data": text if needs_eflomal(asked) and len(text) == 2 else None}

    def _distillation(self, row: Row) -> Iterator[Step]:
        files = self._distilled(row)
        manifest = files[0].with_name(f"{files[0].name}.manifest.json")
        teacher = self.study.row(row.teacher)
        model = row.teacher if teacher is None else self.model(teacher, teacher.seeds[0])
        options = {"model": model, **self._corpus(), **self.study.sections["distill"], "output_file": files}
        yield Step("distill", options, manifest)
        if self._exports_validation(row):
            yield self._export("validation")

    def _student_data(self, row: Row) -> dict[str, Any]:
        data = self.study.data
        validation = self._exported("validation") if self._exports_validation(row) else data.get("validation_file")
        languages = {name: data[name] for name in ("source_lang", "target_lang") if name in data}
        return {"train_file": self._distilled(row), "validation_file": validation, **languages}

    def _exports_validation(self, row: Row) -> bool:
        """Return whether a student, which is trained on files, validates with the data set's own validation split."""
        data = self.study.data
        evaluated = row.train.get("eval_strategy", "no") != "no"
        return evaluated and "dataset_name" in data and "validation_file" not in data

    def _distilled(self, row: Row) -> tuple[Path, ...]:
        name = distilled_name(row.teacher)
        return tuple(self.runs / DISTILLED / f"{name}.{language}" for language in self.study.languages)

    def _export(self, split: str) -> Step:
        files = self._exported(split)
        return Step("export_text", {**self._corpus(), "split": split, "output_file": files}, files[-1])

    def _exported(self, split: str) -> tuple[Path, ...]:
        return tuple(self.runs / "data" / name for name in self.study.exported(split))

    def _corpus(self) -> dict[str, Any]:
        """Return the options that name the training data."""
        return {name: value for name, value in self.study.data.items() if name != "validation_file"}
