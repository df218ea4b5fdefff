"""Mean assignment of every word of the vocabulary to capsules."""

from typing import NamedTuple

import torch
from torch import Tensor

LEAST_COUNT = 5
"""Words that occur less often are not ranked: a mean over so few says little."""

ALIKE = 1e-6
"""Mean assignments that differ by no more are not ranked: they differ by rounding."""


class WordShare(NamedTuple):
    """A word (a piece of one) and how much of it a capsule gets, in the mean over `count` occurrences."""

    word: int
    share: float
    count: int


class WordShares:
    """Added up batch by batch.

    Args:
        vocab_size: of the source.
        capsules: M.
    """

    def __init__(self, vocab_size: int, capsules: int) -> None:
        # By word: occurrences, and the sums of their assignments.
        self._sums = torch.zeros(vocab_size, 1 + capsules, dtype=torch.float64)

    def add(self, sources: Tensor, shares: Tensor, mask: Tensor) -> None:
        """Add the words `[batch, source]` where the mask is True, with their assignment `[batch, source, M]`."""
        values = torch.cat([torch.ones_like(shares[..., :1]), shares], dim=-1)[mask]
        self._sums.index_add_(0, sources[mask].cpu(), values.double().cpu())

    def largest(self, most: int = 10, least_count: int = LEAST_COUNT) -> list[list[WordShare]]:
        """For every capsule the words that it gets most of, the first first; none if it gets as much of all.

        Args:
            most: words for each capsule.
            least_count: words that occur less often are left out.
        """
        counts = self._sums[:, 0]
        words = (counts >= max(least_count, 1)).nonzero().squeeze(-1)
        means = self._sums[words, 1:] / counts[words, None]
        found = []
        for column in means.t():
            differ = len(column) > 0 and column.max() - column.min() > ALIKE
            order = column.argsort(descending=True, stable=True)[:most] if differ else ()
            found.append([WordShare(int(words[i]), float(column[i]), int(counts[words[i]])) for i in order])
        return found
