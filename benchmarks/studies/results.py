"""The results of a study's rows: the records of their runs and of their scores, checked against the study.

A folder of records is flat. For the row ROW of STUDY.yaml it has, of the run with seed 1,

    STUDY_ROW_run_record.json      what hf-capsule-mt train wrote
    STUDY_ROW_trainer_state.json   the Trainer's log, for the learning curve; a row may lack it
    STUDY_ROW_TEST.json            what hf-capsule-mt evaluate wrote, for every test set

and of another seed STUDY_ROW_seed2_run_record.json and so on. A record is known by method, size, configuration, seed,
options of training, and data, a score by its references and BLEU's tokenizer; when averaging, decoding or a teacher
changes, remove the records of the rows, and from their runs what it makes otherwise.
"""

import json
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.studies.study import DISTILLED, SET_HERE, Row, Study, Test, distilled_name
from hf_capsule_mt.files import hash_file, read_json
from hf_capsule_mt.records import EvaluationRecord, RunRecord, SpeedRecord, read

_PRESET = "that of the preset"
OF_TRAINING = ("run_record.json", "trainer_state.json")
"""Files that a training run leaves."""
# Beginnings of the names of options that change nothing in the weights.
_OF_NO_WEIGHT = ("report_to", "run_name", "project", "use_cpu", "disable_tqdm", "log", "hub_", "push_", "dataloader_")
_OF_LAUNCHERS = {"num_processes", "mixed_precision", "nproc_per_node"}


@dataclass(frozen=True)
class SeedRecords:
    """The records of one run of a row."""

    seed: int
    run: RunRecord
    evaluations: Mapping[str, EvaluationRecord]
    """Evaluations by test set."""
    log: Sequence[Mapping[str, float]]
    """The Trainer's log entries, or none."""


@dataclass(frozen=True)
class Result:
    """A row and the records of its finished seeds."""

    row: Row
    seeds: tuple[SeedRecords, ...]

    def bleu(self, test: str) -> list[float]:
        """Return BLEU by seed."""
        return [records.evaluations[test].scores["bleu"].score for records in self.seeds]


def of_seeds(seeds: Collection[int], among: Collection[int]) -> str:
    """Return which seeds of a row something is true of, as text; nothing if of all `among` which they are."""
    return f" of seed {' and '.join(map(str, seeds))}" if len(seeds) < len(among) else ""


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the standard deviation of the sample, None for one value."""
    return mean(values), stdev(values) if len(values) > 1 else None


def record_name(study: Study, row: Row, seed: int, kind: str) -> str:
    """Return the file name of a row's record; `kind` is a file of `OF_TRAINING` or a test set."""
    marked = f"{study.name}_{row.name}" if seed == 1 else f"{study.name}_{row.name}_seed{seed}"
    return f"{marked}_{kind.removesuffix('.json')}.json"


def read_results(study: Study, folder: Path) -> list[Result]:
    """Return the rows with every record of at least one seed in the folder, in the study's order.

    Raises:
        ValueError: if a record is not what its name says: no JSON, or of another method, size, seed or option.
    """
    results = []
    for row in study.rows:
        seeds = [found for seed in row.seeds if (found := _read_seed(study, row, seed, folder)) is not None]
        if seeds:
            results.append(Result(row, tuple(seeds)))
    return results


def results_to_show(study: Study, folder: Path) -> list[Result]:
    """Return the results of `read_results`.

    Raises:
        ValueError: as there, or if there is none.
    """
    results = read_results(study, folder)
    if not results:
        raise ValueError(
            f"{folder} has no records of the study {study.name!r}; train its rows first, or, if that was done, give "
            "the command in the folder where the study's paths begin, or name theirs by --records_dir"
        )
    return results


def _read_seed(study: Study, row: Row, seed: int, folder: Path) -> SeedRecords | None:
    kinds = (*OF_TRAINING, *(test.name for test in study.tests))
    paths = {kind: folder / record_name(study, row, seed, kind) for kind in kinds}
    log = paths.pop(OF_TRAINING[1])
    if not all(path.is_file() for path in paths.values()):
        return None
    run_path = paths.pop(OF_TRAINING[0])
    run = read(RunRecord, run_path)
    check_run(run, row, seed, study.data, run_path)
    evaluations = {test.name: read_scores(paths[test.name]) for test in study.tests}
    for test in study.tests:
        _check_scores(evaluations[test.name], study, test, paths[test.name])
    return SeedRecords(seed, run, evaluations, _read_log(log) if log.is_file() else [])


def _read_log(path: Path) -> list[dict[str, float]]:
    entries = read_json(path).get("log_history") or []
    known = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
    if not known or not all(isinstance(entry.get("step"), int) for entry in entries):
        raise ValueError(f"{path} is damaged: its log_history is no list of what was logged at a step; copy it again")
    return entries


def read_scores(path: Path) -> EvaluationRecord:
    """Read an evaluation of one system; raise a ValueError if it has no BLEU."""
    evaluation = read(EvaluationRecord, path)
    if "bleu" not in (evaluation.scores or {}):
        raise ValueError(f"{path} has no BLEU; give what hf-capsule-mt evaluate --hypotheses wrote, with bleu a metric")
    return evaluation


def bleu_options(study: Study) -> dict[str, str | bool]:
    """Return the options of the study's BLEU."""
    options = study.sections["evaluate"]
    return {"tokenize": options.get("tokenize", "13a"), "lowercase": bool(options.get("lowercase", False))}


def _check_scores(evaluation: EvaluationRecord, study: Study, test: Test, path: Path) -> None:
    """Raise a ValueError if an evaluation is of other files, or scored otherwise, than the study asks for."""
    wanted, found = dict[str, Any](bleu_options(study)), dict(vars(evaluation.settings))
    source, *references = (test.source, *test.references) if test.split is None else study.exported(test.split)
    texts = [("references", references, evaluation.references)]
    if evaluation.sources is not None:
        texts.append(("sources", [source], [evaluation.sources]))
    for name, files, were_read in texts:
        # Without folders, which may be others where the study is read.
        wanted[name], found[name] = [Path(file).name for file in files], [Path(one.file).name for one in were_read]
        for file, one in zip(files, were_read):
            if test.split is None and one.sha256 is not None and Path(file).is_file():
                wanted[f"SHA-256 of {file}"], found[f"SHA-256 of {file}"] = hash_file(Path(file)), one.sha256
    for name, value in wanted.items():
        if found[name] != value:
            raise ValueError(
                f"{path} is the record of another evaluation: its {name} is {found[name]!r}, that of {test.name!r} is "
                f"{value!r}; rename the test set, or remove its records and the scores in the runs to evaluate again"
            )


def read_speed(study: Study) -> list[SpeedRecord]:
    """Read the benchmarks that the study names."""
    return [read(SpeedRecord, Path(file)) for file in study.speed]


def check_run(run: RunRecord, row: Row, seed: int, data: Mapping[str, Any], path: Path) -> None:
    """Raise a ValueError if the record at `path` is of another method, size, seed, option or data than its row.

    `data` is that of the study, on which a row with a teacher is not trained.
    """
    overrides = dict(text.partition("=")[::2] for text in run.model.config_overrides)
    said = _options(run.command)
    # What the command was given as the row says it is the row's, whatever the training arguments make of it.
    options = {
        name: value
        for name, value in row.train.items()
        if not name.startswith(_OF_NO_WEIGHT) and _words(value) != _words(said.get(name))
    }
    wanted = {"method": row.method, "size": row.size, "seed": seed, **options}
    given = run.data.by_name()
    found = {**given, **run.training.by_name(), **run.model.by_name(), "size": run.model.size or "base"}
    if row.start is not None:
        # The size is that of the model it starts from, and so may the method be.
        wanted |= {"size": None, "method": row.method if found["method"] is not None else None}
    pairs = {name: (value, found[name]) for name, value in wanted.items() if name in found and value is not None}
    pairs["model_name_or_path"] = row.start, _start(found["model_name_or_path"], row)
    pairs |= {name: (row.config.get(name, _PRESET), overrides.get(name, _PRESET)) for name in {*row.config, *overrides}}
    if row.teacher is None:
        pairs |= {name: (value, given.get(name)) for name, value in data.items()}
    else:
        pairs["teacher"] = distilled_name(row.teacher), _teacher(given.get("train_file"), row, data)
    if row.mixed_precision is not None:
        pairs["mixed_precision"] = row.mixed_precision, run.mixed_precision
    unset = said.keys() - _OF_LAUNCHERS - row.train.keys() - data.keys() - SET_HERE["train"]
    # What only looks at the weights; and the precision, which the launcher sets too.
    free = (*_OF_NO_WEIGHT, "eval_", "save_", "per_device_eval_", "generation_", "bf16", "fp16")
    pairs |= {name: ("the default", found.get(name)) for name in unset if not name.startswith(free)}
    for name, (value, other) in pairs.items():
        if _plain(value) != _plain(other):
            raise ValueError(
                f"{path} is the record of another run: its {name} is {other!r}, that of the row {row.name!r} is "
                f"{value!r}; rename the row, or remove its run and its records to train it again"
            )


def _start(model: str | None, row: Row) -> str | None:
    """Return the row that a run began with, if its model is one of that row's, else the model."""
    return row.start if model is not None and row.start in Path(model).parts else model


def _teacher(train_file: Sequence[str] | None, row: Row, data: Mapping[str, Any]) -> str | None:
    """Return the teacher whose translations a run was trained on, that of `row` if their folder does not tell."""
    if not train_file or train_file == data.get("train_file"):
        return None
    file = Path(train_file[0])
    return file.stem if file.parent.name == DISTILLED else distilled_name(row.teacher)


def _options(command: str) -> dict[str, list[str]]:
    """Return the options in a command line, each with its words."""
    found: dict[str, list[str]] = {}
    # What stands before the first option is of none.
    values: list[str] = []
    for word in shlex.split(command):
        if word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            values = found[name] = [value] if sign else []
        else:
            values.append(word)
    return found


def _words(value: Any) -> list[Any]:
    """Return what an option is given, in the form of `_plain`."""
    return [_plain(item) for item in (value if isinstance(value, list | tuple) else [value])]


def _plain(value: Any) -> Any:
    """Return a value in the form that the YAML file, the command line and the record have in common."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            return value.lower()
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
