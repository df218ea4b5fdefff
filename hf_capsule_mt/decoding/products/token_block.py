"""Tokens that follow each other in a vocabulary, in groups, so that the best are found without sorting all of them.

Token t of a block of G groups is in group t % G. The best K tokens are in at most K groups: those with the largest
maxima. So only the tokens of these groups are compared one by one.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .products import HalfProduct, Make, Map, joined

_GROUP = 32
"""Tokens in a group."""
_ALIGNMENT = 16
"""The number of groups is a multiple of it."""
_CHUNK = 1 << 18
"""Scores that are read several times while a core's cache holds them."""


class TokenBlock:
    """Tokens that follow each other in a vocabulary, in groups.

    Args:
        weight: their rows of the output projection, `[tokens, d]`.
        bias: theirs, `[tokens]`, or None.
        make: makes the product.
        first: the first of the tokens.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, make: Make, first: int) -> None:
        self.first = first
        self.size = weight.shape[0]
        is_large = self.size >= _GROUP * _ALIGNMENT
        self.per_group = _GROUP if is_large else 1
        unit = _GROUP * _ALIGNMENT if is_large else 1
        self.width = math.ceil(self.size / unit) * unit
        """The number of scores: that of the tokens, and of what fills up the groups."""
        self.num_groups = self.width // self.per_group
        self.scores = _filled_product(weight, bias, make, missing=self.width - self.size)
        """The product: states `[rows, d]` to scores `[rows, width]`."""
        # A group has the token of its own number, and those at these distances from it.
        self._distances = torch.arange(self.per_group, device=weight.device) * self.num_groups

    def members_of(self, groups: Tensor) -> Tensor:
        """Return the places in the block of the members of groups `[..., K]`, `[..., K, members]`."""
        return groups.unsqueeze(-1) + self._distances

    def tokens_at(self, places: Tensor) -> Tensor:
        """Return the tokens at places in the block, in the same shape."""
        # Where scores are not finite, what fills up the groups may be chosen.
        return places.clamp(max=self.size - 1) + self.first

    def places_of(self, tokens: Tensor | None) -> Tensor | None:
        """Return the places of those of some tokens `[tokens]` that are in the block, or None if there are none."""
        if tokens is None:
            return None
        places = tokens - self.first
        places = places[(places >= 0) & (places < self.size)]
        return places if len(places) else None

    def in_groups(self, scores: Tensor) -> Tensor:
        """Return scores `[rows, width]` as `[rows, members, groups]`."""
        return scores.view(scores.shape[0], self.per_group, self.num_groups)

    def suppress(self, scores: Tensor, places: Tensor, maxima: Tensor) -> None:
        """Give some places `[places]` the score -inf, and correct the maxima of their groups, both in place."""
        scores.index_fill_(1, places, -torch.inf)
        groups = places % self.num_groups
        members = self.in_groups(scores).index_select(2, groups)
        maxima.index_copy_(1, groups, members.amax(1))

    def reduce(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return maxima of groups `[rows, groups]`, and logarithms of the sums of exponentials `[rows, 1]`.

        Args:
            scores: `[rows, width]`.
        """
        rows_at_a_time = len(scores)
        if scores.device.type == "cpu":
            rows_at_a_time = max(1, _CHUNK // scores.shape[1])
        maxima = []
        log_sums = []
        for part in scores.split(rows_at_a_time):
            of_groups = self.in_groups(part).amax(1)
            largest = of_groups.amax(1, keepdim=True)
            # A log-probability is a score minus the logarithm of the sum. `log_softmax` is faster than `exp`, most of
            # all where exponentials are too small for float32.
            largest_log_probability = part.log_softmax(1).amax(1, keepdim=True)
            maxima.append(of_groups)
            log_sums.append(largest - largest_log_probability)
        if len(maxima) == 1:
            return maxima[0], log_sums[0]
        return torch.cat(maxima), torch.cat(log_sums)

    def best_token(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest of scores `[rows, width]`, and its token, both `[rows, 1]`."""
        largest, groups = self.in_groups(scores).amax(1).max(-1, keepdim=True)
        members = groups + self._distances
        best = scores.gather(1, members).argmax(-1, keepdim=True)
        return largest, self.tokens_at(members.gather(1, best))

    def best_of_rows(self, scores: Tensor, maxima: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the best `count` scores of each row and their tokens, `[rows, count]`, or all if there are fewer.

        Args:
            scores: `[rows, width]`.
            maxima: the largest score in each group, `[rows, groups]`.
            count: the number of tokens.
        """
        groups = maxima.topk(min(count, self.num_groups), sorted=False).indices
        members = self.members_of(groups).flatten(1)
        num_chosen = min(count, members.shape[1])
        best, chosen = scores.gather(1, members).topk(num_chosen)
        return best, self.tokens_at(members.gather(1, chosen))


def _filled_product(weight: Tensor, bias: Tensor | None, make: Make, missing: int) -> Map:
    """Return the product with rows `[tokens, d]`, whose scores are followed by as many of -inf as are missing."""
    if make is HalfProduct:
        # Its weight is the model's own, which cannot grow.
        multiply = joined([(weight, bias)], make)
        return lambda hidden: F.pad(multiply(hidden), (0, missing), value=-torch.inf)
    no_weight = weight.new_zeros(missing, weight.shape[1])
    # What fills up the groups is never chosen.
    never = weight.new_full((missing,), -torch.inf)
    return joined([(weight, bias), (no_weight, never)], make)
