"""Checks of the values of a study, before anything runs."""

import argparse
import io
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from transformers import HfArgumentParser, PreTrainedConfig
from transformers.utils import CONFIG_NAME

from benchmarks.studies.results import OF_TRAINING, check_run
from benchmarks.studies.steps import Job, Plan, Step, needs_eflomal
from benchmarks.studies.study import SECTIONS, SET_HERE, Figure, Row, Study, line_of, value_of
from hf_capsule_mt.checkpoints import load_config, load_tokenizer
from hf_capsule_mt.configuration import CapsuleAggregatedMarianConfig, method_config_class, preset_config
from hf_capsule_mt.data.pair_files import expand
from hf_capsule_mt.evaluation.alignment import NO_EFLOMAL, has_eflomal
from hf_capsule_mt.evaluation.length import check_edges
from hf_capsule_mt.evaluation.scores import make_metrics
from hf_capsule_mt.modeling.warm_start import is_plain
from hf_capsule_mt.records import RunRecord, read
from hf_capsule_mt.translation.translator import check_precision

# Fields by which a row's weights would be of other shapes than those that it starts from.
_SHAPES = ("d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim")


def check_study(study: Study, parsers: Mapping[str, argparse.ArgumentParser]) -> None:
    """Check methods, configurations and options, by the `parsers` of the commands; [`check_files`] checks files.

    Raises:
        ValueError: if a method, a size, a field or an option is unknown, a value is not allowed or contradicts another,
            a row cannot begin with the row that it starts from, or no row is distilled where a section says how; the
            message names the row or the section, the key, its value and what is allowed.
    """
    for name in SECTIONS:
        _check_options(study.sections.get(name, {}), f"{study.name}: {name}", parsers[name], SET_HERE[name])
    if study.sections.get("distill") and not any(row.teacher for row in study.rows):
        raise ValueError(f"{study.name}: no row has a teacher, to translate as distill says; leave out distill")
    metrics = study.sections["evaluate"].get("metrics", ["bleu"])
    if "bleu" not in (metrics if isinstance(metrics, list) else [metrics]):
        raise ValueError(f"{study.name}: evaluate.metrics is {metrics}; the tables need bleu among them")
    for row in study.rows:
        where = _place(study, row)
        _check_options(row.train, where, parsers["train"], SET_HERE["train"])
        _config(row, row.config, where)
    for row in study.rows:
        _check_beginning(study, row)
    for name, figure in study.figures.items():
        _check_figure(study, figure, f"{study.name}: figures.{name}")
    jobs = Plan(study, Path("runs"), Path("records")).jobs()
    _check_records(study, jobs)
    for job in jobs:
        where = f"{study.name}: {job.name}"
        found = {
            step.command: _check_step(step, f"{where}: {step.command}", parsers[step.command]) for step in job.steps
        }
        _check_precision(job.row, found["train"], _place(study, job.row))
        if "average_checkpoints" in found:
            _check_averaged(found["average_checkpoints"], found["train"], _place(study, job.row))


def _place(study: Study, row: Row) -> str:
    """Return what errors in a row begin with."""
    return f"{study.name}: the row {row.name!r:.80}"


def _check_precision(row: Row, train: Mapping[str, Any], where: str) -> None:
    """Check that no option of training overrules a row's own precision."""
    for name in ("bf16", "fp16"):
        if row.mixed_precision is not None and train[name]:
            raise ValueError(
                f"{where}: mixed_precision is {row.mixed_precision!r}, but {name} is true in train, which would "
                f"decide; leave out one of them, or give the row {name}: false in its own train"
            )


def _check_averaged(options: Mapping[str, Any], train: Mapping[str, Any], where: str) -> None:
    """Check that a training with the options `train` leaves as many checkpoints as are averaged."""
    asked = options["last"] or options["best"] or 0
    if options["best"] and train["eval_strategy"] == "no":
        raise ValueError(
            f"{where}: average_checkpoints has best {options['best']}, but without eval_strategy in train nothing "
            "tells which are; add that, or ask for the last"
        )
    strategy, limit, step = (train[name] for name in ("save_strategy", "save_total_limit", "save_steps"))
    # The last update is saved too.
    saved = -(-train["max_steps"] // int(step)) if strategy == "steps" and step >= 1 else 0
    never = strategy == "no" and train["save_minutes"] is None
    if asked and (never or (limit is not None and limit < asked)):
        left = f"save_strategy {strategy} and save_total_limit {limit}"
    elif 0 < saved < asked:
        left = f"{train['max_steps']} updates and save_steps {step:g}"
    else:
        return
    raise ValueError(f"{where}: average_checkpoints has {asked} checkpoints, which {left} do not leave")


def check_files(plan: Plan, jobs: Sequence[Job]) -> None:
    """Raise what `jobs` would else meet after hours.

    Raises:
        OSError: if a file or a model that they read does not exist; the message names the key.
        ValueError: if there is no such tokenizer, a row cannot begin with the model that it starts from, the record of
            a run, in the folder of runs, is of other settings than its row, or adequacy has no aligner.
    """
    study = plan.study
    for name in ("train_file", "validation_file"):
        for word in study.data.get(name, ()):
            for file in expand(word, f"{study.name}: data.{name}"):
                _check_file(file, f"{study.name}: data.{name}")
    for test in study.tests:
        for file in plan.test_files(test) if test.split is None else ():
            _check_file(file, f"{study.name}: tests.{test.name}")
    if study.tokenizer is not None and not all(_has_made(job, "train") for job in jobs):
        load_tokenizer(study.tokenizer, option=f"{study.name}: tokenizer")
    for job in jobs:
        _check_aligner(study, job)
        _check_teacher(plan, job, jobs)
        _check_start(plan, job, jobs)
        record = plan.run_folder(job.row, job.seed) / OF_TRAINING[0]
        if record.is_file():
            check_run(read(RunRecord, record), job.row, job.seed, study.data, record)


def _check_file(file: Path, where: str) -> None:
    if not file.is_file():
        raise FileNotFoundError(f"{where} names {file}, which is not a file; paths begin where the command is run")


def _check_aligner(study: Study, job: Job) -> None:
    if needs_eflomal(study.sections["evaluate"]) and not job.without_scores and not has_eflomal():
        raise ValueError(f"{study.name}: evaluate.adequacy needs an aligner, and {NO_EFLOMAL}; or leave out adequacy")


def _has_made(job: Job, command: str) -> bool:
    """Return whether what a command makes for a job is there."""
    return any(step.command == command and step.product.exists() for step in job.steps)


def _check_teacher(plan: Plan, job: Job, jobs: Sequence[Job]) -> None:
    teacher = plan.study.row(job.row.teacher)
    distilled = _has_made(job, "distill")
    if teacher is None and job.row.teacher is not None and not distilled:
        _check_model(job.row.teacher, f"the row {job.row.name!r:.80} has the teacher")
    if teacher is not None and not distilled and not _will_be_there(plan, teacher, teacher.seeds[0], jobs):
        raise FileNotFoundError(
            f"the row {job.row.name!r:.80} has the teacher {teacher.name!r:.80}, whose model is not in "
            f"{plan.model(teacher, teacher.seeds[0])}; put it there, train that row too, or name a model as the teacher"
        )


def _check_start(plan: Plan, job: Job, jobs: Sequence[Job]) -> None:
    start = plan.study.row(job.row.start)
    where = f"the row {job.row.name!r:.80}"
    if start is None and job.row.start is not None and not _has_made(job, "train"):
        _check_becomes(job.row, _check_model(job.row.start, f"{where} starts from"), _place(plan.study, job.row))
    if start is not None and not _will_be_there(plan, start, job.seed, jobs):
        raise FileNotFoundError(
            f"{where} starts from {start.name!r:.80}, whose model is not in "
            f"{plan.model(start, job.seed)}; put it there, train that row too, or name a model to start from"
        )


def _check_model(name: str, where: str) -> PreTrainedConfig:
    """Look for a model that is no row of the study; return its configuration."""
    try:
        return load_config(name)
    except (ValueError, OSError) as error:
        raise type(error)(f"{where} {error}") from error


def _will_be_there(plan: Plan, row: Row, seed: int, jobs: Sequence[Job]) -> bool:
    """Return whether the model of a row is there, or is trained by one of the jobs."""
    trained = any(job.row == row and job.seed == seed and not job.done() for job in jobs)
    # The folder of a run that was interrupted is there too.
    return trained or (plan.model(row, seed) / CONFIG_NAME).is_file()


def _check_records(study: Study, jobs: Sequence[Job]) -> None:
    owners: dict[Path, str] = {}
    for job in jobs:
        for path in job.records:
            other = owners.setdefault(path, job.name)
            if other != job.name:
                raise ValueError(
                    f"{study.name}: {path.name} would be a record of {other!r:.120} and of {job.name!r:.120}; rename "
                    "a row, or a test set"
                )


def _check_options(options: Mapping[str, Any], where: str, parser: argparse.ArgumentParser, set_here: set[str]) -> None:
    allowed = sorted({action.dest for action in parser._actions} - {"help"} - set_here)
    for name, value in options.items():
        if name not in allowed:
            raise ValueError(f"{where} has the option {name!r:.80}; allowed are {', '.join(allowed)}")
        if value is False and not isinstance(parser, HfArgumentParser):
            raise ValueError(f"{where} has {name}: false, which no option can say; leave {name} out")


def _config(row: Row, overrides: Mapping[str, Any], where: str) -> PreTrainedConfig:
    try:
        return preset_config(row.method, row.size, **overrides)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _check_beginning(study: Study, row: Row) -> None:
    """Check that a row can begin with the weights of the row that it starts from."""
    start = study.row(row.start)
    if start is None:
        return
    where, line = _place(study, row), _line(study, start)
    overrides = {name: value for each in line for name, value in each.config.items()}
    config = _config(start, overrides, _place(study, start))
    if start.method != row.method:
        _check_becomes(row, config, where)
    # Of what begins with a model of elsewhere, the shapes are not known.
    for name in _SHAPES if line[0].start is None else ():
        if name in row.config and row.config[name] != getattr(config, name):
            raise ValueError(
                f"{where}: {name} is {row.config[name]!r:.80}, but start is {start.name!r:.80}, whose weights are of "
                f"{name} {getattr(config, name)}; leave out {name}, or start"
            )


def _line(study: Study, row: Row) -> list[Row]:
    """Return a row behind those that it comes from by `start`."""
    start = study.row(row.start)
    return [row] if start is None else [*_line(study, start), row]


def _check_becomes(row: Row, config: PreTrainedConfig, where: str) -> None:
    """Check that a model with this configuration can become one of the row's method."""
    if not is_plain(config):
        raise ValueError(
            f"{where}: method is {row.method!r}, but start is {row.start!r}, whose model has one already; start "
            "from a plain one"
        )
    kind = CapsuleAggregatedMarianConfig if config.model_type == "marian" else type(config)
    if method_config_class(row.method) is not kind:
        raise ValueError(
            f"{where}: method is {row.method!r}, which no model of type {config.model_type!r} can become, but start is "
            f"{row.start!r}; start from one of its family, or leave out start"
        )


def _check_figure(study: Study, figure: Figure, where: str) -> None:
    names = [row.name for row in study.rows]
    if figure.baseline is not None and figure.baseline not in names:
        raise ValueError(f"{where}.baseline is {figure.baseline!r:.80}; the rows are {', '.join(names)}")
    points: dict[tuple[str, float], str] = {}
    for pattern in figure.rows:
        rows = [row for row in study.rows if fnmatchcase(row.name, pattern)]
        if not rows:
            raise ValueError(f"{where}.rows has {pattern!r:.80}; the rows are {', '.join(names)}")
        for row in rows:
            config = preset_config(row.method, row.size, **row.config).to_dict()
            for axis, name in (("x", figure.x), ("series", figure.series)):
                if name is not None and name not in config:
                    raise ValueError(f"{where}.{axis} is {name!r:.80}, which {row.method} has not, of {row.name!r:.80}")
            value = value_of(config, figure.x)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(
                    f"{where}.x is {figure.x!r:.80}, which is {value!r:.80} of {row.name!r:.80}; it must be a number"
                )
            other = points.setdefault((line_of(figure, row.method, config), value), row.name)
            if other != row.name:
                raise ValueError(
                    f"{where}.rows has {other!r:.80} and {row.name!r:.80} at the same place; leave one out, or name "
                    "the field that tells them apart as series"
                )


def _check_step(step: Step, where: str, parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Let the command's own parser read the options, and the classes of training arguments check theirs; return all."""
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            found = vars(parser.parse_args(step.words()))
    except SystemExit as error:
        raise ValueError(f"{where}: {said.getvalue().strip().rpartition('error: ')[2]:.800}") from error
    for kind in getattr(parser, "dataclass_types", ()):
        # DataArguments looks for the files of the data, some of which earlier steps make.
        if kind.__name__ != "DataArguments":
            try:
                kind(**{field.name: found[field.name] for field in fields(kind) if field.name in found})
            except (ValueError, TypeError, ImportError) as error:
                raise ValueError(f"{where}: {error}") from error
    try:
        if step.command in ("distill", "translate"):
            check_precision(found["engine"], found["dtype"])
        if step.command == "evaluate":
            _check_evaluation(found)
        is_average = step.command == "average_checkpoints"
        if is_average and (found["run_dir"] is None) != (found["last"] is None and found["best"] is None):
            raise ValueError("--run_dir needs --last N or --best N, and --checkpoints takes neither")
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return found


def _check_evaluation(options: Mapping[str, Any]) -> None:
    for tokenize in (options["tokenize"], options["source_tokenize"]):
        make_metrics(options["metrics"] or ["bleu"], tokenize or options["tokenize"])
    if options["length_edges"] is not None:
        check_edges(options["length_edges"])
