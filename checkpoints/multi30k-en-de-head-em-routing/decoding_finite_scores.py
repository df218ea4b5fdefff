# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/decoding/finite_scores.py.
"""The check that a model finds scores of words that are numbers, for all of decoding at once."""

import torch
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedModel


class FiniteSum:
    """The sum of what is given to it, which is not finite if anything was not; it is looked at in the end alone.

    Args:
        device: of what is given.
    """

    def __init__(self, device: torch.device) -> None:
        self._sum = torch.zeros((), dtype=torch.float32, device=device)

    def add(self, values: Tensor) -> None:
        """Add values of any shape."""
        self._sum += values.sum()

    def check(self, name: str, precision: str) -> None:
        """Raise a ValueError if the values of the model `name`, computed in `precision`, were not finite."""
        if not self._sum.isfinite():
            raise ValueError(
                f"{name or 'the model'} overflows while it decodes in {precision}: the scores of words are not finite. "
                "Decode in float32 (--dtype float32); if they are not finite there either, the training that made the "
                "weights diverged: take an earlier checkpoint"
            )


class FiniteScores(LogitsProcessor):
    """Changes no scores, and notes whether in each step the best of them is finite.

    Args:
        model: whose scores they are.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._name, self._precision = model.name_or_path, str(model.dtype).removeprefix("torch.")
        # On the device of the scores, which is not that of weights on disk.
        self._sum: FiniteSum | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the scores `[rows, vocabulary]` as they are."""
        if self._sum is None:
            self._sum = FiniteSum(scores.device)
        self._sum.add(scores.amax(-1))
        return scores

    def check(self) -> None:
        """Raise a ValueError if the best of the scores were not finite in every step."""
        if self._sum is not None:
            self._sum.check(self._name, self._precision)
