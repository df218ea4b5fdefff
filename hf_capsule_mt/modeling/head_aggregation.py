"""Aggregation of the heads of multi-head attention (Li et al. 2019).

A module here takes the place of an attention's output projection W^O: it maps the concatenated heads `[..., d]` to
`[..., d]`, position by position, so attention itself and its caches know nothing of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers import initialization as init

from .capsule_routing import CapsuleRouting, OutputRouting


class RoutedHeads(nn.Module):
    """Eq. 5-12: an input capsule for each head, computed from all heads, votes for the output capsules.

    Args:
        config: a [`CapsuleAggregatedMarianConfig`].
        num_heads: H, the input capsules.
    """

    def __init__(self, config: PretrainedConfig, num_heads: int) -> None:
        super().__init__()
        width = config.d_model
        self.num_heads = num_heads
        self.inputs = nn.Linear(width, num_heads * width)
        self.votes = nn.Linear(width, width)
        self.routing = CapsuleRouting(config.head_aggregation, config)

    def forward(self, heads: Tensor) -> Tensor:
        """Aggregate concatenated heads `[..., d]` to `[..., d]`."""
        capsules = self.inputs(heads).tanh().unflatten(-1, (self.num_heads, -1))
        return self.routing(self.votes(capsules))[0]


class ResidualRoutedHeads(nn.Linear):
    """W^O, as it was trained, and routed heads beside it: W^O O + gamma * routed(O), with gamma 0 at the start.

    The LayerNorm of the attention's own residual connection follows, so this one needs none.
    """

    def __init__(self, config: PretrainedConfig, num_heads: int) -> None:
        super().__init__(config.d_model, config.d_model)
        self.routed = RoutedHeads(config, num_heads)
        self.gamma = nn.Parameter(torch.zeros(config.d_model))

    def init_weights(self, std: float) -> None:
        """Switch the routed heads off, unless gamma was loaded."""
        init.zeros_(self.gamma)

    def forward(self, heads: Tensor) -> Tensor:
        """Aggregate concatenated heads `[..., d]` to `[..., d]`."""
        return super().forward(heads) + self.gamma * self.routed(heads)


def aggregate_heads(attention: nn.Module, config: PretrainedConfig, site: str, layer: int) -> None:
    """Put an aggregation in the place of `attention.out_proj`, if the configuration has one at this site and layer.

    Args:
        attention: of one site: "encoder_self", "decoder_self" or "cross".
        config: a [`CapsuleAggregatedMarianConfig`].
        site: where `attention` is.
        layer: index of its layer, from the bottom.
    """
    if config.aggregates_heads(site, layer):
        kind = RoutedHeads if config.head_aggregation_output == "replace" else ResidualRoutedHeads
        attention.out_proj = kind(config, attention.num_heads)


@contextmanager
def head_routing_of(stack: nn.Module, output_routing: OutputRouting) -> Iterator[list[Tensor]]:
    """Collect the assignments of all heads that `stack` routes in this context, in the order it does.

    The list gets one tensor `[batch, positions, H, N]` (with "all": `[batch, positions, iterations, H, N]`) for each
    routed attention; none if `output_routing` is False.
    """
    assignments: list[Tensor] = []

    def ask(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        return args, {**kwargs, "output_routing": output_routing}

    def keep(module: nn.Module, args: tuple, output: tuple[Tensor, Tensor]) -> None:
        assignments.append(output[1])

    routings = [module.routing for module in stack.modules() if isinstance(module, RoutedHeads)]
    handles = []
    for routing in routings if output_routing else []:
        handles += [routing.register_forward_pre_hook(ask, with_kwargs=True), routing.register_forward_hook(keep)]
    try:
        yield assignments
    finally:
        for handle in handles:
            handle.remove()
