"""Train and test probing classifiers of sentences, and their table."""

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn
from transformers import EvalPrediction, Trainer, TrainingArguments, set_seed

from benchmarks.probing.tasks import TASKS, ProbingData, labels_of
from hf_capsule_mt.evaluation.tables import table_in_markdown
from hf_capsule_mt.loading import count_parameters


@dataclass(frozen=True)
class Classifier:
    """What is trained: it learns `labels` from the other fields of its examples."""

    model: nn.Module
    splits: Sequence[list[dict[str, Any]]]
    """Examples of training, validation and test."""
    collate: Callable[[list[dict[str, Any]]], dict[str, Tensor]]
    config: Mapping[str, Any]
    """Of the model whose encoder it reads, for the record."""


class Probed(Protocol):
    """An encoder that is probed."""

    def classifier(self, data: ProbingData) -> Classifier:
        """Return a classifier of its sentences, whose new weights are drawn here."""


def probe(data: ProbingData, encoder: Probed, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Train a classifier, choose its best epoch on the validation split, and test it once.

    Returns:
        Accuracies from 0 to 1: `test_accuracy`, `validation_accuracy` of the tested epoch and of every one, and
        `majority_accuracy`, the test accuracy of always saying the most frequent label of the training split. Also
        `sentences` of each split, `labels`, the `parameters` that were trained, and `config`.
    """
    set_seed(seed)
    classifier = encoder.classifier(data)
    train, validation, test = classifier.splits
    with TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=args.batch_size,
            per_device_eval_batch_size=256,
            learning_rate=args.learning_rate,
            warmup_steps=0.1,
            eval_strategy="epoch",
            save_strategy="epoch",
            logging_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model="accuracy",
            seed=seed,
            report_to="none",
        )
        trainer = Trainer(
            model=classifier.model,
            args=arguments,
            train_dataset=train,
            eval_dataset=validation,
            data_collator=classifier.collate,
            compute_metrics=_accuracy,
            preprocess_logits_for_metrics=_best_label,
        )
        trainer.train()
        tested = trainer.predict(test).metrics["test_accuracy"]
    [(majority, _)] = Counter(label for label, _ in data["tr"]).most_common(1)
    return {
        "test_accuracy": tested,
        "validation_accuracy": trainer.state.best_metric,
        "validation_accuracies": [log["eval_accuracy"] for log in trainer.state.log_history if "eval_accuracy" in log],
        "majority_accuracy": mean(label == majority for label, _ in data["te"]),
        "sentences": {name: len(split) for name, split in data.items()},
        "labels": len(labels_of(data)),
        "parameters": count_parameters(trainer.model),
        "config": classifier.config,
    }


def _best_label(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.argmax(-1)


def _accuracy(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float(np.mean(prediction.predictions == prediction.label_ids))}


def report(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the table in Markdown from the records of its runs, and under it how it was made."""
    named = {record["settings"]["task"] for record in records}
    tasks = [name for name in TASKS if name in named]
    groups = [TASKS[task][1] for task in tasks]
    rows = [
        ["", *(group if group not in groups[:place] else "" for place, group in enumerate(groups))],
        ["model", *(TASKS[task][0] for task in tasks)],
        ["majority class", *(_cell(records, "majority_accuracy", task=task) for task in tasks)],
    ]
    systems = dict.fromkeys((one["settings"].get("model"), one["settings"].get("aggregation")) for one in records)
    for model, aggregation in systems:
        cells = [_cell(records, "test_accuracy", task=task, model=model, aggregation=aggregation) for task in tasks]
        rows.append([model or aggregation.upper(), *cells])
    settings = records[0]["settings"]
    seeds = dict.fromkeys(str(record["settings"]["seed"]) for record in records)
    sentences = {record["settings"]["task"]: "/".join(map(str, record["sentences"].values())) for record in records}
    made_by = dict.fromkeys(
        "{device}, torch {torch}, transformers {transformers}".format(
            device=record["environment"]["device"], **record["environment"]["packages"]
        )
        for record in records
    )
    encoder = (
        "Encoders of trained models, as they are"
        if settings.get("model")
        else f"`{settings['size']}`, three encoder layers, at most {settings['vocab_size']} words"
    )
    return (
        f"{table_in_markdown(rows)}\n\n"
        "Test accuracy in percent, of the epoch with the best validation accuracy; mean ± standard deviation over "
        f"seeds {', '.join(seeds)}. {encoder}, {settings['epochs']} epochs, batches of {settings['batch_size']}, "
        f"learning rate {settings['learning_rate']:g}. Sentences (train/validation/test): "
        f"{', '.join(f'{task} {counts}' for task, counts in sentences.items())}. {'; '.join(made_by)}."
    )


def _cell(records: Sequence[Mapping[str, Any]], measure: str, **settings: str | None) -> str:
    """Return mean and standard deviation of a measure, in percent, over the records with these settings."""
    found = [
        100 * record[measure]
        for record in records
        if all(record["settings"].get(name) == value for name, value in settings.items())
    ]
    spread = f" ± {stdev(found):.2f}" if len(found) > 1 and measure == "test_accuracy" else ""
    return f"{mean(found):.2f}{spread}"
