"""Train and test the sentence classifiers of Li et al. 2019, section 5.1, which differ in how heads are aggregated."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    EvalPrediction,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_callback import ProgressCallback

from hf_capsule_mt.checkpoints import count_parameters, last_checkpoint
from hf_capsule_mt.configuration import SIZES, preset_config
from hf_capsule_mt.configuration.checks import check_choice
from hf_capsule_mt.data.probing import Example, ProbingData

# The rows of Table 1 and the systems they stand for.
AGGREGATIONS = {"base": "transformer", "simple": "head-simple-routing", "em": "head-em-routing"}
ENCODER_LAYERS = 3
_SPECIAL_TOKENS = ["<pad>", "<unk>", "</s>"]  # with the ids of the presets


@dataclass(frozen=True)
class ProbingSettings:
    """Size and training of a classifier; of these the paper names the size alone.

    Attributes:
        size: of the encoder, see [`preset_config`]; it has three layers.
        vocab_size: most words; the most frequent of the training split, with the special tokens.
        epochs: passes over the training split; the one with the best validation accuracy is tested.
        batch_size: sentences of an update.
        learning_rate: of AdamW, at its peak: it rises over a tenth of the updates and then falls to zero.

    Raises:
        ValueError: if the size is unknown or a number too small.
    """

    size: str = "base"
    vocab_size: int = 32000
    epochs: int = 10
    batch_size: int = 64
    learning_rate: float = 5e-4

    def __post_init__(self) -> None:
        check_choice("size", self.size, SIZES)
        for name, least in (("vocab_size", len(_SPECIAL_TOKENS) + 1), ("epochs", 1), ("batch_size", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least {least}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {self.learning_rate}; it must be above 0")


def probe(data: ProbingData, aggregation: str, seed: int, settings: ProbingSettings, run_dir: str | Path) -> dict:
    """Train a classifier from scratch, choose its best epoch on the validation split, and test it once.

    Args:
        data: sentences and labels.
        aggregation: one of `AGGREGATIONS`.
        seed: of the weights, the order of the sentences and dropout.
        settings: the same for all classifiers that are compared.
        run_dir: for the Trainer's checkpoints, one an epoch. From the last that is there, a run goes on.

    Returns:
        Accuracies from 0 to 1: `test_accuracy`, `validation_accuracy` of the tested epoch and of every one
        (`validation_accuracies`), and `majority_accuracy`, the test accuracy of always saying the most frequent label
        of the training split. Also `sentences` of each split, `labels`, `parameters` and the model's `config`.

    Raises:
        FileNotFoundError: if the best checkpoint has been moved or deleted.
    """
    set_seed(seed)
    tokenizer = train_word_tokenizer([sentence for _, sentence in data.train], settings.vocab_size)
    label_ids = {label: index for index, label in enumerate(data.labels)}
    train, validation, test = (_encode(split, tokenizer, label_ids) for split in data.splits.values())
    longest = max(len(item["input_ids"]) for split in (train, validation, test) for item in split)
    config = preset_config(
        AGGREGATIONS[aggregation],
        settings.size,
        encoder_layers=ENCODER_LAYERS,
        vocab_size=len(tokenizer),
        max_position_embeddings=longest,
        num_labels=len(label_ids),
    )
    # Training and saving write more into it, and a resumed run may do less of them.
    fields = config.to_diff_dict()
    trainer = Trainer(
        model=AutoModelForSequenceClassification.from_config(config),
        args=_training_arguments(settings, seed, run_dir),
        train_dataset=train,
        eval_dataset=validation,
        data_collator=DataCollatorWithPadding(tokenizer),
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
        "labels": len(label_ids),
        "parameters": count_parameters(trainer.model),
        "config": fields,
    }


def train_word_tokenizer(sentences: Sequence[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A tokenizer whose tokens are the words between spaces, the most frequent in `sentences`; others are `<unk>`."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=_SPECIAL_TOKENS, show_progress=False)
    tokenizer.train_from_iterator(sentences, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="</s>")


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


def _encode(
    examples: Sequence[Example], tokenizer: PreTrainedTokenizerBase, label_ids: dict[str, int]
) -> list[dict[str, Any]]:
    labels, sentences = zip(*examples)
    return [
        {"input_ids": input_ids, "labels": label_ids[label]}
        for input_ids, label in zip(tokenizer(list(sentences), verbose=False)["input_ids"], labels)
    ]


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
