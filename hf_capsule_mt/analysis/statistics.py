"""Statistics of routing over a corpus, added up batch by batch, by teacher forcing."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_capsule_mt.translation.attention import TeacherForcedPass, attending, teacher_force
from hf_capsule_mt.translation.translator import evaluating

from .assignment import AssignmentSums
from .corpus import Corpus
from .routing_kinds import guided_groups, guided_names
from .word_alignment import attended_words


@torch.no_grad()
def bag_overlaps(
    losses: nn.Module, capsules: Tensor, embedding: Tensor, targets: Tensor, target_mask: Tensor
) -> Tensor:
    """The rates r_OL^P and r_OL^F of every sentence, `[batch, 2]` float64; NaN where every bag is empty.

    At a step with n words in the bag, it is the fraction of the bag's words that are among the 5 n which the capsules
    find most likely; the mean is over the steps whose bag is not empty. A word that is in a bag twice counts once. As
    in training, the bag of PAST is of the words before the one that is written, that of FUTURE of this one and those
    after, the end of the sentence included. (In the paper's formula the word that is written is PAST.)

    Args:
        losses: the [`GuidedLosses`] of the model, with a weight for the bag-of-words loss.
        capsules: PAST, then FUTURE, `[batch, target, capsules, width]`.
        embedding: of the output words, `[vocabulary, d]`.
        targets: ids of the words written, `[batch, target]`.
        target_mask: `[batch, target]` bool, True where a word is written.
    """
    past, future = (part.flatten(-2) for part in capsules.tensor_split([losses.num_past], dim=2))
    queries = torch.stack([losses.past_bow(past), losses.future_bow(future)], dim=1)
    rates = torch.empty(len(targets), 2, dtype=torch.float64)
    for row, length in enumerate(target_mask.sum(1).tolist()):
        words = targets[row, :length]
        for column, bags in enumerate(_bags(words)):
            rates[row, column] = _rate(queries[row, column, :length] @ embedding.t(), words, *bags)
    return rates


def _bags(words: Tensor) -> list[tuple[Tensor, Tensor]]:
    """For PAST and for FUTURE: which steps have which words in their bag, and those of them that are no repetition."""
    every = torch.ones(len(words), len(words), dtype=torch.bool, device=words.device)
    same = words[:, None] == words
    past, future = every.tril(-1), every.triu()
    repeated_before, repeated_after = ((same & part).any(1) for part in (every.tril(-1), every.triu(1)))
    return [(past, past & ~repeated_before), (future, future & ~repeated_after)]


def _rate(logits: Tensor, words: Tensor, bags: Tensor, distinct: Tensor) -> Tensor:
    """The overlap of one sentence, from logits `[target, vocabulary]`."""
    ranks = logits.argsort(-1, descending=True).argsort(-1)[:, words]
    found = distinct & (ranks < 5 * bags.sum(1, keepdim=True))
    sizes = distinct.sum(1)
    return (found.sum(1)[sizes > 0].double() / sizes[sizes > 0]).mean()


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


FARTHEST = 10
"""Steps before and after a word is written, of which the means are told one by one."""


class PastAndFutureSums:
    """Sums of the assignment to PAST and FUTURE before and after a source word is translated, batch by batch.

    A source word is translated when all target words that are aligned with it are written: its steps before are those
    up to the first of these, and its steps after follow the last. Source words that none is aligned with do not count.
    """

    def __init__(self) -> None:
        self.words = self.aligned_words = 0
        # By step around the translation: the number of assignments, and their sums to PAST and FUTURE.
        self._sums = torch.zeros(2 * FARTHEST + 1, 3, dtype=torch.float64)
        self._before = torch.zeros(3, dtype=torch.float64)
        self._after = torch.zeros(3, dtype=torch.float64)

    def add(self, shares: Tensor, aligned: Tensor, source_mask: Tensor, target_mask: Tensor) -> None:
        """Add a batch.

        Args:
            shares: of source words in PAST and in FUTURE, `[batch, target, source, 2]`.
            aligned: `[batch, target, source]` bool: which target word translates which source word.
            source_mask: `[batch, source]` bool, True where there is a word; the last one, the end, is not counted.
            target_mask: `[batch, target]` bool, True where a word is written.
        """
        length = aligned.shape[1]
        steps = torch.arange(length, device=aligned.device)[None, :, None]
        first = torch.where(aligned, steps, length).amin(1, keepdim=True)
        last = torch.where(aligned, steps, -1).amax(1, keepdim=True)
        counted = aligned.any(1, keepdim=True) & target_mask[:, :, None]
        before, after = counted & (steps <= first), counted & (steps > last)
        self.words += int(source_mask.sum()) - len(source_mask)
        self.aligned_words += int(aligned.any(1).sum())
        values = torch.cat([torch.ones_like(shares[..., :1]), shares], dim=-1).double()
        self._before += values[before].sum(0).cpu()
        self._after += values[after].sum(0).cpu()
        distances = torch.where(before, steps - first, steps - last)
        near = (before | after) & (distances.abs() <= FARTHEST)
        self._sums.index_add_(0, distances[near].cpu() + FARTHEST, values[near].cpu())

    def result(self) -> dict[str, object]:
        """Means to PAST and FUTURE, None where there is nothing to take one of.

        "before" and "after" translation; and "around" it: by steps from the one that writes the (first or last) word
        that translates it, which is step 0 and before.
        """
        around = {step - FARTHEST: _means(sums) for step, sums in enumerate(self._sums) if sums[0]}
        return {
            "words": self.words,
            "aligned_words": self.aligned_words,
            "before": _means(self._before),
            "after": _means(self._after),
            "around": [{"step": step, **means} for step, means in around.items()],
        }


def _means(sums: Tensor) -> dict[str, float | int | None]:
    count, past, future = sums.tolist()
    mean = (lambda total: total / count) if count else (lambda total: None)
    return {"past": mean(past), "future": mean(future), "assignments": int(count)}


class RoutingStatistics:
    """Everything that is measured.

    Attributes:
        sums: of every kind of routing that there is, by name: "encoder layers", "decoder layers", "heads cross.1" and
            so on, "guided capsules", "sentence capsules". The baseline of guided routing that attends has none: what it
            assigns of a word are no shares.
        word_shares: of source words in "guided capsules" (the mean over target words) and "sentence capsules".
        guided_names: of guided capsules, if there are any.
        past_and_future: of guided routing, if words were aligned; else None.
    """

    def __init__(self) -> None:
        self.sums: dict[str, AssignmentSums] = {}
        self.word_shares: dict[str, WordShares] = {}
        self.guided_names: list[str] = []
        self.past_and_future: PastAndFutureSums | None = None
        self._overlaps: list[Tensor] = []

    @property
    def overlaps(self) -> tuple[float | None, float | None] | None:
        """The rates r_OL^P and r_OL^F, means over sentences, None where no bag has words; None of a model without the
        bag-of-words loss.
        """
        if not self._overlaps:
            return None
        past, future = (None if math.isnan(rate) else rate for rate in torch.cat(self._overlaps).nanmean(0).tolist())
        return past, future

    def add(self, model: PreTrainedModel, forced: TeacherForcedPass, aligned: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            model: what it went through.
            forced: the pass, with the assignment of every iteration.
            aligned: `[batch, target, source]` bool, which target word translates which source word; None for unknown.
        """
        output = forced.output
        self._add_positions("encoder layers", output.encoder_layer_routing, forced.source_mask)
        self._add_positions("decoder layers", output.decoder_layer_routing, forced.target_mask)
        for place, assignment in (output.head_routing or {}).items():
            mask = forced.source_mask if place.startswith("encoder") else forced.target_mask
            self._add_positions(f"heads {place}", assignment, mask)
        if output.sentence_routing is not None:
            self._sums_of("sentence capsules", keep_inputs=False).add(output.sentence_routing, forced.source_mask)
            self._add_words("sentence capsules", model, forced, output.sentence_routing[:, -1])
        if output.guided_routing is not None:
            self._add_guided(model, forced, aligned)

    def _sums_of(self, name: str, keep_inputs: bool) -> AssignmentSums:
        return self.sums.setdefault(name, AssignmentSums(keep_inputs))

    def _add_positions(self, name: str, assignment: Tensor | None, mask: Tensor) -> None:
        if assignment is not None:
            self._sums_of(name, keep_inputs=True).add(assignment[mask])

    def _add_words(self, name: str, model: PreTrainedModel, forced: TeacherForcedPass, shares: Tensor) -> None:
        shares_of_all = self.word_shares.setdefault(name, WordShares(model.config.vocab_size, shares.shape[-1]))
        shares_of_all.add(forced.sources, shares, forced.source_mask)

    def _add_guided(self, model: PreTrainedModel, forced: TeacherForcedPass, aligned: Tensor | None) -> None:
        assignment, written = forced.output.guided_routing, forced.target_mask
        last = assignment[:, :, -1]
        num_past, num_future = guided_groups(model.config)
        self.guided_names = guided_names(num_past, num_future, last.shape[-1])
        if model.config.guided_routing != "attention":
            words = forced.source_mask[:, None].expand(-1, written.shape[1], -1)
            self._sums_of("guided capsules", keep_inputs=False).add(assignment[written], words[written])
            over_steps = last.masked_fill(~written[..., None, None], 0.0).sum(1) / written.sum(1)[:, None, None]
            self._add_words("guided capsules", model, forced, over_steps)
        if aligned is not None:
            self.past_and_future = self.past_and_future or PastAndFutureSums()
            past, future, _ = last.tensor_split([num_past, num_past + num_future], dim=-1)
            shares = torch.stack([past.sum(-1), future.sum(-1)], dim=-1)
            self.past_and_future.add(shares, aligned, forced.source_mask, written)
        # By the module: a weight in the configuration may have been changed since.
        if model.guided_losses is not None and "bow_loss" in model.guided_losses.names:
            arguments = forced.output.guided_capsules, model.get_output_embeddings().weight
            overlaps = bag_overlaps(model.guided_losses, *arguments, forced.targets, written)
            self._overlaps.append(overlaps)


def measure_routing(
    model: PreTrainedModel,
    corpus: Corpus,
    *,
    max_tokens_per_batch: int = 1024,
    alignments: Mapping[int, Tensor] | None = None,
    alignment_layer: int | None = None,
    on_batch: Callable[[int], object] | None = None,
) -> RoutingStatistics:
    """Measure the routing of a model that has some. Padding counts for nothing.

    Args:
        model: a translation model of this package; put into evaluation mode while this runs.
        corpus: what it reads and is made to write.
        max_tokens_per_batch: as in [`Corpus.batches`], padding included. (Every position of a big model has some 100 KB
            of assignments.)
        alignments: by the index of a line, `[target, source]` bool: which target piece translates which source piece.
            By default words are aligned by cross attention, in a model with guided routing.
        alignment_layer: see [`attended_words`].
        on_batch: called after each batch with its number of lines.
    """
    statistics = RoutingStatistics()
    guided = guided_groups(model.config) != (0, 0)
    attend = guided and alignments is None
    options = {"output_guided_capsules": True} if guided else {}
    with evaluating(model):
        reader = attending(model) if attend else model
        for batch in corpus.batches(max_tokens_per_batch):
            sources, targets = ([side[index] for index in batch] for side in (corpus.sources, corpus.targets))
            forced = teacher_force(reader, sources, targets, output_routing="all", output_attentions=attend, **options)
            aligned = None
            if guided:
                given = None if attend else [alignments[index] for index in batch]
                aligned = _align(forced, given, alignment_layer)
            statistics.add(model, forced, aligned)
            if on_batch is not None:
                on_batch(len(batch))
    return statistics


def _align(forced: TeacherForcedPass, given: Sequence[Tensor] | None, layer: int | None) -> Tensor:
    """The alignments that are given, filled up to the longest sides of the batch, or those of attention."""
    if given is None:
        return attended_words(forced.output.cross_attentions, forced.source_mask, forced.target_mask, layer)
    aligned = forced.target_mask.new_zeros(*forced.target_mask.shape, forced.source_mask.shape[1])
    for row, alignment in enumerate(given):
        aligned[row, : alignment.shape[0], : alignment.shape[1]] = alignment
    return aligned
