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
rows:
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
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

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
    """A row, with the same seed, or a model that training starts from."""
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
    launcher: str = "accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no"
    records: str | None = None
    page: str | None = None
    """A Jinja template of a page."""
    appendix: str | None = None
    """A Jinja template of a second page, PAGE_appendix.md."""
    speed: Sequence[str] = ()
    """Names of records in benchmarks/records/speed.jsonl."""
    decoding: Sequence[str] = ()
    """Names of records in benchmarks/records/decoding.jsonl."""
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
        named = [*(row.against or [self.baseline])]
        if question is not None:
            named = [*question.against] or named
        else:
            named += [name for each in self.questions if row.name in each.rows for name in each.against]
        return [name for name in dict.fromkeys(named) if name != row.name]


def read_study(path: Path) -> Study:
    """Read a study.

    Raises:
        ValueError: if two rows have one name, and so one folder, or a row is named that is not there.
    """
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    options = {name: found.pop(name) for name in COMMANDS if name in found}
    shared = {name: found.pop(name) for name in ("size", "seeds") if name in found}
    shared["train"] = options.get("train", {})
    rows = [row for item in found.pop("rows") for row in _rows(item, shared)]
    names = [row.name for row in rows]
    questions = [Question(name, **each) for name, each in found.pop("questions", {}).items()]
    tests = [
        Test(name, split=value) if isinstance(value, str) else Test(name, value)
        for name, value in found.pop("tests").items()
    ]
    fields = {"baseline": names[0], **found, "rows": rows, "tests": tests, "questions": questions}
    study = Study(path.stem, options=options, **fields)
    named = [study.baseline, *(name for each in (*rows, *questions) for name in each.against)]
    named += [name for each in questions for name in each.rows]
    if len(set(names)) < len(names) or not set(named) <= set(names):
        wrong = sorted({name for name in names if names.count(name) > 1} | set(named) - set(names))
        raise ValueError(f"{path}: {', '.join(wrong)} must be the name of exactly one row.")
    return study


def _rows(item: dict[str, Any], shared: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the row, or a row for each point of its grid."""
    item = {**shared, **item, "train": {**shared["train"], **item.get("train", {})}}
    grid = item.pop("grid", {})
    for values in itertools.product(*grid.values()):
        point = dict(zip(grid, values, strict=True))
        name = re.sub("{(.*?)}", lambda match, point=point: str(point[match[1]]), item["name"])
        yield Row(**{**item, "name": name, "config": {**item.get("config", {}), **point}})
