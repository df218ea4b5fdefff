"""Which layers a layer reads, if it has an aggregate of its own of them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_capsule_mt.modeling.aggregation import LayerAggregation, RoutedAggregation
from hf_capsule_mt.translation.alignment.forced import TeacherForcedPass

_AGGREGATIONS = {
    "source": ("encoder", "source_aggregation"),
    "encoder": ("encoder", "stack_aggregation"),
    "decoder": ("decoder", "stack_aggregation"),
}
"""What is read: the source by layers of the decoder, or a stack by its own layers. With the module that mixes it."""
READING_TITLES = {
    "source": "Encoder layers that decoder layers read",
    "encoder": "Encoder layers that encoder layers read",
    "decoder": "Decoder layers that decoder layers read",
}
"""The titles of their tables and pictures."""
READERS = {"source": "decoder layer", "encoder": "above encoder layer", "decoder": "above decoder layer"}
"""Where each is read. The readers are counted from 1."""


class LayerShares:
    """The mean share that each layer has in what another layer reads.

    In a learned mean the shares are its weights, and in attention over layers those of a position. A learned sum has
    its weights, which may be negative and need not add up to 1. Routing assigns each layer to output capsules. There a
    layer's share is its part of what is assigned to a capsule, the mean over capsules at the last iteration. Other
    aggregates have no shares, and neither have models that read aggregates only on top of a stack.

    Args:
        model: its layers are read.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._readers: dict[str, list[_AggregatorShares]] = {}
        for what, (side, name) in _AGGREGATIONS.items():
            stack = getattr(model.base_model, side, None)
            aggregation = getattr(stack, name, None)
            if aggregation is not None:
                # Hyper-connections, and most own streams, have no aggregator and no shares of layers.
                layers = getattr(aggregation, "layers", ())
                aggregators = [layer.aggregator for layer in layers if isinstance(layer, LayerAggregation)]
                readers = [_AggregatorShares(aggregator) for aggregator in aggregators]
                self._readers[what] = [reader for reader in readers if reader.has_shares]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Remember the shares of every batch that the model reads in the block, until the next one."""
        with ExitStack() as stack:
            for readers in self._readers.values():
                for reader in readers:
                    stack.enter_context(reader.reading())
            yield

    def add(self, forced: TeacherForcedPass) -> None:
        """Add the shares of the last batch at its words."""
        for what, readers in self._readers.items():
            mask = forced.target_mask if what == "decoder" else forced.source_mask
            for reader in readers:
                reader.add(mask)

    @property
    def choices(self) -> dict[str, list[dict[str, float]]]:
        """By what is read, how clearly each layer that reads it chooses: "largest" share and "entropy" in nats.

        Both are means over positions. Learned sums are left out, since their weights need not be shares of a whole.
        """
        choices = {}
        for what, readers in self._readers.items():
            of_readers = [reader.choice for reader in readers if reader.adds_up]
            if of_readers:
                choices[what] = of_readers
        return choices

    @property
    def means(self) -> dict[str, list[Tensor]]:
        """By what is read, the shares of layers for each layer that reads them, float64, the embeddings first.

        "source" has `[encoder layers + 1]` for each layer of the decoder. "encoder" and "decoder" have `[l + 1]` for
        what is read above layer l, which the next layer reads, or leaves the stack. What has no shares is left out.
        """
        return {what: [reader.mean for reader in readers] for what, readers in self._readers.items() if readers}


class _AggregatorShares:
    """The mean shares of the layers that one aggregator reads."""

    def __init__(self, aggregator: nn.Module) -> None:
        self._aggregator = aggregator
        # Those of the last batch: `[L]`, or `[batch, positions, L]`.
        self._last: Tensor | None = None
        self._sum: Tensor | float = 0.0
        self._sum_of_largest = 0.0
        self._sum_of_entropies = 0.0
        self._positions = 0

    @property
    def has_shares(self) -> bool:
        return isinstance(self._aggregator, RoutedAggregation) or hasattr(self._aggregator, "shares")

    @property
    def adds_up(self) -> bool:
        """Whether the shares of a position add up to 1."""
        return isinstance(self._aggregator, RoutedAggregation) or getattr(self._aggregator, "is_mean", False)

    @contextmanager
    def reading(self) -> Iterator[None]:
        hook = self._aggregator.register_forward_hook(self._remember)
        try:
            yield
        finally:
            hook.remove()

    def _remember(self, aggregator: nn.Module, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        if isinstance(aggregator, RoutedAggregation):
            _, assignment = output
            # `[batch, positions, iterations, L, N]`.
            self._last = shares_of_assignment(assignment[..., -1, :, :])
        else:
            self._last = aggregator.shares(inputs[0])

    @torch.no_grad()
    def add(self, mask: Tensor) -> None:
        """Add the shares of the last batch at the words `[batch, positions]` where `mask` is True."""
        # A learned mean has the same shares everywhere.
        everywhere = self._last.expand(*mask.shape, -1)
        shares = everywhere[mask].double()
        self._sum += shares.sum(0).cpu()
        self._positions += int(mask.sum())

        if self.adds_up:
            self._sum_of_largest += shares.amax(-1).sum().item()
            self._sum_of_entropies += torch.special.entr(shares).sum().item()

    @property
    def mean(self) -> Tensor:
        return self._sum / self._positions

    @property
    def choice(self) -> dict[str, float]:
        largest = self._sum_of_largest / self._positions
        entropy = self._sum_of_entropies / self._positions
        return {"largest": largest, "entropy": entropy}


def shares_of_assignment(assignment: Tensor) -> Tensor:
    """Return the share of each layer, `[..., L]`, of an assignment of layers to output capsules, `[..., L, N]`.

    A capsule to which nothing is assigned takes nothing from any layer.
    """
    assigned = assignment.float()
    of_capsule = assigned.sum(-2, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return (assigned / of_capsule).mean(-1)
