"""Routing by agreement, dynamic and simple, as functions on tensors of votes; masks.

em_routing.py has the third algorithm.

`votes` is `[..., I, N, D]`: each of I input capsules votes for N output capsules of width D; the leading dimensions are
batch. `mask` is `[..., I]`, True where the input capsule exists: one that does not exist contributes exactly nothing.

Routing runs in float32 (float64 for float64 votes) and returns in the dtype of the votes.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import initialization as init

EPSILON = 1e-8
"""Added to every divisor, and to the variance of EM routing."""


class RoutingOutput(NamedTuple):
    """Result of routing.

    Attributes:
        capsules: the output capsules, `[..., N, D]`.
        coefficients: the assignment that produced them (the last iteration's), `[..., I, N]`, without gradient. They
            sum to 1 over N for an input capsule that exists, and are 0 for one that does not.
        activations: the activation probabilities of the output capsules, `[..., N]`, without gradient (EM only).
        all_coefficients: the assignment of every iteration, `[num_iterations, ..., I, N]`, where asked for.
    """

    capsules: Tensor
    coefficients: Tensor
    activations: Tensor | None = None
    all_coefficients: Tensor | None = None


def squash(inputs: Tensor) -> Tensor:
    """Shrink vectors `[..., D]` to a length in [0, 1) (Dou et al. 2019, Eq. 5); squash(0) = 0 with gradient 0."""
    squared_norm = inputs.square().sum(-1, keepdim=True)
    # The square root has no gradient at zero, so it never sees one.
    norm = torch.where(squared_norm > 0, squared_norm, 1.0).sqrt()
    return inputs * (norm / (1 + squared_norm)).masked_fill(squared_norm == 0, 0.0)


def dynamic_routing(
    votes: Tensor, num_iterations: int = 3, mask: Tensor | None = None, return_all_coefficients: bool = False
) -> RoutingOutput:
    """Iterative dynamic routing (Dou et al. 2019, Algorithm 1, Eq. 5-9; Sabour et al. 2017).

    Args:
        votes: `[..., I, N, D]`, any floating dtype.
        num_iterations: iterations, at least 1.
        mask: `[..., I]` bool, True where the input capsule exists; all exist by default.
        return_all_coefficients: whether to return the assignment of every iteration too.

    Raises:
        ValueError: if the shapes do not fit or `num_iterations` is not positive.
    """
    return _agreement_routing(votes, num_iterations, mask, return_all_coefficients, normalize=False)


def simple_routing(
    votes: Tensor, num_iterations: int = 3, mask: Tensor | None = None, return_all_coefficients: bool = False
) -> RoutingOutput:
    """Simple routing (Li et al. 2019, Algorithm 1, Eq. 7-8): the total input is a weighted mean of the votes.

    Algorithm 1 names Eq. 7 alone; capsules are squashed (Eq. 8) in every iteration, as section 4.2.2 has it. Arguments,
    result and errors are those of [`dynamic_routing`].
    """
    return _agreement_routing(votes, num_iterations, mask, return_all_coefficients, normalize=True)


def _agreement_routing(
    votes: Tensor, num_iterations: int, mask: Tensor | None, return_all_coefficients: bool, normalize: bool
) -> RoutingOutput:
    check_votes(votes, num_iterations, mask)
    dtype = votes.dtype
    (votes,) = in_compute_dtype(votes)
    if mask is not None:
        votes = votes.masked_fill(~mask[..., None, None], 0.0)
    logits = votes.new_zeros(votes.shape[:-1])
    every = []
    for iteration in range(num_iterations):
        coefficients = hide_missing(logits.softmax(-1), mask)
        every.append(coefficients.detach().to(dtype))
        total = (coefficients.unsqueeze(-1) * votes).sum(-3)
        if normalize:
            total = total / (coefficients.sum(-2).unsqueeze(-1) + EPSILON)
        capsules = squash(total)
        if iteration + 1 < num_iterations:
            logits = logits + (capsules.unsqueeze(-3) * votes).sum(-1)
    return RoutingOutput(
        capsules.to(dtype),
        every[-1],
        all_coefficients=torch.stack(every) if return_all_coefficients else None,
    )


class RoutingAlgorithm(NamedTuple):
    """How [`CapsuleRouting`] runs an algorithm.

    Attributes:
        route: takes votes, `num_iterations`, `return_all_coefficients` and what follows; returns a [`RoutingOutput`].
        parameters: names of its arguments that are learned, one number for each output capsule, zero at the start.
        reads_activations: whether it takes `input_activations` and `inverse_temperature`.
    """

    route: Callable[..., RoutingOutput]
    parameters: tuple[str, ...] = ()
    reads_activations: bool = False


ROUTINGS = {
    "dynamic_routing": RoutingAlgorithm(dynamic_routing),
    "simple_routing": RoutingAlgorithm(simple_routing),
}
"""The algorithms by name. A module that adds one enters it here, as em_routing.py does."""


class CapsuleRouting(nn.Module):
    """Routes votes to N output capsules and concatenates these.

    Args:
        algorithm: one of `ROUTINGS`.
        num_capsules: N, a divisor of the width of the votes.
        num_iterations: iterations, at least 1.
        inverse_temperature: for an algorithm that reads activations.

    Raises:
        ValueError: if the algorithm is unknown.
    """

    def __init__(
        self, algorithm: str, num_capsules: int, num_iterations: int = 3, inverse_temperature: float = 0.01
    ) -> None:
        super().__init__()
        if algorithm not in ROUTINGS:
            raise ValueError(f"There is no routing {algorithm!r:.80}. Use one of {', '.join(ROUTINGS)}.")
        self.algorithm = algorithm
        self.num_capsules = num_capsules
        self.num_iterations = num_iterations
        self.inverse_temperature = inverse_temperature
        for name in ROUTINGS[algorithm].parameters:
            setattr(self, name, nn.Parameter(torch.zeros(num_capsules)))

    @property
    def reads_activations(self) -> bool:
        """Whether the algorithm reads the activations of input capsules."""
        return ROUTINGS[self.algorithm].reads_activations

    def init_weights(self, std: float) -> None:
        """Zero the parameters of the algorithm, unless they were loaded."""
        for name in ROUTINGS[self.algorithm].parameters:
            init.zeros_(getattr(self, name))

    def forward(
        self, votes: Tensor, input_activations: Tensor | None = None, every_iteration: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Route votes `[..., I, d]`, of which output capsule n has the n-th part of width d / N.

        Args:
            votes: of the I input capsules.
            input_activations: `[..., I, 1 or N]`, for an algorithm that reads them; 1 by default.
            every_iteration: whether to return the assignment of every iteration.

        Returns:
            The output capsules `[..., d]`, and the assignment that made them, `[..., I, N]`, or that of every
            iteration, `[..., iterations, I, N]`.
        """
        route, parameters, reads_activations = ROUTINGS[self.algorithm]
        given = {name: getattr(self, name) for name in parameters}
        if reads_activations:
            given |= {"input_activations": input_activations, "inverse_temperature": self.inverse_temperature}
        votes = votes.unflatten(-1, (self.num_capsules, -1))
        given |= {"num_iterations": self.num_iterations, "return_all_coefficients": every_iteration}
        routed = route(votes, **given)
        assignment = routed.all_coefficients.movedim(0, -3) if every_iteration else routed.coefficients
        return routed.capsules.flatten(-2), assignment


def check_votes(votes: Tensor, num_iterations: int, mask: Tensor | None) -> None:
    """Raise ValueError if votes `[..., I, N, D]` and a mask `[..., I]` do not fit, or there is no vote or iteration."""
    if votes.dim() < 3 or 0 in votes.shape[-3:]:
        raise ValueError(
            f"votes has shape {tuple(votes.shape)}; routing needs [..., inputs, outputs, width], 1 or more of each"
        )
    if num_iterations < 1:
        raise ValueError(f"num_iterations is {num_iterations}; routing needs at least 1")
    if mask is not None and mask.shape != votes.shape[:-2]:
        raise ValueError(f"mask has shape {tuple(mask.shape)}; votes of this shape need {tuple(votes.shape[:-2])}")


def hide_missing(coefficients: Tensor, mask: Tensor | None) -> Tensor:
    """Zero the assignment `[..., I, N]` of input capsules that do not exist, by the mask `[..., I]`."""
    return coefficients if mask is None else coefficients.masked_fill(~mask.unsqueeze(-1), 0.0)


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype that routing runs in: float64 for float64, float32 for all others."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def in_compute_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the dtype that routing runs in for the first of them."""
    return tuple(tensor.to(compute_dtype(tensors[0])) for tensor in tensors)


def in_full_precision(tensor: Tensor) -> Tensor:
    """The tensor in the dtype that routing runs in, if autocast, which may have lowered it, is on where it is."""
    return tensor.to(compute_dtype(tensor)) if torch.is_autocast_enabled(tensor.device.type) else tensor


def in_autocast_dtype(tensor: Tensor) -> Tensor:
    """The tensor in the dtype of autocast, if that is on where the tensor is."""
    device = tensor.device.type
    return tensor.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else tensor


def word_mask(attention_mask: Tensor | None, words: Tensor) -> Tensor | None:
    """Return a mask `[batch, length]` of words `[batch, length, d]` as bool; None where all are words.

    Raises:
        ValueError: if the mask has another shape.
    """
    if attention_mask is None:
        return None
    if attention_mask.shape != words.shape[:2]:
        raise ValueError(
            f"the attention mask has shape {tuple(attention_mask.shape)}; that of these words is [batch, length] = "
            f"{tuple(words.shape[:2])}"
        )
    return attention_mask.bool()


def next_word_mask(attention_mask: Tensor | None, words: Tensor) -> Tensor | None:
    """Return the same as `word_mask`, of the last columns of a mask that is also of the words before."""
    return None if attention_mask is None else word_mask(attention_mask[:, -words.shape[1] :], words)


def reading_mask(mask: Tensor | None, words: Tensor) -> Tensor:
    """Return the mask that `word_mask` returned for `words`: True everywhere where there is none."""
    return torch.ones(words.shape[:2], dtype=torch.bool, device=words.device) if mask is None else mask


def mean_over_words(states: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean `[batch, d]` of states `[batch, length, d]` where a mask `[batch, length]` is True.

    Without a mask it is that of all states; for a sentence without words it is zero.
    """
    if mask is None:
        return states.mean(1)
    total = states.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1)
    return total / mask.sum(1, keepdim=True).clamp(min=1)
