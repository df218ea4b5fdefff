"""The end of a run whose loss, gradient or weights are not finite, before they spoil anything."""

import math
from pathlib import Path

from torch import Tensor
from transformers import Trainer

from hf_capsule_mt.checkpoints import last_checkpoint
from hf_capsule_mt.modeling.finite_weights import is_finite

GRACE = 30
"""Updates in a row that a GradScaler may skip: so it comes from its first scale, 2^16, to 2^-14."""


class DivergenceError(ValueError):
    """A loss, a gradient or a weight is not finite."""


class DivergenceCheck:
    """Looks at every update of a run before it is made."""

    def __init__(self) -> None:
        self._loss: Tensor | float = 0.0
        self._skipped = 0

    def add(self, loss: Tensor) -> None:
        """Take in the loss of a batch of the update."""
        self._loss = self._loss + loss

    def check(self, trainer: Trainer, norm: Tensor | float | None) -> None:
        """Check the loss of the update and the `norm` of its gradient, None where DeepSpeed does not know it.

        Raises:
            DivergenceError: if one is not finite; with a GradScaler, which skips such updates, after [`GRACE`].
        """
        loss, self._loss = float(self._loss), 0.0
        norm = 0.0 if norm is None else float(norm)
        if math.isfinite(loss) and math.isfinite(norm):
            self._skipped = 0
            return
        self._skipped += 1
        has_scaler = getattr(trainer.accelerator, "scaler", None) is not None
        if self._skipped > (GRACE if has_scaler else 0):
            rate = trainer.optimizer.param_groups[0]["lr"]
            what = f"loss {loss:g} and gradient norm {norm:g} at learning rate {rate:g}"
            raise _error(trainer, f"update {trainer.state.global_step + 1} has {what}")


def check_weights(trainer: Trainer) -> None:
    """Check the weights that are about to be saved.

    Raises:
        DivergenceError: if one is not finite.
    """
    for name, weight in trainer.model.named_parameters():
        # A part of a tensor that is spread over processes is looked at where it is.
        if not is_finite(weight.to_local() if hasattr(weight, "to_local") else weight):
            raise _error(trainer, f"after update {trainer.state.global_step} {name} is not finite")


def _error(trainer: Trainer, what: str) -> DivergenceError:
    last = last_checkpoint(Path(trainer.args.output_dir))
    kept = "no checkpoint was saved before"
    if last is not None:
        kept = f"--resume_from_checkpoint last goes on from {last}, the last good checkpoint"
    return DivergenceError(
        f"training diverged: {what}; nothing is saved of it, and {kept}. Lower --learning_rate, raise --warmup_steps, "
        "or look for wrong pairs in the data"
    )
