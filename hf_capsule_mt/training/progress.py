"""The progress bar of training: updates, the loss, validation BLEU and words a second."""

import time
from typing import Any

import torch
from transformers import ProgressCallback, Trainer, TrainerControl, TrainerState, TrainingArguments

_SHOWN = {"loss": "loss", "eval_loss": "validation loss", "eval_bleu": "BLEU"}


class TranslationProgress(ProgressCallback):
    """Shows beside the updates what was logged last, and the tokens of sources and targets a second, padding left out.

    Evaluating and saving do not count as time.
    """

    def __init__(self) -> None:
        super().__init__()
        self._tokens: torch.Tensor | int = 0
        self._since = 0.0
        self._shown: dict[str, str] = {}

    def count(self, inputs: dict[str, Any]) -> None:
        """Take in a batch that is trained on, without waiting for a device."""
        read = inputs["attention_mask"].sum() if "attention_mask" in inputs else inputs["input_ids"].numel()
        self._tokens = self._tokens + read + inputs["labels"].ne(-100).sum()

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Make the bar."""
        super().on_train_begin(args, state, control, **kwargs)
        self._restart()

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Leave the time of an evaluation out."""
        super().on_evaluate(args, state, control, **kwargs)
        self._restart()

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        """Leave the time of saving out."""
        self._restart()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the log above the bar, and show its numbers in the bar."""
        super().on_log(args, state, control, **kwargs)
        if self.training_bar is None:
            return
        logs: dict[str, float] = kwargs["logs"]
        self._shown |= {name: f"{logs[key]:.4g}" for key, name in _SHOWN.items() if key in logs}
        seconds, tokens = time.monotonic() - self._since, int(self._tokens) * args.world_size
        if "loss" in logs and tokens and seconds > 0:
            self._shown["tokens/s"] = f"{tokens / seconds:.0f}"
            self._restart()
        self.training_bar.set_postfix(self._shown)

    def _restart(self) -> None:
        self._tokens, self._since = 0, time.monotonic()


def show_progress(trainer: Trainer) -> TranslationProgress | None:
    """Give a trainer this bar in the place of that of Transformers; return None if it has none, as in a notebook."""
    if trainer.pop_callback(ProgressCallback) is None:
        return None
    progress = TranslationProgress()
    trainer.add_callback(progress)
    return progress
