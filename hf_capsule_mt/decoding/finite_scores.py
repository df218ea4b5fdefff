"""Scores that are not finite, as after a training that diverged or an overflow in float16: noticed, and refused.

A check of each step would make a GPU wait. So values are only summed: the sum is not finite if one of them was not.
"""

import torch
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedModel

from hf_capsule_mt.errors import UserError


class FiniteSum:
    """The sum of all given values, which is not finite if one of them was not. It is read only at the end."""

    def __init__(self, device: torch.device) -> None:
        self._sum = torch.zeros((), dtype=torch.float32, device=device)

    def add(self, values: Tensor) -> None:
        """Add values of any shape."""
        # The sum of numbers in 16 bits may be too large for these.
        self._sum += values.sum(dtype=torch.float32)

    def check(self, name: str, precision: str) -> None:
        """Raise a UserError if the values of the model `name`, computed in `precision`, were not finite."""
        if not self._sum.isfinite():
            raise UserError(
                f"The scores of {name or 'the model'} in {precision} are not finite. Decode in float32. If that does "
                "not help, the training diverged: take an earlier checkpoint."
            )


class FiniteScores(LogitsProcessor):
    """Does not change the scores of a model. It notes in each step whether the best of them is finite."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._name = model.name_or_path
        self._precision = str(model.dtype).removeprefix("torch.")
        # It is made on the device of the scores. Weights on disk have another.
        self._sum: FiniteSum | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores `[rows, vocabulary]` as they are."""
        if self._sum is None:
            self._sum = FiniteSum(scores.device)
        self._sum.add(scores.amax(-1))
        return scores

    def check(self) -> None:
        """Raise a UserError if the best of the scores were not finite in every step."""
        if self._sum is not None:
            self._sum.check(self._name, self._precision)
