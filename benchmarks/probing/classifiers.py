"""Train and test probing classifiers of sentences (Li et al. 2019, section 5.1; Conneau et al. 2018)."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from transformers import EvalPrediction, Trainer, TrainerControl, TrainerState, TrainingArguments, set_seed
from transformers.trainer_callback import ProgressCallback

from benchmarks.probing.data import ProbingData
from hf_capsule_mt.checkpoints import count_parameters, last_checkpoint


@dataclass(frozen=True)
class ProbingSettings:
    """Training of a classifier, of which the paper names nothing.

    Attributes:
        epochs: passes over the training split; the one with the best validation accuracy is tested.
        batch_size: sentences of an update.
        learning_rate: of AdamW, at its peak: it rises over a tenth of the updates and then falls to zero.

    Raises:
        ValueError: if a number is too small.
    """

    epochs: int = 10
    batch_size: int = 64
    learning_rate: float = 5e-4

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {self.learning_rate}; it must be above 0")


class Classifier(NamedTuple):
    """What is trained: it learns `labels` from the other fields of its examples.

    Attributes:
        model: takes what the collator makes of examples, and returns `loss` and `logits` `[batch, labels]`.
        splits: examples of training, validation and test.
        collate: makes a batch of examples.
        config: of the model whose encoder it reads, for the record.
    """

    model: nn.Module
    splits: list[list[dict[str, Any]]]
    collate: Callable[[list[dict[str, Any]]], dict[str, Tensor]]
    config: dict[str, Any]


class Probed(Protocol):
    """An encoder that is probed."""

    def classifier(self, data: ProbingData) -> Classifier:
        """Return a classifier of its sentences, whose new weights are drawn here."""


def probe(data: ProbingData, encoder: Probed, seed: int, settings: ProbingSettings, run_dir: str | Path) -> dict:
    """Train a classifier, choose its best epoch on the validation split, and test it once.

    Args:
        data: sentences and labels.
        encoder: what is probed.
        seed: of new weights, the order of the sentences and dropout.
        settings: the same for all classifiers that are compared.
        run_dir: for the Trainer's checkpoints, one an epoch. From the last that is there, a run goes on.

    Returns:
        Accuracies from 0 to 1: `test_accuracy`, `validation_accuracy` of the tested epoch and of every one
        (`validation_accuracies`), and `majority_accuracy`, the test accuracy of always saying the most frequent label
        of the training split. Also `sentences` of each split, `labels`, the `parameters` that were trained, and
        `config`, of the model whose encoder is read.

    Raises:
        FileNotFoundError: if the best checkpoint has been moved or deleted.
        ValueError: if the encoder cannot read a sentence, or the process has several GPUs.
    """
    args = _training_arguments(settings, seed, run_dir)
    if args.n_gpu > 1:
        raise ValueError(
            f"this process has {args.n_gpu} GPUs, each of which would take batches of {settings.batch_size}; show it "
            "one with CUDA_VISIBLE_DEVICES=0"
        )
    set_seed(seed)
    model, (train, validation, test), collate, config = encoder.classifier(data)
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=validation,
        data_collator=collate,
        compute_metrics=_accuracy,
        preprocess_logits_for_metrics=_best_label,
    )
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(_Progress())
    last = last_checkpoint(run_dir)
    trainer.train(resume_from_checkpoint=None if last is None else str(last))
    _check_best(trainer.state.best_model_checkpoint, run_dir)
    return {
        "test_accuracy": trainer.predict(test).metrics["test_accuracy"],
        "validation_accuracy": trainer.state.best_metric,
        "validation_accuracies": [log["eval_accuracy"] for log in trainer.state.log_history if "eval_accuracy" in log],
        "majority_accuracy": majority_accuracy(data),
        "sentences": {name: len(split) for name, split in data.splits.items()},
        "labels": len(data.labels),
        "parameters": count_parameters(trainer.model),
        "config": config,
    }


def _check_best(checkpoint: str | None, run_dir: str | Path) -> None:
    """Raise an error where the Trainer, which finds no best checkpoint, keeps the last weights and only warns."""
    if checkpoint is None or not Path(checkpoint).is_dir():
        raise FileNotFoundError(
            f"the best checkpoint of {run_dir} is not where it was written; move the folder back, or delete it for the "
            "run to begin again"
        )


def majority_accuracy(data: ProbingData) -> float:
    """The share of the test split that has the most frequent label of the training split."""
    [(majority, _)] = Counter(label for label, _ in data.train).most_common(1)
    return sum(label == majority for label, _ in data.test) / len(data.test)


def _training_arguments(settings: ProbingSettings, seed: int, run_dir: str | Path) -> TrainingArguments:
    return TrainingArguments(
        # The Trainer keeps the path of the best checkpoint, and the working directory may change before a run goes on.
        output_dir=str(Path(run_dir).absolute()),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=256,
        learning_rate=settings.learning_rate,
        warmup_steps=0.1,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="epoch",
        # With 1 the Trainer deletes the last checkpoint before the test, and a run stopped there would train again.
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="accuracy",
        seed=seed,
        report_to="none",
        # Its default depends on the verbosity, and without the bar the logs are printed.
        disable_tqdm=False,
        dataloader_pin_memory=torch.accelerator.is_available(),
    )


def _best_label(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.argmax(-1)


def _accuracy(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float(np.mean(prediction.predictions == prediction.label_ids))}


class _Progress(ProgressCallback):
    """The Trainer's progress bar, with the validation accuracy in it and nothing on standard output."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        if self.training_bar is not None and "eval_accuracy" in (logs or {}):
            self.training_bar.set_postfix_str(f"validation accuracy {logs['eval_accuracy']:.1%}")
