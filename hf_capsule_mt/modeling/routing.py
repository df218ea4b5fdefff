"""Dynamic and simple routing as functions on tensors of votes. em_routing.py has the third algorithm.

`votes` is `[..., I, N, D]`: each of I input capsules votes for N output capsules of width D. Where the mask `[..., I]`
is False, an input capsule contributes exactly nothing.

Routing runs in float32 (float64 for float64 votes) and returns the dtype of the votes.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init

from .numerics import in_compute_dtype

EPSILON = 1e-8
"""Added to every divisor, and to the variance of EM routing."""


class RoutingOutput(NamedTuple):
    """Result of routing.

    Attributes:
        capsules: the output capsules, `[..., N, D]`.
        coefficients: the assignment of the last iteration, `[..., I, N]`, without gradient. They sum to 1 over N, or
            are 0 for an input capsule that is masked.
        activations: the activation probabilities of the output capsules, `[..., N]`, without gradient (EM only).
        all_coefficients: the assignment of every iteration, `[num_iterations, ..., I, N]`, if asked for.
    """

    capsules: Tensor
    coefficients: Tensor
    activations: Tensor | None = None
    all_coefficients: Tensor | None = None


def squash(inputs: Tensor) -> Tensor:
    """Shrink vectors `[..., D]` to a length in [0, 1) (Dou et al. 2019, Eq. 5). At 0 result and gradient are 0."""
    squared_norm = inputs.square().sum(-1, keepdim=True)
    # The square root has no gradient at zero.
    norm = torch.where(squared_norm > 0, squared_norm, 1.0).sqrt()
    return inputs * (norm / (1 + squared_norm)).masked_fill(squared_norm == 0, 0.0)


def dynamic_routing(
    votes: Tensor, num_iterations: int = 3, mask: Tensor | None = None, return_all_coefficients: bool = False
) -> RoutingOutput:
    """Iterative dynamic routing (Dou et al. 2019, Algorithm 1, Eq. 5-9; Sabour et al. 2017).

    Args:
        votes: `[..., I, N, D]`, any floating dtype.
        num_iterations: iterations, at least 1.
        mask: `[..., I]` bool, False for input capsules that do not exist.
        return_all_coefficients: whether to also return the assignment of every iteration.

    Returns:
        Capsules and assignment in the dtype of the votes.
    """
    return _agreement_routing(votes, num_iterations, mask, return_all_coefficients, normalize=False)


def simple_routing(
    votes: Tensor, num_iterations: int = 3, mask: Tensor | None = None, return_all_coefficients: bool = False
) -> RoutingOutput:
    """Simple routing (Li et al. 2019, Algorithm 1, Eq. 7-8): the total input is a weighted mean of the votes.

    Algorithm 1 names only Eq. 7. Capsules are also squashed (Eq. 8), in every iteration: the paper does not say when.

    Args:
        votes: `[..., I, N, D]`, any floating dtype.
        num_iterations: iterations, at least 1.
        mask: `[..., I]` bool, False for input capsules that do not exist.
        return_all_coefficients: whether to also return the assignment of every iteration.

    Returns:
        Capsules and assignment in the dtype of the votes.
    """
    return _agreement_routing(votes, num_iterations, mask, return_all_coefficients, normalize=True)


def _agreement_routing(
    votes: Tensor, num_iterations: int, mask: Tensor | None, return_all_coefficients: bool, normalize: bool
) -> RoutingOutput:
    dtype = votes.dtype
    (votes,) = in_compute_dtype(votes)
    if mask is not None:
        votes = votes.masked_fill(~mask[..., None, None], 0.0)
    logits = votes.new_zeros(votes.shape[:-1])
    assignments = []
    for iteration in range(num_iterations):
        coefficients = hide_missing(logits.softmax(-1), mask)
        assignments.append(coefficients.detach().to(dtype))
        total = (coefficients.unsqueeze(-1) * votes).sum(-3)
        if normalize:
            total = total / (coefficients.sum(-2).unsqueeze(-1) + EPSILON)
        capsules = squash(total)
        # The assignment after the last capsules would not be read.
        if iteration + 1 < num_iterations:
            agreement = (capsules.unsqueeze(-3) * votes).sum(-1)
            logits = logits + agreement
    all_coefficients = torch.stack(assignments) if return_all_coefficients else None
    return RoutingOutput(capsules.to(dtype), assignments[-1], all_coefficients=all_coefficients)


class RoutingAlgorithm(NamedTuple):
    """How [`CapsuleRouting`] runs an algorithm: by a function of votes, `num_iterations` and `return_all_coefficients`.

    `parameters` names its learned arguments, one number for each output capsule, zero at the start. If it
    `reads_activations`, it also takes `input_activations` and `inverse_temperature`.
    """

    route: Callable[..., RoutingOutput]
    parameters: tuple[str, ...] = ()
    reads_activations: bool = False


ROUTINGS = {"dynamic_routing": RoutingAlgorithm(dynamic_routing), "simple_routing": RoutingAlgorithm(simple_routing)}
"""The algorithms by name. A module that adds one enters it here."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """Return the error for a routing or an aggregation that no code has entered.

    Args:
        kind: what it is.
        name: its name in the configuration.
        known: the names that were entered.
    """
    remedy = (
        "If it is your own, import it and hf_capsule_mt before from_pretrained(), and leave out trust_remote_code. "
        "Commands of hf-capsule-mt take --import."
    )
    return ValueError(f"There is no {kind} {name!r:.80}. Use one of {', '.join(known)}. {remedy}")


class CapsuleRouting(nn.Module):
    """Routes votes to N output capsules, and concatenates these. The algorithm is one of `ROUTINGS`."""

    def __init__(self, algorithm: str, config: PreTrainedConfig) -> None:
        super().__init__()
        if algorithm not in ROUTINGS:
            raise unknown_name("routing", algorithm, ROUTINGS)
        self.algorithm = algorithm
        self.num_capsules = config.num_output_capsules or config.d_model
        self.num_iterations = config.routing_iterations
        self.inverse_temperature = config.inverse_temperature
        for name in ROUTINGS[algorithm].parameters:
            setattr(self, name, nn.Parameter(torch.zeros(self.num_capsules)))

    def init_weights(self, std: float) -> None:
        """Zero the parameters of the algorithm, unless they were loaded."""
        for name in ROUTINGS[self.algorithm].parameters:
            init.zeros_(getattr(self, name))

    def forward(
        self, votes: Tensor, input_activations: Tensor | None = None, every_iteration: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Route the votes of I input capsules. Output capsule n reads the n-th part, of width d / N, of every vote.

        Args:
            votes: `[..., I, d]`.
            input_activations: `[..., I, 1 or N]`, for an algorithm that reads them, 1 by default.
            every_iteration: whether to return the assignment of all iterations.

        Returns:
            The output capsules, `[..., d]`, and the assignment of the last iteration, `[..., I, N]`, or of every one,
            `[..., iterations, I, N]`.
        """
        algorithm = ROUTINGS[self.algorithm]
        arguments = {name: getattr(self, name) for name in algorithm.parameters}
        if algorithm.reads_activations:
            arguments["input_activations"] = input_activations
            arguments["inverse_temperature"] = self.inverse_temperature
        routed = algorithm.route(
            votes.unflatten(-1, (self.num_capsules, -1)),
            num_iterations=self.num_iterations,
            return_all_coefficients=every_iteration,
            **arguments,
        )
        capsules = routed.capsules.flatten(-2)
        if every_iteration:
            return capsules, routed.all_coefficients.movedim(0, -3)
        return capsules, routed.coefficients


def hide_missing(coefficients: Tensor, mask: Tensor | None) -> Tensor:
    """Zero the assignment `[..., I, N]` where the mask `[..., I]` is False."""
    if mask is None:
        return coefficients
    return coefficients.masked_fill(~mask.unsqueeze(-1), 0.0)
