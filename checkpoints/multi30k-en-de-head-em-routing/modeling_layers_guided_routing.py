# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/layers/guided_routing.py.
"""PAST and FUTURE capsules (Zheng et al. 2019) with their parameters: votes of the encoder, routing of the decoder.

ops/guided_routing.py has the equations.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.utils import ModelOutput

from .modeling_ops_guided_routing import GuidedRoutingOutput, guided_attention, guided_classifier, guided_dynamic_routing
from .modeling_ops_routing import in_compute_dtype
from .modeling_outputs import OutputRouting
from .modeling_layers_linear import Linear


class GuidedCapsules(NamedTuple):
    """Numbers of PAST, FUTURE and redundant capsules, and the width of one."""

    past: int
    future: int
    redundant: int
    dim: int


class GuidedVotes(nn.Module):
    """Votes of the source words for capsules, and keys to score them by: made once a sentence, by the encoder.

    Args:
        kind: "gdr", "classifier" or "attention".
        width: of the encoder's states.
        capsules: how many there are, and how wide.
    """

    def __init__(self, kind: str, width: int, capsules: GuidedCapsules) -> None:
        super().__init__()
        self.capsule_dim = capsules.dim
        self.routes = kind == "gdr"
        voted_for = capsules.past + capsules.future + (capsules.redundant if self.routes else 0)
        self.votes = Linear(width, voted_for * self.capsule_dim, bias=False)
        if self.routes:
            self.keys = Linear(self.capsule_dim, self.capsule_dim, bias=False)
        else:
            attentions = 2 if kind == "attention" else 1
            self.keys = Linear(width, attentions * self.capsule_dim, bias=False)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Votes (Eq. 5) and keys, `[B, ..., S, D]` and at least float32, of the encoder's states `[B, S, width]`."""
        if mask is not None:
            states = states.masked_fill(~mask.unsqueeze(-1), 0.0)
        votes = self._split(self.votes(states))
        keys = self.keys(votes) if self.routes else self._split(self.keys(states))
        # As routing reads them, at every step.
        return in_compute_dtype(votes, keys)

    def of(self, encoded: ModelOutput, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Votes and keys in the output of an encoder; if it is not this one's, or a tuple of it, they are made now."""
        votes, keys = getattr(encoded, "guided_votes", None), getattr(encoded, "guided_keys", None)
        if votes is None or keys is None:
            return self(encoded.last_hidden_state, mask)
        return votes, keys

    def _split(self, concatenated: Tensor) -> Tensor:
        return concatenated.unflatten(-1, (-1, self.capsule_dim)).transpose(1, 2).contiguous()


class GuidedContext(NamedTuple):
    """Output of [`GuidedRouting`].

    Attributes:
        states: o `[B, T, width]`, which the next words are predicted from.
        capsules: PAST, then FUTURE, `[B, T, J, D]`; None without guided routing.
        assignment: as in [`GuidedRoutingOutput`], that of the last or of every iteration; None unless asked for.
    """

    states: Tensor
    capsules: Tensor | None
    assignment: Tensor | None


class GuidedRouting(nn.Module):
    """o = z + FFN([z; PAST; FUTURE]) (section 3.2), with the capsules that z and the votes make.

    Args:
        kind: "gdr" (Algorithm 1), or a baseline of Fig. 6, "classifier" or "attention".
        width: of the decoder's states.
        capsules: how many there are, and how wide.
        hidden_width: of the feed-forward network.
        dropout: of what that network adds.
        num_iterations: iterations of "gdr".
    """

    def __init__(
        self,
        kind: str,
        width: int,
        capsules: GuidedCapsules,
        hidden_width: int,
        dropout: float = 0.0,
        num_iterations: int = 3,
    ) -> None:
        super().__init__()
        self.kind, capsule_dim = kind, capsules.dim
        self.num_past, self.num_capsules = capsules.past, capsules.past + capsules.future
        self.num_iterations = num_iterations
        attends = kind == "attention"
        self.queries = Linear(width, (2 if attends else 1) * capsule_dim, bias=False)
        # Not linear maps, whose weights may be elsewhere when it is not they that run.
        if kind == "gdr":
            self.capsule_map = nn.Parameter(torch.empty(capsule_dim, capsule_dim))
        if not attends:
            classes = 1 if kind == "gdr" else 2 + (capsules.redundant > 0)
            self.score_weight = nn.Parameter(torch.empty(classes, capsule_dim))
        self.fc1 = Linear(width + self.num_capsules * capsule_dim, hidden_width)
        self.fc2 = Linear(hidden_width, width)
        self.dropout = nn.Dropout(dropout)

    def init_weights(self, std: float | None = None) -> None:
        """Draw the weights that are not a linear map's from N(0, std^2), or with unit gain, unless they were loaded."""
        for _, weight in self.named_parameters(recurse=False):
            init.normal_(weight, mean=0.0, std=std or weight.shape[1] ** -0.5)

    def switch_off(self) -> None:
        """Let o be z, until the first update."""
        for parameter in self.fc2.parameters():
            init.zeros_(parameter)

    def forward(
        self,
        states: Tensor,
        votes: Tensor,
        keys: Tensor,
        mask: Tensor | None = None,
        output_routing: OutputRouting = False,
    ) -> GuidedContext:
        """Route for the decoder's states z `[B, T, width]`.

        Args:
            states: z.
            votes: of [`GuidedVotes`].
            keys: of [`GuidedVotes`].
            mask: `[B, S]` bool, True where there is a source word.
            output_routing: True for the assignment of the last iteration, "all" for that of every iteration.
        """
        queries = self.queries(states)
        # Products of matrices too are computed in the dtype of their factors.
        with torch.autocast(states.device.type, enabled=False):
            capsules, assignment = self._route(votes, keys, queries, mask, output_routing == "all")
        capsules = capsules[:, :, : self.num_capsules]
        context = torch.cat([states, capsules.flatten(-2).to(states.dtype)], dim=-1)
        outputs = states + self.dropout(self.fc2(self.fc1(context).relu()))
        return GuidedContext(outputs, capsules, assignment if output_routing else None)

    def _route(
        self, votes: Tensor, keys: Tensor, queries: Tensor, mask: Tensor | None, every_iteration: bool
    ) -> GuidedRoutingOutput:
        if self.kind == "gdr":
            weights = self.capsule_map, self.score_weight
            return guided_dynamic_routing(votes, keys, queries, *weights, self.num_iterations, mask, every_iteration)
        if self.kind == "classifier":
            routed = guided_classifier(votes, keys, queries, self.score_weight, self.num_past, mask)
        else:
            routed = guided_attention(votes, keys, queries, self.num_past, mask)
        return routed._replace(assignment=routed.assignment.unsqueeze(2)) if every_iteration else routed
