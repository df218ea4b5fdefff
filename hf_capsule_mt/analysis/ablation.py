"""What the capsules of a trained model are worth: the loss that is added when they say the same about every line.

Their mean over the corpus replaces what they bring to each position or sentence. That says what this model makes of its
capsules. It does not say how a model that was trained without them would do.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm
from transformers import PreTrainedModel

from hf_capsule_mt.modeling.aggregation import LayerAggregation, ResidualRoutedHeads, RoutedAggregation, RoutedHeads
from hf_capsule_mt.modeling.guided_routing import GuidedRouting
from hf_capsule_mt.modeling.sentence_capsules import SentenceCapsules
from hf_capsule_mt.translation.alignment.forced import behind_start
from hf_capsule_mt.translation.generation.decoder import evaluating, pad_rows

from .corpus import EncodedCorpus

_OF_LAYER = re.compile(r"(source|stack)_aggregation\.layers\.(\d+)$")
"""The name of an aggregation for a layer of the decoder, or above a layer of a stack."""


class _Batch(NamedTuple):
    """Lines of a corpus: token ids `[batch, source]` and `[batch, target]`, and masks, True where there is a word."""

    sources: Tensor
    source_mask: Tensor
    targets: Tensor
    target_mask: Tensor

    def mask_of(self, positions: str) -> Tensor:
        """Return which "source" words, "target" words or sentences ("sentence") there are."""
        if positions == "source":
            return self.source_mask
        if positions == "target":
            return self.target_mask
        return self.source_mask.any(-1)


class _Site(NamedTuple):
    """Where capsules enter a model: `module` has them as its output, or reads them.

    There are capsules for each `positions`: "source" or "target" words, or the "sentence". `start` is None if they are
    the module's output, else the first feature of its input that is theirs.
    """

    module: nn.Module
    positions: str
    start: int | None = None


def measure_worth(model: PreTrainedModel, corpus: EncodedCorpus, *, max_tokens_per_batch: int = 1024) -> dict[str, Any]:
    """Measure what its capsules are worth to a model of this package that routes.

    Losses are in nats a target token, ends of sentences included, without label smoothing.

    Returns:
        "loss", of the model as it is, and "added", by place what is added without the capsules there: "encoder layers",
        "decoder layers", "source" (what all decoder layers read), "heads" (all at once), "guided capsules" or "sentence
        capsules". It is empty for a corpus of one line.
    """
    places = _places(model) if len(corpus.lines) > 1 else {}
    means = CapsuleMeans(site for sites in places.values() for site in sites)
    words = sum(len(corpus.targets[index]) for index in corpus.lines)
    batches = partial(_batches, model, corpus, max_tokens_per_batch)

    added = {}
    with evaluating(model):
        total = 0.0
        for batch in batches("mean capsules"):
            with means.observe(batch):
                total += _loss(model, batch)
        loss = total / words

        for place, sites in places.items():
            total = 0.0
            for batch in batches(f"without {place}"):
                with means.replace(sites):
                    total += _loss(model, batch)
            added[place] = total / words - loss
    return {"loss": loss, "added": added}


def _batches(model: PreTrainedModel, corpus: EncodedCorpus, max_tokens: int, description: str) -> Iterator[_Batch]:
    """Yield the corpus in batches, with a bar of progress."""
    pad = model.config.pad_token_id
    for indices in tqdm(corpus.batches(max_tokens), unit=" batches", desc=description):
        sources, source_mask = pad_rows([corpus.sources[index] for index in indices], pad, model.device)
        targets, target_mask = pad_rows([corpus.targets[index] for index in indices], pad, model.device)
        yield _Batch(sources, source_mask, targets, target_mask)


def _loss(model: PreTrainedModel, batch: _Batch) -> float:
    """Return the sum over target words of the loss, in nats."""
    encoder_inputs = {"input_ids": batch.sources, "attention_mask": batch.source_mask.long()}
    logits = model.force_decode(behind_start(model, batch.targets), False, **encoder_inputs).logits
    of_words = logits[batch.target_mask].float()
    return F.cross_entropy(of_words, batch.targets[batch.target_mask], reduction="sum").item()


def _places(model: nn.Module) -> dict[str, list[_Site]]:
    """Return the sites of a model's capsules, by what they are called."""
    places: dict[str, list[_Site]] = {}
    for name, module in model.named_modules():
        side = _side_of(name)
        positions = "source" if side == "encoder" else "target"

        if isinstance(module, LayerAggregation) and isinstance(module.aggregator, RoutedAggregation):
            place = "source" if "source_aggregation" in name else f"{side} layers"
            # Before the LayerNorm the mean would be made as long as what it is the mean of.
            site = _Site(module.layer_norm, positions)
        elif isinstance(module, RoutedHeads):
            place = "heads"
            site = _Site(module, positions)
        elif isinstance(module, GuidedRouting):
            place = "guided capsules"
            site = _Site(module.fc1, positions, start=module.fc2.out_features)
        elif isinstance(getattr(module, "aggregation", None), SentenceCapsules):
            place = "sentence capsules"
            site = _Site(module.projection, "sentence")
        else:
            continue

        places.setdefault(place, []).append(site)
    return places


def _side_of(name: str) -> str:
    return "encoder" if ".encoder." in f".{name}." else "decoder"


class CapsuleMeans:
    """The means over a corpus of what capsules bring at some sites of a model."""

    def __init__(self, sites: Iterable[_Site]) -> None:
        self._means = {site: _Mean() for site in sites}

    @contextmanager
    def observe(self, batch: _Batch) -> Iterator[None]:
        """Add what the capsules bring to a batch that the model reads in the block."""
        with ExitStack() as stack:
            for site, mean in self._means.items():
                change = partial(mean.add, batch.mask_of(site.positions))
                stack.enter_context(_changed(site, change))
            yield

    @contextmanager
    def replace(self, sites: Iterable[_Site]) -> Iterator[None]:
        """Let the model read the means at these sites in the block."""
        with ExitStack() as stack:
            for site in sites:
                stack.enter_context(_changed(site, self._means[site].instead_of))
            yield


class _Mean:
    """The mean of what capsules bring, `[d]`."""

    def __init__(self) -> None:
        self._sum: Tensor | float = 0.0
        self._count = 0

    def add(self, mask: Tensor, capsules: Tensor) -> Tensor:
        """Add capsules `[*mask.shape, d]` where `mask` is True, and return them."""
        kept = capsules.double()[mask.to(capsules.device)]
        self._sum = self._sum + kept.sum(0)
        self._count += len(kept)
        return capsules

    def instead_of(self, capsules: Tensor) -> Tensor:
        """Return the mean in the shape of `capsules`."""
        mean = self._sum / self._count
        return mean.to(capsules.dtype).expand_as(capsules)


@contextmanager
def _changed(site: _Site, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Let the model read what `change` makes of the capsules of a site, until the end of the block."""

    def change_output(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        return change(output)

    def change_input(module: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        others, capsules = inputs[0].tensor_split([site.start], dim=-1)
        return torch.cat([others, change(capsules)], dim=-1)

    if site.start is None:
        hook = site.module.register_forward_hook(change_output)
    else:
        hook = site.module.register_forward_pre_hook(change_input)

    try:
        yield
    finally:
        hook.remove()


def record_gates(model: nn.Module) -> dict[str, dict[str, float]]:
    """Return the mean and the largest magnitude of gamma, by the place of the layers or heads that are added."""
    gates = {}
    for name, module in model.named_modules():
        if isinstance(module, LayerAggregation) and module.gamma is not None:
            gates[_place_of(name)] = _sizes(module.gamma)
        elif isinstance(module, ResidualRoutedHeads):
            gates[f"heads {module.routed.routing.place}"] = _sizes(module.gamma)
    return gates


def _place_of(name: str) -> str:
    """Return what a module's name says about the place of an aggregation of layers."""
    side = _side_of(name)
    of_layer = _OF_LAYER.search(name)
    if not of_layer:
        return f"{side} layers"
    number = int(of_layer[2]) + 1
    if of_layer[1] == "source":
        return f"source of decoder layer {number}"
    return f"above {side} layer {number}"


def _sizes(gamma: Tensor) -> dict[str, float]:
    magnitudes = gamma.detach().float().abs()
    return {"mean": magnitudes.mean().item(), "largest": magnitudes.max().item()}
