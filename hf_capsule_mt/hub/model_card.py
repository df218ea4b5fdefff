"""The model card of a checkpoint, from the records of its training, evaluation and speed."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import AutoConfig, PreTrainedConfig

from .architecture import describe_architecture
from .names import PLACEHOLDER, check_repo_id
from .papers import papers_of

TEMPLATE = Path(__file__).with_name("model_card_template.md")
_METRICS = {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++", "ter": "TER"}
VALIDATION = "validation"
"""What stands for the reference file where a run was scored on its validation data."""

_OF_A_RUN = {"command", "model", "data", "training", "config", "parameters", "data_report", "pairs", "environment"}
_LANGUAGE = re.compile(r"[a-z]{2,3}")
_FILE_ENDING = re.compile(r"\.([^.]+?)(?:\.gz)?$")


@dataclass(frozen=True)
class CardDetails:
    """What no record says.

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
    record: Mapping[str, Any],
    evaluations: Sequence[Mapping[str, Any]] = (),
    speed: Mapping[str, Any] | None = None,
    details: CardDetails | None = None,
) -> ModelCard:
    """Write a card, with `model-index` metadata.

    Args:
        record: `run_record.json` of a training run.
        evaluations: records of `hf-capsule-mt evaluate`, of translations by the very weights that the card is of.
        speed: record of `hf-capsule-mt benchmark` with this model among its rows.
        details: what no record says.

    Raises:
        ValueError: if a record is none, or `speed` has no row of this model.
    """
    _check_records(record, evaluations)
    details = details or CardDetails()
    config = _config(record)
    languages = _languages(record["data"], details)
    results = _results(record, evaluations)
    papers = papers_of(config)
    title = _title(record, languages)
    return ModelCard.from_template(
        _metadata(record, details, title, languages, results),
        template_path=str(TEMPLATE),
        title=title,
        architecture=describe_architecture(config),
        references=" ".join(f"[{paper.name}]({paper.url}): {paper.title}." for paper in papers),
        repo_id=details.repo_id,
        example=json.dumps(details.example, ensure_ascii=False),
        results=[_row(result) for result in results],
        note=details.note,
        size=f"{record['parameters']:,} parameters, {record['parameters'] * 4 / 1e6:.1f} MB in float32.",
        speed=_benchmark(record, speed, config) if speed is not None else None,
        data=_data(record, details),
        hyperparameters=_hyperparameters(record, config),
        command=_without_folders(record["command"]),
        limitations=_limitations(record, details, languages),
        bibtex="\n\n".join(paper.bibtex for paper in papers),
    )


def _check_records(record: Mapping[str, Any], evaluations: Sequence[Mapping[str, Any]]) -> None:
    missing = _OF_A_RUN - set(record)
    if missing:
        raise ValueError(f"the run record lacks {', '.join(sorted(missing))}; give a run's run_record.json")
    for evaluation in evaluations:
        missing = {"scores", "references"} - set(evaluation)
        if missing:
            raise ValueError(
                f"an evaluation lacks {', '.join(sorted(missing))}; give what `evaluate --hypotheses` wrote"
            )


def _config(record: Mapping[str, Any]) -> PreTrainedConfig:
    """The whole configuration, of which a record has the fields that differ from the defaults."""
    fields = dict(record["config"])
    return AutoConfig.for_model(fields.pop("model_type"), **fields)


def _languages(data: Mapping[str, Any], details: CardDetails) -> tuple[str | None, str | None]:
    """Source and target, each None if nothing tells."""
    endings = [match[1] for file in data["train_file"] if (match := _FILE_ENDING.search(file))]
    # train.en and train.de, but not train.src and train.tgt.
    told = len(endings) == 2 and endings[0] != endings[1] and all(re.fullmatch("[a-z]{2}", code) for code in endings)
    guesses = endings if told else [None, None]
    source = details.source_lang or data["source_lang"] or guesses[0]
    target = details.target_lang or data["target_lang"] or guesses[1]
    return source, target


def _title(record: Mapping[str, Any], languages: tuple[str | None, str | None]) -> str:
    model = record["model"]
    name = model["method"] or record["config"]["model_type"]
    size = f" ({model['size']})" if model["size"] else ""
    pair = f", {languages[0]} to {languages[1]}" if None not in languages else ""
    return f"{name}{size}{pair}"


def _metadata(
    record: Mapping[str, Any],
    details: CardDetails,
    title: str,
    languages: tuple[str | None, str | None],
    results: list[EvalResult],
) -> ModelCardData:
    # Data may call its languages en_XX, which the Hub refuses.
    known = [language for language in languages if language is not None and _LANGUAGE.fullmatch(language)]
    dataset, base = record["data"]["dataset_name"], record.get("base_model")
    return ModelCardData(
        language=known or None,
        license=details.license,
        license_name=details.license_name,
        library_name="transformers",
        pipeline_tag="translation",
        tags=["translation", "hf-capsule-mt", record["config"]["model_type"]],
        datasets=[dataset] if dataset is not None else None,
        base_model=base["name"] if base is not None else None,
        metrics=sorted({result.metric_type for result in results}) or None,
        model_name=title,
        eval_results=results or None,
    )


def _results(record: Mapping[str, Any], evaluations: Sequence[Mapping[str, Any]]) -> list[EvalResult]:
    return [
        EvalResult(
            task_type="translation",
            task_name="Translation",
            dataset_type=_evaluated_on(evaluation, record),
            dataset_name=_evaluated_on(evaluation, record),
            dataset_split=_without_ending(evaluation["references"][0]["file"]),
            metric_type=metric,
            metric_name=_METRICS[metric],
            metric_value=round(entry["score"], 2),
            metric_args={"signature": entry["signature"]},
        )
        for evaluation in evaluations
        for metric, entry in evaluation["scores"].items()
    ]


def _evaluated_on(evaluation: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """The data set of the Hub, of which only the validation data is known to be a part, or the file."""
    name = _without_ending(evaluation["references"][0]["file"])
    return record["data"]["dataset_name"] or name if name == VALIDATION else name


def _row(result: EvalResult) -> dict[str, str]:
    return {
        "data": result.dataset_split,
        "metric": result.metric_name,
        "score": f"{result.metric_value:.2f}",
        "signature": result.metric_args["signature"].replace("|", " "),
    }


def _machine(environment: Mapping[str, Any]) -> str:
    packages = environment["packages"]
    threads = f" ({environment['cpu_threads']} CPU threads)"
    return f"{environment['device']}{threads}, torch {packages['torch']}, transformers {packages['transformers']}"


def _benchmark(record: Mapping[str, Any], speed: Mapping[str, Any], config: PreTrainedConfig) -> str:
    method, size = record["model"]["method"], record["model"]["size"] or "base"
    settings, result = speed.get("settings", {}), speed.get("results", {}).get(method)
    if result is None or settings["size"] != size or result["parameters"] != record["parameters"]:
        raise ValueError(
            f"the speed record has no row {method!r} of size {size!r} with {record['parameters']:,} parameters; give "
            "what hf-capsule-mt benchmark wrote for this model"
        )
    plain = "RNMT without capsules" if config.model_type == "rnmt" else "plain Marian"
    training, decoding = (
        (median(result[part]["method"]), _ratios(result[part], plain)) for part in ("training", "decoding")
    )
    return (
        f"In turns with {plain}, on random sentences of {config.vocab_size:,} words, it trains on "
        f"{training[0]:.0f} target tokens a second ({training[1]}, batches of up to {settings['max_tokens']:,} padded "
        f"tokens) and decodes {decoding[0]:.1f} sentences a second ({decoding[1]}, {settings['batch_size']} at a time, "
        f"{settings['num_beams']} beams, {settings['new_tokens']} tokens each). These are medians of "
        f"{settings['rounds']} rounds, {settings['dtype']}, on {_machine(speed['environment'])}."
    )


def _ratios(rates: Mapping[str, Sequence[float]], plain: str) -> str:
    ratios = [method / plain for plain, method in zip(rates["plain"], rates["method"])]
    return f"{median(ratios):.2f} of {plain}, from {min(ratios):.2f} to {max(ratios):.2f}"


def _data_name(record: Mapping[str, Any], details: CardDetails) -> str:
    names = [Path(file).name for file in record["data"]["train_file"]]
    return details.data_name or record["data"]["dataset_name"] or ", ".join(names)


def _data(record: Mapping[str, Any], details: CardDetails) -> dict[str, str]:
    report = record["data_report"]
    lines = {
        "Data": _data_name(record, details),
        "Licence of the data": details.data_license or "not stated",
        "Sentence pairs": f"{record['pairs']['trained_on']:,} of {report['read']:,} read; left out: "
        f"{report['empty'] + report['invalid_utf8']:,} unusable, {record['pairs']['too_long']:,} of more than "
        f"{record['data']['max_source_length']} source or {record['data']['max_target_length']} target tokens",
    }
    if record["data"]["train_file"] and details.data_name is not None:
        lines["Files"] = ", ".join(Path(file).name for file in record["data"]["train_file"])
    digests = record.get("data_sha256", {})
    return lines | {f"SHA-256 of the {side} text": f"`{digest}`" for side, digest in digests.items()}


def _hyperparameters(record: Mapping[str, Any], config: PreTrainedConfig) -> dict[str, str]:
    training, base, best = record["training"], record.get("base_model"), record["best_checkpoint"]
    precision = record.get("mixed_precision", "no")
    batch = training["max_tokens_per_batch"]
    pairs = training["per_device_train_batch_size"]
    lines = {
        "Updates": f"{record['updates']:,}",
        "Batch": f"{f'{batch:,} padded tokens' if batch else f'{pairs} pairs'} a device and step, "
        f"{record['processes']} device(s), {training['gradient_accumulation_steps']} step(s) an update",
        "Optimizer": f"{training['optim']}, betas {training['adam_beta1']} and {training['adam_beta2']}, "
        f"epsilon {training['adam_epsilon']}, weight decay {training['weight_decay']}",
        "Learning rate": f"{training['learning_rate']}, {training['lr_scheduler_type']}, "
        f"warm-up {training['warmup_steps']:g}",
        "Dropout": str(config.dropout),
        "Label smoothing": str(config.label_smoothing),
        "Precision": {"no": "float32", "bf16": "bfloat16", "fp16": "float16"}.get(precision, precision),
        "Seed": str(training["seed"]),
        "Machine": _machine(record["environment"]),
    }
    if base is not None:
        lines = {"Started from": f"`{base['name']}`, revision `{base['revision']}`", **lines}
    if training["load_best_model_at_end"] is True and best is not None:
        lines["Weights"] = f"of {Path(best).name}, the best in {training['metric_for_best_model']}"
    return lines


def _limitations(
    record: Mapping[str, Any], details: CardDetails, languages: tuple[str | None, str | None]
) -> list[str]:
    direction = f" from {languages[0]} to {languages[1]}" if None not in languages else " in one direction"
    base, pairs = record.get("base_model"), record["pairs"]
    trained = f"trained on {pairs['trained_on']:,} pairs of {_data_name(record, details)}"
    if base is not None:
        trained = f"{trained}, after {base['name']} had been trained on other text"
    limits = [
        f"It translates{direction}, sentence by sentence, and was {trained}. How well it translates text of another "
        "kind was not measured.",
        "The figures are of one run with one seed; how far another would be from them was not measured.",
        "Like every translation model it may leave out, add or invert what the source says, and repeats the biases of "
        "its training text; have somebody check what matters.",
    ]
    if details.data_license is not None:
        limits.append(f"The licence of its training data ({details.data_license}) may limit what it may be used for.")
    return limits


def _without_folders(command: str) -> str:
    """A command without the absolute paths of whoever gave it."""
    return shlex.join(Path(word).name if Path(word).is_absolute() else word for word in shlex.split(command))


def _without_ending(file: str) -> str:
    """The file's name without its language and `.gz`."""
    return _FILE_ENDING.sub("", Path(file).name)
