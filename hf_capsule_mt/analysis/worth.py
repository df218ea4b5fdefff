"""What the capsules of a trained model are worth: the loss that is added when they say the same about every line.

Their mean over the corpus replaces what they bring to each position or sentence. That says what this model makes of its
capsules. It does not say how a model that was trained without them would do.
"""

from collections.abc import Callable, Iterator
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
from hf_capsule_mt.translation.translator import behind_start, evaluating, pad_rows

from .corpus import Corpus

Change = Callable[[Tensor], Tensor]
"""From capsules to what the model reads instead."""


def measure_worth(model: PreTrainedModel, corpus: Corpus, *, max_tokens_per_batch: int = 1024) -> dict[str, Any]:
    """Measure what its capsules are worth to a model of this package that routes.

    Losses are in nats a target token, ends of sentences included, without label smoothing.

    Returns:
        "loss", of the model as it is, and "added", by place what is added without the capsules there: "encoder layers",
        "decoder layers", "heads" (all at once), "guided capsules" or "sentence capsules". It is empty for a corpus of
        one line.
    """
    places = _places(model) if len(corpus.lines) > 1 else {}
    means = {site: _Mean() for sites in places.values() for site in sites}
    words = sum(len(corpus.targets[index]) for index in corpus.lines)

    def loss(description: str, changes: Callable[[dict[str, Tensor]], dict[_Site, Change]]) -> float:
        """Return the loss with `changes` of the capsules, which are made for the masks of each batch."""
        total = 0.0
        for batch in tqdm(corpus.batches(max_tokens_per_batch), unit=" batches", desc=description):
            sides = ([side[index] for index in batch] for side in (corpus.sources, corpus.targets))
            padded = [pad_rows(side, model.config.pad_token_id, model.device) for side in sides]
            (sources, read), (targets, written) = padded
            encoder = {"input_ids": sources, "attention_mask": read.long()}
            with _changed(changes({"source": read, "target": written, "sentence": read.any(-1)})):
                logits = model.force_decode(behind_start(model, targets), False, **encoder).logits
            total += F.cross_entropy(logits[written].float(), targets[written], reduction="sum").item()
        return total / words

    with evaluating(model):
        own = loss(
            "mean capsules", lambda masks: {site: partial(means[site].add, masks[site.positions]) for site in means}
        )
        added = {}
        for place, sites in places.items():
            instead = {site: means[site].instead_of for site in sites}
            added[place] = loss(f"without {place}", lambda _, instead=instead: instead) - own
    return {"loss": own, "added": added}


class _Site(NamedTuple):
    """Where capsules enter a model: `module` has them as its output, or reads them.

    There are capsules for each `positions`: "source" or "target" words, or the "sentence". `start` is None if they are
    the module's output, else the first feature of its input that is theirs.
    """

    module: nn.Module
    positions: str
    start: int | None = None


def _places(model: nn.Module) -> dict[str, list[_Site]]:
    found: dict[str, list[_Site]] = {}
    for name, module in model.named_modules():
        side = _side_of(name)
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


def _side_of(name: str) -> str:
    return "encoder" if ".encoder." in f".{name}." else "decoder"


class _Mean:
    """The mean of what capsules bring, `[d]`."""

    def __init__(self) -> None:
        self._sum, self._count = 0.0, 0

    def add(self, mask: Tensor, capsules: Tensor) -> Tensor:
        """Add capsules `[*mask.shape, d]` where `mask` is True, and return them."""
        kept = capsules.double()[mask.to(capsules.device)]
        self._sum, self._count = self._sum + kept.sum(0), self._count + len(kept)
        return capsules

    def instead_of(self, capsules: Tensor) -> Tensor:
        """Return the mean in the shape of `capsules`."""
        return (self._sum / self._count).to(capsules.dtype).expand_as(capsules)


@contextmanager
def _changed(changes: dict[_Site, Change]) -> Iterator[None]:
    """Replace the capsules of each site by what its function returns, until the end of the block."""
    with ExitStack() as stack:
        for site, change in changes.items():
            if site.start is None:
                hook = site.module.register_forward_hook(lambda _, __, output, change=change: change(output))
            else:
                hook = site.module.register_forward_pre_hook(partial(_change_input, site.start, change))
            stack.callback(hook.remove)
        yield


def _change_input(start: int, change: Change, module: nn.Module, inputs: tuple[Tensor]) -> Tensor:
    others, capsules = inputs[0].tensor_split([start], dim=-1)
    return torch.cat([others, change(capsules)], dim=-1)


def record_gates(model: nn.Module) -> dict[str, dict[str, float]]:
    """Return the mean and the largest magnitude of gamma, by the place of the layers or heads that are added."""
    gates = {}
    for name, module in model.named_modules():
        if isinstance(module, LayerAggregation) and module.gamma is not None:
            gates[f"{_side_of(name)} layers"] = module.gamma
        elif isinstance(module, ResidualRoutedHeads):
            gates[f"heads {module.routed.routing.place}"] = module.gamma
    sizes = {place: gamma.detach().float().abs() for place, gamma in gates.items()}
    return {place: {"mean": size.mean().item(), "largest": size.max().item()} for place, size in sizes.items()}
