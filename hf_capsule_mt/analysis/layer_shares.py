"""Which layers of the encoder each layer of the decoder reads, if each has an aggregate of its own of them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_capsule_mt.modeling.aggregation import RoutedAggregation


class SourceShares:
    """The mean share that each layer of the encoder has in what each layer of the decoder reads.

    In a learned mean the shares are its weights, and in attention over layers those of a position. Routing assigns each
    layer to output capsules. There a layer's share is its part of what is assigned to a capsule, the mean over capsules
    at the last iteration. Other aggregates have no shares, and neither have models without aggregates for the source.

    Args:
        model: its layers are read.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        aggregation = getattr(getattr(model.base_model, "encoder", None), "source_aggregation", None)
        self._aggregators: list[nn.Module] = []
        if aggregation is not None:
            aggregators = [layer.aggregator for layer in aggregation.layers]
            self._aggregators = [aggregator for aggregator in aggregators if _has_shares(aggregator)]
        # Those of the last batch, by layer of the decoder: `[L + 1]`, or `[batch, source, L + 1]`.
        self._last: dict[int, Tensor] = {}
        self._sums: list[Tensor | float] = [0.0] * len(self._aggregators)
        self._positions = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Remember the shares of every batch that the model reads in the block, until the next one."""
        with ExitStack() as stack:
            for number, aggregator in enumerate(self._aggregators):
                hook = aggregator.register_forward_hook(partial(self._remember, number))
                stack.callback(hook.remove)
            yield

    def _remember(self, number: int, aggregator: nn.Module, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        if isinstance(aggregator, RoutedAggregation):
            _, assignment = output
            # `[batch, source, iterations, L + 1, N]`.
            self._last[number] = shares_of_assignment(assignment[..., -1, :, :])
        else:
            layers = inputs[0]
            self._last[number] = aggregator.shares(layers)

    def add(self, mask: Tensor) -> None:
        """Add the shares of the last batch at the source words `[batch, source]` where `mask` is True."""
        self._positions += int(mask.sum())
        for number, shares in self._last.items():
            # A learned mean has the same shares everywhere.
            everywhere = shares.expand(*mask.shape, -1)
            self._sums[number] += everywhere[mask].double().sum(0).cpu()

    @property
    def means(self) -> Tensor | None:
        """`[decoder layers, encoder layers + 1]`, float64, the embeddings first. None if there are no shares."""
        if not self._last:
            return None
        return torch.stack(self._sums) / self._positions


def _has_shares(aggregator: nn.Module) -> bool:
    return isinstance(aggregator, RoutedAggregation) or hasattr(aggregator, "shares")


def shares_of_assignment(assignment: Tensor) -> Tensor:
    """Return the share of each layer, `[..., L]`, of an assignment of layers to output capsules, `[..., L, N]`.

    A capsule to which nothing is assigned takes nothing from any layer.
    """
    assigned = assignment.float()
    of_capsule = assigned.sum(-2, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return (assigned / of_capsule).mean(-1)
