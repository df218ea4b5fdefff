"""The model card of a checkpoint, from the records of its training, evaluation and speed."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from transformers import AutoConfig, PretrainedConfig

from .architecture import describe_architecture
from .names import PLACEHOLDER, check_repo_id
from .papers import papers_of

TEMPLATE = Path(__file__).with_name("model_card_template.md")
_METRICS = {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++", "ter": "TER"}
_OF_A_RUN = {"model", "data", "training", "config", "parameters", "data_report", "metrics", "environment"}
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
        evaluations: records of `scripts/evaluate.py`; without any, the validation BLEU of the run is given.
        speed: record of `scripts/benchmark.py` with the run's method and size among its rows.
        details: what no record says.

    Raises:
        ValueError: if a record is none, or `speed` has no row of the run's method and size.
    """
    _check_records(record, evaluations)
    details = details or CardDetails()
    config = _config(record)
    languages = _languages(record["data"], details)
    results = _results(record, evaluations, details)
    papers = papers_of(config)
    title = _title(record, languages)
    return ModelCard.from_template(
        _metadata(record, details, title, languages, results),
        template_path=str(TEMPLATE),
        title=title,
        architecture=describe_architecture(config),
        references=" ".join(f"[{paper.name}]({paper.url}): {paper.title}." for paper in papers),
        repo_id=details.repo_id,
        example=details.example,
        results=[_row(result) for result in results],
        note=details.note,
        size=f"{record['parameters']:,} parameters, {record['parameters'] * 4 / 1e6:.1f} MB in float32.",
        speed=_training_speed(record) + ([_benchmark(record, speed)] if speed is not None else []),
        data=_data(record, details),
        hyperparameters=_hyperparameters(record, config),
        command=record.get("command"),
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
                f"an evaluation lacks {', '.join(sorted(missing))}; give what scripts/evaluate.py --output_file wrote"
            )


def _config(record: Mapping[str, Any]) -> PretrainedConfig:
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
    known = [language for language in languages if language is not None]
    dataset = record["data"]["dataset_name"]
    base = record["model"]["model_name_or_path"]
    return ModelCardData(
        language=known or None,
        license=details.license,
        license_name=details.license_name,
        library_name="transformers",
        pipeline_tag="translation",
        tags=["translation", "hf-capsule-mt", record["config"]["model_type"]],
        datasets=[dataset] if dataset is not None else None,
        base_model=base if base is not None and not Path(base).exists() else None,
        metrics=sorted({result.metric_type for result in results}) or None,
        model_name=title,
        eval_results=results or None,
    )


def _results(
    record: Mapping[str, Any], evaluations: Sequence[Mapping[str, Any]], details: CardDetails
) -> list[EvalResult]:
    if not evaluations:
        score = record["metrics"].get("eval_bleu")
        scores = {"bleu": {"score": score, "signature": record["bleu_signature"]}}
        return _scores(scores, "validation", record, details) if score is not None else []
    results = []
    for evaluation in evaluations:
        name = _without_ending(evaluation["references"][0]["file"])
        results += _scores(evaluation["scores"], name, record, details)
    return results


def _scores(
    scores: Mapping[str, Mapping[str, Any]], split: str, record: Mapping[str, Any], details: CardDetails
) -> list[EvalResult]:
    data = details.data_name or record["data"]["dataset_name"] or split
    return [
        EvalResult(
            task_type="translation",
            task_name="Translation",
            dataset_type=record["data"]["dataset_name"] or data,
            dataset_name=data,
            dataset_split=split,
            metric_type=metric,
            metric_name=_METRICS[metric],
            metric_value=round(entry["score"], 2),
            metric_args={"signature": entry["signature"]},
        )
        for metric, entry in scores.items()
    ]


def _row(result: EvalResult) -> dict[str, str]:
    return {
        "data": result.dataset_split,
        "metric": result.metric_name,
        "score": f"{result.metric_value:.2f}",
        "signature": result.metric_args["signature"].replace("|", " "),
    }


def _training_speed(record: Mapping[str, Any]) -> list[str]:
    rate = record["metrics"].get("train_steps_per_second")
    # A resumed run counts the updates before it stopped, and not their time.
    if rate is None or record["training"]["resume_from_checkpoint"] != "None":
        return []
    return [f"Training ran at {rate:.2f} updates a second on {_machine(record['environment'])}."]


def _machine(environment: Mapping[str, Any]) -> str:
    packages = environment["packages"]
    threads = f" ({environment['cpu_threads']} CPU threads)"
    return f"{environment['device']}{threads}, torch {packages['torch']}, transformers {packages['transformers']}"


def _benchmark(record: Mapping[str, Any], speed: Mapping[str, Any]) -> str:
    method, size = record["model"]["method"], record["model"]["size"] or "base"
    settings = speed.get("settings", {})
    if settings.get("size") != size or method not in speed.get("results", {}):
        raise ValueError(
            f"the speed record has no row {method!r} of size {size!r}; give what scripts/benchmark.py wrote for it"
        )
    result = speed["results"][method]
    training, decoding = (median(result[part]["method"]) for part in ("training", "decoding"))
    return (
        f"In turns with plain Marian on the same random batches, it trains on {training:.0f} target tokens a second "
        f"({result['training_ratio']:.2f} of plain Marian) and decodes {decoding:.1f} sentences a second with "
        f"{settings['num_beams']} beams ({result['decoding_ratio']:.2f}), on {_machine(speed['environment'])}."
    )


def _data_name(record: Mapping[str, Any], details: CardDetails) -> str:
    names = [Path(file).name for file in record["data"]["train_file"]]
    return details.data_name or record["data"]["dataset_name"] or ", ".join(names)


def _data(record: Mapping[str, Any], details: CardDetails) -> dict[str, str]:
    report = record["data_report"]
    lines = {
        "Data": _data_name(record, details),
        "Licence of the data": details.data_license or "not stated",
        "Sentence pairs": f"{report['kept']:,} of {report['read']:,} read",
    }
    if record["data"]["train_file"] and details.data_name is not None:
        lines["Files"] = ", ".join(Path(file).name for file in record["data"]["train_file"])
    digests = record.get("data_sha256", {})
    return lines | {f"SHA-256 of the {side} text": f"`{digest}`" for side, digest in digests.items()}


def _hyperparameters(record: Mapping[str, Any], config: PretrainedConfig) -> dict[str, str]:
    training = record["training"]
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
        "Precision": "bfloat16" if training["bf16"] else "float16" if training["fp16"] else "float32",
        "Seed": str(training["seed"]),
        "Machine": _machine(record["environment"]),
    }
    if record["model"]["model_name_or_path"] is not None:
        lines = {"Started from": f"`{record['model']['model_name_or_path']}`", **lines}
    return lines


def _limitations(
    record: Mapping[str, Any], details: CardDetails, languages: tuple[str | None, str | None]
) -> list[str]:
    direction = f" from {languages[0]} to {languages[1]}" if None not in languages else " in one direction"
    limits = [
        f"It translates{direction}, sentence by sentence, and was trained on {record['data_report']['kept']:,} pairs "
        f"of {_data_name(record, details)}: text of another kind, or written in another way, it translates badly.",
        f"Training left out pairs of more than {record['data']['max_source_length']} source or "
        f"{record['data']['max_target_length']} target tokens.",
        "The figures are of one run with one seed; how far another would be from them was not measured.",
        "Like every translation model it may leave out, add or invert what the source says, and repeats the biases of "
        "its training text; have somebody check what matters.",
    ]
    if details.data_license is not None:
        limits.append(f"The licence of its training data ({details.data_license}) may limit what it may be used for.")
    return limits


def _without_ending(file: str) -> str:
    """The file's name without its language and `.gz`."""
    return _FILE_ENDING.sub("", Path(file).name)
