"""The records of the commands' work: dataclasses, and the only functions that read and write them.

A record is a file with a JSON object that has its `kind`, its `version`, and its fields.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from .environment import Environment
from .files import read_json, write_json
from .json_fields import decode, encode

VERSION = 2
"""Version of the records that are written and read."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a command by name: those that are read from records as fields, all others in `others`."""

    others: dict[str, Any] = field(default_factory=dict)

    def by_name(self) -> dict[str, Any]:
        """Return all options."""
        return encode(self)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Options):
    """Options of `train` that name the model."""

    method: str | None
    size: str | None
    config_overrides: list[str]


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options):
    """Options of `train` that name the data."""

    train_file: list[str]
    dataset_name: str | None
    source_lang: str | None
    target_lang: str | None
    max_source_length: int
    max_target_length: int


@dataclass(frozen=True, kw_only=True)
class TrainerOptions(Options):
    """Options of `train` that are the Trainer's."""

    max_tokens_per_batch: int
    per_device_train_batch_size: int
    gradient_accumulation_steps: int
    optim: str
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    weight_decay: float
    learning_rate: float
    lr_scheduler_type: str
    warmup_steps: float
    seed: int
    load_best_model_at_end: bool
    metric_for_best_model: str | None
    resume_from_checkpoint: str | None = None


@dataclass(frozen=True)
class BaseModel:
    """A model of the Hub that training started from."""

    name: str
    revision: str


@dataclass
class ReadReport:
    """Numbers of pairs of sentences that were read, kept and dropped."""

    read: int = 0
    kept: int = 0
    empty: int = 0
    invalid_utf8: int = 0

    def __str__(self) -> str:
        return (
            f"{self.read} pairs read, {self.kept} kept, {self.empty} dropped with an empty side, "
            f"{self.invalid_utf8} dropped as invalid UTF-8"
        )


@dataclass(frozen=True)
class PairCounts:
    """Pairs that were trained on, and pairs that were left out for their length."""

    trained_on: int
    too_long: int


@dataclass(frozen=True)
class ValidationCounts:
    """Pairs that were validated with, and pairs that were left out for their length."""

    scored: int
    too_long: int


@dataclass(frozen=True, kw_only=True)
class Record:
    """A file that a command writes."""

    KIND: ClassVar[str]
    COMMAND: ClassVar[str]
    """The command that writes it."""
    version: int = VERSION


@dataclass(frozen=True, kw_only=True)
class RunRecord(Record):
    """A training run."""

    KIND: ClassVar[str] = "run"
    COMMAND: ClassVar[str] = "hf-capsule-mt train"

    command: str
    model: ModelOptions
    base_model: BaseModel | None = None
    data: DataOptions
    training: TrainerOptions
    config: dict[str, Any]
    """The model's own fields, and those of Transformers that differ from the defaults."""
    parameters: int
    data_sha256: dict[str, str] = field(default_factory=dict)
    """Hashes of the text that was read, by side: source and target; of several corpora, of their hashes."""
    tokenizer_hash: str | None = None
    """Of the tokenizer's words and their ids; older records lack it."""
    data_report: ReadReport | None
    """None of a stream, which is not read in full."""
    pairs: PairCounts | None
    """Likewise."""
    validation_pairs: ValidationCounts | None = None
    """None without validation text, and in older records."""
    mixed_precision: str = "no"
    processes: int
    updates: int
    best_checkpoint: str | None
    best_metric: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    bleu_signature: str | None = None
    weights_sha256: dict[str, str] = field(default_factory=dict)
    """Hashes of the files of weights that were saved, by name."""
    seconds_of_this_call: float
    environment: Environment

    @property
    def updates_per_second(self) -> float | None:
        """Return the updates per second in the command's last call, with its evaluations.

        None if it made none, or went on from a checkpoint whose folder does not say after how many.
        """
        before = Path(self.training.resume_from_checkpoint or "checkpoint-0").name.rpartition("-")[2]
        if not before.isdecimal() or int(before) == self.updates:
            return None
        return (self.updates - int(before)) / self.seconds_of_this_call


@dataclass(frozen=True)
class DataFile:
    """A file that was read, as it was named, and the SHA-256 of its content; None of a pipe, which comes but once."""

    file: str
    sha256: str | None = None


@dataclass(frozen=True)
class Score:
    """A score of sacreBLEU, and the signature that makes it comparable."""

    score: float
    signature: str


@dataclass(frozen=True)
class ScoreSettings:
    """Options of [`~hf_capsule_mt.evaluation.scores.score_translations`]."""

    tokenize: str
    lowercase: bool
    metrics: list[str]


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord(Record):
    """Scores, comparisons and analyses of translations, and the files they were made from."""

    KIND: ClassVar[str] = "evaluation"
    COMMAND: ClassVar[str] = "hf-capsule-mt evaluate"

    scores: dict[str, Score] | None = None
    """Scores by metric; None where systems were compared."""
    bleu_statistics: dict[str, str] | None = None
    """What BLEU was computed from, of every sentence; older records lack it."""
    comparison: dict[str, Any] | None = None
    by_length: dict[str, Any] | None = None
    adequacy: dict[str, Any] | None = None
    settings: ScoreSettings
    translation: dict[str, Any] | None = None
    """Model and options by which the command itself translated the sources."""
    hypotheses: DataFile | None = None
    systems: list[DataFile] | None = None
    sources: DataFile | None = None
    references: list[DataFile]
    environment: Environment


R = TypeVar("R", bound=Record)


def read(kind: type[R], path: Path) -> R:
    """Read a record.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds no record of this kind; the message names the file, the field and what to do.
    """
    found = read_json(path)
    remedy = f"give a record that {kind.COMMAND} wrote"
    if found.pop("kind", None) != kind.KIND:
        raise ValueError(f"{path} is no record of the kind {kind.KIND!r}; {remedy}")
    if found.get("version") != VERSION:
        raise ValueError(f"{path} is of version {found.get('version')!r:.80}; this release reads version {VERSION}")
    try:
        return decode(kind, found)
    except ValueError as error:
        raise ValueError(f"{path} {error!s:.500}; {remedy}") from error


def write(record: Record, path: Path) -> None:
    """Write a record, whole or not at all."""
    write_json(path, {"kind": record.KIND, **encode(record)})
