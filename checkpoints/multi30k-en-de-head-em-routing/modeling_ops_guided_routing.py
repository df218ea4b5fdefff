# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/ops/guided_routing.py.
"""PAST and FUTURE capsules (Zheng et al. 2019): source words, routed under the guidance of the decoder's states.

B sentences, S source words, T target positions, J capsules of width D. `mask` is `[B, S]` bool, True where there is a
source word: others contribute exactly nothing. Votes, values and keys may be anything finite where a word is missing.

Routing runs in float32 (float64 for float64) whatever the model's dtype, and holds no tensor of T * S * D elements,
unless it is compiled: see additive_scores.py.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .modeling_ops_additive_scores import additive_scores
from .modeling_ops_routing import in_compute_dtype, squash


class GuidedRoutingOutput(NamedTuple):
    """Capsules, and the assignment of source words to them.

    Attributes:
        capsules: `[B, T, J, D]`.
        assignment: of source words to capsules (or, in the baselines, to PAST, FUTURE and redundant as a whole), that
            of the last iteration, `[B, T, S, J]`, or of every iteration, `[B, T, iterations, S, J]`; without gradient.
    """

    capsules: Tensor
    assignment: Tensor


def guided_dynamic_routing(
    votes: Tensor,
    keys: Tensor,
    queries: Tensor,
    capsule_map: Tensor,
    score_weight: Tensor,
    num_iterations: int = 3,
    mask: Tensor | None = None,
    every_iteration: bool = False,
) -> GuidedRoutingOutput:
    """Guided dynamic routing (Algorithm 1, Eq. 4-7), with W_b of Eq. 7 in three parts.

    Args:
        votes: v `[B, J, S, D]` (Eq. 5).
        keys: W_v v `[B, J, S, D]`.
        queries: W_z z `[B, T, D]`.
        capsule_map: W_Omega `[D, D]`, which is applied to the capsules.
        score_weight: w `[1, D]`.
        num_iterations: iterations, at least 1.
        mask: `[B, S]`; every word exists by default.
        every_iteration: whether to return the assignment of every iteration.
    """
    dtype = queries.dtype
    votes, keys, queries, capsule_map, score_weight = in_compute_dtype(votes, keys, queries, capsule_map, score_weight)
    # Until the first update the assignment is that of every target position.
    logits = votes.new_zeros(*votes.shape[:2], 1, votes.shape[2])
    every = []
    for iteration in range(num_iterations):
        coefficients = _hide(logits.softmax(1), mask)
        every.append(coefficients.detach())
        capsules = squash(coefficients @ votes)
        if iteration + 1 < num_iterations:
            guides = queries.unsqueeze(1) + capsules @ capsule_map.t()
            logits = logits + additive_scores(guides, keys, score_weight).squeeze(-1)
    length = queries.shape[1]
    assignments = [_at_every_position(each, length).movedim(1, -1) for each in every]
    return GuidedRoutingOutput(
        _at_every_position(capsules, length).transpose(1, 2).to(dtype),
        (torch.stack(assignments, dim=2) if every_iteration else assignments[-1]).to(dtype),
    )


def guided_classifier(
    values: Tensor,
    keys: Tensor,
    queries: Tensor,
    score_weight: Tensor,
    num_past: int,
    mask: Tensor | None = None,
) -> GuidedRoutingOutput:
    """The baseline CLF (Fig. 6, footnote 5): each word is PAST, FUTURE or redundant, and capsules are weighted sums.

    Args:
        values: `[B, J, S, D]`, for the PAST capsules and then the FUTURE capsules.
        keys: W_h h `[B, 1, S, D]`.
        queries: W_z z `[B, T, D]`.
        score_weight: `[2 or 3, D]`, of the classes.
        num_past: the PAST capsules among J.
        mask: `[B, S]`; every word exists by default.
    """
    dtype = queries.dtype
    values, keys, queries, score_weight = in_compute_dtype(values, keys, queries, score_weight)
    scores = additive_scores(queries.unsqueeze(1), keys, score_weight).squeeze(1)
    classes = _hide(scores.softmax(-1).movedim(-1, 1), mask)
    return _weighted_sums(classes, values, num_past, dtype)


def guided_attention(
    values: Tensor, keys: Tensor, queries: Tensor, num_past: int, mask: Tensor | None = None
) -> GuidedRoutingOutput:
    """The baseline ATTN (Fig. 6): scaled dot-product attention to PAST, and another to FUTURE.

    Args:
        values: `[B, J, S, D]`, for the PAST capsules and then the FUTURE capsules.
        keys: `[B, 2, S, D]`.
        queries: `[B, T, 2 * D]`.
        num_past: the PAST capsules among J.
        mask: `[B, S]`; every word exists by default.
    """
    dtype = queries.dtype
    values, keys, queries = in_compute_dtype(values, keys, queries)
    queries = queries.unflatten(-1, (2, -1)).transpose(1, 2)
    scores = queries @ keys.transpose(-1, -2) / keys.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None, None], torch.finfo(scores.dtype).min)
    return _weighted_sums(_hide(scores.softmax(-1), mask), values, num_past, dtype)


def _hide(coefficients: Tensor, mask: Tensor | None) -> Tensor:
    """Zero what is assigned of missing words, `[B, J, T, S]`."""
    return coefficients if mask is None else coefficients.masked_fill(~mask[:, None, None], 0.0)


def _at_every_position(tensor: Tensor, length: int) -> Tensor:
    """`[B, J, length, ...]` of `[B, J, length or 1, ...]`."""
    return tensor.expand(-1, -1, length, -1)


def _weighted_sums(weights: Tensor, values: Tensor, num_past: int, dtype: torch.dtype) -> GuidedRoutingOutput:
    """Capsules from weights `[B, 2 or 3, T, S]` of PAST, FUTURE (and redundant), and values `[B, J, S, D]`."""
    past, future = values.split([num_past, values.shape[1] - num_past], dim=1)
    capsules = torch.cat([weights[:, :1] @ past, weights[:, 1:2] @ future], dim=1)
    return GuidedRoutingOutput(capsules.transpose(1, 2).to(dtype), weights.detach().movedim(1, -1).to(dtype))
