"""Layer aggregation (Dou et al. 2019) at every place as loops over positions and layers, given parameters."""

import itertools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .routing import RoutingOutput, dynamic_routing, em_routing


def aggregate_layers(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], layers: Sequence[Tensor], top: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """The aggregate [..., d] of layers [..., d], and for routing the assignment [..., iterations, L, N].

    A residual is added to `top`, or else to the last layer.
    """
    leading = layers[0].shape[:-1]
    aggregates, assignments = [], []
    for position in itertools.product(*map(range, leading)):
        vectors = [layer[position] for layer in layers]
        aggregate, assignment = _aggregate(config, parameters, vectors)
        if _is_normalised(config):
            aggregate = _layer_norm(aggregate, parameters["layer_norm.weight"], parameters["layer_norm.bias"])
        if config.layer_aggregation_output == "residual":
            below = vectors[-1] if top is None else top[position]
            aggregate = below + parameters["gamma"] * aggregate
        aggregates.append(aggregate)
        assignments.append(assignment)
    aggregates = torch.stack(aggregates).reshape(*leading, -1)
    if assignments[0] is None:
        return aggregates, None
    return aggregates, torch.stack(assignments).reshape(*leading, *assignments[0].shape)


def source_states(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], layers: Sequence[Tensor]
) -> tuple[Tensor, Tensor | None]:
    """z_1..z_M [batch, M, source, d] of h_0..h_L [batch, source, d], and the assignments, with M after the batch."""
    states, assignments = [], []
    for decoder_layer in range(config.decoder_layers):
        prefix = f"layers.{decoder_layer}."
        own = {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
        aggregate, assignment = aggregate_layers(config, own, layers)
        states.append(aggregate)
        assignments.append(assignment)
    states = torch.stack(states, dim=1)
    if assignments[0] is None:
        return states, None
    return states, torch.stack(assignments, dim=1)


def layer_input(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], states: Sequence[Tensor], top: Tensor
) -> Tensor:
    """x_{l+1} [batch, length, d] of what is mixed of h_0..h_l (Wang et al. 2019), or h_0 for l = 0. `top` is h_l."""
    layer = len(states) - 1
    if layer == 0:
        return states[0]
    prefix = f"layers.{layer - 1}."
    own = {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}
    capsules = [_input_capsule(config, parameters, state, index) for index, state in enumerate(states)]
    return aggregate_layers(config, own, capsules, top)[0]


def _input_capsule(config: PreTrainedConfig, parameters: Mapping[str, Tensor], state: Tensor, layer: int) -> Tensor:
    if not config.layer_aggregation_input_norm:
        return state
    weight = parameters.get(f"norms.{layer}.weight", torch.ones_like(state[0, 0]))
    bias = parameters.get(f"norms.{layer}.bias", torch.zeros_like(state[0, 0]))
    rows = [torch.stack([_layer_norm(vector, weight, bias) for vector in row]) for row in state]
    return torch.stack(rows)


def _is_normalised(config: PreTrainedConfig) -> bool:
    """Whether a LayerNorm follows an aggregate."""
    if config.layer_aggregation_place == "top" or config.layer_aggregation_output == "residual":
        return True
    if config.layer_aggregation_place == "source":
        # Bapna et al. 2018 have none behind weighted means.
        return config.layer_aggregation not in ("linear", "attention")
    # Wang et al. 2019: with post-norm layers the norm is behind the sum, and with pre-norm layers in front of it.
    return config.model_type != "capsule_aggregated_m2m_100"


def _aggregate(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], vectors: list[Tensor]
) -> tuple[Tensor, Tensor | None]:
    """One position: vectors H^1..H^L [d] to one [d], and the assignment [iterations, L, N]."""
    if config.layer_aggregation == "linear" and config.layer_aggregation_place == "source":
        # Bapna et al. 2018: s_k = exp(w_k) / sum_i exp(w_i)
        exponentials = [weight.exp() for weight in parameters["aggregator.weight"]]
        weights = [exponential / sum(exponentials) for exponential in exponentials]
    elif config.layer_aggregation == "linear":
        # Eq. 3
        weights = list(parameters["aggregator.weight"])
    elif config.layer_aggregation == "dynamic":
        # Eq. 4
        hidden = _linear(parameters, "aggregator.fc1", torch.cat(vectors)).relu()
        weights = _linear(parameters, "aggregator.fc2", hidden).chunk(len(vectors))
    elif config.layer_aggregation in ("attention", "delta-attention"):
        normed = [vector / (vector.square().mean() + 1e-6).sqrt() for vector in vectors]
        weights = torch.stack([parameters["aggregator.weight"] @ vector for vector in normed]).softmax(0)
    else:
        routed = _route(config, parameters, vectors)
        return torch.cat(list(routed.capsules)), routed.all_coefficients
    return sum(weight * vector for weight, vector in zip(weights, vectors)), None


def _route(config: PreTrainedConfig, parameters: Mapping[str, Tensor], vectors: list[Tensor]) -> RoutingOutput:
    num_capsules = config.num_output_capsules or config.d_model
    joint = config.layer_aggregation_parameterization == "joint"
    # Eq. 8
    capsules = _transform(parameters, "aggregator.inputs", vectors, joint=config.layer_aggregation_context == "all")
    # Eq. 7
    votes = _transform(parameters, "aggregator.votes", capsules, joint)
    votes = torch.stack([vote.reshape(num_capsules, -1) for vote in votes])
    if config.layer_aggregation == "dynamic_routing":
        return dynamic_routing(votes, config.routing_iterations)
    # Eq. 10, with the sigmoid it omits
    activations = _transform(parameters, "aggregator.activations", capsules, joint)
    return em_routing(
        votes,
        parameters["aggregator.routing.beta_a"],
        parameters["aggregator.routing.beta_u"],
        config.routing_iterations,
        torch.stack([activation.sigmoid() for activation in activations]),
        config.inverse_temperature,
    )


def _transform(parameters: Mapping[str, Tensor], name: str, vectors: list[Tensor], joint: bool) -> list[Tensor]:
    """One result a layer: part l of one map of the concatenated vectors, or layer l's own map of vector l."""
    if joint:
        return list(_linear(parameters, name, torch.cat(vectors)).chunk(len(vectors)))
    weights, biases = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
    return [vector @ weight + bias for vector, weight, bias in zip(vectors, weights, biases)]


def _linear(parameters: Mapping[str, Tensor], name: str, vector: Tensor) -> Tensor:
    return parameters[f"{name}.weight"] @ vector + parameters[f"{name}.bias"]


def _layer_norm(vector: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    variance = ((vector - vector.mean()) ** 2).mean()
    return weight * (vector - vector.mean()) / (variance + 1e-5).sqrt() + bias
