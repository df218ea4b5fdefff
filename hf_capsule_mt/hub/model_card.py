"""The model card of a checkpoint, from the records of its training, evaluation and speed."""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig

from hf_capsule_mt.data.pair_files import without_compression
from hf_capsule_mt.records import Comparison, DataOptions, EvaluationRecord, RunRecord, SpeedRecord
from hf_capsule_mt.templates import render

from .architecture import describe_architecture
from .names import PLACEHOLDER, check_repo_id
from .papers import papers_of

TEMPLATE = Path(__file__).with_name("model_card_template.md")
_METRICS = {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++", "ter": "TER"}
VALIDATION = "validation"
"""Name in the place of the reference file where a run was scored on its validation data."""

_LANGUAGE = re.compile(r"[a-z]{2,3}")


@dataclass(frozen=True)
class CardDetails:
    """Details that no record has.

    Args:
        repo_id: where the model will be on the Hub.
        source_lang: ISO 639 code of the source language; default: the record's, else the ending of the training file.
        target_lang: likewise.
        license: of the model, as the Hub names it (`apache-2.0`); `other` for one that it does not know.
        license_name: name of that other licence.
        data_name: of the training data; default: that of the Hub's data set, else of the files.
        data_license: of the training data.
        example: a sentence to translate in the examples.
        note: a paragraph under the results: how the translations were made.
        averaged: the checkpoints whose mean the weights are; none if they are the run's own.
        updates: after how many the weights were saved, if they are of a checkpoint of the run; default: those of its
            end.

    Raises:
        ValueError: if `repo_id` is no name of a repository, or a language no ISO 639 code.
    """

    repo_id: str = PLACEHOLDER
    source_lang: str | None = None
    target_lang: str | None = None
    license: str | None = None
    license_name: str | None = None
    data_name: str | None = None
    data_license: str | None = None
    example: str = "A dog runs."
    note: str | None = None
    averaged: tuple[str, ...] = ()
    updates: int | None = None

    def __post_init__(self) -> None:
        check_repo_id(self.repo_id)
        for name in ("source_lang", "target_lang"):
            code = getattr(self, name)
            if code is not None and not _LANGUAGE.fullmatch(code):
                raise ValueError(f"{name} is {code!r}; it must be an ISO 639 code of two or three letters, such as en")
        if (self.license == "other") != (self.license_name is not None):
            raise ValueError(
                f"license is {self.license!r} and license_name {self.license_name!r}; a licence that the Hub does not "
                "know needs license 'other' and its name, one that it knows has no license_name"
            )


def make_model_card(
    record: RunRecord,
    evaluations: Sequence[EvaluationRecord] = (),
    speed: SpeedRecord | None = None,
    details: CardDetails | None = None,
) -> ModelCard:
    """Write a card, with `model-index` metadata.

    Args:
        record: of the training run.
        evaluations: of translations by the very weights that the card is of.
        speed: a benchmark with this model among its rows.
        details: those that no record has.

    Raises:
        ValueError: if an evaluation has no scores, or `speed` no row of this model.
    """
    details = details or CardDetails()
    config = _config(record)
    languages = _languages(record.data, details)
    results = _results(record, evaluations)
    title = _title(record, languages)
    files = [Path(file).name for file in record.data.train_file]
    text = render(
        TEMPLATE,
        card_data=_metadata(record, details, title, languages, results).to_yaml(),
        title=title,
        record=record,
        training=record.training,
        details=details,
        config=config,
        architecture=describe_architecture(config),
        papers=papers_of(config),
        example=json.dumps(details.example, ensure_ascii=False),
        results=[_row(result) for result in results],
        plain="RNMT without capsules" if config.model_type == "rnmt" else "plain Marian",
        benchmark=speed,
        speed=_speeds(record, speed) if speed is not None else None,
        files=files,
        data_name=details.data_name or record.data.dataset_name or ", ".join(files),
        command=_without_folders(record.command),
        weights=_weights(record, details),
        started=_started(record),
        direction=f"from {languages[0]} to {languages[1]}" if None not in languages else "in one direction",
    )
    return ModelCard(text)


def _config(record: RunRecord) -> PreTrainedConfig:
    """Return the whole configuration, of which a record leaves out defaults of Transformers."""
    fields = dict(record.config)
    model_type = fields.pop("model_type", None)
    if model_type not in CONFIG_MAPPING:
        raise ValueError(
            f"the record of the run has config.model_type = {model_type!r}, which is no model here; give the record "
            "that training wrote"
        )
    return AutoConfig.for_model(model_type, **fields)


def _started(record: RunRecord) -> str | None:
    """Return what the model was before training, in Markdown; None if it was new."""
    if record.base_model is not None:
        return f"`{record.base_model.name}`, revision `{record.base_model.revision}`"
    path = record.model.others.get("model_name_or_path")
    return None if path is None else f"`{_without_folder(str(path))}`, a local checkpoint that is not published"


def _weights(record: RunRecord, details: CardDetails) -> str | None:
    """Return which of the run's weights they are; None if those of its end, as they are."""
    decay = record.training.others.get("ema_decay")
    average = f"an exponential moving average of those of all updates (decay {decay})" if decay else None
    parts = [part for part in (average, _when(record, details)) if part is not None]
    return ", ".join(parts) or None


def _when(record: RunRecord, details: CardDetails) -> str | None:
    """Return when in the run the weights were saved; None if at its end."""
    if details.averaged:
        return f"the mean of {', '.join(details.averaged)}"
    has_best = record.training.load_best_model_at_end and record.best_checkpoint is not None
    best = Path(record.best_checkpoint).name if has_best else None
    found = best if details.updates is None else f"checkpoint-{details.updates}"
    if found is None:
        return None
    return f"of {found}, the best in {record.training.metric_for_best_model}" if found == best else f"of {found}"


def _languages(data: DataOptions, details: CardDetails) -> tuple[str | None, str | None]:
    """Return source and target language, each None if nothing tells."""
    endings = [without_compression(Path(file)).suffix[1:] for file in data.train_file]
    # train.en and train.de, but not train.src and train.tgt.
    told = len(endings) == 2 and endings[0] != endings[1] and all(re.fullmatch("[a-z]{2}", code) for code in endings)
    guesses = endings if told else [None, None]
    source = details.source_lang or data.source_lang or guesses[0]
    target = details.target_lang or data.target_lang or guesses[1]
    return source, target


def _title(record: RunRecord, languages: tuple[str | None, str | None]) -> str:
    name = record.model.method or record.config["model_type"]
    size = f" ({record.model.size})" if record.model.size else ""
    pair = f", {languages[0]} to {languages[1]}" if None not in languages else ""
    return f"{name}{size}{pair}"


def _metadata(
    record: RunRecord,
    details: CardDetails,
    title: str,
    languages: tuple[str | None, str | None],
    results: list[EvalResult],
) -> ModelCardData:
    # Data may call its languages en_XX, which the Hub refuses.
    known = [language for language in languages if language is not None and _LANGUAGE.fullmatch(language)]
    dataset, base = record.data.dataset_name, record.base_model
    return ModelCardData(
        language=known or None,
        license=details.license,
        license_name=details.license_name,
        library_name="transformers",
        pipeline_tag="translation",
        tags=["translation", "hf-capsule-mt", record.config["model_type"]],
        datasets=[dataset] if dataset is not None else None,
        base_model=base.name if base is not None else None,
        metrics=sorted({result.metric_type for result in results}) or None,
        model_name=title,
        eval_results=results or None,
    )


def _results(record: RunRecord, evaluations: Sequence[EvaluationRecord]) -> list[EvalResult]:
    if any(evaluation.scores is None for evaluation in evaluations):
        raise ValueError("an evaluation has no scores; give what hf-capsule-mt evaluate --hypotheses wrote")
    names = [_without_ending(evaluation.references[0].file) for evaluation in evaluations]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two evaluations are of references called {name!r}; rename one of the files")
    return [
        EvalResult(
            task_type="translation",
            task_name="Translation",
            dataset_type=_evaluated_on(evaluation, record),
            dataset_name=_evaluated_on(evaluation, record),
            dataset_split=_without_ending(evaluation.references[0].file),
            metric_type=metric,
            metric_name=_METRICS[metric],
            metric_value=round(found.score, 2),
            metric_args={"signature": found.signature},
        )
        for evaluation in evaluations
        for metric, found in evaluation.scores.items()
    ]


def _evaluated_on(evaluation: EvaluationRecord, record: RunRecord) -> str:
    """Return the data set of the Hub, of which only the validation data is known to be a part, or the file."""
    name = _without_ending(evaluation.references[0].file)
    return record.data.dataset_name or name if name == VALIDATION else name


def _row(result: EvalResult) -> dict[str, str]:
    return {
        "data": result.dataset_split,
        "metric": result.metric_name,
        "score": f"{result.metric_value:.2f}",
        "signature": result.metric_args["signature"].replace("|", " "),
    }


def _speeds(record: RunRecord, speed: SpeedRecord) -> Comparison:
    """Return the row of this model in a benchmark."""
    model = record.model
    # Training that goes on from a checkpoint is given no size; the number of parameters tells.
    size = model.size or ("base" if _started(record) is None else speed.settings.size)
    result = speed.row_of(model.method, model.config_overrides, size, record.parameters)
    if result is None:
        row = " ".join([str(model.method), *model.config_overrides])
        raise ValueError(
            f"the speed record has no row {row!r} of size {size!r} with {record.parameters:,} parameters; give "
            f"what {speed.COMMAND} wrote for this model"
        )
    return result


def _without_folders(command: str) -> str:
    """A command without the absolute paths of whoever gave it."""
    return shlex.join(map(_without_folder, shlex.split(command)))


def _without_folder(word: str) -> str:
    """A word of a command, a path or NAME=PATH, with the name alone of an absolute path."""
    name, equals, path = word.rpartition("=")
    return f"{name}{equals}{Path(path).name}" if Path(path).is_absolute() else word


def _without_ending(file: str) -> str:
    """The file's name without its language and the ending of its compression."""
    return without_compression(Path(file)).stem
