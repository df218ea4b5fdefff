"""The product with the vocabulary, and the best next tokens by it, without log_softmax and without sorting all of them.

The tokens are divided into groups, token t being in group t % G. The best K tokens are in at most K groups: those with
the largest maxima. So only the tokens of these are compared one by one.

A large vocabulary is divided into blocks first. Their weights are read once a step, whatever the number of sentences,
and the scores of a block are still in the cache when they are reduced.
"""

import math
from collections.abc import Sequence
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
_BLOCK = 1 << 16
"""Tokens in a block, on a CPU."""
_CHUNK = 1 << 18
"""Scores that are read several times while a core's cache holds them."""
_FEW = 1 << 15
"""Scores that are sorted faster than they are divided into groups."""
_LARGEST = 7 << 20
"""Scores that are made at a time: for tensors of 32 MiB and more the C library asks for new memory every time."""


class Candidates(NamedTuple):
    """The best continuations of sentences, best first. All tensors are `[sentences, K]`."""

    scores: Tensor  # Sums of log-probabilities.
    beams: Tensor  # The beams that are continued.
    tokens: Tensor  # The tokens that follow.


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
        units = math.ceil(self.size / unit)
        self.num_groups = units * unit // self.per_group
        # What fills up the groups has the score -inf.
        missing = self.per_group * self.num_groups - self.size
        no_weight = weight.new_zeros(missing, weight.shape[1])
        never = weight.new_full((missing,), -torch.inf)
        filling = (no_weight, never)
        self.scores = joined([(weight, bias), filling], make)
        """The product: states `[rows, d]` to scores `[rows, members * groups]`, those of what fills up included."""
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
        """Return scores `[rows, members * groups]` as `[rows, members, groups]`."""
        return scores.view(scores.shape[0], self.per_group, self.num_groups)

    def suppress(self, scores: Tensor, places: Tensor, maxima: Tensor) -> None:
        """Give some places `[places]` the score -inf, and correct the maxima of their groups, both in place."""
        scores.index_fill_(1, places, -torch.inf)
        groups = places % self.num_groups
        members = self.in_groups(scores).index_select(2, groups)
        maxima.index_copy_(1, groups, members.amax(1))

    def reduce(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Maxima of the groups `[rows, groups]`, and the logarithms of the sums of exponentials `[rows, 1]`."""
        rows_at_a_time = len(scores)
        if scores.device.type == "cpu":
            rows_at_a_time = max(1, _CHUNK // scores.shape[1])
        maxima = []
        log_sums = []
        memory = torch.empty_like(scores[:rows_at_a_time])
        for part in scores.split(rows_at_a_time):
            of_groups = self.in_groups(part).amax(1)
            largest = of_groups.amax(1, keepdim=True)
            differences = torch.sub(part, largest, out=memory[: len(part)])
            sums = differences.exp_().sum(1, keepdim=True)
            maxima.append(of_groups)
            log_sums.append(sums.log_().add_(largest))
        if len(maxima) == 1:
            return maxima[0], log_sums[0]
        return torch.cat(maxima), torch.cat(log_sums)

    def best_token(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest of scores `[rows, members * groups]`, and its token, both `[rows, 1]`."""
        largest, groups = self.in_groups(scores).amax(1).max(-1, keepdim=True)
        members = groups + self._distances
        best = scores.gather(1, members).argmax(-1, keepdim=True)
        return largest, self.tokens_at(members.gather(1, best))

    def best_of_rows(self, scores: Tensor, maxima: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return the best `count` scores of each row and their tokens, `[rows, count]`, or all if there are fewer.

        Args:
            scores: `[rows, members * groups]`.
            maxima: the largest score in each group, `[rows, groups]`.
            count: the number of tokens.
        """
        groups = maxima.topk(min(count, self.num_groups), sorted=False).indices
        members = self.members_of(groups).flatten(1)
        num_chosen = min(count, members.shape[1])
        best, chosen = scores.gather(1, members).topk(num_chosen)
        return best, self.tokens_at(members.gather(1, chosen))


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
        # A GPU has memory for all scores, and each block would be some kernels more.
        block_size = _BLOCK if self.device.type == "cpu" else self.size
        self._blocks = []
        for first in range(0, self.size, block_size):
            block = slice(first, first + block_size)
            block_bias = None if bias is None else bias[block]
            self._blocks.append(TokenBlock(weight[block], block_bias, make, first))
        self.seen = FiniteSum(weight.device)
        """The sum of hidden states and best scores. Both are read, since int8 products turn NaN into finite values."""

    def for_one_call(self) -> "Vocabulary":
        """Return the same vocabulary that has `seen` nothing, which other threads do not share."""
        copied = copy(self)
        copied.seen = FiniteSum(self.device)
        return copied

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the scores `[rows, vocabulary]` of all tokens by hidden states `[rows, d]`."""
        parts = [block.scores(hidden)[:, : block.size] for block in self._blocks]
        scores = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
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
        scores_of_blocks = []
        tokens_of_blocks = []
        for block in self._blocks:
            scores = block.scores(hidden)
            places = self._places(block, suppressed)
            if places is not None:
                scores.index_fill_(1, places, -torch.inf)
            largest, tokens = block.best_token(scores)
            scores_of_blocks.append(largest)
            tokens_of_blocks.append(tokens)
        if len(self._blocks) == 1:
            largest, tokens = scores_of_blocks[0], tokens_of_blocks[0]
        else:
            largest, best_block = torch.cat(scores_of_blocks, dim=1).max(1, keepdim=True)
            tokens = torch.cat(tokens_of_blocks, dim=1).gather(1, best_block)
        # Where all tokens are suppressed, that is -inf.
        self._note(hidden, largest.clamp(min=0))
        return tokens.squeeze(1)

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
        if len(self._blocks) > 1:
            return self._best_of_blocks(hidden, before, count, suppressed, renormalizes)
        beams = before.shape[1]
        width = self._blocks[0].per_group * self._blocks[0].num_groups
        sentences = max(1, _LARGEST // (beams * width))
        if len(before) <= sentences or self.device.type != "cpu":
            return self._best(hidden, before, count, suppressed, renormalizes)
        parts = []
        rows_of_parts = hidden.split(sentences * beams)
        scores_of_parts = before.split(sentences)
        for rows, scores_before in zip(rows_of_parts, scores_of_parts, strict=True):
            parts.append(self._best(rows, scores_before, count, suppressed, renormalizes))
        return Candidates(*_cat_parts(parts))

    def _best(
        self, hidden: Tensor, before: Tensor, count: int, suppressed: Tensor | None, renormalizes: bool
    ) -> Candidates:
        """Return the best continuations where there is one block. The arguments are those of [`best`]."""
        (block,) = self._blocks
        scores = block.scores(hidden)
        if suppressed is not None and renormalizes:
            scores.index_fill_(1, suppressed, -torch.inf)
        if scores.numel() <= _FEW and self.device.type == "cpu":
            return self._best_of_few(scores, hidden, before, count, None if renormalizes else suppressed)
        maxima, log_sums = block.reduce(scores)
        self._note(hidden, log_sums)
        if suppressed is not None and not renormalizes:
            block.suppress(scores, suppressed, maxima)
        sentences, beams = before.shape
        log_sums = log_sums.view(sentences, beams)
        # Up to rounding these are log-probabilities: the order within a beam is the same.
        added = before - log_sums
        totals = maxima.view(sentences, beams, -1) + added.unsqueeze(-1)
        num_chosen = min(count, beams * block.num_groups)
        chosen = totals.flatten(1).topk(num_chosen, sorted=False).indices
        # The beams of the best groups, `[sentences, groups]`, and their members, `[sentences, groups, members]`.
        parents = chosen.div(block.num_groups, rounding_mode="floor")
        places = block.members_of(chosen % block.num_groups)
        num_rows, width = scores.shape
        first_rows = torch.arange(0, num_rows, beams, device=self.device)
        rows = parents + first_rows.unsqueeze(-1)
        beginnings = rows * width
        values = scores.take(beginnings.unsqueeze(-1) + places)
        values = values - log_sums.gather(1, parents).unsqueeze(-1)
        values = values + before.gather(1, parents).unsqueeze(-1)
        best, chosen = values.flatten(1).topk(count)
        chosen_groups = chosen.div(block.per_group, rounding_mode="floor")
        chosen_places = places.flatten(1).gather(1, chosen)
        return Candidates(
            scores=best,
            beams=parents.gather(1, chosen_groups),
            tokens=block.tokens_at(chosen_places),
        )

    def _best_of_few(
        self, scores: Tensor, hidden: Tensor, before: Tensor, count: int, suppressed: Tensor | None
    ) -> Candidates:
        """Return the best continuations without groups.

        Args:
            scores: `[sentences * beams, members * groups]`. They are changed.
            hidden: the states, `[sentences * beams, d]`.
            before: the scores of the beams, `[sentences, beams]`.
            count: the number of continuations, K.
            suppressed: tokens that cannot be chosen, but count in the sums, `[tokens]`, or None.
        """
        (block,) = self._blocks
        largest = scores.amax(1, keepdim=True)
        exponentials = (scores - largest).exp_()
        log_sums = exponentials.sum(1, keepdim=True).log_().add_(largest)
        self._note(hidden, log_sums)
        if suppressed is not None:
            scores.index_fill_(1, suppressed, -torch.inf)
        num_chosen = min(count, scores.shape[1])
        best, places = scores.topk(num_chosen)
        log_probabilities = best - log_sums
        return _best_of_sentences(log_probabilities, block.tokens_at(places), before, count)

    def _best_of_blocks(
        self, hidden: Tensor, before: Tensor, count: int, suppressed: Tensor | None, renormalizes: bool
    ) -> Candidates:
        """Return the best continuations of each row in each block, and the best of these for each sentence.

        The arguments are those of [`best`]. The sum of all exponentials is known after the last block. The order within
        a row does not depend on it.
        """
        scores_of_blocks = []
        tokens_of_blocks = []
        log_sums_of_blocks = []
        for block in self._blocks:
            places = self._places(block, suppressed)
            rows_at_a_time = max(1, _LARGEST // (block.per_group * block.num_groups))
            parts = []
            for part in hidden.split(rows_at_a_time):
                parts.append(self._best_of_rows(block, part, count, places, renormalizes))
            best, tokens, log_sums = _cat_parts(parts)
            scores_of_blocks.append(best)
            tokens_of_blocks.append(tokens)
            log_sums_of_blocks.append(log_sums)
        log_sums = torch.cat(log_sums_of_blocks, dim=1).logsumexp(1, keepdim=True)
        self._note(hidden, log_sums)
        log_probabilities = torch.cat(scores_of_blocks, dim=1) - log_sums
        return _best_of_sentences(log_probabilities, torch.cat(tokens_of_blocks, dim=1), before, count)

    def _best_of_rows(
        self, block: TokenBlock, hidden: Tensor, count: int, places: Tensor | None, renormalizes: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best scores and tokens of a block, both `[rows, K]`, and the logarithms of its sums, `[rows, 1]`.

        Args:
            block: the tokens.
            hidden: states, `[rows, d]`.
            count: K. It can be more than the block has tokens.
            places: places in the block that cannot be chosen, `[places]`, or None.
            renormalizes: whether their probability counts as 0.
        """
        scores = block.scores(hidden)
        if places is not None and renormalizes:
            scores.index_fill_(1, places, -torch.inf)
        maxima, log_sums = block.reduce(scores)
        # The difference of two infinities is no number. Here it is the sum of nothing.
        has_no_token = maxima.amax(1, keepdim=True) == -torch.inf
        log_sums = log_sums.masked_fill_(has_no_token, -torch.inf)
        if places is not None and not renormalizes:
            block.suppress(scores, places, maxima)
        best, tokens = block.best_of_rows(scores, maxima, count)
        return best, tokens, log_sums

    def _places(self, block: TokenBlock, suppressed: Tensor | None) -> Tensor | None:
        """Return the places in a block of the suppressed tokens, `[places]`, or None."""
        if len(self._blocks) == 1:
            # A graph of steps cannot select by condition, and need not.
            return suppressed
        return block.places_of(suppressed)

    def see(self, hidden: Tensor) -> None:
        """Note hidden states of any shape that no token is chosen by."""
        self.seen.add(hidden)

    def _note(self, hidden: Tensor, best: Tensor) -> None:
        self.seen.add(hidden)
        self.seen.add(best)


def _best_of_sentences(log_probabilities: Tensor, tokens: Tensor, before: Tensor, count: int) -> Candidates:
    """Return the best continuations of each sentence, given the best of each row.

    Args:
        log_probabilities: those of the tokens, `[sentences * beams, n]`.
        tokens: token ids, `[sentences * beams, n]`.
        before: the scores of the beams, `[sentences, beams]`.
        count: the number of continuations, K.
    """
    sentences, beams = before.shape
    totals = log_probabilities.view(sentences, beams, -1) + before.unsqueeze(-1)
    of_each_beam = totals.shape[2]
    best, chosen = totals.flatten(1).topk(count)
    return Candidates(
        scores=best,
        beams=chosen.div(of_each_beam, rounding_mode="floor"),
        tokens=tokens.view(sentences, -1).gather(1, chosen),
    )


def _cat_parts(parts: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Return tuples of tensors as one, whose tensors have the rows of all."""
    if len(parts) == 1:
        return parts[0]
    return tuple(torch.cat(tensors) for tensors in zip(*parts))


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
