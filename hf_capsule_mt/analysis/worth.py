"""What the capsules of a trained model are worth: the loss that is added when they say the same about every line.

Their mean over the corpus replaces what they bring to each position or sentence. That says what this model makes of its
capsules. It does not say how a model that was trained without them would do.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from hf_capsule_mt.modeling.aggregation import LayerAggregation, ResidualRoutedHeads, RoutedAggregation, RoutedHeads
from hf_capsule_mt.modeling.guided_routing import GuidedRouting
from hf_capsule_mt.modeling.sentence_capsules import SentenceCapsules
from hf_capsule_mt.translation.translator import behind_start, evaluating, pad_rows

from .corpus import Corpus
from .routing_kinds import side_of


class Worth(NamedTuple):
    """Losses in nats a target token, ends of sentences included, without label smoothing.

    Attributes:
        loss: of the model as it is.
        added: what is added without the capsules of a place: "encoder layers", "decoder layers", "heads" (all at once),
            "guided capsules" or "sentence capsules". Empty for a corpus of one line.
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
        model: a translation model of this package.
        corpus: what it reads and is made to write.
        max_tokens_per_batch: as in [`Corpus.batches`], padding included.
        on_batch: called after each batch with its number of lines; every line comes twice.
    """
    places = _places(model) if len(corpus.lines) > 1 else {}
    means = {site: _Mean() for sites in places.values() for site in sites}
    own, others = 0.0, dict.fromkeys(places, 0.0)
    with evaluating(model):
        for means_are_known in (False, True):
            for indices in corpus.batches(max_tokens_per_batch):
                sides = ([side[index] for index in indices] for side in (corpus.sources, corpus.targets))
                batch = _Batch(model, *sides)
                if not means_are_known:
                    adders = {site: partial(mean.add, batch.masks[site.positions]) for site, mean in means.items()}
                    with _changed(adders):
                        own += batch.loss()
                else:
                    for place, sites in places.items():
                        with _changed({site: means[site].instead_of for site in sites}):
                            others[place] += batch.loss()
                if on_batch is not None:
                    on_batch(len(indices))
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


class _Batch:
    def __init__(self, model: PreTrainedModel, sources: list[list[int]], targets: list[list[int]]) -> None:
        self._model = model
        ids, read = pad_rows(sources, model.config.pad_token_id, model.device)
        self._targets, written = pad_rows(targets, model.config.pad_token_id, model.device)
        self._inputs = {"input_ids": ids, "attention_mask": read.long()}
        self.masks = {"source": read, "target": written, "sentence": read.any(-1)}

    def loss(self) -> float:
        """Return the sum over the target tokens."""
        written = self.masks["target"]
        output = self._model.force_decode(behind_start(self._model, self._targets), False, **self._inputs)
        return F.cross_entropy(output.logits[written].float(), self._targets[written], reduction="sum").item()


class _Mean:
    """The mean of what capsules bring, `[d]`."""

    def __init__(self) -> None:
        self._sum, self._count = 0.0, 0

    def add(self, mask: Tensor, capsules: Tensor) -> Tensor:
        """Add capsules `[*mask.shape, d]` where `mask` is True; return them as they are."""
        kept = capsules.double()[mask.to(capsules.device)]
        self._sum, self._count = self._sum + kept.sum(0), self._count + len(kept)
        return capsules

    def instead_of(self, capsules: Tensor) -> Tensor:
        """Return the mean in the shape of `capsules`."""
        return (self._sum / self._count).to(capsules.dtype).expand_as(capsules)


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
    gates = {}
    for name, module in model.named_modules():
        if isinstance(module, LayerAggregation) and module.gamma is not None:
            gates[f"{side_of(name)} layers"] = module.gamma
        elif isinstance(module, ResidualRoutedHeads):
            gates[f"heads {module.routed.routing.place}"] = module.gamma
    sizes = {place: gamma.detach().float().abs() for place, gamma in gates.items()}
    return {place: {"mean": size.mean().item(), "largest": size.max().item()} for place, size in sizes.items()}
