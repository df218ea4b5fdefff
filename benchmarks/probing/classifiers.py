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

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return what the record says of the encoder."""

    def classifier(self, data: ProbingData) -> Classifier:
        """Return a classifier of its sentences, whose new weights are drawn here."""


def probe(data: ProbingData, encoder: Probed, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Train a classifier, choose its best epoch on the validation split, and test it once.

    Args:
        data: labels and sentences of the three splits.
        encoder: is read, and trained too if it is new.
        seed: of new weights and of the order of sentences.
        args: has `epochs`, `batch_size` and `learning_rate`.

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
    rows = _head(tasks)
    rows.append(["majority class", *(_cell(records, "majority_accuracy", task=task) for task in tasks)])
    systems = dict.fromkeys((one["settings"].get("model"), one["settings"].get("aggregation")) for one in records)
    for model, aggregation in systems:
        row = [model or aggregation.upper()]
        for task in tasks:
            row.append(_cell(records, "test_accuracy", task=task, model=model, aggregation=aggregation))
        rows.append(row)
    return f"{table_in_markdown(rows)}\n\n{_caption(records)}"


def _head(tasks: Sequence[str]) -> list[list[str]]:
    """Return the head of the table: a group is named over the first of its tasks."""
    groups = []
    columns = []
    for task in tasks:
        column, group = TASKS[task]
        groups.append("" if group in groups else group)
        columns.append(column)
    return [["", *groups], ["model", *columns]]


def _caption(records: Sequence[Mapping[str, Any]]) -> str:
    """Return how the accuracies were measured."""
    settings = records[0]["settings"]
    encoder = "Encoders of trained models, as they are"
    if not settings.get("model"):
        encoder = f"`{settings['size']}`, three encoder layers, at most {settings['vocab_size']} words"
    seeds = dict.fromkeys(str(record["settings"]["seed"]) for record in records)
    sentences = {}
    machines = {}
    for record in records:
        sentences[record["settings"]["task"]] = "/".join(str(number) for number in record["sentences"].values())
        environment = record["environment"]
        packages = environment["packages"]
        machines[f"{environment['device']}, torch {packages['torch']}, transformers {packages['transformers']}"] = None
    counts = ", ".join(f"{task} {numbers}" for task, numbers in sentences.items())
    return (
        "Test accuracy in percent, of the epoch with the best validation accuracy; mean ± standard deviation over "
        f"seeds {', '.join(seeds)}. {encoder}, {settings['epochs']} epochs, batches of {settings['batch_size']}, "
        f"learning rate {settings['learning_rate']:g}. Sentences (train/validation/test): {counts}. "
        f"{'; '.join(machines)}."
    )


def _cell(records: Sequence[Mapping[str, Any]], measure: str, **settings: str | None) -> str:
    """Return mean and standard deviation of a measure, in percent, over the records with these settings."""
    percents = []
    for record in records:
        if all(record["settings"].get(name) == value for name, value in settings.items()):
            percents.append(100 * record[measure])
    text = f"{mean(percents):.2f}"
    if len(percents) > 1 and measure == "test_accuracy":
        text += f" ± {stdev(percents):.2f}"
    return text
