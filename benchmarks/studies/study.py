"""A study: the rows of a table, and how they are trained, translated and scored; study_file.py reads it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_capsule_mt.data.pair_files import without_compression

SECTIONS = ("train_tokenizer", "distill", "train", "average_checkpoints", "translate", "evaluate")
"""The commands whose options a study sets."""
_CORPUS = {"train_file", "dataset_name", "dataset_config_name", "source_lang", "target_lang"}
SET_HERE = {
    "train_tokenizer": {*_CORPUS, "output_dir", "overwrite_output_dir"},
    "distill": {*_CORPUS, "model", "output_file"},
    "train": {*_CORPUS, "validation_file", "method", "size", "config_overrides", "model_name_or_path"}
    | {"model_revision", "tokenizer_name", "output_dir", "seed", "resume_from_checkpoint"}
    | {"overwrite_output_dir"},
    "average_checkpoints": {"checkpoints", "run_dir", "output_dir"},
    "translate": {"model", "input_file", "output_file", "report", "interactive"},
    # It scores the translations of one row at a time, and writes a record alone.
    "evaluate": {"hypotheses", "references", "sources", "alignment_data", "output_file", "length_figure"}
    | {"compare", "test", "num_samples", "seed", "input_file", "translations_file"}
    | {"num_beams", "length_penalty", "max_new_tokens", "engine"},
}
"""Options of the commands that a study's sections cannot set, since they follow from the rest."""
LAUNCHER = "accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no"
DISTILLED = "distilled"
"""The folder of the translations of teachers, in that of the runs."""


@dataclass(frozen=True)
class Row:
    """One system of the table; a `grid` of the file is a row for each of its points."""

    name: str
    method: str
    size: str
    config: Mapping[str, Any]
    """Fields of the configuration that replace the preset's."""
    seeds: tuple[int, ...]
    train: Mapping[str, Any]
    """Options of the training command: those of the study and the row's own."""
    teacher: str | None = None
    """A row of the study or a model, whose translations of the training sources replace the targets."""
    start: str | None = None
    """A row of the study, by the same seed, or a model, whose weights and configuration training starts from."""
    against: tuple[str, ...] = ()
    """The rows that it is tested against for significance; else the study's baseline."""
    published: Mapping[str, float] = field(default_factory=dict)
    """BLEU by test set, as the paper prints it."""
    updates_per_second: float | None = None
    """As the paper prints it; default: that of the study's `cost`."""
    mixed_precision: str | None = None
    """That of its training, whatever the launcher says of other rows."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Rows or models that must exist before this row is trained."""
        return tuple(name for name in (self.teacher, self.start) if name is not None)


@dataclass(frozen=True)
class Test:
    """A test set: files, or a split of the study's data set."""

    name: str
    source: str | None = None
    references: tuple[str, ...] = ()
    split: str | None = None


@dataclass(frozen=True)
class Figure:
    """BLEU of rows against a field of their configurations."""

    rows: Sequence[str]
    """Patterns of names."""
    x: str
    test: str
    series: str | None = None
    """A field with a line for each of its values; else each method has one."""
    baseline: str | None = None
    """A row that is drawn as a level."""
    title: str | None = None
    log: int | None = None
    """Base of a logarithmic axis."""


def value_of(config: Mapping[str, Any], name: str) -> Any:
    """Return the value of a configuration's field, for a figure."""
    # Its default, None, stands for the value of d_model.
    return config["d_model"] if name == "num_output_capsules" and config[name] is None else config[name]


def line_of(figure: Figure, method: str, config: Mapping[str, Any]) -> str:
    """Return the name of a row's line in a figure."""
    line = method if figure.series is None else f"{figure.series} {value_of(config, figure.series)}"
    return line.replace("_", " ")


@dataclass(frozen=True)
class Question:
    """What the study is to find out by some of its rows."""

    name: str
    asks: str
    effect: float
    """How much more BLEU counts as yes."""
    rows: tuple[str, ...]
    against: tuple[str, ...] = ()
    """The rows that each is beside here; else those that it is against."""


@dataclass(frozen=True)
class Cost:
    """The GPUs and the speed of training, as published."""

    gpus: int
    gpu: str
    updates_per_second: float | None = None
    source: str = ""


@dataclass(frozen=True)
class Study:
    """A YAML file of rows, with everything that they share."""

    name: str
    """The file's name without its ending, with which the names of its records begin."""
    title: str
    about: str
    data: Mapping[str, Any]
    tests: tuple[Test, ...]
    sections: Mapping[str, Mapping[str, Any]]
    """Options by command."""
    rows: tuple[Row, ...]
    baseline: str
    """The row that others are tested against for significance, unless they name another."""
    tokenizer: str | None = None
    """An existing tokenizer; without it one is trained."""
    launcher: str = LAUNCHER
    records: str | None = None
    """The folder of the records, unless the command line names another."""
    page: str | None = None
    """A Jinja template of a page with the table."""
    speed: tuple[str, ...] = ()
    """Records of python -m benchmarks.speed train."""
    growth: str | None = None
    """A record of python -m benchmarks.speed growth."""
    decoding: tuple[str, ...] = ()
    """Records of benchmarks/trained.py: trained rows, by the engine."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    cost: Cost | None = None
    questions: tuple[Question, ...] = ()

    @property
    def languages(self) -> tuple[str, str]:
        """Return the endings of files of the source and of the target."""
        data = self.data
        if "source_lang" in data and "target_lang" in data:
            return data["source_lang"], data["target_lang"]
        if len(data.get("train_file", ())) == 2:
            source, target = (without_compression(Path(file)).suffix[1:] for file in data["train_file"])
            if source and target and source != target:
                return source, target
        return "source", "target"

    def exported(self, split: str) -> tuple[str, str]:
        """Return the names of the files that a split of the data set is exported to."""
        source, target = self.languages
        return f"{split}.{source}", f"{split}.{target}"

    def row(self, name: str | None) -> Row | None:
        """Return the row of that name, or None."""
        return next((row for row in self.rows if row.name == name), None)

    def compared_with(self, row: Row, question: Question | None = None) -> tuple[str, ...]:
        """Return the names of the rows that a row is tested against, in a question or at all; of the baseline, none."""
        named = row.against or (self.baseline,)
        if question is not None:
            named = question.against or named
        else:
            named += tuple(name for each in self.questions if row.name in each.rows for name in each.against)
        return tuple(name for name in dict.fromkeys(named) if name != row.name)


def distilled_name(teacher: str) -> str:
    """Return the name of the files of text that a teacher translated, without the languages."""
    return re.sub(r"[^\w.=+-]", "-", teacher)
