"""A moving average of the weights of all updates, which is evaluated and saved."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from transformers import TrainerCallback, TrainerState, TrainingArguments

from hf_capsule_mt.modeling.portable_model import allow_readers

TRAINING_WEIGHTS = "training_weights.safetensors"
"""A file of checkpoints with averaged weights: the weights that training continues with."""


class WeightAverage(TrainerCallback):
    """Keeps an exponential moving average of the weights, which is evaluated and saved.

    The average moves by 1 - decay towards the weights, where decay is min(`decay`, (1 + n) / (10 + n)) after update n.
    Otherwise the first, random weights would count for long. 0.999 averages about a thousand updates.
    """

    def __init__(self, decay: float) -> None:
        self.decay = decay
        self.checkpoint: str | None = None
        """The folder that the run continues from. Its weights are averages."""
        self._weights: dict[str, nn.Parameter] = {}
        self._averages: list[Tensor] | None = None

    @torch.no_grad()
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start with the weights of the model."""
        self._weights = {name: weight for name, weight in kwargs["model"].named_parameters() if weight.requires_grad}
        self._averages = [weight.detach().float().clone() for weight in self._weights.values()]
        if self.checkpoint is not None:
            saved = load_file(Path(self.checkpoint, TRAINING_WEIGHTS))
            self._put_into_model([saved[name] for name in self._weights])

    @torch.no_grad()
    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Move the averages."""
        decay = min(self.decay, (1 + state.global_step) / (10 + state.global_step))
        weights = [weight.detach().float() for weight in self._weights.values()]
        move_averages = get_ema_multi_avg_fn(decay)
        move_averages(self._averages, weights, None)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Leave the averages in the model, unless it has the weights of the best checkpoint, which are averages."""
        has_best_weights = args.load_best_model_at_end and state.best_model_checkpoint
        if not has_best_weights:
            self._put_into_model(self._averages)
        self._averages = None

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Let the model have the averages within the block, if it is being trained."""
        if self._averages is None:
            yield
            return
        training_weights = [weight.detach().clone() for weight in self._weights.values()]
        self._put_into_model(self._averages)
        try:
            yield
        finally:
            self._put_into_model(training_weights)

    def save_training_weights(self, folder: Path) -> None:
        """Write the weights that training continues with into a checkpoint."""
        weights = {name: weight.detach().contiguous() for name, weight in self._weights.items()}
        save_file(weights, folder / TRAINING_WEIGHTS)
        allow_readers([folder / TRAINING_WEIGHTS])

    @torch.no_grad()
    def _put_into_model(self, values: Sequence[Tensor]) -> None:
        for weight, value in zip(self._weights.values(), values, strict=True):
            weight.copy_(value)
