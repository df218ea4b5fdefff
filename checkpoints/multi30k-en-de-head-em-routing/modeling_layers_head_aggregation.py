# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/layers/head_aggregation.py.
"""Aggregation of the heads of multi-head attention (Li et al. 2019).

A module here takes the place of an attention's output projection W^O: it maps the concatenated heads `[..., d]` to
`[..., d]`, position by position, so attention itself and its caches know nothing of it.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import initialization as init
from transformers.utils.output_capturing import OutputRecorder

from .modeling_outputs import OutputRouting
from .modeling_layers_capsule_routing import CapsuleRouting
from .modeling_layers_linear import UnitGainLinear


class HeadRouting(CapsuleRouting):
    """Routes the votes of the heads at one place, and lets Transformers record how it did.

    Args:
        place: the site and the layer, as in "encoder_self.0".
        *args: those of [`CapsuleRouting`].
        **kwargs: likewise.
    """

    def __init__(self, place: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.place = place

    def forward(
        self, votes: Tensor, every_iteration: bool = False
    ) -> tuple[Tensor, tuple[str, Tensor], tuple["HeadRouting", Tensor]]:
        """Route votes `[..., H, d]`: the capsules `[..., d]`, and what [`RECORDED_HEADS`] records."""
        capsules, assignment = super().forward(votes, every_iteration=every_iteration)
        return capsules, (self.place, assignment), (self, votes)


class RoutedHeads(nn.Module):
    """Eq. 5-12: an input capsule for each head, computed from all heads, votes for the output capsules.

    Adapters such as LoRA that change linear maps find two here: `inputs` (f, all heads' at once) and `votes` (W).

    Args:
        width: d, of the concatenated heads.
        num_heads: H, the input capsules.
        routing: of their votes.
        input_norm: whether input capsules are normalised to mean 0 and variance 1 before their tanh. The paper does
            not; at high learning rates it keeps the tanh from saturating, behind which attention learns no more.
    """

    def __init__(self, width: int, num_heads: int, routing: HeadRouting, input_norm: bool = False) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.input_norm = input_norm
        self.inputs = UnitGainLinear(width, num_heads * width)
        self.votes = UnitGainLinear(width, width)
        self.routing = routing

    def forward(self, heads: Tensor) -> Tensor:
        """Aggregate concatenated heads `[..., d]` to `[..., d]`."""
        return self.routing(self.votes(self.input_capsules(heads)))[0]

    def input_capsules(self, heads: Tensor) -> Tensor:
        """Eq. 5: the input capsules `[..., H, d]` of concatenated heads `[..., d]`."""
        capsules = self.inputs(heads).unflatten(-1, (self.num_heads, -1))
        if self.input_norm:
            capsules = F.layer_norm(capsules, capsules.shape[-1:])
        return capsules.tanh()


class ResidualRoutedHeads(nn.Module):
    """W^O, as it was trained, and routed heads beside it: W^O O + gamma * routed(O), with gamma 0 at the start.

    The LayerNorm of the attention's own residual connection follows, so this one needs none. The projection has its
    weights under Marian's names, `out_proj.weight` and `out_proj.bias`.

    Args: those of [`RoutedHeads`].
    """

    def __init__(self, width: int, num_heads: int, routing: HeadRouting, input_norm: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.routed = RoutedHeads(width, num_heads, routing, input_norm)
        self.gamma = nn.Parameter(torch.zeros(width))

    def init_weights(self, std: float) -> None:
        """Draw the projection, and switch the routed heads off, unless they were loaded."""
        init.normal_(self.weight, mean=0.0, std=std)
        init.zeros_(self.bias)
        init.zeros_(self.gamma)

    def forward(self, heads: Tensor) -> Tensor:
        """Aggregate concatenated heads `[..., d]` to `[..., d]`."""
        return F.linear(heads, self.weight, self.bias) + self.gamma * self.routed(heads)


RECORDED_HEADS = {
    "head_routing": OutputRecorder(HeadRouting, index=1),
    "head_votes": OutputRecorder(HeadRouting, index=2),
}
"""Outputs of the heads' routing that Transformers can record, as it records hidden states and attentions."""


def record_heads(output_routing: OutputRouting) -> dict[str, bool]:
    """The arguments of a stack's forward that make Transformers record what [`split_head_routing`] needs."""
    if not output_routing:
        return {}
    return {"output_head_votes" if output_routing == "all" else "output_head_routing": True}


def split_head_routing(outputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Tensor] | None]:
    """Take what was recorded of the heads out of a stack's outputs.

    Returns:
        The other outputs; and by place the assignments `[batch, positions, H, N]`, or those of every iteration,
        `[batch, positions, iterations, H, N]`; None if nothing was recorded.
    """
    others = {name: value for name, value in outputs.items() if name not in RECORDED_HEADS}
    assignments = dict(outputs.get("head_routing", ()))
    with torch.no_grad():
        for routing, votes in outputs.get("head_votes", ()):
            # As a module, whose weights may be elsewhere when it is not it that runs; a compiler cannot trace the hook
            # that records it.
            run = routing if not torch.compiler.is_compiling() else partial(HeadRouting.forward, routing)
            _, (place, assignment), _ = run(votes, every_iteration=True)
            assignments[place] = assignment
    return others, assignments or None
