"""The product with the vocabulary, and the best next tokens by it, without log_softmax and without sorting all of them.

A large vocabulary is divided into blocks. Their weights are read once a step, whatever the number of sentences, and the
scores of a block are still in the cache when they are reduced. token_block.py finds the best tokens of a block.

There are three ways to the best continuations, which find the same ones. `_best_of_few` sorts all scores of a small
product, `_best_of_groups` reads those of a whole vocabulary, and `_best_of_blocks` those of one block after the other.
"""

from collections.abc import Sequence
from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import LogitsProcessor, PreTrainedModel

from hf_capsule_mt.errors import UserError

from .products import Make, plain_map
from .token_block import TokenBlock

_BLOCK = 1 << 16
"""Tokens in a block, on a CPU."""
_FEW = 1 << 15
"""Scores that are sorted faster than they are divided into groups."""
_LARGEST = 7 << 20
"""Scores that are made at a time: for tensors of 32 MiB and more the C library asks for new memory every time."""


class Candidates(NamedTuple):
    """The best continuations of sentences, best first. All tensors are `[sentences, K]`."""

    scores: Tensor  # Sums of log-probabilities.
    beams: Tensor  # The beams that are continued.
    tokens: Tensor  # The tokens that follow.


class FiniteSum:
    """The sum of all given values, which is not finite if one of them was not.

    Scores are not after a training that diverged, or an overflow in float16. A check of each step would make a GPU
    wait, so the sum is read only at the end.
    """

    def __init__(self, device: torch.device) -> None:
        self._sum = torch.zeros((), dtype=torch.float32, device=device)

    def add(self, *values: Tensor) -> None:
        """Add tensors of any shape."""
        for tensor in values:
            # The sum of numbers in 16 bits may be too large for these.
            self._sum += tensor.sum(dtype=torch.float32)

    def check(self, name: str, precision: str) -> None:
        """Raise a UserError if the values of the model `name`, computed in `precision`, were not finite."""
        if not self._sum.isfinite():
            raise UserError(
                f"The scores of {name or 'the model'} in {precision} are not finite. Decode in float32. If that does "
                "not help, the training diverged: take an earlier checkpoint."
            )


class FiniteScores(LogitsProcessor):
    """Notes in each step of Transformers' own loops whether the best scores are finite. It does not change them.

    Args:
        model: the model that decodes.
    """

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


class Vocabulary:
    """The output projection of a model.

    Args:
        weight: `[vocabulary, d]`, in any strides.
        bias: `[vocabulary]`, or None.
        make: makes the product.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, make: Make = plain_map) -> None:
        self.size = weight.shape[0]
        self.device = weight.device
        # A GPU has memory for all scores, and each block would be some kernels more.
        block_size = _BLOCK if self.device.type == "cpu" else self.size
        self._blocks = []
        for first in range(0, self.size, block_size):
            block = slice(first, first + block_size)
            block_bias = None if bias is None else bias[block]
            self._blocks.append(TokenBlock(weight[block], block_bias, make, first))
        self.finite_sum = FiniteSum(weight.device)
        """The sum of hidden states and best scores. Both are read, since int8 products turn NaN into finite values."""

    def for_one_call(self) -> "Vocabulary":
        """Return the same vocabulary with a new `finite_sum`, which calls in other threads do not add to."""
        copied = copy(self)
        copied.finite_sum = FiniteSum(self.device)
        return copied

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the scores `[rows, vocabulary]` of all tokens by hidden states `[rows, d]`."""
        parts = [block.scores(hidden)[:, : block.size] for block in self._blocks]
        scores = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        self.finite_sum.add(hidden, scores.amax(-1))
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
        if len(self._blocks) > 1:
            largest, best_block = torch.cat(scores_of_blocks, dim=1).max(1, keepdim=True)
            tokens = torch.cat(tokens_of_blocks, dim=1).gather(1, best_block)
        # The largest score is -inf where all tokens are suppressed, and then nothing has overflowed.
        self.finite_sum.add(hidden, largest.clamp(min=0))
        return tokens.squeeze(1)

    def best(
        self, hidden: Tensor, beam_scores: Tensor, count: int, suppressed: Tensor | None, renormalizes: bool = False
    ) -> Candidates:
        """Return the best `count` continuations of each sentence.

        Args:
            hidden: states, `[sentences * beams, d]`.
            beam_scores: the scores of the beams so far, `[sentences, beams]`.
            count: the number of continuations, K.
            suppressed: tokens that cannot be chosen, `[tokens]`, or None.
            renormalizes: whether their probability counts as 0, so that the others sum to 1.
        """
        if len(self._blocks) > 1:
            return self._best_of_blocks(hidden, beam_scores, count, suppressed, renormalizes)
        beams = beam_scores.shape[1]
        sentences_at_a_time = max(1, _LARGEST // (beams * self._blocks[0].width))
        if len(beam_scores) <= sentences_at_a_time or self.device.type != "cpu":
            return self._best_of_one_block(hidden, beam_scores, count, suppressed, renormalizes)
        parts = []
        rows_of_parts = hidden.split(sentences_at_a_time * beams)
        scores_of_parts = beam_scores.split(sentences_at_a_time)
        for rows, scores in zip(rows_of_parts, scores_of_parts, strict=True):
            parts.append(self._best_of_one_block(rows, scores, count, suppressed, renormalizes))
        return Candidates(*_cat_parts(parts))

    def _best_of_one_block(
        self, hidden: Tensor, beam_scores: Tensor, count: int, suppressed: Tensor | None, renormalizes: bool
    ) -> Candidates:
        """Return the best continuations where there is one block. The arguments are those of [`best`]."""
        (block,) = self._blocks
        scores = block.scores(hidden)
        if suppressed is not None and renormalizes:
            # Before the sums of exponentials, which they do not count in.
            scores.index_fill_(1, suppressed, -torch.inf)
            suppressed = None
        if scores.numel() <= _FEW and self.device.type == "cpu":
            return self._best_of_few(scores, hidden, beam_scores, count, suppressed)
        maxima, log_sums = block.reduce(scores)
        self.finite_sum.add(hidden, log_sums)
        if suppressed is not None:
            block.suppress(scores, suppressed, maxima)
        return _best_of_groups(block, scores, maxima, log_sums.view_as(beam_scores), beam_scores, count)

    def _best_of_few(
        self, scores: Tensor, hidden: Tensor, beam_scores: Tensor, count: int, suppressed: Tensor | None
    ) -> Candidates:
        """Return the best continuations without groups.

        Args:
            scores: `[sentences * beams, width]`.
            hidden: the states, `[sentences * beams, d]`.
            beam_scores: the scores of the beams so far, `[sentences, beams]`.
            count: the number of continuations, K.
            suppressed: tokens that cannot be chosen, but count in the sums, `[tokens]`, or None.
        """
        log_probabilities = scores.log_softmax(1)
        # It is no number if one of the scores is none.
        self.finite_sum.add(hidden, scores.amax(1))
        if suppressed is not None:
            log_probabilities.index_fill_(1, suppressed, -torch.inf)
        num_chosen = min(count, scores.shape[1])
        best, places = log_probabilities.topk(num_chosen)
        # Where scores are not finite, what fills up the block may be chosen.
        tokens = places.clamp(max=self.size - 1)
        return _best_of_sentences(best, tokens, beam_scores, count)

    def _best_of_blocks(
        self, hidden: Tensor, beam_scores: Tensor, count: int, suppressed: Tensor | None, renormalizes: bool
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
            rows_at_a_time = max(1, _LARGEST // block.width)
            parts = []
            for rows in hidden.split(rows_at_a_time):
                parts.append(_best_of_rows(block, rows, count, places, renormalizes))
            best, tokens, log_sums = _cat_parts(parts)
            scores_of_blocks.append(best)
            tokens_of_blocks.append(tokens)
            log_sums_of_blocks.append(log_sums)
        log_sums = torch.cat(log_sums_of_blocks, dim=1).logsumexp(1, keepdim=True)
        self.finite_sum.add(hidden, log_sums)
        log_probabilities = torch.cat(scores_of_blocks, dim=1) - log_sums
        tokens = torch.cat(tokens_of_blocks, dim=1)
        return _best_of_sentences(log_probabilities, tokens, beam_scores, count)

    def _places(self, block: TokenBlock, suppressed: Tensor | None) -> Tensor | None:
        """Return the places in a block of the suppressed tokens, `[places]`, or None."""
        if len(self._blocks) == 1:
            # A graph of steps cannot select by condition, and need not.
            return suppressed
        return block.places_of(suppressed)

    def places_of(self, tokens: Tensor | None) -> Tensor | None:
        """Return tokens as [`best`] and [`best_token`] take those that are suppressed."""
        return tokens


def best_of(log_probabilities: Tensor, beam_scores: Tensor, count: int) -> Candidates:
    """Return the best continuations by the log-probabilities of all tokens.

    Args:
        log_probabilities: `[sentences * beams, vocabulary]`.
        beam_scores: the scores of the beams so far, `[sentences, beams]`.
        count: the number of continuations, K.
    """
    size = log_probabilities.shape[1]
    totals = log_probabilities.view(*beam_scores.shape, size) + beam_scores.unsqueeze(-1)
    scores, chosen = totals.flatten(1).topk(count)
    return Candidates(scores, beams=chosen.div(size, rounding_mode="floor"), tokens=chosen % size)


def _best_of_groups(
    block: TokenBlock, scores: Tensor, maxima: Tensor, log_sums: Tensor, beam_scores: Tensor, count: int
) -> Candidates:
    """Return the best continuations of each sentence, which are in the groups with the best maxima.

    Args:
        block: all tokens of the vocabulary.
        scores: `[sentences * beams, width]`.
        maxima: the largest score in each group, `[sentences * beams, groups]`.
        log_sums: the logarithms of the sums of exponentials, `[sentences, beams]`.
        beam_scores: the scores of the beams so far, `[sentences, beams]`.
        count: the number of continuations, K.
    """
    # The beams and the groups with the best maxima, `[sentences, K or fewer]`.
    beams, groups = _best_groups(maxima, log_sums, beam_scores, count)
    # The places of their members in the block, `[sentences, K or fewer, members]`, and their scores.
    places = block.members_of(groups)
    values = _scores_at(scores, beams, places, beam_scores.shape[1])
    # In this order generate() rounds: first to log-probabilities, then to their sums.
    values = values - log_sums.gather(1, beams).unsqueeze(-1)
    values = values + beam_scores.gather(1, beams).unsqueeze(-1)
    best, chosen = values.flatten(1).topk(count)
    chosen_groups = chosen.div(block.per_group, rounding_mode="floor")
    chosen_places = places.flatten(1).gather(1, chosen)
    return Candidates(
        scores=best,
        beams=beams.gather(1, chosen_groups),
        tokens=block.tokens_at(chosen_places),
    )


def _best_groups(maxima: Tensor, log_sums: Tensor, beam_scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the beam and the number of the best groups of each sentence, `[sentences, K or fewer]`, in any order.

    The arguments are those of [`_best_of_groups`].
    """
    num_groups = maxima.shape[1]
    # Up to rounding these are log-probabilities: the order within a beam is the same.
    added = beam_scores - log_sums
    totals = maxima.view(*beam_scores.shape, num_groups) + added.unsqueeze(-1)
    of_all_beams = totals.flatten(1)
    num_chosen = min(count, of_all_beams.shape[1])
    chosen = of_all_beams.topk(num_chosen, sorted=False).indices
    beams = chosen.div(num_groups, rounding_mode="floor")
    return beams, chosen % num_groups


def _scores_at(scores: Tensor, beams: Tensor, places: Tensor, num_beams: int) -> Tensor:
    """Return the scores at some places in the rows of some beams, `[sentences, K, members]`.

    Args:
        scores: `[sentences * num_beams, width]`.
        beams: `[sentences, K]`.
        places: `[sentences, K, members]`.
        num_beams: the number of beams of a sentence.
    """
    num_rows, width = scores.shape
    first_rows = torch.arange(0, num_rows, num_beams, device=scores.device)
    rows = beams + first_rows.unsqueeze(-1)
    beginnings = rows * width
    return scores.take(beginnings.unsqueeze(-1) + places)


def _best_of_rows(
    block: TokenBlock, hidden: Tensor, count: int, places: Tensor | None, renormalizes: bool
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
        places = None
    maxima, log_sums = block.reduce(scores)
    # The difference of two infinities is no number. Here it is the sum of nothing.
    has_no_token = maxima.amax(1, keepdim=True) == -torch.inf
    log_sums = log_sums.masked_fill_(has_no_token, -torch.inf)
    if places is not None:
        block.suppress(scores, places, maxima)
    best, tokens = block.best_of_rows(scores, maxima, count)
    return best, tokens, log_sums


def _best_of_sentences(log_probabilities: Tensor, tokens: Tensor, beam_scores: Tensor, count: int) -> Candidates:
    """Return the best continuations of each sentence, given the best of each row.

    Args:
        log_probabilities: those of the tokens, `[sentences * beams, n]`.
        tokens: token ids, `[sentences * beams, n]`.
        beam_scores: the scores of the beams so far, `[sentences, beams]`.
        count: the number of continuations, K.
    """
    sentences, beams = beam_scores.shape
    totals = log_probabilities.view(sentences, beams, -1) + beam_scores.unsqueeze(-1)
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
