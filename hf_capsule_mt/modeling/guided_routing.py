"""PAST and FUTURE capsules (Zheng et al. 2019): equations and modules."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.utils import ModelOutput

from .additive_scores import additive_scores
from .linear import Linear
from .numerics import in_compute_dtype
from .outputs import OutputRouting
from .routing import squash

GUIDED_PARTS = (
    "model.encoder.guided_votes.",
    "model.guided_routing.",
    "model.decoder.guided_routing.",
    "guided_losses.",
)
"""Prefixes of the names of guided routing's weights in all models."""


class GuidedRoutingOutput(NamedTuple):
    """Capsules, and the assignment of source tokens to them.

    Attributes:
        capsules: `[B, T, J, D]`.
        assignment: source tokens to capsules, or in the baselines to PAST, FUTURE and redundant as groups. The last
            iteration gives `[B, T, S, J]`, every iteration `[B, T, iterations, S, J]`. It has no gradient.
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
    """Guided dynamic routing (Algorithm 1, Eq. 4-7). W_b of Eq. 7 is in three parts.

    Args:
        votes: v of Eq. 5, `[B, J, S, D]`.
        keys: W_v v, `[B, J, S, D]`.
        queries: W_z z, `[B, T, D]`.
        capsule_map: W_Omega, `[D, D]`.
        score_weight: w, `[1, D]`.
        num_iterations: iterations, at least 1.
        mask: `[B, S]`, False for padding. By default there is none.
        every_iteration: whether to return the assignment of all iterations.
    """
    dtype = queries.dtype
    votes, keys, queries, capsule_map, score_weight = in_compute_dtype(votes, keys, queries, capsule_map, score_weight)
    num_sentences, num_capsules, source, _ = votes.shape
    # The first assignment is the same for every target position.
    logits = votes.new_zeros(num_sentences, num_capsules, 1, source)
    assignments = []
    for iteration in range(num_iterations):
        coefficients = _hide(logits.softmax(1), mask)
        assignments.append(coefficients.detach())
        capsules = squash(coefficients @ votes)
        # The assignment after the last capsules would not be read.
        if iteration + 1 < num_iterations:
            guides = queries.unsqueeze(1) + capsules @ capsule_map.t()
            scores = additive_scores(guides, keys, score_weight)
            logits = logits + scores.squeeze(-1)
    # After only one iteration there is one position for all.
    target = queries.shape[1]
    capsules = capsules.expand(-1, -1, target, -1).transpose(1, 2)
    # From [B, J, T, S] to [B, T, S, J].
    assignments = [assignment.expand(-1, -1, target, -1).movedim(1, -1) for assignment in assignments]
    assignment = assignments[-1]
    if every_iteration:
        assignment = torch.stack(assignments, dim=2)
    return GuidedRoutingOutput(capsules.to(dtype), assignment.to(dtype))


def guided_classifier(
    values: Tensor,
    keys: Tensor,
    queries: Tensor,
    score_weight: Tensor,
    num_past: int,
    mask: Tensor | None = None,
) -> GuidedRoutingOutput:
    """The baseline CLF (Fig. 6, footnote 5): each token is PAST, FUTURE or redundant, and capsules are weighted sums.

    Args:
        values: for the PAST capsules, then for FUTURE, `[B, J, S, D]`.
        keys: W_h h, `[B, 1, S, D]`.
        queries: W_z z, `[B, T, D]`.
        score_weight: the weights of the classes, `[2 or 3, D]`.
        num_past: the number of PAST capsules.
        mask: `[B, S]`, False for padding. By default there is none.
    """
    dtype = queries.dtype
    values, keys, queries, score_weight = in_compute_dtype(values, keys, queries, score_weight)
    scores = additive_scores(queries.unsqueeze(1), keys, score_weight)
    # [B, T, S, classes]
    scores = scores.squeeze(1)
    classes = scores.softmax(-1).movedim(-1, 1)
    classes = _hide(classes, mask)
    return _weighted_sums(classes, values, num_past, dtype)


def guided_attention(
    values: Tensor,
    keys: Tensor,
    queries: Tensor,
    num_past: int,
    mask: Tensor | None = None,
) -> GuidedRoutingOutput:
    """The baseline ATTN (Fig. 6): scaled dot-product attention to PAST, and another to FUTURE.

    Args:
        values: as in [`guided_classifier`].
        keys: for PAST, then for FUTURE, `[B, 2, S, D]`.
        queries: the same, next to each other, `[B, T, 2 * D]`.
        num_past: as in [`guided_classifier`].
        mask: the same.
    """
    dtype = queries.dtype
    values, keys, queries = in_compute_dtype(values, keys, queries)
    queries = queries.unflatten(-1, (2, -1)).transpose(1, 2)
    scores = queries @ keys.transpose(-1, -2)
    scores = scores / keys.shape[-1] ** 0.5
    if mask is not None:
        lowest = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~mask[:, None, None], lowest)
    weights = scores.softmax(-1)
    # For a sentence without tokens softmax spreads over the padding.
    weights = _hide(weights, mask)
    return _weighted_sums(weights, values, num_past, dtype)


def _hide(coefficients: Tensor, mask: Tensor | None) -> Tensor:
    """Zero the assignment `[B, J, T, S]` of padding."""
    if mask is None:
        return coefficients
    return coefficients.masked_fill(~mask[:, None, None], 0.0)


def _weighted_sums(weights: Tensor, values: Tensor, num_past: int, dtype: torch.dtype) -> GuidedRoutingOutput:
    """Return capsules, given weights `[B, 2 or 3, T, S]` of PAST, FUTURE (and redundant), and values `[B, J, S, D]`."""
    past_values, future_values = values.tensor_split([num_past], dim=1)
    past = weights[:, 0:1] @ past_values
    future = weights[:, 1:2] @ future_values
    capsules = torch.cat([past, future], dim=1).transpose(1, 2)
    assignment = weights.detach().movedim(1, -1)
    return GuidedRoutingOutput(capsules.to(dtype), assignment.to(dtype))


class GuidedVotes(nn.Module):
    """Votes of the source tokens for capsules, and keys for their scores. The encoder makes them once a sentence."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        width = config.d_model
        self.capsule_dim = config.guided_capsule_dim
        self.routes = config.guided_routing == "gdr"
        num_capsules = config.num_past_capsules + config.num_future_capsules
        if self.routes:
            num_capsules += config.num_redundant_capsules
        self.votes = Linear(width, num_capsules * self.capsule_dim, bias=False)
        if self.routes:
            # The keys are computed from the votes.
            self.keys = Linear(self.capsule_dim, self.capsule_dim, bias=False)
        else:
            num_keys = 2 if config.guided_routing == "attention" else 1
            self.keys = Linear(width, num_keys * self.capsule_dim, bias=False)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return votes (Eq. 5) and keys, `[B, ..., S, D]` in the dtype of routing, of states `[B, S, width]`."""
        if mask is not None:
            states = states.masked_fill(~mask.unsqueeze(-1), 0.0)
        votes = self._split(self.votes(states))
        keys = self.keys(votes) if self.routes else self._split(self.keys(states))
        return in_compute_dtype(votes, keys)

    def of(self, encoded: ModelOutput, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return votes and keys from the output of an encoder. If it lacks them, compute them."""
        votes = getattr(encoded, "guided_votes", None)
        keys = getattr(encoded, "guided_keys", None)
        if votes is None or keys is None:
            return self(encoded.last_hidden_state, mask)
        return votes, keys

    def _split(self, concatenated: Tensor) -> Tensor:
        """Turn `[B, S, J * D]` into `[B, J, S, D]`."""
        parts = concatenated.unflatten(-1, (-1, self.capsule_dim))
        return parts.transpose(1, 2).contiguous()


class GuidedContext(NamedTuple):
    """Output of [`GuidedRouting`].

    Attributes:
        states: o `[B, T, width]`, which predicts the next tokens.
        capsules: PAST, then FUTURE, `[B, T, J, D]`, or None without guided routing.
        assignment: as in [`GuidedRoutingOutput`], if asked for.
    """

    states: Tensor
    capsules: Tensor | None
    assignment: Tensor | None


class GuidedRouting(nn.Module):
    """o = z + FFN([z; PAST; FUTURE]) (section 3.2), where z and the votes make the capsules.

    `hidden_width` is that of the FFN's hidden layer. Dropout acts on the output of the FFN.
    """

    def __init__(self, config: PreTrainedConfig, hidden_width: int) -> None:
        super().__init__()
        self.kind = config.guided_routing
        width = config.d_model
        capsule_dim = config.guided_capsule_dim
        self.num_past = config.num_past_capsules
        self.num_capsules = config.num_past_capsules + config.num_future_capsules
        self.num_iterations = config.guided_routing_iterations
        num_queries = 2 if self.kind == "attention" else 1
        self.queries = Linear(width, num_queries * capsule_dim, bias=False)
        # Plain parameters: sharding and offloading load the weights of an nn.Linear only while its own forward runs.
        if self.kind == "gdr":
            self.capsule_map = nn.Parameter(torch.empty(capsule_dim, capsule_dim))
            self.score_weight = nn.Parameter(torch.empty(1, capsule_dim))
        elif self.kind == "classifier":
            num_classes = 3 if config.num_redundant_capsules > 0 else 2
            self.score_weight = nn.Parameter(torch.empty(num_classes, capsule_dim))
        self.fc1 = Linear(width + self.num_capsules * capsule_dim, hidden_width)
        self.fc2 = Linear(hidden_width, width)
        self.dropout = nn.Dropout(config.dropout)

    def init_weights(self, std: float | None = None) -> None:
        """Draw the parameters of this module from N(0, std^2), or with unit gain, unless they were loaded."""
        for weight in self.parameters(recurse=False):
            unit_gain = weight.shape[1] ** -0.5
            init.normal_(weight, mean=0.0, std=std or unit_gain)

    def switch_off(self) -> None:
        """Let o equal z until the first update."""
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
        """Route for the states of the decoder.

        Args:
            states: z, `[B, T, width]`.
            votes: from [`GuidedVotes`].
            keys: the same.
            mask: `[B, S]`, False for padding of the source. By default there is none.
            output_routing: True returns the assignment of the last iteration, "all" those of every iteration.
        """
        queries = self.queries(states)
        with torch.autocast(states.device.type, enabled=False):
            capsules, assignment = self._route(votes, keys, queries, mask, output_routing == "all")
        # Without the redundant capsules.
        capsules = capsules[:, :, : self.num_capsules]
        concatenated = capsules.flatten(-2).to(states.dtype)
        context = torch.cat([states, concatenated], dim=-1)
        hidden = self.fc1(context).relu()
        outputs = states + self.dropout(self.fc2(hidden))
        if not output_routing:
            assignment = None
        return GuidedContext(outputs, capsules, assignment)

    def _route(
        self,
        votes: Tensor,
        keys: Tensor,
        queries: Tensor,
        mask: Tensor | None,
        every_iteration: bool,
    ) -> GuidedRoutingOutput:
        if self.kind == "gdr":
            return guided_dynamic_routing(
                votes,
                keys,
                queries,
                self.capsule_map,
                self.score_weight,
                self.num_iterations,
                mask,
                every_iteration,
            )
        if self.kind == "classifier":
            routed = guided_classifier(votes, keys, queries, self.score_weight, self.num_past, mask)
        else:
            routed = guided_attention(votes, keys, queries, self.num_past, mask)
        if not every_iteration:
            return routed
        # The baselines have one iteration.
        return GuidedRoutingOutput(routed.capsules, routed.assignment.unsqueeze(2))
