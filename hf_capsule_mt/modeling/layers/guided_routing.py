"""PAST and FUTURE capsules (Zheng et al. 2019): source words, routed under the guidance of the decoder's states.

Functions take plain tensors; the modules add the parameters. B sentences, S source words, T target positions, J
capsules of width D. `mask` is `[B, S]` bool, True where there is a source word: others contribute exactly nothing.
What depends on the source alone, votes and keys, is made once a sentence by [`GuidedVotes`], and is zero where a word
is missing; to the functions it may be anything finite there.

Routing runs in float32 (float64 for float64) whatever the model's dtype, and holds no tensor of T * S * D elements,
unless it is compiled: see additive_scores.py.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init

from ..ops.additive_scores import additive_scores
from ..ops.routing import in_compute_dtype, squash
from .capsule_routing import OutputRouting


class GuidedRoutingOutput(NamedTuple):
    """What the functions return.

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


class GuidedVotes(nn.Module):
    """What guided routing reads of the source words: made once a sentence, by the encoder.

    Args:
        config: with the fields of [`GuidedRoutingFields`].
        width: of the encoder's states.
    """

    def __init__(self, config: PreTrainedConfig, width: int) -> None:
        super().__init__()
        self.capsule_dim = config.guided_capsule_dim
        self.routes = config.guided_routing == "gdr"
        capsules = config.num_guided_capsules + (config.num_redundant_capsules if self.routes else 0)
        self.votes = nn.Linear(width, capsules * self.capsule_dim, bias=False)
        if self.routes:
            self.keys = nn.Linear(self.capsule_dim, self.capsule_dim, bias=False)
        else:
            attentions = 2 if config.guided_routing == "attention" else 1
            self.keys = nn.Linear(width, attentions * self.capsule_dim, bias=False)

    def forward(self, states: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Votes (Eq. 5) and keys, `[B, ..., S, D]` and at least float32, of the encoder's states `[B, S, width]`."""
        if mask is not None:
            states = states.masked_fill(~mask.unsqueeze(-1), 0.0)
        votes = self._split(self.votes(states))
        keys = self.keys(votes) if self.routes else self._split(self.keys(states))
        # As routing reads them, at every step.
        return in_compute_dtype(votes, keys)

    def _split(self, concatenated: Tensor) -> Tensor:
        return concatenated.unflatten(-1, (-1, self.capsule_dim)).transpose(1, 2).contiguous()


class GuidedContext(NamedTuple):
    """What [`GuidedRouting`] returns.

    Attributes:
        states: o `[B, T, width]`, which the next words are predicted from.
        capsules: PAST, then FUTURE, `[B, T, J, D]`.
        assignment: as in [`GuidedRoutingOutput`], that of the last or of every iteration; None unless asked for.
    """

    states: Tensor
    capsules: Tensor
    assignment: Tensor | None


class GuidedRouting(nn.Module):
    """o = z + FFN([z; PAST; FUTURE]) (section 3.2), with the capsules that z and the votes make.

    Args:
        config: with the fields of [`GuidedRoutingFields`].
        width: of the decoder's states.
        hidden_width: of the feed-forward network.
        dropout: of what that network adds.
    """

    def __init__(self, config: PreTrainedConfig, width: int, hidden_width: int, dropout: float) -> None:
        super().__init__()
        self.kind, capsule_dim = config.guided_routing, config.guided_capsule_dim
        self.num_past, self.num_capsules = config.num_past_capsules, config.num_guided_capsules
        self.num_iterations = config.guided_routing_iterations
        attends = self.kind == "attention"
        self.queries = nn.Linear(width, (2 if attends else 1) * capsule_dim, bias=False)
        # Not linear maps, whose weights may be elsewhere when it is not they that run.
        if self.kind == "gdr":
            self.capsule_map = nn.Parameter(torch.empty(capsule_dim, capsule_dim))
        if not attends:
            classes = 1 if self.kind == "gdr" else 2 + (config.num_redundant_capsules > 0)
            self.score_weight = nn.Parameter(torch.empty(classes, capsule_dim))
        self.fc1 = nn.Linear(width + self.num_capsules * capsule_dim, hidden_width)
        self.fc2 = nn.Linear(hidden_width, width)
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
