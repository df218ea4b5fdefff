"""Statistics of routing over a corpus, added up batch by batch, by teacher forcing.

An assignment is `[R, iterations, inputs, N]`: R routings of input capsules to N output capsules. Its mask is
`[R, inputs]` bool, True where the input capsule exists. Sums are in float64.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from tqdm import tqdm
from transformers import PreTrainedModel

from hf_capsule_mt.translation.attention import TeacherForcedPass, attended_positions, attending, teacher_force
from hf_capsule_mt.translation.translator import evaluating

from .corpus import Corpus
from .routed_parts import guided_groups, guided_names


def entropies(assignment: Tensor) -> Tensor:
    """-sum_n C_n log C_n of every input capsule, `[R, iterations, inputs]` (Dou et al. 2019, Eq. 17).

    The paper prints a factor 1 / N and no minus. Its figures are without the factor: 6.24 = log 512 where C is uniform.
    """
    return torch.special.entr(assignment.double()).sum(-1)


def diversities(assignment: Tensor) -> Tensor:
    """1 minus the mean cosine of every two output capsules' assignments, `[R, iterations]`.

    It is Eq. 18 of Dou et al. (2019), which is printed without the 1 -. The cosine with a capsule that gets nothing is
    0. A single output capsule has the diversity 0.
    """
    capsules = assignment.shape[-1]
    if capsules == 1:
        return assignment.new_zeros(assignment.shape[:2], dtype=torch.float64)
    units = torch.nn.functional.normalize(assignment.double(), dim=-2, eps=1e-300)
    # The sum over pairs, from the square of the sum.
    cosines = (units.sum(-1).square().sum(-1) - units.square().sum((-1, -2))) / 2
    # Only rounding makes it negative.
    return (1 - cosines / (capsules * (capsules - 1) / 2)).clamp(min=0)


class AssignmentSums:
    """The means over many routings. With `keep_inputs` each input capsule has its own, as layers and heads do."""

    def __init__(self, keep_inputs: bool) -> None:
        self.keep_inputs = keep_inputs
        self.routings = self.inputs = 0
        self._entropy = self._diversity = self._assignment = 0

    def add(self, assignment: Tensor, mask: Tensor | None = None) -> None:
        """Add routings `[R, iterations, inputs, N]`. Those without an input capsule do not count."""
        if mask is None:
            mask = torch.ones(assignment.shape[0], assignment.shape[2], dtype=torch.bool, device=assignment.device)
        there = mask.any(-1)
        mask = mask[there]
        assignment = assignment[there].double().masked_fill(~mask[:, None, :, None], 0.0)
        self.routings += len(assignment)
        self.inputs += int(mask.sum())
        self._entropy += entropies(assignment).sum((0, 2)).cpu()
        self._diversity += diversities(assignment).sum(0).cpu()
        summed = assignment.sum(0)
        self._assignment += (summed if self.keep_inputs else summed.sum(1, keepdim=True)).cpu()

    @property
    def entropy(self) -> list[float]:
        """The mean over input capsules, in nats, by iteration."""
        return (self._entropy / self.inputs).tolist()

    @property
    def diversity(self) -> list[float]:
        """The mean over routings, by iteration."""
        return (self._diversity / self.routings).tolist()

    @property
    def mean_assignment(self) -> Tensor:
        """`[iterations, inputs, N]`, float64. Without `keep_inputs` the mean over all words, `[iterations, 1, N]`."""
        return self._assignment / (self.routings if self.keep_inputs else self.inputs)


@torch.no_grad()
def bag_overlaps(
    losses: nn.Module, capsules: Tensor, embedding: Tensor, targets: Tensor, target_mask: Tensor
) -> Tensor:
    """The rates r_OL^P and r_OL^F of every sentence, `[batch, 2]` float64. NaN where every bag is empty.

    The rate of a step with n words in the bag is the fraction of them among the 5 n words that the capsules find most
    likely. The mean is over the steps whose bag is not empty. A word that is in a bag twice counts once. As in
    training, the bag of PAST holds the words before the one that is written. (In the paper's formula it holds this one
    too.) FUTURE has all others, with the end of the sentence.

    Capsules are PAST, then FUTURE, `[batch, target, capsules, width]`. The embedding of the output words is
    `[vocabulary, d]`. The token ids that are written, and their bool mask, are `[batch, target]`.
    """
    past, future = (part.flatten(-2) for part in capsules.tensor_split([losses.num_past], dim=2))
    queries = torch.stack([losses.past_bow(past), losses.future_bow(future)], dim=1)
    rates = torch.empty(len(targets), 2, dtype=torch.float64)
    for row, length in enumerate(target_mask.sum(1).tolist()):
        words = targets[row, :length]
        for column, bags in enumerate(_bags(words)):
            logits = queries[row, column, :length] @ embedding.t()
            ranks = logits.argsort(-1, descending=True).argsort(-1)[:, words]
            whole, distinct = bags
            found = (distinct & (ranks < 5 * whole.sum(1, keepdim=True))).sum(1)
            sizes = distinct.sum(1)
            rates[row, column] = (found[sizes > 0].double() / sizes[sizes > 0]).mean()
    return rates


def _bags(words: Tensor) -> list[tuple[Tensor, Tensor]]:
    """For PAST and for FUTURE: which steps have which words in their bag, and those of them that are no repetition."""
    every = torch.ones(len(words), len(words), dtype=torch.bool, device=words.device)
    same = words[:, None] == words
    past, future = every.tril(-1), every.triu()
    repeated_before, repeated_after = ((same & part).any(1) for part in (every.tril(-1), every.triu(1)))
    return [(past, past & ~repeated_before), (future, future & ~repeated_after)]


LEAST_COUNT = 5
"""Words that occur less often are not ranked."""
ALIKE = 1e-6
"""Mean assignments that differ by no more are not ranked: they differ by rounding."""


class WordShares:
    """How much of every token id the capsules get."""

    def __init__(self, vocab_size: int, capsules: int) -> None:
        # By token id: occurrences, and the sums of their assignments.
        self._sums = torch.zeros(vocab_size, 1 + capsules, dtype=torch.float64)

    def add(self, sources: Tensor, shares: Tensor, mask: Tensor) -> None:
        """Add the words `[batch, source]` where the mask is True, with their assignment `[batch, source, M]`."""
        values = torch.cat([torch.ones_like(shares[..., :1]), shares], dim=-1)[mask]
        self._sums.index_add_(0, sources[mask].cpu(), values.double().cpu())

    def largest(self, most: int = 10, least_count: int = LEAST_COUNT) -> list[list[tuple[int, float, int]]]:
        """For every capsule the token ids that it gets most of, best first, with the share and the occurrences of each.

        There are none if all are equal.
        """
        counts = self._sums[:, 0]
        words = (counts >= max(least_count, 1)).nonzero().squeeze(-1)
        means = self._sums[words, 1:] / counts[words, None]
        found = []
        for column in means.t():
            differ = len(column) > 0 and column.max() - column.min() > ALIKE
            order = column.argsort(descending=True, stable=True)[:most] if differ else ()
            found.append([(int(words[i]), float(column[i]), int(counts[words[i]])) for i in order])
        return found


FARTHEST = 10
"""Steps before and after a word's translation that have means of their own."""


class PastAndFutureSums:
    """Sums of the assignment to PAST and FUTURE before and after a source word is translated.

    The steps before end with the first target word that is aligned with it. The steps after follow the last one. Source
    words without an aligned word do not count.
    """

    def __init__(self) -> None:
        self.words = self.aligned_words = 0
        # By step around the translation, with all that are farther away at the ends: the number of assignments, and
        # their sums to PAST and FUTURE.
        self._sums = torch.zeros(2 * FARTHEST + 3, 3, dtype=torch.float64)

    def add(self, shares: Tensor, aligned: Tensor, source_mask: Tensor, target_mask: Tensor) -> None:
        """Add the shares of source words in PAST and in FUTURE, `[batch, target, source, 2]`.

        `aligned` is `[batch, target, source]` bool: which target word translates which source word. Masks are True
        where there is a word. The last source word, the end, is not counted.
        """
        length = aligned.shape[1]
        steps = torch.arange(length, device=aligned.device)[None, :, None]
        first = torch.where(aligned, steps, length).amin(1, keepdim=True)
        last = torch.where(aligned, steps, -1).amax(1, keepdim=True)
        counted = aligned.any(1, keepdim=True) & target_mask[:, :, None] & ((steps <= first) | (steps > last))
        distances = torch.where(steps <= first, steps - first, steps - last).clamp(-FARTHEST - 1, FARTHEST + 1)
        self.words += int(source_mask.sum()) - len(source_mask)
        self.aligned_words += int(aligned.any(1).sum())
        values = torch.cat([torch.ones_like(shares[..., :1]), shares], dim=-1).double()
        self._sums.index_add_(0, distances[counted].cpu() + FARTHEST + 1, values[counted].cpu())

    def result(self) -> dict[str, object]:
        """Means to PAST and FUTURE "before" and "after" the translation, None of nothing.

        Those "around" it are by step. Step 0 writes the word's translation, and is before.
        """
        before, after = self._sums.split([FARTHEST + 2, FARTHEST + 1])
        around = [{"step": step - FARTHEST, **_means(sums)} for step, sums in enumerate(self._sums[1:-1]) if sums[0]]
        counts = {"words": self.words, "aligned_words": self.aligned_words}
        return {**counts, "before": _means(before.sum(0)), "after": _means(after.sum(0)), "around": around}


def _means(sums: Tensor) -> dict[str, float | int | None]:
    count, *sides = sums.tolist()
    past, future = (total / count if count else None for total in sides)
    return {"past": past, "future": future, "assignments": int(count)}


class RoutingStatistics:
    """Everything that is measured.

    Attributes:
        sums: by name: "encoder layers", "decoder layers", "heads cross.1" and so on, "guided capsules", "sentence
            capsules". The attention baseline of guided routing has none, since it assigns no shares.
        word_shares: of source words in "guided capsules" (the mean over target words) and "sentence capsules".
    """

    def __init__(self) -> None:
        self.sums: dict[str, AssignmentSums] = {}
        self.word_shares: dict[str, WordShares] = {}
        self.guided_names: list[str] = []
        self.past_and_future: PastAndFutureSums | None = None
        self._overlaps: list[Tensor] = []

    @property
    def overlaps(self) -> tuple[float | None, float | None] | None:
        """The mean rates of [`bag_overlaps`], None where no bag has words, or without the bag-of-words loss."""
        if not self._overlaps:
            return None
        past, future = (None if math.isnan(rate) else rate for rate in torch.cat(self._overlaps).nanmean(0).tolist())
        return past, future

    def add(self, model: PreTrainedModel, forced: TeacherForcedPass) -> None:
        """Add a batch, with the assignment of every iteration."""
        output = forced.output
        layers = {"encoder layers": output.encoder_layer_routing, "decoder layers": output.decoder_layer_routing}
        heads = {f"heads {place}": assignment for place, assignment in (output.head_routing or {}).items()}
        for name, assignment in {**layers, **heads}.items():
            if assignment is not None:
                mask = forced.source_mask if "encoder" in name else forced.target_mask
                self._sums_of(name, keep_inputs=True).add(assignment[mask])
        if output.sentence_routing is not None:
            self._sums_of("sentence capsules", keep_inputs=False).add(output.sentence_routing, forced.source_mask)
            self._add_words("sentence capsules", model, forced, output.sentence_routing[:, -1])
        if output.guided_routing is not None:
            self._add_guided(model, forced)

    def _sums_of(self, name: str, keep_inputs: bool) -> AssignmentSums:
        return self.sums.setdefault(name, AssignmentSums(keep_inputs))

    def _add_words(self, name: str, model: PreTrainedModel, forced: TeacherForcedPass, shares: Tensor) -> None:
        shares_of_all = self.word_shares.setdefault(name, WordShares(model.config.vocab_size, shares.shape[-1]))
        shares_of_all.add(forced.sources, shares, forced.source_mask)

    def _add_guided(self, model: PreTrainedModel, forced: TeacherForcedPass) -> None:
        assignment, written = forced.output.guided_routing, forced.target_mask
        last = assignment[:, :, -1]
        num_past, num_future = guided_groups(model.config)
        self.guided_names = guided_names(num_past, num_future, last.shape[-1])
        if model.config.guided_routing != "attention":
            words = forced.source_mask[:, None].expand(-1, written.shape[1], -1)
            self._sums_of("guided capsules", keep_inputs=False).add(assignment[written], words[written])
            over_steps = last.masked_fill(~written[..., None, None], 0.0).sum(1) / written.sum(1)[:, None, None]
            self._add_words("guided capsules", model, forced, over_steps)
        self.past_and_future = self.past_and_future or PastAndFutureSums()
        past, future, _ = last.tensor_split([num_past, num_past + num_future], dim=-1)
        shares = torch.stack([past.sum(-1), future.sum(-1)], dim=-1)
        aligned = attended_words(forced.output.cross_attentions, forced.source_mask, written)
        self.past_and_future.add(shares, aligned, forced.source_mask, written)
        # By the module: a weight in the configuration may have been changed since.
        if model.guided_losses is not None and "bow_loss" in model.guided_losses.names:
            arguments = forced.output.guided_capsules, model.get_output_embeddings().weight
            overlaps = bag_overlaps(model.guided_losses, *arguments, forced.targets, written)
            self._overlaps.append(overlaps)


def attended_words(cross_attentions: Sequence[Tensor], source_mask: Tensor, target_mask: Tensor) -> Tensor:
    """Align every target word with one of [`attended_positions`], `[batch, target, source]` bool.

    The ends of the sentences are aligned with nothing, nor is a word that attends to the end of the source. The masks,
    `[batch, source]` and `[batch, target]`, are True where there is a word, the end included.
    """
    attended = attended_positions(cross_attentions, source_mask)
    aligned = torch.nn.functional.one_hot(attended, source_mask.shape[1]).bool()
    return aligned & _before_end(target_mask)[:, :, None] & _before_end(source_mask)[:, None]


def _before_end(mask: Tensor) -> Tensor:
    places = torch.arange(mask.shape[1], device=mask.device)
    return places < mask.sum(1, keepdim=True) - 1


def measure_routing(model: PreTrainedModel, corpus: Corpus, *, max_tokens_per_batch: int = 1024) -> RoutingStatistics:
    """Measure the routing of a model of this package that has some. Padding counts for nothing.

    Cross-attention aligns the words of a model with guided routing.
    """
    statistics = RoutingStatistics()
    guided = guided_groups(model.config) != (0, 0)
    options = {"output_guided_capsules": True, "output_attentions": True} if guided else {}
    with evaluating(model):
        reader = attending(model) if guided else model
        for batch in tqdm(corpus.batches(max_tokens_per_batch), unit=" batches", desc="measuring"):
            sources, targets = ([side[index] for index in batch] for side in (corpus.sources, corpus.targets))
            statistics.add(model, teacher_force(reader, sources, targets, output_routing="all", **options))
    return statistics
