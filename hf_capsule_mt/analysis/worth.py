"""What its capsules are worth to a trained model: the loss that is added when they tell one line from another no more.

What they bring to the model is replaced by its mean over all positions, or sentences, of the other lines; all else
stays as it is. That says what this model makes of its capsules, not how it would do had it been trained without.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from hf_capsule_mt.modeling.aggregation import LayerAggregation, ResidualRoutedHeads, RoutedAggregation, RoutedHeads
from hf_capsule_mt.modeling.guided_routing import GuidedRouting
from hf_capsule_mt.modeling.sentence_capsules import SentenceCapsules
from hf_capsule_mt.translation.attention import teacher_force
from hf_capsule_mt.translation.translator import behind_start, evaluating, pad_rows

from .corpus import Corpus
from .routing_kinds import side_of


class Worth(NamedTuple):
    """Losses in nats a target token, ends of sentences included, without label smoothing.

    Attributes:
        loss: of the model as it is.
        added: what is added to it without the capsules of a place, by its name: "encoder layers", "decoder layers",
            "heads" (all that are routed, at once), "guided capsules" or "sentence capsules". Empty for a corpus of one
            line, which has no others.
    """

    loss: float
    added: dict[str, float]


def measure_worth(
    model: PreTrainedModel,
    corpus: Corpus,
    *,
    max_tokens_per_batch: int = 1024,
    on_batch: Callable[[int], object] | None = None,
) -> Worth:
    """Measure what its capsules are worth to a model that routes.

    Args:
        model: a translation model of this package; put into evaluation mode while this runs.
        corpus: what it reads and is made to write.
        max_tokens_per_batch: as in [`Corpus.batches`], padding included.
        on_batch: called after each batch with its number of lines; every line comes twice.
    """
    places = _places(model) if len(corpus.lines) > 1 else {}
    means = {site: _Mean() for sites in places.values() for site in sites}
    own, others = 0.0, dict.fromkeys(places, 0.0)
    with evaluating(model):
        for batch in _batches(model, corpus, max_tokens_per_batch):
            with _changed({site: mean.adder(batch.mask_of(site)) for site, mean in means.items()}):
                teacher_force(model, batch.sources, batch.targets)
            if on_batch is not None:
                on_batch(batch.lines)
        for batch in _batches(model, corpus, max_tokens_per_batch):
            # Of the model as it is, for what is replaced below may change what follows.
            with _changed({site: mean.leaver_out(batch.mask_of(site)) for site, mean in means.items()}):
                own += batch.loss(model)
            for place, sites in places.items():
                with _changed({site: means[site].instead_of for site in sites}):
                    others[place] += batch.loss(model)
            if on_batch is not None:
                on_batch(batch.lines)
    words = sum(len(corpus.targets[index]) for index in corpus.lines)
    return Worth(own / words, {place: (loss - own) / words for place, loss in others.items()})


class _Site(NamedTuple):
    """Where capsules enter a model.

    Attributes:
        module: what brings them, as its output, or reads them.
        positions: what there are capsules of: "source" or "target" words, or the "sentence".
        start: None if they are the module's output; else the first feature of its input that is theirs.
    """

    module: nn.Module
    positions: str
    start: int | None = None


def _places(model: nn.Module) -> dict[str, list[_Site]]:
    """Return the sites of a model by the name of their place."""
    found: dict[str, list[_Site]] = {}
    for name, module in model.named_modules():
        side = side_of(name)
        positions = "source" if side == "encoder" else "target"
        if isinstance(module, LayerAggregation) and isinstance(module.aggregator, RoutedAggregation):
            # Before the LayerNorm the mean would be made as long as what it is the mean of.
            found.setdefault(f"{side} layers", []).append(_Site(module.layer_norm, positions))
        elif isinstance(module, RoutedHeads):
            found.setdefault("heads", []).append(_Site(module, positions))
        elif isinstance(module, GuidedRouting):
            found.setdefault("guided capsules", []).append(_Site(module.fc1, positions, module.fc2.out_features))
        elif isinstance(getattr(module, "aggregation", None), SentenceCapsules):
            found.setdefault("sentence capsules", []).append(_Site(module.projection, "sentence"))
    return found


class _Batch(NamedTuple):
    sources: list[list[int]]
    targets: list[list[int]]
    source_ids: Tensor
    source_mask: Tensor
    target_ids: Tensor
    target_mask: Tensor

    @property
    def lines(self) -> int:
        return len(self.sources)

    def mask_of(self, site: _Site) -> Tensor:
        """Return where there are capsules: `[batch]` of a sentence, else `[batch, positions]`."""
        masks = {"source": self.source_mask, "target": self.target_mask, "sentence": self.source_mask.any(-1)}
        return masks[site.positions]

    def loss(self, model: PreTrainedModel) -> float:
        """Return the sum over the target tokens."""
        source = {"input_ids": self.source_ids, "attention_mask": self.source_mask.long()}
        logits = model.force_decode(behind_start(model, self.target_ids), False, **source).logits[self.target_mask]
        return F.cross_entropy(logits.float(), self.target_ids[self.target_mask], reduction="sum").item()


def _batches(model: PreTrainedModel, corpus: Corpus, max_tokens: int) -> Iterator[_Batch]:
    for batch in corpus.batches(max_tokens):
        sides = [[side[index] for index in batch] for side in (corpus.sources, corpus.targets)]
        padded = (pad_rows(side, model.config.pad_token_id, model.device) for side in sides)
        yield _Batch(*sides, *(tensor for side in padded for tensor in side))


class _Mean:
    """The mean of what capsules bring, `[d]`, over the positions or sentences that there are."""

    def __init__(self) -> None:
        self.sum: Tensor | float = 0.0
        self.count: Tensor | int = 0
        self.of_others: Tensor | None = None  # [batch, d]

    def adder(self, mask: Tensor) -> Callable[[Tensor], Tensor]:
        """Return what adds capsules `[*mask.shape, d]` where `mask` is True, and leaves them as they are."""

        def add(capsules: Tensor) -> Tensor:
            sums, counts = _over_lines(capsules, mask)
            self.sum, self.count = self.sum + sums.sum(0), self.count + counts.sum()
            return capsules

        return add

    def leaver_out(self, mask: Tensor) -> Callable[[Tensor], Tensor]:
        """Return what finds, for every line of a batch, the mean of all others; the capsules stay as they are."""

        def leave_out(capsules: Tensor) -> Tensor:
            sums, counts = _over_lines(capsules, mask)
            self.of_others = (self.sum - sums) / (self.count - counts).unsqueeze(-1)
            return capsules

        return leave_out

    def instead_of(self, capsules: Tensor) -> Tensor:
        """Return the mean of the other lines, in the shape of `capsules`."""
        mean = self.of_others.to(capsules.dtype)
        return mean if capsules.dim() == 2 else mean.unsqueeze(1).expand_as(capsules)


def _over_lines(capsules: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum `[batch, d]` and the number `[batch]` of the capsules of every line."""
    mask = mask.to(capsules.device)
    kept = capsules.double().masked_fill(~mask.unsqueeze(-1), 0.0)
    counts = mask.long()
    return (kept, counts) if mask.dim() == 1 else (kept.sum(1), counts.sum(1))


@contextmanager
def _changed(changes: dict[_Site, Callable[[Tensor], Tensor]]) -> Iterator[None]:
    """Put what the function of a site returns in the place of its capsules, until the end of the block."""
    with ExitStack() as stack:
        for site, change in changes.items():
            stack.callback(_hook(site, change).remove)
        yield


def _hook(site: _Site, change: Callable[[Tensor], Tensor]) -> torch.utils.hooks.RemovableHandle:
    if site.start is None:
        return site.module.register_forward_hook(lambda _, __, output: change(output))

    def change_input(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        others, capsules = inputs[0].tensor_split([site.start], dim=-1)
        return torch.cat([others, change(capsules)], dim=-1)

    return site.module.register_forward_pre_hook(change_input)


def record_gates(model: nn.Module) -> dict[str, dict[str, float]]:
    """Return the mean and the largest magnitude of gamma, by the place of the layers or heads that are added."""
    found = {}
    for place, gamma in _gates(model):
        size = gamma.detach().float().abs()
        found[place] = {"mean": size.mean().item(), "largest": size.max().item()}
    return found


def _gates(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, module in model.named_modules():
        if isinstance(module, LayerAggregation) and module.gamma is not None:
            yield f"{side_of(name)} layers", module.gamma
        elif isinstance(module, ResidualRoutedHeads):
            yield f"heads {module.routed.routing.place}", module.gamma
