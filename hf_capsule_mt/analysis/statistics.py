"""Statistics of routing over a corpus, added up batch by batch, by teacher forcing."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from hf_capsule_mt.translation.teacher_forcing import TeacherForcedPass, attending, evaluating, teacher_force

from .assignment import AssignmentSums
from .bag_overlap import bag_overlaps
from .corpus import Corpus
from .past_and_future import PastAndFutureSums
from .routing_kinds import guided_groups, guided_names
from .word_alignment import attended_words
from .word_shares import WordShares


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
