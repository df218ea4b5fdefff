"""The model card of a checkpoint, from the records of its training and evaluation."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import AutoConfig, M2M100Config, MarianConfig, MBartConfig, PreTrainedConfig

from hf_capsule_mt.configuration.description import describe_architecture
from hf_capsule_mt.configuration.presets import method_config_class, method_fields
from hf_capsule_mt.data.lines import without_compression
from hf_capsule_mt.language_tags import name_of_language
from hf_capsule_mt.modeling.warm_start import is_plain

from .card_details import CardDetails

TEMPLATE = Path(__file__).with_name("model_card_template.md")
PAPERS = Path(__file__).with_name("papers.yaml")
VALIDATION = "validation"
"""The name of the references where a run was scored on its validation data."""

_PLAIN_FAMILIES = {"marian": "a Marian", "m2m_100": "an M2M-100", "mbart": "an mBART"}
"""Families whose models Transformers loads by itself."""
_PARTS = ("layer_aggregation", "head_aggregation", "guided_routing", "sentence_aggregation")
"""Fields of configurations that say which method a model has."""
_METRICS = {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++", "ter": "TER"}


def make_model_card(
    record: Mapping[str, Any], evaluations: Sequence[Mapping[str, Any]] = (), details: CardDetails | None = None
) -> ModelCard:
    """Write a card, with `model-index` metadata, from what `run_record.json` has.

    Args:
        record: of the run.
        evaluations: what `hf-capsule-mt evaluate --output_file` wrote for translations by these weights.
        details: what no record says.
    """
    details = details or CardDetails()
    fields = dict(record["config"])
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)

    family = config.model_type
    for plain_class in (MarianConfig, M2M100Config):
        # A plain model is saved as one of Transformers.
        if isinstance(config, plain_class) and is_plain(config):
            family = plain_class.model_type

    languages = _languages(record["data"], details)
    pair = _pair(*languages)
    method = _method(record["model"], config) or family
    title = _title(pair, method, record["model"].get("size"))

    own_modules = {*record.get("own_aggregations", {}).values()}
    # A program that was not imported has no name by which others could.
    own_modules.discard("__main__")
    results = _results(evaluations, record["data"].get("dataset_name"))

    return ModelCard.from_template(
        _metadata(record, details, results, languages, family, title),
        template_path=str(TEMPLATE),
        title=title,
        record=record,
        own_modules=own_modules,
        new_languages=_new_languages(record["model"]),
        training=record["training"],
        details=details,
        config=config,
        family=family,
        architecture=describe_architecture(config),
        plain_families=_PLAIN_FAMILIES,
        papers=papers_of(config),
        example=json.dumps(details.example, ensure_ascii=False),
        metrics=list(dict.fromkeys(result.metric_name for result in results)),
        scores=_score_table(results),
        data_name=_data_name(record["data"], details),
        command=_shared_command(record["command"]),
        started=_started(record),
        pair=pair,
        output=[{"translation_text": details.translation}],
    )


def _metadata(
    record: Mapping[str, Any],
    details: CardDetails,
    results: Sequence[EvalResult],
    languages: Sequence[str | None],
    family: str,
    title: str,
) -> ModelCardData:
    """Return what the Hub reads of a card.

    Args:
        record: of the run.
        details: what no record says.
        results: the scores.
        languages: the codes of the source and the target, or None.
        family: the type of the model in its checkpoint.
        title: of the card.
    """
    dataset = record["data"].get("dataset_name")
    base_model = record.get("base_model") or {}
    # Data may call its languages en_XX, which the Hub refuses.
    codes = [code for code in languages if code and len(code) < 4]

    # The Hub takes None as "not said", and an empty list as a mistake.
    return ModelCardData(
        language=codes or None,
        license=details.license,
        license_name=details.license_name,
        library_name="transformers",
        pipeline_tag="translation",
        tags=["translation", "hf-capsule-mt", family],
        datasets=[dataset] if dataset else None,
        base_model=base_model.get("name"),
        metrics=sorted({result.metric_type for result in results}) or None,
        model_name=title,
        eval_results=list(results) or None,
    )


def _pair(source: str | None, target: str | None) -> str | None:
    """Return for example "English to German", or None if a language is not known."""
    if source is None or target is None:
        return None
    return f"{name_of_language(source)} to {name_of_language(target)}"


def _new_languages(model: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return name and code of each language that was added, and the code of the one that it began as."""
    codes = model.get("new_language") or []
    likes = model.get("like") or []
    return [(name_of_language(code), code, like) for code, like in zip(codes, likes, strict=True)]


def _data_name(data: Mapping[str, Any], details: CardDetails) -> str:
    """Return what the card calls the training data."""
    name = details.data_name or data.get("dataset_name")
    if name:
        return name
    return ", ".join(Path(file).name for file in data["train_file"])


def _shared_command(command: str) -> str:
    """Return the command of a run without the folders of the machine that it ran on."""
    words = [_without_folder(word) for word in shlex.split(command)]
    return shlex.join(words)


def _title(pair: str | None, method: str, size: str | None) -> str:
    """Return for example "English to German, em-routing (tiny)"."""
    title = method
    if pair is not None:
        title = f"{pair}, {title}"
    if size is not None:
        title = f"{title} ({size})"
    return title


def _method(model: Mapping[str, Any], config: PreTrainedConfig) -> str | None:
    """Return the method that `train` was told, and the parts of the configuration that are not its own."""
    name = model.get("method")
    if name is None:
        return None

    config_class = method_config_class(name)
    fields = method_fields(name)
    changed = []
    for field in _PARTS:
        of_method = fields.get(field, getattr(config_class, field, None))
        value = getattr(config, field, None)
        if value == of_method:
            continue
        changed.append(f"without {field}" if value is None else f"with {field} {value}")

    if not changed:
        return name
    return f"{name} {' and '.join(changed)}"


def _score_table(results: Sequence[EvalResult]) -> dict[str, dict[str, str]]:
    """Return the scores by test set and metric, as the card shows them."""
    table: dict[str, dict[str, str]] = {}
    for result in results:
        row = table.setdefault(result.dataset_split, {})
        row[result.metric_name] = f"{result.metric_value:.1f}"
    return table


def papers_of(config: PreTrainedConfig) -> list[dict[str, Any]]:
    """Return the papers whose methods a model with this configuration uses, the oldest method first."""
    aggregation = getattr(config, "layer_aggregation", None)
    place = getattr(config, "layer_aggregation_place", None)
    stream = aggregation if place == "layers" else None
    sums_layers = stream == "linear"
    # DenseFormer's sums are of layers as they are. Those of Wang et al. are of normalised layers.
    is_normalised = sums_layers and (config.layer_aggregation_input_norm or not config.is_pre_norm)

    is_used = {
        "bahdanau2015neural": config.model_type == "rnmt",
        "vaswani2017attention": isinstance(config, MarianConfig | M2M100Config | MBartConfig),
        "bapna2018training": place == "source",
        "wang2019learning": is_normalised,
        "dou2019dynamic": aggregation is not None and place != "layers",
        "li2019information": getattr(config, "head_aggregation", None),
        "zheng2019dynamic": getattr(config, "guided_routing", None),
        "wang2019towards": getattr(config, "sentence_aggregation", None),
        "pagliardini2024denseformer": sums_layers and not is_normalised,
        "zhu2025hyper": stream in ("hyper-connections", "manifold-hyper-connections"),
        "xie2025mhc": stream == "manifold-hyper-connections",
        "kimi2026attention": aggregation in ("attention", "delta-attention"),
        "luo2026delta": stream == "delta-attention",
    }

    known = yaml.safe_load(PAPERS.read_text(encoding="utf-8"))
    return [{"key": key, **fields} for key, fields in known.items() if is_used[key]]


def _languages(data: Mapping[str, Any], details: CardDetails) -> tuple[str | None, str | None]:
    """Return the codes of the source and the target: as somebody said, or as the names of two files say."""
    source = details.source_lang or data.get("source_lang")
    target = details.target_lang or data.get("target_lang")

    endings = []
    for file in data["train_file"]:
        path = without_compression(Path(file))
        endings.append(path.suffix[1:])

    # train.en and train.de, but not train.src and train.tgt.
    are_codes = len(endings) == 2 and all(len(ending) == 2 for ending in endings)
    if are_codes and endings[0] != endings[1]:
        source = source or endings[0]
        target = target or endings[1]
    return source, target


def _results(evaluations: Sequence[Mapping[str, Any]], dataset: str | None) -> list[EvalResult]:
    results = []
    for evaluation in evaluations:
        first_file = Path(evaluation["references"][0]["file"])
        name = without_compression(first_file).stem
        data = name
        if name == VALIDATION and dataset:
            # Other files may be of anything.
            data = dataset

        for metric, score in (evaluation.get("scores") or {}).items():
            result = EvalResult(
                task_type="translation",
                task_name="Translation",
                dataset_type=data,
                dataset_name=data,
                dataset_split=name,
                metric_type=metric,
                metric_name=_METRICS[metric],
                metric_value=round(score["score"], 2),
                metric_args={"signature": score["signature"]},
            )
            results.append(result)
    return results


def _started(record: Mapping[str, Any]) -> str | None:
    """Return what the model was before training, None if it was new."""
    base = record.get("base_model")
    if base:
        return f"`{base['name']}`, revision `{base['revision']}`"
    path = record["model"].get("model")
    if path:
        return f"`{Path(path).name}`, a local checkpoint"
    return None


def _without_folder(word: str) -> str:
    """Return a word of a command, with only the name of an absolute path."""
    name, equals, path = word.rpartition("=")
    return f"{name}{equals}{Path(path).name}" if Path(path).is_absolute() else word
