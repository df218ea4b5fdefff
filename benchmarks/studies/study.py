"""A study: the rows of a table, and how they are trained, translated and scored, as a YAML file has it.

title: Multi30k English-German
data: {train_file: [train.en, train.de], validation_file: [val.en, val.de]}
tests: {test_2016: [test.en, test.de]}       # source and references, or the name of a split of the data set
train_tokenizer: {vocab_size: 10000}         # sections named for commands have the options of these commands
train: {max_steps: 3000, learning_rate: 5e-3, warmup_steps: 2000, save_steps: 200}
average_checkpoints: {last: 10}
translate: {num_beams: 5}
evaluate: {tokenize: none}
size: tiny
seeds: [1, 2, 3]
rows:                                        # a grid has fields of the configuration, and no options of training
  - {name: transformer, method: transformer}
  - {name: "em-{routing_iterations}", method: em-routing, grid: {routing_iterations: [1, 2, 3]}}
  - {name: capsnmt-distilled, method: capsnmt, teacher: transformer, train: {max_steps: 6000}}
  - {name: gdr, method: gdr, start: transformer, against: [em-3]}    # tested for significance; else against the first
  - {name: exact, method: gdr, mixed_precision: "no"}                # replaces the launcher's
questions:
  guided: {asks: "Does guided routing help?", effect: 0.5, rows: [gdr]}    # the gain in BLEU that counts as yes
  order: {asks: "Is em-3 better than em-1?", effect: 0.5, rows: [em-3], against: [em-1]}    # else those of the row
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hf_capsule_mt.errors import UserError

COMMANDS = ("train_tokenizer", "distill", "train", "average_checkpoints", "translate", "evaluate")
"""The commands whose options a study sets."""


@dataclass(frozen=True)
class Row:
    """One model of the table."""

    name: str
    method: str
    size: str = "base"
    config: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the configuration that replace the preset's."""
    seeds: Sequence[int] = (1,)
    train: Mapping[str, Any] = field(default_factory=dict)
    """Options of training: those of the study and the row's own."""
    teacher: str | None = None
    """A row or a model whose translations of the training sources replace the targets."""
    start: str | None = None
    """A row, with the same seed, or a model that training starts from. Its tokenizer is that of the start."""
    against: Sequence[str] = ()
    published: Mapping[str, float] = field(default_factory=dict)
    """BLEU by test set, as the paper prints it."""
    updates_per_second: float | None = None
    mixed_precision: str | None = None


@dataclass(frozen=True)
class Test:
    """A test set: files, or a split of the study's data set."""

    name: str
    files: Sequence[str] = ()
    """The source and its references."""
    split: str | None = None


@dataclass(frozen=True)
class Question:
    """What the study asks of some of its rows."""

    name: str
    asks: str
    effect: float
    rows: Sequence[str]
    against: Sequence[str] = ()


@dataclass(frozen=True)
class Study:
    """A YAML file of rows, with everything that they share."""

    name: str
    """The file's name without its ending."""
    title: str
    data: Mapping[str, Any]
    tests: Sequence[Test]
    rows: Sequence[Row]
    options: Mapping[str, Mapping[str, Any]]
    """By command."""
    baseline: str
    about: str = ""
    tokenizer: str | None = None
    """Of the rows that train from scratch."""
    launcher: str = "accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no"
    records: str | None = None
    page: str | None = None
    """A Jinja template of a page."""
    appendix: str | None = None
    """A Jinja template of a second page, PAGE_appendix.md."""
    speed: Sequence[str] = ()
    """Names of records in benchmarks/training/speed.jsonl."""
    decoding: Sequence[str] = ()
    """Names of records in benchmarks/decoding/decoding.jsonl."""
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """BLEU on `test` of `rows` (patterns) against the field `x`; also `series`, `baseline`, base of a `log` axis."""
    cost: Mapping[str, Any] = field(default_factory=dict)
    """`gpus`, name of the `gpu`, `updates_per_second` and `source`."""
    questions: Sequence[Question] = ()

    def row(self, name: str | None) -> Row | None:
        """Return the row of that name, or None."""
        return next((row for row in self.rows if row.name == name), None)

    def against(self, row: Row, question: Question | None = None) -> list[str]:
        """Return the rows that a row is compared with, in a question or in any."""
        names = list(row.against or [self.baseline])
        if question is None:
            for asked in self.questions:
                if row.name in asked.rows:
                    names += asked.against
        elif question.against:
            names = list(question.against)
        return [name for name in dict.fromkeys(names) if name != row.name]


def read_study(path: Path) -> Study:
    """Read a study.

    Raises:
        UserError: if two rows have one name, and so one folder. If a row is named that is not there. If rows have no
            tokenizer, or the file names one that no row has.
    """
    fields = yaml.safe_load(path.read_text(encoding="utf-8"))
    options = _take(fields, COMMANDS)
    shared = _take(fields, ("size", "seeds"))
    shared["train"] = options.get("train", {})
    rows: list[Row] = []
    for item in fields.pop("rows"):
        rows += _rows(item, shared)
    tests = [_test(name, value) for name, value in fields.pop("tests").items()]
    questions = [Question(name, **asked) for name, asked in fields.pop("questions", {}).items()]
    fields.setdefault("baseline", rows[0].name)
    study = Study(path.stem, options=options, rows=rows, tests=tests, questions=questions, **fields)
    _check_names(path, study)
    _check_tokenizer(path, study)
    return study


def _take(fields: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Remove those of the names that are there, and return them with their values."""
    return {name: fields.pop(name) for name in names if name in fields}


def _test(name: str, value: str | Sequence[str]) -> Test:
    if isinstance(value, str):
        return Test(name, split=value)
    return Test(name, files=value)


def _rows(item: Mapping[str, Any], shared: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the row, or a row for each point of its grid."""
    fields = {**shared, **item}
    fields["train"] = {**shared["train"], **item.get("train", {})}
    grid = fields.pop("grid", {})
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        config = {**fields.get("config", {}), **point}
        yield Row(**{**fields, "name": fields["name"].format_map(point), "config": config})


def _check_names(path: Path, study: Study) -> None:
    names = [row.name for row in study.rows]
    used = {study.baseline}
    for compared in (*study.rows, *study.questions):
        used.update(compared.against)
    for question in study.questions:
        used.update(question.rows)
    repeated = {name for name in names if names.count(name) > 1}
    wrong = sorted(repeated | (used - set(names)))
    if wrong:
        raise UserError(f"{path}: {', '.join(wrong)} must be the name of exactly one row.")


def _check_tokenizer(path: Path, study: Study) -> None:
    """Check that every row has a tokenizer. A row that starts from a model has the model's."""
    if any("tokenizer_name" in row.train for row in study.rows):
        raise UserError(f"{path}: `train` cannot have tokenizer_name. Name the tokenizer with `tokenizer`.")
    from_scratch = [row.name for row in study.rows if row.start is None]
    trains_one = "train_tokenizer" in study.options
    if from_scratch:
        if study.tokenizer is None and not trains_one:
            raise UserError(
                f"{path}: {', '.join(from_scratch)} must have a tokenizer. Give `tokenizer` or `train_tokenizer`."
            )
        return
    starts = {row.start for row in study.rows}
    if trains_one or study.tokenizer not in (None, *starts):
        raise UserError(
            f"{path}: every row starts from a model, and must have its tokenizer. Remove `tokenizer` and "
            "`train_tokenizer`."
        )
