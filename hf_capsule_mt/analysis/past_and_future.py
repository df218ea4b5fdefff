"""PAST and FUTURE of guided routing: their means before and after a word's translation, and the overlap of their bags.

Sums are in float64.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hf_capsule_mt.translation.alignment.words import attended_positions

FARTHEST = 10
"""Steps before and after a word's translation that have means of their own."""


class PastAndFutureSums:
    """Sums of the assignment to PAST and FUTURE before and after a source word is translated.

    The steps before end with the first target word that is aligned with it. The steps after follow the last one. Source
    words without an aligned word do not count.
    """

    def __init__(self) -> None:
        self.words = 0
        self.aligned_words = 0
        # By step around the translation, with all that are farther away at the ends: the number of assignments, and
        # their sums to PAST and FUTURE.
        self._sums = torch.zeros(2 * FARTHEST + 3, 3, dtype=torch.float64)

    def add(self, shares: Tensor, aligned: Tensor, source_mask: Tensor, target_mask: Tensor) -> None:
        """Add a batch.

        Args:
            shares: of source words in PAST and in FUTURE, `[batch, target, source, 2]`.
            aligned: which target word translates which source word, `[batch, target, source]` bool.
            source_mask: `[batch, source]` bool, True where there is a word. The last one, the end, is not counted.
            target_mask: `[batch, target]` bool, True where there is a word.
        """
        length = aligned.shape[1]
        steps = torch.arange(length, device=aligned.device)
        steps = steps[None, :, None]

        # The steps of the first and the last target word that is aligned with each source word.
        first = torch.where(aligned, steps, length)
        first = first.amin(1, keepdim=True)
        last = torch.where(aligned, steps, -1)
        last = last.amax(1, keepdim=True)

        is_before = steps <= first
        is_after = steps > last
        is_aligned = aligned.any(1, keepdim=True)
        is_written = target_mask[:, :, None]
        counted = is_before | is_after
        counted = counted & is_aligned & is_written

        distances = torch.where(is_before, steps - first, steps - last)
        # Row 0 of the sums is for all steps that are farther before.
        farther = FARTHEST + 1
        rows = distances.clamp(-farther, farther) + farther

        ones = torch.ones_like(shares[..., :1])
        counts_and_shares = torch.cat([ones, shares], dim=-1)
        counts_and_shares = counts_and_shares[counted].double()
        self._sums.index_add_(0, rows[counted].cpu(), counts_and_shares.cpu())

        # Every source has an end.
        self.words += int(source_mask.sum()) - len(source_mask)
        self.aligned_words += int(is_aligned.sum())

    def result(self) -> dict[str, object]:
        """Return means to PAST and FUTURE "before" and "after" the translation, None of nothing.

        Those "around" it are by step. Step 0 writes the word's translation, and is before.
        """
        steps_before = FARTHEST + 2
        before = self._sums[:steps_before]
        after = self._sums[steps_before:]

        around = []
        # Without the ends, which hold steps of several distances.
        for step, sums in enumerate(self._sums[1:-1], start=-FARTHEST):
            if sums[0]:
                around.append({"step": step, **_means(sums)})

        return {
            "words": self.words,
            "aligned_words": self.aligned_words,
            "before": _means(before.sum(0)),
            "after": _means(after.sum(0)),
            "around": around,
        }


def _means(sums: Tensor) -> dict[str, float | int | None]:
    """Return the means of a number of assignments and their sums, `[3]`."""
    count, past, future = sums.tolist()
    if not count:
        return {"past": None, "future": None, "assignments": 0}
    return {
        "past": past / count,
        "future": future / count,
        "assignments": int(count),
    }


def attended_words(cross_attentions: Sequence[Tensor], source_mask: Tensor, target_mask: Tensor) -> Tensor:
    """Align every target word with one of [`attended_positions`], `[batch, target, source]` bool.

    The ends of the sentences are aligned with nothing, nor is a word that attends to the end of the source. The masks,
    `[batch, source]` and `[batch, target]`, are True where there is a word, the end included.
    """
    attended = attended_positions(cross_attentions, source_mask)
    num_sources = source_mask.shape[1]
    aligned = torch.nn.functional.one_hot(attended, num_sources).bool()
    is_target_word = _before_end(target_mask).unsqueeze(2)
    is_source_word = _before_end(source_mask).unsqueeze(1)
    return aligned & is_target_word & is_source_word


def _before_end(mask: Tensor) -> Tensor:
    """Return the mask `[batch, length]` without the last word of each sentence."""
    positions = torch.arange(mask.shape[1], device=mask.device)
    lengths = mask.sum(1, keepdim=True)
    return positions < lengths - 1


class _BagsByStep(NamedTuple):
    """The words in the bag at every step of a sentence, `[steps, words]` bool."""

    words: Tensor
    distinct: Tensor
    """Without repetitions of a word in the same bag."""


@torch.no_grad()
def bag_overlaps(
    losses: nn.Module,
    capsules: Tensor,
    embedding: Tensor,
    targets: Tensor,
    target_mask: Tensor,
) -> Tensor:
    """Return the rates r_OL^P and r_OL^F of every sentence, `[batch, 2]` float64. NaN where every bag is empty.

    The rate of a step with n words in the bag is the fraction of them among the 5 n words that the capsules find most
    likely. The mean is over the steps whose bag is not empty. A word that is in a bag twice counts once. As in
    training, the bag of PAST holds the words before the one that is written. (In the paper's formula it holds this one
    too.) FUTURE has all others, with the end of the sentence.

    Args:
        losses: the module of the bag-of-words loss.
        capsules: PAST, then FUTURE, `[batch, target, capsules, width]`.
        embedding: of the output words, `[vocabulary, d]`.
        targets: token ids that are written, `[batch, target]`.
        target_mask: `[batch, target]` bool, True where there is a word.
    """
    past, future = capsules.tensor_split([losses.num_past], dim=2)
    past_queries = losses.past_bow(past.flatten(-2))
    future_queries = losses.future_bow(future.flatten(-2))
    output_words = embedding.t()

    rates = torch.empty(len(targets), 2, dtype=torch.float64)
    lengths = target_mask.sum(1).tolist()
    for row, length in enumerate(lengths):
        words = targets[row, :length]
        past_bags = _past_bags(words)
        past_logits = past_queries[row, :length] @ output_words
        rates[row, 0] = _overlap(past_logits, words, past_bags)
        future_bags = _future_bags(words)
        future_logits = future_queries[row, :length] @ output_words
        rates[row, 1] = _overlap(future_logits, words, future_bags)
    return rates


def _overlap(logits: Tensor, words: Tensor, bags: _BagsByStep) -> Tensor:
    """Return the mean rate over the steps of a sentence, from logits `[steps, vocabulary]`."""
    order = logits.argsort(-1, descending=True)
    # Where a word is in the order, 0 for the most likely one.
    ranks = order.argsort(-1)

    bag_sizes = bags.words.sum(1, keepdim=True)
    is_likely = ranks[:, words] < 5 * bag_sizes
    hits = bags.distinct & is_likely

    num_hits = hits.sum(1)
    num_words = bags.distinct.sum(1)
    has_words = num_words > 0
    rates = num_hits[has_words].double() / num_words[has_words]
    return rates.mean()


def _past_bags(words: Tensor) -> _BagsByStep:
    """Return the bags of the words before each step. Of a repeated word the first one is kept."""
    before = _all_pairs(words).tril(-1)
    same_before = _same(words) & before
    is_first = ~same_before.any(1)
    return _BagsByStep(before, before & is_first)


def _future_bags(words: Tensor) -> _BagsByStep:
    """Return the bags of the words from each step on. Of a repeated word the last one is kept."""
    from_step_on = _all_pairs(words).triu()
    after = _all_pairs(words).triu(1)
    same_after = _same(words) & after
    is_last = ~same_after.any(1)
    return _BagsByStep(from_step_on, from_step_on & is_last)


def _all_pairs(words: Tensor) -> Tensor:
    """Return True for every two words of a sentence, `[words, words]`."""
    length = len(words)
    return torch.ones(length, length, dtype=torch.bool, device=words.device)


def _same(words: Tensor) -> Tensor:
    """Return whether two words are equal, `[words, words]`."""
    return words[:, None] == words
