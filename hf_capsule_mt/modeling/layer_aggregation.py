"""Aggregation of the layers of one stack (Dou et al. 2019).

An aggregator maps the outputs H^1..H^L of the L layers, each `[..., d]`, to one `[..., d]`. It is position-wise: no
mask, no look-ahead, the same at every decoding step.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers import initialization as init

from .routing import RoutingOutput, dynamic_routing, em_routing

OutputRouting = bool | Literal["all"]


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
        self.fc1 = nn.Linear(num_layers * width, 4 * width)
        self.fc2 = nn.Linear(4 * width, num_layers * width)

    def forward(self, layers: Tensor, output_routing: OutputRouting = False) -> tuple[Tensor, None]:
        """Aggregate `[..., L, d]` to `[..., d]`."""
        weights = self.fc2(torch.relu(self.fc1(layers.flatten(-2))))
        return (weights.view_as(layers) * layers).sum(-2), None


class RoutedAggregation(nn.Module):
    """Eq. 5-16: the layers vote for output capsules, which are concatenated.

    Args:
        num_layers: L, the input capsules.
        width: d, of a layer and of the result.
        algorithm: "dynamic_routing" or "em_routing".
        num_capsules: N output capsules of width d / N.
        num_iterations: of routing.
        inverse_temperature: of EM routing.
        context: "all": F_l sees every layer; "own": F_l sees H^l alone (Table 3).
        parameterization: "factored": W_l and A_l act on one input capsule each; "joint": V and A are each one map of
            the concatenated input capsules, and A gives one activation for each pair of capsules.
    """

    def __init__(
        self,
        num_layers: int,
        width: int,
        algorithm: str,
        num_capsules: int,
        num_iterations: int,
        inverse_temperature: float,
        context: str,
        parameterization: str,
    ) -> None:
        super().__init__()
        joint = parameterization == "joint"
        concatenated = num_layers * width
        self.algorithm = algorithm
        self.num_layers = num_layers
        self.num_capsules = num_capsules
        self.num_iterations = num_iterations
        self.inverse_temperature = inverse_temperature
        self.inputs = (
            nn.Linear(concatenated, concatenated) if context == "all" else BlockLinear(num_layers, width, width)
        )
        self.votes = nn.Linear(concatenated, concatenated) if joint else BlockLinear(num_layers, width, width)
        if algorithm == "em_routing":
            self.activations = (
                nn.Linear(concatenated, num_layers * num_capsules) if joint else BlockLinear(num_layers, width, 1)
            )
            self.beta_a = nn.Parameter(torch.zeros(num_capsules))
            self.beta_u = nn.Parameter(torch.zeros(num_capsules))

    def init_weights(self, std: float) -> None:
        """Zero the costs of EM routing, unless they were loaded."""
        if self.algorithm == "em_routing":
            init.zeros_(self.beta_a)
            init.zeros_(self.beta_u)

    def forward(self, layers: Tensor, output_routing: OutputRouting = False) -> tuple[Tensor, Tensor | None]:
        """Aggregate `[..., L, d]` to `[..., d]`; see [`LayerAggregation.forward`] for the second result."""
        capsules = self._map(self.inputs, layers)
        votes = self._map(self.votes, capsules).unflatten(-1, (self.num_capsules, -1))
        routed = self._route(capsules, votes, return_all_coefficients=output_routing == "all")
        return routed.capsules.flatten(-2), _requested_coefficients(routed, output_routing)

    def _map(self, module: nn.Module, capsules: Tensor) -> Tensor:
        if isinstance(module, BlockLinear):
            return module(capsules)
        return module(capsules.flatten(-2)).unflatten(-1, (self.num_layers, -1))

    def _route(self, capsules: Tensor, votes: Tensor, return_all_coefficients: bool) -> RoutingOutput:
        if self.algorithm == "dynamic_routing":
            return dynamic_routing(votes, self.num_iterations, return_all_coefficients=return_all_coefficients)
        return em_routing(
            votes,
            self.beta_a,
            self.beta_u,
            self.num_iterations,
            self._map(self.activations, capsules).sigmoid(),
            self.inverse_temperature,
            return_all_coefficients=return_all_coefficients,
        )


def _requested_coefficients(routed: RoutingOutput, output_routing: OutputRouting) -> Tensor | None:
    if output_routing == "all":
        return routed.all_coefficients.movedim(0, -3)
    return routed.coefficients if output_routing else None


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
        aggregate = self.layer_norm(aggregate)
        if self.gamma is not None:
            aggregate = layers[-1] + self.gamma * aggregate
        return aggregate, routing


def build_layer_aggregation(config: PretrainedConfig, num_layers: int) -> LayerAggregation:
    """Build the aggregation that a [`CapsuleAggregatedMarianConfig`] describes, for a stack of `num_layers`."""
    width = config.d_model
    if config.layer_aggregation == "linear":
        aggregator = LinearCombination(num_layers, width)
    elif config.layer_aggregation == "dynamic":
        aggregator = DynamicCombination(num_layers, width)
    else:
        aggregator = RoutedAggregation(
            num_layers,
            width,
            algorithm=config.layer_aggregation,
            num_capsules=config.num_output_capsules or width,
            num_iterations=config.routing_iterations,
            inverse_temperature=config.inverse_temperature,
            context=config.layer_aggregation_context,
            parameterization=config.layer_aggregation_parameterization,
        )
    return LayerAggregation(aggregator, width, config.layer_aggregation_output)
