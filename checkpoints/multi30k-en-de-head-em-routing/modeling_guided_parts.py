# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/guided_parts.py.
"""The parts of guided routing that a configuration with [`GuidedRoutingFields`] describes: None if it has none."""

from transformers import PreTrainedConfig

from .modeling_layers_guided_losses import GuidedLosses
from .modeling_layers_guided_routing import GuidedCapsules, GuidedRouting, GuidedVotes

_PLACES = ("model.encoder.guided_votes", "model.guided_routing", "model.decoder.guided_routing", "guided_losses")
GUIDED_PARTS = tuple(f"{place}." for place in _PLACES)
"""Beginnings of the names of their weights in all models that have them."""
READ_BY_LOSSES = (r"^guided_losses\.",)
"""Names of weights that translating has no need of: a model whose losses have since been switched off lacks them."""


def build_guided_votes(config: PreTrainedConfig) -> GuidedVotes | None:
    """Build the votes of the encoder's states."""
    if config.guided_routing is None:
        return None
    return GuidedVotes(config.guided_routing, config.d_model, _capsules(config))


def build_guided_routing(config: PreTrainedConfig, hidden_width: int) -> GuidedRouting | None:
    """Build the routing for the decoder's states, whose feed-forward network has `hidden_width` units."""
    if config.guided_routing is None:
        return None
    return GuidedRouting(
        config.guided_routing,
        config.d_model,
        _capsules(config),
        hidden_width,
        config.dropout,
        config.guided_routing_iterations,
    )


def build_guided_losses(config: PreTrainedConfig) -> GuidedLosses | None:
    """Build the losses of the capsules."""
    if config.guided_routing is None:
        return None
    return GuidedLosses(config.d_model, _capsules(config), config.bow_loss_weight > 0, config.bca_loss_weight > 0)


def _capsules(config: PreTrainedConfig) -> GuidedCapsules:
    return GuidedCapsules(
        past=config.num_past_capsules,
        future=config.num_future_capsules,
        redundant=config.num_redundant_capsules,
        dim=config.guided_capsule_dim,
    )
