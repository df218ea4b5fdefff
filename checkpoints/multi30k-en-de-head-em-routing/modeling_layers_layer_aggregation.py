# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/layers/layer_aggregation.py.
"""Aggregation of the layers of one stack (Dou et al. 2019).

An aggregator maps the outputs H^1..H^L of the L layers, each `[..., d]`, to one `[..., d]`. It is position-wise: no
mask, no look-ahead, the same at every decoding step.
"""

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .modeling_outputs import OutputRouting
from .modeling_layers_capsule_routing import CapsuleRouting
from .modeling_layers_linear import Linear


class BlockLinear(nn.Module):
    """One linear map for each block: `[..., blocks, in_features]` -> `[..., blocks, out_features]`."""

    def __init__(self, num_blocks: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_blocks, in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(num_blocks, out_features))

    def init_weights(self, std: float) -> None:
        """Draw the weights from N(0, std^2) and zero the bias, unless they were loaded."""
        init.normal_(self.weight, mean=0.0, std=std)
        init.zeros_(self.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map block b of the inputs by `weight[b]`."""
        flat = inputs.reshape(-1, *inputs.shape[-2:]).transpose(0, 1)
        outputs = torch.baddbmm(self.bias.unsqueeze(1), flat, self.weight)
        return outputs.transpose(0, 1).reshape(*inputs.shape[:-1], -1)


class LinearCombination(nn.Module):
    """Eq. 3: sum_l w_l * H^l with learned vectors w_l, 1/L at the start."""

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_layers, width))

    def init_weights(self, std: float) -> None:
        """Start from the mean of the layers, unless the weights were loaded."""
        init.constant_(self.weight, 1 / self.weight.shape[0])

    def forward(self, layers: Tensor, output_routing: OutputRouting = False) -> tuple[Tensor, None]:
        """Aggregate `[..., L, d]` to `[..., d]`."""
        return (self.weight * layers).sum(-2), None


class DynamicCombination(nn.Module):
    """Eq. 4: the weights of every position come from a feed-forward network of all layers, L d -> 4 d -> L d."""

    def __init__(self, num_layers: int, width: int) -> None:
        super().__init__()
        self.fc1 = Linear(num_layers * width, 4 * width)
        self.fc2 = Linear(4 * width, num_layers * width)

    def forward(self, layers: Tensor, output_routing: OutputRouting = False) -> tuple[Tensor, None]:
        """Aggregate `[..., L, d]` to `[..., d]`."""
        weights = self.fc2(torch.relu(self.fc1(layers.flatten(-2))))
        return (weights.view_as(layers) * layers).sum(-2), None


class RoutedAggregation(nn.Module):
    """Eq. 5-16: the layers vote for output capsules, which are concatenated.

    Args:
        num_layers: L, the input capsules.
        width: d.
        routing: of their votes.
        context: with "all", F_l sees every layer; with "own", H^l alone (Table 3).
        parameterization: with "factored", W_l and A_l act on one input capsule each; with "joint", V and A are each one
            map of the concatenated input capsules, and A gives one activation for each pair of capsules.
    """

    def __init__(
        self,
        num_layers: int,
        width: int,
        routing: CapsuleRouting,
        context: str = "all",
        parameterization: str = "factored",
    ) -> None:
        super().__init__()
        concatenated, joint = num_layers * width, parameterization == "joint"
        self.num_layers = num_layers
        whole = context == "all"
        self.inputs = Linear(concatenated, concatenated) if whole else BlockLinear(num_layers, width, width)
        self.votes = Linear(concatenated, concatenated) if joint else BlockLinear(num_layers, width, width)
        self.routing = routing
        self.activations = None
        if routing.algorithm == "em_routing":
            pairs = num_layers * self.routing.num_capsules
            self.activations = Linear(concatenated, pairs) if joint else BlockLinear(num_layers, width, 1)

    def forward(self, layers: Tensor, output_routing: OutputRouting = False) -> tuple[Tensor, Tensor | None]:
        """Aggregate `[..., L, d]` to `[..., d]`; see [`LayerAggregation.forward`] for the second result."""
        capsules = self._map(self.inputs, layers)
        activations = None if self.activations is None else self._map(self.activations, capsules).sigmoid()
        votes = self._map(self.votes, capsules)
        aggregate, assignment = self.routing(votes, activations, every_iteration=output_routing == "all")
        return aggregate, assignment if output_routing else None

    def _map(self, module: nn.Module, capsules: Tensor) -> Tensor:
        if isinstance(module, BlockLinear):
            return module(capsules)
        return module(capsules.flatten(-2)).unflatten(-1, (self.num_layers, -1))


class LayerAggregation(nn.Module):
    """An aggregator, the LayerNorm after it, and the way its result joins the model.

    Args:
        aggregator: maps `[..., L, d]` to `[..., d]`.
        width: d.
        output: "replace": LayerNorm(aggregate); "residual": H^L + gamma * LayerNorm(aggregate), gamma 0 at the start.
    """

    def __init__(self, aggregator: nn.Module, width: int, output: str) -> None:
        super().__init__()
        self.aggregator = aggregator
        self.layer_norm = nn.LayerNorm(width)
        self.gamma = nn.Parameter(torch.zeros(width)) if output == "residual" else None

    def init_weights(self, std: float) -> None:
        """Switch the residual off, unless gamma was loaded."""
        if self.gamma is not None:
            init.zeros_(self.gamma)

    def forward(self, layers: list[Tensor], output_routing: OutputRouting = False) -> tuple[Tensor, Tensor | None]:
        """Aggregate the outputs of the layers, bottom to top.

        Args:
            layers: L tensors `[..., d]`.
            output_routing: True for the assignment of the last iteration, "all" for that of every iteration.

        Returns:
            The aggregate `[..., d]`, and the assignment `[..., L, N]` (or `[..., iterations, L, N]`), if there is
            routing and it was asked for, else None.
        """
        aggregate, routing = self.aggregator(torch.stack(layers, dim=-2), output_routing)
        # A CPU sums up the gradients of a norm in the dtype of its input, under autocast in bfloat16.
        aggregate = self.layer_norm(aggregate.to(self.layer_norm.weight.dtype))
        if self.gamma is not None:
            aggregate = layers[-1] + self.gamma * aggregate
        return aggregate, routing
