"""Aggregation of the states of a sentence, `[batch, source, d]`, to M vectors `[batch, M, d]` (Wang et al. 2019).

Where the mask `[batch, source]` is False, states contribute exactly nothing.
"""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init

from .linear import UnitGainLinear
from .numerics import compute_dtype, in_compute_dtype
from .outputs import OutputRouting
from .routing import hide_missing, squash
from .word_masks import mean_over_words, reading_mask


class SentenceCapsules(nn.Module):
    """Dynamic routing of states to M capsules of width d (Eq. 7-14), with the three strategies of section 3.2.

    Non-sharing weights: every iteration has its own W_j, unless `share_routing_weights`.

    Position-aware routing: the sinusoid of a position is added to its state, and the sinusoid of j to capsule j for the
    comparison with states. A capsule is at most 1 long, so its sinusoid is scaled from sqrt(d / 2) to length 1. The
    returned capsules have no sinusoids.

    Separable scoring: b += g(c_j) . g(h_s) (Eq. 14) instead of b += c_j . f(h_s) (Eq. 12). The same g, two linear maps
    with ReLU between them, serves states and capsules.
    """

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        width = config.d_model
        self.num_capsules = config.num_sentence_capsules
        self.num_iterations = config.routing_iterations
        self.position_aware = config.position_aware_routing
        num_weights = 1 if config.share_routing_weights else self.num_iterations
        self.weight = nn.Parameter(torch.empty(num_weights, width, self.num_capsules * width))
        self.scoring = None
        # A single iteration compares nothing.
        if config.separable_scoring and self.num_iterations > 1:
            self.scoring = nn.Sequential(UnitGainLinear(width, width), nn.ReLU(), UnitGainLinear(width, width))

    def init_weights(self) -> None:
        """Draw W_j with unit gain, unless they were loaded."""
        init.normal_(self.weight, mean=0.0, std=self.weight.shape[1] ** -0.5)

    def forward(
        self, states: Tensor, mask: Tensor | None = None, output_routing: OutputRouting = False
    ) -> tuple[Tensor, Tensor | None]:
        """Route states to capsules.

        Args:
            states: `[batch, source, d]`.
            mask: `[batch, source]`, False for padding. By default there is none.
            output_routing: True returns the assignment of the last iteration, "all" those of every iteration.

        Returns:
            The capsules, `[batch, M, d]`, and the assignment or None: `[batch, source, M]`, or with "all"
            `[batch, iterations, source, M]`, without gradient. It sums to 1 over M for a token, and is 0 for padding.
        """
        children = self._children(states, mask)
        scored_children = None if self.scoring is None else self.scoring(children)
        batch, length, _ = children.shape
        logits = children.new_zeros(batch, length, self.num_capsules, dtype=compute_dtype(children))
        assignments = []
        for iteration in range(self.num_iterations):
            assignment = hide_missing(logits.softmax(-1), mask)
            assignments.append(assignment.detach().to(states.dtype))
            messages = self._messages(children, iteration)
            (exact_messages,) = in_compute_dtype(messages)
            total = _einsum("bsm,bsmd->bmd", assignment, exact_messages)
            capsules = squash(total)
            # The assignment after the last capsules would not be read.
            if iteration + 1 < self.num_iterations:
                logits = logits + self._score(capsules, messages, scored_children)
        routing = None
        if output_routing == "all":
            routing = torch.stack(assignments, dim=1)
        elif output_routing:
            routing = assignments[-1]
        return capsules.to(states.dtype), routing

    def _children(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """Return the input capsules: the states, with the sinusoids of their positions."""
        if self.position_aware:
            positions = sinusoids(states.shape[1], states).to(states.dtype)
            if mask is not None:
                # Padding does not count, so a sentence means the same wherever its padding is.
                tokens_so_far = mask.long().cumsum(-1)
                # Padding in front of a sentence has no token before it.
                token_numbers = (tokens_so_far - 1).clamp(min=0)
                positions = positions[token_numbers]
            states = states + positions
        if mask is None:
            return states
        return states.masked_fill(~mask.unsqueeze(-1), 0.0)

    def _messages(self, children: Tensor, iteration: int) -> Tensor:
        """Return f(h_s, theta_j) of every token and capsule, `[batch, source, M, d]` (Eq. 8)."""
        # There is one weight for every iteration, or one for all.
        weight = self.weight[iteration % len(self.weight)]
        messages = torch.relu(children @ weight)
        return messages.unflatten(-1, (self.num_capsules, -1))

    def _score(self, capsules: Tensor, messages: Tensor, scored_children: Tensor | None) -> Tensor:
        """Return the agreement to add to the logits, `[batch, source, M]` (Eq. 12 or 14)."""
        parents = capsules
        if self.position_aware:
            scale = (capsules.shape[-1] / 2) ** -0.5
            parents = capsules + sinusoids(self.num_capsules, capsules) * scale
        if scored_children is None:
            (messages,) = in_compute_dtype(messages)
            return _einsum("bmd,bsmd->bsm", parents, messages)
        scored_parents = self.scoring(parents.to(messages.dtype))
        scored_parents, scored_children = in_compute_dtype(scored_parents, scored_children)
        return _einsum("bmd,bsd->bsm", scored_parents, scored_children)


class SentencePooling(nn.Module):
    """The largest, the mean, the first and the last state (Eq. 2-4), or zero for a sentence without tokens."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()

    def forward(
        self, states: Tensor, mask: Tensor | None = None, output_routing: OutputRouting = False
    ) -> tuple[Tensor, None]:
        """Pool states `[batch, source, d]` to `[batch, 4, d]`."""
        mask = reading_mask(mask, states)
        missing = ~mask.unsqueeze(-1)
        lowest = torch.finfo(states.dtype).min
        largest = states.masked_fill(missing, lowest).amax(1)
        mean = mean_over_words(states, mask)
        # The position of the first True.
        first = mask.long().argmax(1)
        last_from_end = mask.flip(1).long().argmax(1)
        last = mask.shape[1] - 1 - last_from_end
        rows = torch.arange(states.shape[0], device=states.device)
        vectors = [largest, mean.to(states.dtype), states[rows, first], states[rows, last]]
        pooled = torch.stack(vectors, dim=1)
        is_empty = missing.all(1, keepdim=True)
        return pooled.masked_fill(is_empty, 0.0), None


SENTENCE_AGGREGATIONS = {"capsule": SentenceCapsules, "pooling": SentencePooling}


def sinusoids(length: int, vectors: Tensor) -> Tensor:
    """Return sinusoids `[length, d]` for vectors `[..., d]`: first sines, then cosines, as in Marian."""
    width = vectors.shape[-1]
    options = {"dtype": compute_dtype(vectors), "device": vectors.device}
    exponents = torch.arange(0, width, 2, **options) / width
    frequencies = 10000**-exponents
    positions = torch.arange(length, **options)
    angles = positions.unsqueeze(-1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def _einsum(equation: str, *operands: Tensor) -> Tensor:
    # Autocast would lower the precision of what routing sums.
    with torch.autocast(operands[0].device.type, enabled=False):
        return torch.einsum(equation, *operands)


class SentenceProjection(nn.Linear):
    """W_c of Eq. 5, from the concatenated vectors of a sentence `[batch, M * d]` to `[batch, d]`.

    Its outputs start with about unit variance, as the embeddings to which they are added. Capsules are at most 1 long,
    pooled states are not.
    """

    def __init__(self, config: PreTrainedConfig) -> None:
        are_capsules = config.sentence_aggregation == "capsule"
        num_vectors = config.num_sentence_capsules if are_capsules else 4
        super().__init__(num_vectors * config.d_model, config.d_model, bias=False)
        # The squared length of what it reads: about 1 for each capsule, and 1 for each number of a pooled state.
        squared_length = num_vectors if are_capsules else self.in_features
        self.initial_std = squared_length**-0.5

    def init_weights(self) -> None:
        """Draw the weights, unless they were loaded."""
        init.normal_(self.weight, mean=0.0, std=self.initial_std)
