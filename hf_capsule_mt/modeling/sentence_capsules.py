"""Aggregation of a sentence's states to a fixed number of vectors (Wang et al. 2019).

An aggregation maps states `[batch, source, d]` and a mask `[batch, source]` (True where there is a word) to vectors
`[batch, M, d]`. What stands where the mask is False contributes exactly nothing.
"""

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .linear import UnitGainLinear
from .outputs import OutputRouting
from .routing import compute_dtype, hide_missing, in_compute_dtype, mean_over_words, reading_mask, squash


class SentenceCapsules(nn.Module):
    """Dynamic routing of the states to M output capsules (Eq. 7-14), with the three strategies of section 3.2.

    Non-sharing weights: W_j of every iteration is another, unless they are shared.

    Position-aware routing: the sinusoid of a word's place is added to its state, and that of j to capsule j wherever it
    is compared with states. A capsule is no longer than 1, so its sinusoid has length 1: at its own length,
    sqrt(d / 2), it would leave the capsule no say. The capsules that are returned have none: it would be a constant.

    Separable scoring: b += g(c_j) . g(h_s) (Eq. 14) rather than b += c_j . f(h_s) (Eq. 12), with one g, two linear maps
    with ReLU between, for states and capsules.

    Args:
        width: d, of states and capsules.
        num_capsules: M.
        num_iterations: iterations, at least 1.
        position_aware: whether routing is.
        share_weights: whether one W_j serves every iteration.
        separable_scoring: whether Eq. 14 scores, rather than Eq. 12.
    """

    def __init__(
        self,
        width: int,
        num_capsules: int,
        num_iterations: int = 3,
        position_aware: bool = True,
        share_weights: bool = False,
        separable_scoring: bool = True,
    ) -> None:
        super().__init__()
        self.num_capsules = num_capsules
        self.num_iterations = num_iterations
        self.position_aware = position_aware
        own_weights = 1 if share_weights else num_iterations
        self.weight = nn.Parameter(torch.empty(own_weights, width, self.num_capsules * width))
        self.scoring = None
        # What follows the last iteration has no effect, so one iteration compares nothing.
        if separable_scoring and num_iterations > 1:
            self.scoring = nn.Sequential(UnitGainLinear(width, width), nn.ReLU(), UnitGainLinear(width, width))

    def init_weights(self) -> None:
        """Draw W_j with unit gain, unless they were loaded."""
        init.normal_(self.weight, mean=0.0, std=self.weight.shape[1] ** -0.5)

    def forward(
        self, states: Tensor, mask: Tensor | None = None, output_routing: OutputRouting = False
    ) -> tuple[Tensor, Tensor | None]:
        """Route the states of a sentence.

        Args:
            states: `[batch, source, d]`.
            mask: `[batch, source]` bool, True where there is a word; everywhere by default.
            output_routing: True for the assignment of the last iteration, "all" for that of every iteration.

        Returns:
            The capsules `[batch, M, d]`; and, if asked for, the assignment `[batch, source, M]` or `[batch, iterations,
            source, M]`, without gradient: it sums to 1 over M for a word, and is 0 elsewhere.
        """
        children = self._children(states, mask)
        scored = None if self.scoring is None else self.scoring(children)
        logits = children.new_zeros(*children.shape[:2], self.num_capsules, dtype=compute_dtype(children))
        assignments = []
        for iteration in range(self.num_iterations):
            assignment = hide_missing(logits.softmax(-1), mask)
            assignments.append(assignment.detach().to(states.dtype))
            messages = self._messages(children, iteration)
            capsules = squash(_einsum("bsm,bsmd->bmd", assignment, *in_compute_dtype(messages)))
            if iteration + 1 < self.num_iterations:
                logits = logits + self._score(capsules, messages, scored)
        routing = torch.stack(assignments, dim=1) if output_routing == "all" else assignments[-1]
        return capsules.to(states.dtype), routing if output_routing else None

    def _children(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """Input capsules: the states, with their places among the words of the sentence."""
        if self.position_aware:
            table = sinusoids(states.shape[1], states).to(states.dtype)
            states = states + (table if mask is None else table[(mask.long().cumsum(-1) - 1).clamp(min=0)])
        return states if mask is None else states.masked_fill(~mask.unsqueeze(-1), 0.0)

    def _messages(self, children: Tensor, iteration: int) -> Tensor:
        """Eq. 8, f(h_s, theta_j) of every word and capsule `[batch, source, M, d]`."""
        weight = self.weight[iteration % len(self.weight)]
        return torch.relu(children @ weight).unflatten(-1, (self.num_capsules, -1))

    def _score(self, capsules: Tensor, messages: Tensor, scored: Tensor | None) -> Tensor:
        """Agreement that is added to the logits `[batch, source, M]` (Eq. 12 or 14)."""
        parents = capsules
        if self.position_aware:
            parents = capsules + sinusoids(self.num_capsules, capsules) * (capsules.shape[-1] / 2) ** -0.5
        if scored is None:
            return _einsum("bmd,bsmd->bsm", parents, *in_compute_dtype(messages))
        return _einsum("bmd,bsd->bsm", *in_compute_dtype(self.scoring(parents.to(messages.dtype)), scored))


class SentencePooling(nn.Module):
    """The largest, the mean, the first and the last state (Eq. 2-4); zero for a sentence without words."""

    def forward(
        self, states: Tensor, mask: Tensor | None = None, output_routing: OutputRouting = False
    ) -> tuple[Tensor, None]:
        """Pool states `[batch, source, d]` to `[batch, 4, d]`; arguments are those of [`SentenceCapsules.forward`]."""
        mask = reading_mask(mask, states)
        missing = ~mask.unsqueeze(-1)
        largest = states.masked_fill(missing, torch.finfo(states.dtype).min).amax(1)
        mean = mean_over_words(states, mask)
        first = mask.long().argmax(1)
        last = mask.shape[1] - 1 - mask.flip(1).long().argmax(1)
        rows = torch.arange(states.shape[0], device=states.device)
        pooled = torch.stack([largest, mean.to(states.dtype), states[rows, first], states[rows, last]], dim=1)
        return pooled.masked_fill(missing.all(1, keepdim=True), 0.0), None


def sinusoids(length: int, vectors: Tensor) -> Tensor:
    """Positions `[length, d]` for vectors `[..., d]`: sines in the first half, cosines in the second, as in Marian."""
    width, options = vectors.shape[-1], {"dtype": compute_dtype(vectors), "device": vectors.device}
    frequencies = 10000 ** -(torch.arange(0, width, 2, **options) / width)
    angles = torch.arange(length, **options).unsqueeze(-1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def _einsum(equation: str, *operands: Tensor) -> Tensor:
    # Autocast would lower the precision of what routing sums.
    with torch.autocast(operands[0].device.type, enabled=False):
        return torch.einsum(equation, *operands)


class SentenceProjection(nn.Linear):
    """W_c of Eq. 5: the concatenated vectors of a sentence `[batch, M * d]` to `[batch, d]`.

    It starts with outputs of about unit variance, as words have, which it is added to.

    Args:
        width: d.
        num_vectors: M.
        squashed: whether they are capsules, no longer than 1, rather than pooled states, of d elements of that size.
    """

    def __init__(self, width: int, num_vectors: int, squashed: bool) -> None:
        super().__init__(num_vectors * width, width, bias=False)
        self.initial_std = (num_vectors if squashed else self.in_features) ** -0.5

    def init_weights(self) -> None:
        """Draw the weights, unless they were loaded."""
        init.normal_(self.weight, mean=0.0, std=self.initial_std)
