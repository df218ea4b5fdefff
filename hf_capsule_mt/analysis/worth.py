"""What its capsules are worth to a trained model: how much likelier they make the words that it is made to write.

What reads capsules is given their mean over the corpus instead, which is the same for every position and sentence; all
else stays as it is. That says what this model makes of its capsules, not how it would do had it been trained without.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from hf_capsule_mt.modeling.layers.capsule_routing import CapsuleRouting
from hf_capsule_mt.modeling.layers.guided_routing import GuidedRouting
from hf_capsule_mt.modeling.layers.head_aggregation import HeadRouting
from hf_capsule_mt.modeling.layers.sentence_capsules import SentenceCapsules
from hf_capsule_mt.teacher_forcing import evaluating, pad_rows

from .corpus import Corpus


class Worth(NamedTuple):
    """Losses in nats a target word, ends of sentences included, without label smoothing.

    Attributes:
        loss: of the model as it is.
        added: what is added to it by the mean capsules of a place, by its name: "encoder layers", "decoder layers",
            "heads" (all that are routed), "guided capsules" or "sentence capsules".
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
    places = _places(model)
    means = {site: _Mean() for sites in places.values() for site in sites}
    losses = dict.fromkeys(("", *places), 0.0)
    with evaluating(model):
        for batch in _batches(model, corpus, max_tokens_per_batch):
            with _changed({site: mean.adder(batch.mask_of(site)) for site, mean in means.items()}):
                losses[""] += batch.loss(model)
            if on_batch is not None:
                on_batch(batch.lines)
        for batch in _batches(model, corpus, max_tokens_per_batch):
            for place, sites in places.items():
                with _changed({site: means[site].instead_of for site in sites}):
                    losses[place] += batch.loss(model)
            if on_batch is not None:
                on_batch(batch.lines)
    words = sum(len(corpus.targets[index]) for index in corpus.lines)
    own = losses.pop("") / words
    return Worth(own, {place: loss / words - own for place, loss in losses.items()})


class _Site(NamedTuple):
    """A module that makes capsules, or that reads them, from feature `start` of its input on.

    Attributes:
        positions: what there are capsules of: "source" or "target" words, or the "sentence".
    """

    module: nn.Module
    positions: str
    start: int | None = None


def _places(model: nn.Module) -> dict[str, list[_Site]]:
    """Return the sites of a model by the name of their place."""
    found: dict[str, list[_Site]] = {}
    for name, module in model.named_modules():
        side = "encoder" if ".encoder." in f".{name}." else "decoder"
        positions = "source" if side == "encoder" else "target"
        if isinstance(module, HeadRouting):
            found.setdefault("heads", []).append(_Site(module, positions))
        elif isinstance(module, CapsuleRouting):
            found.setdefault(f"{side} layers", []).append(_Site(module, positions))
        elif isinstance(module, SentenceCapsules):
            found.setdefault("sentence capsules", []).append(_Site(module, "sentence"))
        elif isinstance(module, GuidedRouting):
            width = module.fc2.out_features
            found.setdefault("guided capsules", []).append(_Site(module.fc1, positions, start=width))
    return found


class _Batch(NamedTuple):
    sources: Tensor
    source_mask: Tensor
    targets: Tensor
    target_mask: Tensor

    @property
    def lines(self) -> int:
        return len(self.sources)

    def mask_of(self, site: _Site) -> Tensor:
        """Return where there are capsules; `[batch]` of a sentence, else `[batch, positions]`."""
        masks = {"source": self.source_mask, "target": self.target_mask, "sentence": self.source_mask.any(-1)}
        return masks[site.positions]

    def loss(self, model: PreTrainedModel) -> float:
        """Return the sum over the target words."""
        start = self.targets.new_full((self.lines, 1), model.config.decoder_start_token_id)
        sequences = torch.cat([start, self.targets], dim=1)
        source = {"input_ids": self.sources, "attention_mask": self.source_mask.long()}
        logits = model.force_decode(sequences, False, **source).logits[self.target_mask]
        return F.cross_entropy(logits.float(), self.targets[self.target_mask], reduction="sum").item()


def _batches(model: PreTrainedModel, corpus: Corpus, max_tokens: int) -> Iterator[_Batch]:
    def padded(side: Sequence[Sequence[int]], batch: Sequence[int]) -> tuple[Tensor, Tensor]:
        return pad_rows([side[index] for index in batch], model.config.pad_token_id, model.device)

    for batch in corpus.batches(max_tokens):
        yield _Batch(*padded(corpus.sources, batch), *padded(corpus.targets, batch))


class _Mean:
    """The mean of capsules over the positions, or sentences, that there are."""

    def __init__(self) -> None:
        self.sum: Tensor | float = 0.0
        self.count = 0

    def adder(self, mask: Tensor) -> Callable[[Tensor], Tensor]:
        """Return what adds capsules where `mask` is True, and leaves them as they are."""

        def add(capsules: Tensor) -> Tensor:
            self.sum += capsules[mask].double().sum(0)
            self.count += int(mask.sum())
            return capsules

        return add

    def instead_of(self, capsules: Tensor) -> Tensor:
        """Return the mean, in the shape of `capsules`."""
        return (self.sum / self.count).to(capsules.dtype).expand_as(capsules)


@contextmanager
def _changed(changes: dict[_Site, Callable[[Tensor], Tensor]]) -> Iterator[None]:
    """Put what the function of a site returns in the place of its capsules, until the end of the block."""
    with ExitStack() as stack:
        for site, change in changes.items():
            stack.callback(_hook(site, change).remove)
        yield


def _hook(site: _Site, change: Callable[[Tensor], Tensor]) -> torch.utils.hooks.RemovableHandle:
    if site.start is None:
        return site.module.register_forward_hook(lambda _, __, output: (change(output[0]), *output[1:]))

    def change_input(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        others, capsules = inputs[0].tensor_split([site.start], dim=-1)
        return torch.cat([others, change(capsules)], dim=-1)

    return site.module.register_forward_pre_hook(change_input)
