"""The records of the commands' work: dataclasses, and the only functions that read and write them.

A record is a file with a JSON object that has its `kind`, its `version`, and its fields.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, TypeVar

from .environment import Environment
from .files import read_json, write_json
from .json_fields import decode, encode, parse_override

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


@dataclass(frozen=True)
class Rates:
    """Work per second of the plain model and of the other in each round, where they take turns."""

    plain: list[float]
    method: list[float]

    @property
    def ratios(self) -> list[float]:
        """Return the method's rate divided by the plain model's, for every round."""
        return [method / plain for plain, method in zip(self.plain, self.method)]

    @property
    def ratio(self) -> float:
        """Return the median of the ratios."""
        return median(self.ratios)

    def __str__(self) -> str:
        """Return the median of the ratios, and the smallest and the largest."""
        return f"{self.ratio:.2f} ({min(self.ratios):.2f}–{max(self.ratios):.2f})"


@dataclass(frozen=True)
class Comparison:
    """A plain model and one with routing."""

    plain_parameters: int
    parameters: int
    training: Rates
    """Target tokens, without padding, trained on per second."""
    decoding: Rates
    """Sentences decoded per second."""
    plain_memory: int | None = None
    memory: int | None = None
    """Bytes of tensors at the height of an update, where they were measured."""


@dataclass(frozen=True, kw_only=True)
class SpeedSettings(Options):
    """Options of `benchmark`."""

    size: str
    config_overrides: list[str]
    vocab_size: int
    dtype: str
    max_tokens: int
    batch_size: int
    num_beams: int
    new_tokens: int
    rounds: int
    seed: int
    clock: str | None = None
    """"cpu": time of the process on a processor. "wall", and None in early records: time that passed."""


@dataclass(frozen=True)
class Decoders:
    """Decoders that took turns on the same batches: that of the plain model, if there is one, and all of the method.

    Attributes:
        rates: sentences decoded per second in each round, by the decoder's name.
        memory: bytes of tensors at the height of decoding long sentences, beyond the weights, where they were measured.
    """

    rates: dict[str, list[float]]
    memory: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SpeedRecord(Record):
    """Speed and memory of models beside plain ones, or of decoders beside each other, by their rows in the table."""

    KIND: ClassVar[str] = "speed"
    COMMAND: ClassVar[str] = "python -m benchmarks.speed train"

    settings: SpeedSettings
    results: dict[str, Comparison]
    decoders: dict[str, Decoders] = field(default_factory=dict)
    environment: Environment

    def row_of(self, method: str | None, overrides: Sequence[str], size: str, parameters: int) -> Comparison | None:
        """Return the comparison of a model with a plain one; None if there is none.

        Args:
            method: of the model.
            overrides: fields of its configuration, as name=value, in any order, text with JSON's quotes or without;
                those of its regularisation, which change no speed, need not be the row's.
            size: of its preset.
            parameters: how many it has.

        Raises:
            ValueError: if an override is no name=value.
        """
        wanted = method, _of_speed(overrides)
        for row, found in self.results.items():
            name, own = split_row(row)
            fields = _of_speed([*self.settings.config_overrides, *own])
            if (name, fields) == wanted and (self.settings.size, found.parameters) == (size, parameters):
                return found
        return None


def _of_speed(overrides: Sequence[str]) -> dict[str, Any]:
    found = dict(map(parse_override, overrides))
    return {name: found[name] for name in found if not name.endswith(("dropout", "label_smoothing"))}


def split_row(row: str) -> tuple[str, list[str]]:
    """Split a row of a benchmark, "METHOD NAME=VALUE ...", into the method and the overrides."""
    method, *overrides = re.split(r"\s+(?=\w+=)", row.strip())
    return method, overrides


@dataclass(frozen=True)
class FileDecoder:
    """A decoder that translated a whole file: its seconds in each round, and its score."""

    seconds: list[float]
    bleu: Score


@dataclass(frozen=True, kw_only=True)
class FileDecodingRecord(Record):
    """Decoders of trained models that took turns on a whole file."""

    KIND: ClassVar[str] = "file decoding"
    COMMAND: ClassVar[str] = "python benchmarks/trained.py"

    num_beams: int
    clock: str
    """"cpu": time of the process on a processor. "wall": time that passed."""
    test: list[DataFile]
    """Sources and references."""
    models: dict[str, dict[str, FileDecoder]]
    """By row and by the decoder's name."""
    environment: Environment


@dataclass(frozen=True)
class Measurement:
    """Time that one model took for sentences of one length."""

    row: str
    kind: str
    """"training": an update. "decoding": greedy search for as many words as the source has."""
    length: int
    """Length of source and target, in words."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TimeByLengthSettings(Options):
    """Options of `growth`."""

    methods: list[str]
    size: str
    vocab_size: int
    lengths: list[int]
    fit_from: int
    batch_size: int
    rounds: int
    clock: str | None = None
    """"cpu": time of the process on a processor. "wall": time that passed. None in early records."""


@dataclass(frozen=True, kw_only=True)
class TimeByLengthRecord(Record):
    """Time of training and decoding by the length of sentences."""

    KIND: ClassVar[str] = "time by length"
    COMMAND: ClassVar[str] = "python -m benchmarks.speed growth"

    settings: TimeByLengthSettings
    measurements: list[Measurement]
    medians: list[Measurement]
    exponents: dict[str, dict[str, float]]
    """The k of time = c * length^k, by kind and row."""
    environment: Environment


@dataclass(frozen=True, kw_only=True)
class LatencySettings(Options):
    """Options of `latency`."""

    size: str
    vocab_size: int
    num_beams: int
    rounds: int
    clock: str | None = None
    """"cpu": time of the process on a processor. "wall", and None in early records: time that passed."""


@dataclass(frozen=True)
class TokenCounts:
    """Tokens of all sources, and tokens that were written for them."""

    source: int
    target: int


@dataclass(frozen=True, kw_only=True)
class LatencyRecord(Record):
    """Time to translate sentences one by one."""

    KIND: ClassVar[str] = "latency"
    COMMAND: ClassVar[str] = "python -m benchmarks.speed latency"

    settings: LatencySettings
    sentences: int
    seconds: dict[str, list[float]]
    """Seconds by row, for every sentence in every round."""
    words: TokenCounts
    environment: Environment


@dataclass(frozen=True)
class ProbingRunSettings:
    """Everything that determines the result of a probing classifier."""

    task: str
    seed: int
    epochs: int
    batch_size: int
    learning_rate: float
    data_sha256: str
    aggregation: str | None = None
    """Of a new encoder's heads. The first three are None of a trained model, the last two of a new encoder."""
    size: str | None = None
    vocab_size: int | None = None
    model: str | None = None
    """The trained model's row in the table."""
    model_sha256: dict[str, str] | None = None
    """Of each of its files: weights, configuration, tokenizer."""


@dataclass(frozen=True, kw_only=True)
class ProbingRecord(Record):
    """A probing classifier that was trained and tested."""

    KIND: ClassVar[str] = "probing"
    COMMAND: ClassVar[str] = "python -m benchmarks.probing run"

    settings: ProbingRunSettings
    test_accuracy: float
    validation_accuracy: float
    validation_accuracies: list[float]
    majority_accuracy: float
    sentences: dict[str, int]
    """Number of sentences by split."""
    labels: int
    parameters: int
    config: dict[str, Any]
    seconds_of_this_call: float
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
