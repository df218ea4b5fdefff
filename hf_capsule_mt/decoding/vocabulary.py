"""The product with the vocabulary, and the best next tokens by it, without log_softmax and without sorting all of them.

The tokens are divided into groups, token t being in group t % G. The best K tokens are in at most K groups: those with
the largest maxima. So only the tokens of these are compared one by one.
"""

import math
from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedModel

from hf_capsule_mt.errors import UserError

from .products import Make, Product, joined

_GROUP = 32
"""Tokens in a group."""
_ALIGNMENT = 16
"""The number of groups is a multiple of it."""
_CHUNK = 1 << 18
"""Scores that are read several times while a core's cache holds them."""
_LARGEST = 7 << 20
"""Scores that are made at a time: for tensors of 32 MiB and more the C library asks for new memory every time."""


class Candidates(NamedTuple):
    """The best continuations of sentences, best first. All tensors are `[sentences, K]`."""

    scores: Tensor  # Sums of log-probabilities.
    beams: Tensor  # The beams that are continued.
    tokens: Tensor  # The tokens that follow.


class Vocabulary:
    """The output projection of a model.

    Args:
        weight: `[vocabulary, d]`, in any strides.
        bias: `[vocabulary]`, or None.
        make: makes the product.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, make: Make = Product) -> None:
        self.size = weight.shape[0]
        self.device = weight.device
        is_large = self.size >= _GROUP * _ALIGNMENT
        self._per_group = _GROUP if is_large else 1
        unit = _GROUP * _ALIGNMENT if is_large else 1
        units = math.ceil(self.size / unit)
        self._num_groups = units * unit // self._per_group
        # What fills up the groups has the score -inf.
        missing = self._per_group * self._num_groups - self.size
        filling = (weight.new_zeros(missing, weight.shape[1]), weight.new_full((missing,), -torch.inf))
        self._product = joined([(weight, bias), filling], make)
        # A group has the token of its own number, and those at these distances from it.
        self._distances = torch.arange(self._per_group, device=weight.device) * self._num_groups
        self.seen = FiniteSum(weight.device)
        """The sum of hidden states and best scores. Both are read, since int8 products turn NaN into finite values."""

    def for_one_call(self) -> "Vocabulary":
        """Return the same vocabulary that has `seen` nothing, which other threads do not share."""
        copied = copy(self)
        copied.seen = FiniteSum(self.device)
        return copied

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the scores `[rows, vocabulary]` of all tokens by hidden states `[rows, d]`."""
        scores = self._product(hidden)[:, : self.size]
        self._note(hidden, scores.amax(-1))
        return scores

    def best_token(self, hidden: Tensor, suppressed: Tensor | None) -> Tensor:
        """Return the best token of each row. If several have exactly the same score, it is any of them.

        Args:
            hidden: states, `[rows, d]`.
            suppressed: tokens that cannot be chosen, `[tokens]`, or None.

        Returns:
            Token ids, `[rows]`.
        """
        scores = self._product(hidden)
        if suppressed is not None:
            scores.index_fill_(1, suppressed, -torch.inf)
        largest, groups = self._groups_of(scores).amax(1).max(-1, keepdim=True)
        # Where all tokens are suppressed, that is -inf.
        self._note(hidden, largest.clamp(min=0))
        members = groups + self._distances
        best = scores.gather(1, members).argmax(-1, keepdim=True)
        return self._known(members.gather(1, best)).squeeze(1)

    def best(
        self, hidden: Tensor, before: Tensor, count: int, suppressed: Tensor | None, renormalizes: bool = False
    ) -> Candidates:
        """Return the best `count` continuations of each sentence.

        Args:
            hidden: states, `[sentences * beams, d]`.
            before: the scores of the beams, `[sentences, beams]`.
            count: the number of continuations, K.
            suppressed: tokens that cannot be chosen, `[tokens]`, or None.
            renormalizes: whether their probability counts as 0, so that the others sum to 1.
        """
        beams = before.shape[1]
        sentences = max(1, _LARGEST // (beams * self._per_group * self._num_groups))
        if len(before) <= sentences or self.device.type != "cpu":
            return self._best(hidden, before, count, suppressed, renormalizes)
        parts = zip(hidden.split(sentences * beams), before.split(sentences))
        candidates = [self._best(*part, count, suppressed, renormalizes) for part in parts]
        return Candidates(*map(torch.cat, zip(*candidates)))

    def _best(
        self, hidden: Tensor, before: Tensor, count: int, suppressed: Tensor | None, renormalizes: bool
    ) -> Candidates:
        scores = self._product(hidden)
        if suppressed is not None and renormalizes:
            scores.index_fill_(1, suppressed, -torch.inf)
        maxima, log_sums = self._reduce(scores)
        self._note(hidden, log_sums)
        if suppressed is not None and not renormalizes:
            scores.index_fill_(1, suppressed, -torch.inf)
            groups = suppressed % self._num_groups
            maxima.index_copy_(1, groups, self._groups_of(scores).index_select(2, groups).amax(1))
        sentences, beams = before.shape
        log_sums = log_sums.view(sentences, beams)
        parents, groups = self._best_groups(maxima.view(sentences, beams, -1), before - log_sums, count)
        # Members of the groups, `[sentences, groups, members]`.
        tokens = groups.unsqueeze(-1) + self._distances
        width = scores.shape[1]
        first_rows = torch.arange(0, sentences * beams, beams, device=self.device).unsqueeze(-1)
        values = scores.take(((parents + first_rows) * width).unsqueeze(-1) + tokens)
        values = values - log_sums.gather(1, parents).unsqueeze(-1) + before.gather(1, parents).unsqueeze(-1)
        best, chosen = values.flatten(1).topk(count)
        chosen_groups = chosen.div(self._per_group, rounding_mode="floor")
        return Candidates(
            scores=best,
            beams=parents.gather(1, chosen_groups),
            tokens=self._known(tokens.flatten(1).gather(1, chosen)),
        )

    def _best_groups(self, maxima: Tensor, added: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Find the groups that have the best tokens of each sentence, in any order.

        Args:
            maxima: the largest score in each group, `[sentences, beams, groups]`.
            added: what the scores of a beam are added to, `[sentences, beams]`.
            count: the number of groups, K. It can be more than there are.

        Returns:
            The beams of the groups and their numbers, both `[sentences, K]`.
        """
        # Up to rounding these are log-probabilities: the order within a beam is the same.
        totals = (maxima + added.unsqueeze(-1)).flatten(1)
        chosen = totals.topk(min(count, totals.shape[1]), sorted=False).indices
        return chosen.div(self._num_groups, rounding_mode="floor"), chosen % self._num_groups

    def _known(self, tokens: Tensor) -> Tensor:
        # Where scores are not finite, what fills up the groups may be chosen.
        return tokens.clamp(max=self.size - 1)

    def _note(self, hidden: Tensor, best: Tensor) -> None:
        self.seen.add(hidden)
        self.seen.add(best)

    def _groups_of(self, scores: Tensor) -> Tensor:
        """Return scores `[rows, members * groups]` as `[rows, members, groups]`."""
        return scores.view(scores.shape[0], self._per_group, self._num_groups)

    def _reduce(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Maxima of the groups `[rows, groups]`, and the logarithms of the sums of exponentials `[rows, 1]`."""
        rows_at_a_time = len(scores)
        if scores.device.type == "cpu":
            rows_at_a_time = max(1, _CHUNK // scores.shape[1])
        maxima = []
        log_sums = []
        memory = torch.empty_like(scores[:rows_at_a_time])
        for part in scores.split(rows_at_a_time):
            of_groups = self._groups_of(part).amax(1)
            largest = of_groups.amax(1, keepdim=True)
            exponentials = torch.sub(part, largest, out=memory[: part.shape[0]]).exp_()
            maxima.append(of_groups)
            log_sums.append(exponentials.sum(1, keepdim=True).log_().add_(largest))
        if len(maxima) == 1:
            return maxima[0], log_sums[0]
        return torch.cat(maxima), torch.cat(log_sums)


def best_of(log_probabilities: Tensor, before: Tensor, count: int) -> Candidates:
    """Return the best continuations by the log-probabilities of all tokens.

    Args:
        log_probabilities: `[sentences * beams, vocabulary]`.
        before: the scores of the beams, `[sentences, beams]`.
        count: the number of continuations, K.
    """
    size = log_probabilities.shape[1]
    totals = log_probabilities.view(*before.shape, size) + before.unsqueeze(-1)
    scores, chosen = totals.flatten(1).topk(count)
    return Candidates(scores, beams=chosen.div(size, rounding_mode="floor"), tokens=chosen % size)


class FiniteSum:
    """The sum of all given values, which is not finite if one of them was not. It is read only at the end."""

    def __init__(self, device: torch.device) -> None:
        self._sum = torch.zeros((), dtype=torch.float32, device=device)

    def add(self, values: Tensor) -> None:
        """Add values of any shape."""
        self._sum += values.sum()

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
