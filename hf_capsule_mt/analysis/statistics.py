"""Statistics of routing over a corpus, added up batch by batch, by teacher forcing.

An assignment is `[R, iterations, inputs, N]`: R routings of input capsules to N output capsules. Its mask is
`[R, inputs]` bool, True where the input capsule exists. Sums are in float64.
"""

import math

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel

from hf_capsule_mt.translation.alignment.forced import TeacherForcedPass, attending, teacher_force
from hf_capsule_mt.translation.generation.decoder import evaluating

from .corpus import EncodedCorpus
from .layer_shares import LayerShares
from .past_and_future import PastAndFutureSums, attended_words, bag_overlaps
from .routed_parts import guided_groups, guided_names

LEAST_COUNT = 5
"""Words that occur less often are not ranked."""
ALIKE = 1e-6
"""Mean assignments that differ by no more are not ranked: they differ by rounding."""


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
    square_of_sum = units.sum(-1).square().sum(-1)
    sum_of_squares = units.square().sum((-1, -2))
    cosines = (square_of_sum - sum_of_squares) / 2
    pairs = capsules * (capsules - 1) / 2
    # Only rounding makes it negative.
    return (1 - cosines / pairs).clamp(min=0)


class AssignmentSums:
    """The means over many routings. With `keep_inputs` each input capsule has its own, as layers and heads do."""

    def __init__(self, keep_inputs: bool) -> None:
        self.keep_inputs = keep_inputs
        self.routings = 0
        self.inputs = 0
        self._entropy: Tensor | int = 0
        self._diversity: Tensor | int = 0
        self._assignment: Tensor | int = 0

    def add(self, assignment: Tensor, mask: Tensor | None = None) -> None:
        """Add routings `[R, iterations, inputs, N]`. Those without an input capsule do not count."""
        routings, _, inputs, _ = assignment.shape
        if mask is None:
            mask = torch.ones(routings, inputs, dtype=torch.bool, device=assignment.device)

        has_inputs = mask.any(-1)
        mask = mask[has_inputs]
        is_padding = ~mask[:, None, :, None]
        assignment = assignment[has_inputs].double()
        # An assignment of padding may be anything.
        assignment = assignment.masked_fill(is_padding, 0.0)

        self.routings += len(assignment)
        self.inputs += int(mask.sum())
        entropy = entropies(assignment).sum((0, 2))
        diversity = diversities(assignment).sum(0)
        self._entropy += entropy.cpu()
        self._diversity += diversity.cpu()

        summed = assignment.sum(0)
        if not self.keep_inputs:
            summed = summed.sum(1, keepdim=True)
        self._assignment += summed.cpu()

    @property
    def entropy(self) -> list[float]:
        """The mean over input capsules, in nats, by iteration."""
        mean = self._entropy / self.inputs
        return mean.tolist()

    @property
    def diversity(self) -> list[float]:
        """The mean over routings, by iteration."""
        mean = self._diversity / self.routings
        return mean.tolist()

    @property
    def mean_assignment(self) -> Tensor:
        """`[iterations, inputs, N]`, float64. Without `keep_inputs` the mean over all words, `[iterations, 1, N]`."""
        count = self.routings if self.keep_inputs else self.inputs
        return self._assignment / count


class WordShares:
    """How much of every token id the capsules get."""

    def __init__(self, vocab_size: int, capsules: int) -> None:
        # By token id: occurrences, and the sums of their assignments.
        self._sums = torch.zeros(vocab_size, 1 + capsules, dtype=torch.float64)

    def add(self, sources: Tensor, shares: Tensor, mask: Tensor) -> None:
        """Add the words `[batch, source]` where the mask is True, with their assignment `[batch, source, M]`."""
        ones = torch.ones_like(shares[..., :1])
        counts_and_shares = torch.cat([ones, shares], dim=-1)
        counts_and_shares = counts_and_shares[mask].double()
        self._sums.index_add_(0, sources[mask].cpu(), counts_and_shares.cpu())

    def largest(self, most: int = 10, least_count: int = LEAST_COUNT) -> list[list[tuple[int, float, int]]]:
        """For every capsule the token ids that it gets most of, best first, with the share and the occurrences of each.

        There are none if all are equal.
        """
        is_frequent = self._sums[:, 0] >= max(least_count, 1)
        token_ids = is_frequent.nonzero().squeeze(-1)
        counts = self._sums[token_ids, 0]
        means = self._sums[token_ids, 1:] / counts.unsqueeze(-1)

        largest = []
        for shares in means.t():
            ranked = []
            for index in _ranking(shares)[:most]:
                token_id = int(token_ids[index])
                share = float(shares[index])
                count = int(counts[index])
                ranked.append((token_id, share, count))
            largest.append(ranked)
        return largest


def _ranking(shares: Tensor) -> list[int]:
    """Return the indices of shares, the largest first, none if all are equal."""
    if len(shares) == 0:
        return []
    spread = shares.max() - shares.min()
    if spread <= ALIKE:
        return []
    order = shares.argsort(descending=True, stable=True)
    return order.tolist()


class RoutingStatistics:
    """Everything that is measured.

    Attributes:
        sums: by name: "encoder layers", "decoder layers", "heads cross.1" and so on, "guided capsules", "sentence
            capsules". The attention baseline of guided routing has none, since it assigns no shares.
        word_shares: of source words in "guided capsules" (the mean over target words) and "sentence capsules".
        guided_names: of the guided capsules.
        past_and_future: sums of their assignments around a word's translation, or None.
        layers_read: the mean shares of layers in what other layers read, those of [`LayerShares.means`].
        layer_choices: how clearly they choose, those of [`LayerShares.choices`].
    """

    def __init__(self) -> None:
        self.sums: dict[str, AssignmentSums] = {}
        self.word_shares: dict[str, WordShares] = {}
        self.guided_names: list[str] = []
        self.past_and_future: PastAndFutureSums | None = None
        self.layers_read: dict[str, list[Tensor]] = {}
        self.layer_choices: dict[str, list[dict[str, float]]] = {}
        self._overlaps: list[Tensor] = []

    @property
    def overlaps(self) -> tuple[float | None, float | None] | None:
        """The mean rates of [`bag_overlaps`], None where no bag has words, or without the bag-of-words loss."""
        if not self._overlaps:
            return None
        means = torch.cat(self._overlaps).nanmean(0)
        past, future = means.tolist()
        return _none_if_nan(past), _none_if_nan(future)

    def add(self, model: PreTrainedModel, forced: TeacherForcedPass) -> None:
        """Add a batch, with the assignment of every iteration."""
        output = forced.output
        self._add_inputs("encoder layers", output.encoder_layer_routing, forced)
        self._add_inputs("decoder layers", output.decoder_layer_routing, forced)
        head_routing = output.head_routing or {}
        for place, assignment in head_routing.items():
            self._add_inputs(f"heads {place}", assignment, forced)

        if output.sentence_routing is not None:
            sums = self._sums_of("sentence capsules", keep_inputs=False)
            sums.add(output.sentence_routing, forced.source_mask)
            last = output.sentence_routing[:, -1]
            self._add_words("sentence capsules", model, forced, last)

        if output.guided_routing is not None:
            self._add_guided(model, forced)

    def _add_inputs(self, name: str, assignment: Tensor | None, forced: TeacherForcedPass) -> None:
        """Add the assignment of layers or heads, `[batch, positions, iterations, inputs, N]`."""
        if assignment is None:
            return
        mask = forced.source_mask if "encoder" in name else forced.target_mask
        sums = self._sums_of(name, keep_inputs=True)
        sums.add(assignment[mask])

    def _sums_of(self, name: str, keep_inputs: bool) -> AssignmentSums:
        return self.sums.setdefault(name, AssignmentSums(keep_inputs))

    def _add_words(self, name: str, model: PreTrainedModel, forced: TeacherForcedPass, shares: Tensor) -> None:
        """Add the assignment of source words, `[batch, source, M]`."""
        if name not in self.word_shares:
            self.word_shares[name] = WordShares(model.config.vocab_size, shares.shape[-1])
        self.word_shares[name].add(forced.sources, shares, forced.source_mask)

    def _add_guided(self, model: PreTrainedModel, forced: TeacherForcedPass) -> None:
        """Add guided routing, `[batch, target, iterations, source, J]`."""
        num_capsules = forced.output.guided_routing.shape[-1]
        num_past, num_future = guided_groups(model.config)
        self.guided_names = guided_names(num_past, num_future, num_capsules)

        if model.config.guided_routing != "attention":
            self._add_guided_capsules(model, forced)
        self._add_past_and_future(num_past, num_future, forced)

        # By the module: a weight in the configuration may have been changed since.
        losses = model.guided_losses
        if losses is not None and "bow_loss" in losses.names:
            embedding = model.get_output_embeddings().weight
            capsules = forced.output.guided_capsules
            overlaps = bag_overlaps(losses, capsules, embedding, forced.targets, forced.target_mask)
            self._overlaps.append(overlaps)

    def _add_guided_capsules(self, model: PreTrainedModel, forced: TeacherForcedPass) -> None:
        """Add the assignment to every guided capsule, and the words of each, by their mean over target words."""
        assignment = forced.output.guided_routing
        written = forced.target_mask
        num_targets = written.shape[1]
        source_mask = forced.source_mask[:, None].expand(-1, num_targets, -1)

        sums = self._sums_of("guided capsules", keep_inputs=False)
        sums.add(assignment[written], source_mask[written])

        last = assignment[:, :, -1]
        is_padding = ~written[..., None, None]
        lengths = written.sum(1)[:, None, None]
        total = last.masked_fill(is_padding, 0.0).sum(1)
        self._add_words("guided capsules", model, forced, total / lengths)

    def _add_past_and_future(self, num_past: int, num_future: int, forced: TeacherForcedPass) -> None:
        """Add the assignment to PAST and FUTURE as groups, around the translation of each source word."""
        if self.past_and_future is None:
            self.past_and_future = PastAndFutureSums()
        last = forced.output.guided_routing[:, :, -1]
        end_of_future = num_past + num_future
        past = last[..., :num_past].sum(-1)
        future = last[..., num_past:end_of_future].sum(-1)
        shares = torch.stack([past, future], dim=-1)
        aligned = attended_words(forced.output.cross_attentions, forced.source_mask, forced.target_mask)
        self.past_and_future.add(shares, aligned, forced.source_mask, forced.target_mask)


def _none_if_nan(rate: float) -> float | None:
    return None if math.isnan(rate) else rate


def measure_routing(
    model: PreTrainedModel, corpus: EncodedCorpus, *, max_tokens_per_batch: int = 1024
) -> RoutingStatistics:
    """Measure the routing of a model of this package, and shares of layers. Padding counts for nothing.

    Cross-attention aligns the words of a model with guided routing.
    """
    statistics = RoutingStatistics()
    reader = model
    options = {"output_routing": "all"}
    with evaluating(model):
        if guided_groups(model.config) != (0, 0):
            reader = attending(model)
            options["output_guided_capsules"] = True
            options["output_attentions"] = True

        shares = LayerShares(reader)
        for batch in tqdm(corpus.batches(max_tokens_per_batch), unit=" batches", desc="measuring"):
            sources = [corpus.sources[index] for index in batch]
            targets = [corpus.targets[index] for index in batch]
            with shares.reading():
                forced = teacher_force(reader, sources, targets, **options)
            statistics.add(model, forced)
            shares.add(forced)

    statistics.layers_read = shares.means
    statistics.layer_choices = shares.choices
    return statistics
