"""The records that commands write of their work: dataclasses, read and written here alone.

A record is a file with a JSON object that has its `kind`, its `version`, and its fields. [`read`] takes records of
earlier versions as well: a function for each kind and version turns them into those of the next.
"""

import json
import platform
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from statistics import median
from types import NoneType, UnionType
from typing import Any, ClassVar, TypeVar, get_args, get_origin, get_type_hints

from .files import read_json, replace_text

VERSION = 2
"""Of the records that are written. Those of version 1 have neither `kind` nor `version`."""

_PACKAGES = ("hf-capsule-mt", "torch", "transformers", "accelerate", "tokenizers", "datasets", "sacrebleu")
T = TypeVar("T")


@dataclass(frozen=True)
class Environment:
    """Versions, device, threads, source commit and date of a piece of work.

    Records of evaluations had no device, threads or commit in version 1, those of training runs no date.
    """

    python: str
    packages: dict[str, str]
    device: str | None
    cpu_threads: int | None
    commit: str | None
    date: str | None = None

    @classmethod
    def here(cls, device_type: str | None = None) -> "Environment":
        """Describe this process.

        Args:
            device_type: "cuda" or "cpu", whichever does the work; by default "cuda" where there is one.
        """
        import torch

        on_gpu = torch.cuda.is_available() if device_type is None else device_type == "cuda"
        return cls(
            python=platform.python_version(),
            packages={name: found for name in _PACKAGES if (found := _version(name)) is not None},
            device=torch.cuda.get_device_name() if on_gpu else _processor(),
            cpu_threads=torch.get_num_threads(),
            commit=_commit(),
            date=date.today().isoformat(),
        )

    def __str__(self) -> str:
        versions = [f"{name} {self.packages[name]}" for name in ("torch", "transformers") if name in self.packages]
        return ", ".join([f"{self.device}, {self.cpu_threads} thread(s)", *versions, *filter(None, [self.date])])


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a command, by name: as fields those that are read from records, and all others."""

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


@dataclass(frozen=True)
class ReadCounts:
    """Pairs of sentences that were read, and what became of them."""

    read: int
    kept: int
    empty: int
    invalid_utf8: int


@dataclass(frozen=True)
class PairCounts:
    """Pairs that were trained on, and pairs that were left out for their length."""

    trained_on: int
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
    """Fields of the model's configuration that differ from the defaults."""
    parameters: int
    data_sha256: dict[str, str] = field(default_factory=dict)
    """Of the text that was read: by side, source and target."""
    data_report: ReadCounts
    pairs: PairCounts
    mixed_precision: str = "no"
    processes: int
    updates: int
    best_checkpoint: str | None
    best_metric: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    bleu_signature: str | None = None
    seconds_of_this_call: float
    environment: Environment

    @property
    def updates_per_second(self) -> float:
        """Of the command's last call, with its evaluations."""
        resumed = self.training.resume_from_checkpoint
        before = 0 if resumed is None else int(resumed.rpartition("-")[2])
        return (self.updates - before) / self.seconds_of_this_call


@dataclass(frozen=True)
class DataFile:
    """A file that was read, as it was named, and the SHA-256 of its content."""

    file: str
    sha256: str | None = None


@dataclass(frozen=True)
class Score:
    """A score of sacreBLEU, and the signature that makes it comparable."""

    score: float
    signature: str


@dataclass(frozen=True)
class ScoreSettings:
    """How text is scored: see [`~hf_capsule_mt.evaluation.scores.score_translations`]."""

    tokenize: str
    lowercase: bool
    metrics: list[str]


@dataclass(frozen=True, kw_only=True)
class EvaluationRecord(Record):
    """What was found of translations, and the files that it was found of."""

    KIND: ClassVar[str] = "evaluation"
    COMMAND: ClassVar[str] = "hf-capsule-mt evaluate"

    scores: dict[str, Score] | None = None
    """By metric; None where systems were compared."""
    comparison: dict[str, Any] | None = None
    by_length: dict[str, Any] | None = None
    adequacy: dict[str, Any] | None = None
    settings: ScoreSettings
    hypotheses: DataFile | None = None
    systems: list[DataFile] | None = None
    sources: DataFile | None = None
    references: list[DataFile]
    environment: Environment


@dataclass(frozen=True)
class Rates:
    """Work done per second, round by round, by the plain model and by the other right after it."""

    plain: list[float]
    method: list[float]

    @property
    def ratios(self) -> list[float]:
        """The method's rate over the plain model's, of every round."""
        return [method / plain for plain, method in zip(self.plain, self.method)]

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return median(self.ratios)


@dataclass(frozen=True)
class Comparison:
    """A plain model and one with routing.

    Attributes:
        plain_parameters: of the plain model.
        parameters: of the other.
        training: target tokens, without padding, trained on per second.
        decoding: sentences decoded per second.
        plain_memory: bytes of tensors at the height of an update of the plain model, where they were measured.
        memory: the same of the other.
    """

    plain_parameters: int
    parameters: int
    training: Rates
    decoding: Rates
    plain_memory: int | None = None
    memory: int | None = None


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


@dataclass(frozen=True, kw_only=True)
class SpeedRecord(Record):
    """Speed and memory of models beside plain ones, by their rows in the table."""

    KIND: ClassVar[str] = "speed"
    COMMAND: ClassVar[str] = "hf-capsule-mt benchmark"

    settings: SpeedSettings
    results: dict[str, Comparison]
    environment: Environment


R = TypeVar("R", bound=Record)


def read(kind: type[R], path: Path) -> R:
    """Read a record of this or an earlier version.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it holds no record of this kind; the message names the file, the field and what to do.
    """
    found = read_json(path)
    remedy = f"give a record that {kind.COMMAND} wrote"
    if found.get("kind", kind.KIND) != kind.KIND:
        raise ValueError(f"{path} is a record of the kind {found['kind']!r}, not {kind.KIND!r}; {remedy}")
    version = found.get("version", 1)
    if version not in range(1, VERSION + 1):
        raise ValueError(f"{path} is of version {version!r}; this release reads versions up to {VERSION}: upgrade it")
    try:
        for step in range(version, VERSION):
            found = _UPGRADES[kind.KIND, step](found)
        return decode(kind, {**{name: found[name] for name in found if name != "kind"}, "version": VERSION})
    except ValueError as error:
        raise ValueError(f"{path} {error}; {remedy}") from error


def write(record: Record, path: Path) -> None:
    """Write a record, whole or not at all; what JSON does not know, such as a path, becomes text."""
    found = {"kind": record.KIND, **encode(record)}
    replace_text(path, json.dumps(found, indent=2, ensure_ascii=False, default=str) + "\n")


def encode(value: Any) -> Any:
    """Return a dataclass, or a list or dictionary of them, as JSON has it."""
    if is_dataclass(value):
        found = {each.name: encode(getattr(value, each.name)) for each in fields(value)}
        others = found.pop("others", {})
        return {**found, **others}
    if isinstance(value, dict):
        return {name: encode(each) for name, each in value.items()}
    return [encode(each) for each in value] if isinstance(value, list) else value


def decode(kind: type[T], value: Any, name: str = "") -> T:
    """Return the dataclass, or other annotated value, that [`encode`] made `value` of.

    Raises:
        ValueError: if a field is missing, unknown or of another type.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        optional = [argument for argument in arguments if argument is not NoneType]
        return None if value is None else decode(optional[0], value, name)
    if kind is Any:
        return value
    expected = {float: (int, float)}.get(kind, dict if is_dataclass(kind) else origin or kind)
    if not isinstance(value, expected) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"has {name} = {value!r:.80}, which is not {'an object' if expected is dict else kind}")
    if is_dataclass(kind):
        return kind(**_decode_fields(kind, value, name))
    if origin is list:
        return [decode(arguments[0], each, f"{name}[{index}]") for index, each in enumerate(value)]
    if origin is dict:
        return {each: decode(arguments[1], found, f"{name}.{each}") for each, found in value.items()}
    return value


def _decode_fields(kind: type, values: Mapping[str, Any], name: str) -> dict[str, Any]:
    prefix, hints = f"{name}." if name else "", get_type_hints(kind)
    known = {each.name: each for each in fields(kind) if each.name != "others"}
    required = [each.name for each in known.values() if each.default is each.default_factory is MISSING]
    if missing := [f"{prefix}{each}" for each in required if each not in values]:
        raise ValueError(f"lacks {', '.join(missing)}")
    others = {each: value for each, value in values.items() if each not in known}
    if others and not issubclass(kind, Options):
        raise ValueError(f"has {', '.join(f'{prefix}{each}' for each in others)}, of which nothing is known")
    found = {each: decode(hints[each], values[each], f"{prefix}{each}") for each in known if each in values}
    return {**found, "others": others} if issubclass(kind, Options) else found


def _run_from_1(found: dict[str, Any]) -> dict[str, Any]:
    """Give the Trainer's options None where it wrote that as text."""
    training = found.get("training")
    if not isinstance(training, dict):
        return found
    return {**found, "training": {name: None if value == "None" else value for name, value in training.items()}}


def _evaluation_from_1(found: dict[str, Any]) -> dict[str, Any]:
    """Make an environment of the versions, which were all that was recorded of it."""
    packages = found.get("versions")
    if not isinstance(packages, dict):
        return found
    packages = dict(packages)
    environment = {"python": packages.pop("python", "unknown"), "packages": packages}
    environment |= {"device": None, "cpu_threads": None, "commit": None}
    return {**{name: found[name] for name in found if name != "versions"}, "environment": environment}


def _speed_from_1(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out the ratios, which follow from the rates."""
    results = found.get("results")
    if not isinstance(results, dict) or not all(isinstance(result, dict) for result in results.values()):
        return found
    ratios = ("training_ratio", "decoding_ratio")
    kept = {row: {name: result[name] for name in result if name not in ratios} for row, result in results.items()}
    return {**found, "results": kept}


_UPGRADES: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {
    (RunRecord.KIND, 1): _run_from_1,
    (EvaluationRecord.KIND, 1): _evaluation_from_1,
    (SpeedRecord.KIND, 1): _speed_from_1,
}
"""By kind and version, what makes a record that of the next version."""


def _version(name: str) -> str | None:
    try:
        return version_of(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
