"""Head aggregation (Li et al. 2019) as loops over positions and heads, given a module's parameters."""

import itertools
from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .routing import RoutingOutput, em_routing, simple_routing


def aggregate_heads(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], num_heads: int, heads: Tensor
) -> tuple[Tensor, Tensor]:
    """The aggregate [..., d] of concatenated heads [..., d], and the assignment [..., iterations, H, N]."""
    residual = config.head_aggregation_output == "residual"
    aggregates, assignments = [], []
    for position in itertools.product(*map(range, heads.shape[:-1])):
        routed = _route(config, parameters, "routed." if residual else "", num_heads, heads[position])
        aggregate = torch.cat(list(routed.capsules))
        if residual:
            # Eq. 4, and the routed term beside it
            linear = parameters["weight"] @ heads[position] + parameters["bias"]
            aggregate = linear + parameters["gamma"] * aggregate
        aggregates.append(aggregate)
        assignments.append(routed.all_coefficients)
    aggregates = torch.stack(aggregates).reshape(heads.shape)
    return aggregates, torch.stack(assignments).reshape(*heads.shape[:-1], *assignments[0].shape)


def _route(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], prefix: str, num_heads: int, vector: Tensor
) -> RoutingOutput:
    """One position: the concatenated heads [d] to N output capsules."""
    num_capsules = config.num_output_capsules or config.d_model
    weights = parameters[f"{prefix}inputs.weight"].chunk(num_heads)
    biases = parameters[f"{prefix}inputs.bias"].chunk(num_heads)
    votes = []
    for head in range(num_heads):
        # Eq. 5: f_h of all heads
        capsule = weights[head] @ vector + biases[head]
        if config.head_aggregation_input_norm:
            capsule = (capsule - capsule.mean()) / torch.sqrt(capsule.var(correction=0) + 1e-5)
        capsule = torch.tanh(capsule)
        # Eq. 6, W shared by the heads
        vote = parameters[f"{prefix}votes.weight"] @ capsule + parameters[f"{prefix}votes.bias"]
        votes.append(vote.reshape(num_capsules, -1))
    votes = torch.stack(votes)
    if config.head_aggregation == "simple_routing":
        return simple_routing(votes, config.routing_iterations)
    return em_routing(
        votes,
        parameters[f"{prefix}routing.beta_a"],
        parameters[f"{prefix}routing.beta_u"],
        config.routing_iterations,
        inverse_temperature=config.inverse_temperature,
    )
