"""Scores of Transformers' own loops that are not finite, as after a training that diverged: noticed, and refused."""

from torch import Tensor
from transformers import LogitsProcessor, PreTrainedModel

from .vocabulary import FiniteSum


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
