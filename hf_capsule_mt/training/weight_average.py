"""An exponential moving average of the weights, which is what is evaluated and saved."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerState, TrainingArguments

from hf_capsule_mt.modeling.weight_hashes import write_hashes

TRAINING_WEIGHTS = "training_weights.safetensors"
"""Beside the averages of a checkpoint: the weights that training goes on with."""


class WeightAverage(TrainerCallback):
    """Averages the weights that are trained, after each update.

    The average moves by 1 - decay towards the weights, where decay is min(`decay`, (1 + n) / (10 + n)) after update n:
    the first weights, which are random, would else count for long.

    Args:
        decay: between 0 and 1; 0.999 averages about a thousand updates.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self._weights: dict[str, nn.Parameter] = {}
        self._averages: list[Tensor] | None = None

    @torch.no_grad()
    def begin(self, model: nn.Module, checkpoint: str | None) -> None:
        """Begin with the weights of the model, which are averages if they are those of a checkpoint.

        Args:
            model: what is trained.
            checkpoint: the folder that its weights were loaded from, if a run goes on.
        """
        self._weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._averages = [weight.detach().float().clone() for weight in self._weights.values()]
        if checkpoint is not None:
            saved = load_file(Path(checkpoint, TRAINING_WEIGHTS))
            for name, weight in self._weights.items():
                weight.copy_(saved[name])

    @torch.no_grad()
    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Move the averages."""
        decay = min(self.decay, (1 + state.global_step) / (10 + state.global_step))
        weights = [weight.detach().float() for weight in self._weights.values()]
        torch._foreach_lerp_(self._averages, weights, 1 - decay)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Leave the averages in the model, unless its weights are those of the best checkpoint, which are averages."""
        if not (args.load_best_model_at_end and state.best_model_checkpoint):
            self._put(self._averages)
        self._averages = None

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Let the model have the averages for a while, if it is being trained."""
        if self._averages is None:
            yield
            return
        own = [weight.detach().clone() for weight in self._weights.values()]
        self._put(self._averages)
        try:
            yield
        finally:
            self._put(own)

    def save_training_weights(self, folder: str) -> None:
        """Write the weights that training goes on with into a checkpoint."""
        weights = {name: weight.detach().contiguous() for name, weight in self._weights.items()}
        save_file(weights, Path(folder) / TRAINING_WEIGHTS)
        write_hashes(Path(folder))

    @torch.no_grad()
    def _put(self, values: list[Tensor]) -> None:
        for weight, value in zip(self._weights.values(), values):
            weight.copy_(value)


def check_averages(checkpoint: str | Path, ema_decay: float) -> None:
    """Check that a checkpoint holds averages exactly if this run averages.

    Raises:
        ValueError: if only one of the two does.
    """
    if (Path(checkpoint) / TRAINING_WEIGHTS).is_file() != bool(ema_decay):
        what = f"lacks {TRAINING_WEIGHTS}" if ema_decay else f"has averaged weights, and others in {TRAINING_WEIGHTS}"
        remedy = "leave out --ema_decay" if ema_decay else "give --ema_decay as its run did"
        raise ValueError(
            f"resume_from_checkpoint is {str(checkpoint)!r}, which {what}, and ema_decay is {ema_decay}; {remedy}, or "
            "start from its weights with --model_name_or_path"
        )
