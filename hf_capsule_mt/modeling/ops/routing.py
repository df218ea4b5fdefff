"""The three routing algorithms, as pure functions on tensors of votes.

`votes` is `[..., I, N, D]`: each of I input capsules votes for N output capsules of width D; the leading dimensions are
batch. `mask` is `[..., I]`, True where the input capsule exists: one that does not exist contributes exactly nothing.

Routing runs in float32 (float64 for float64 votes) and returns in the dtype of the votes.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from .em_routing_function import EPSILON, EMRoutingFunction, em_iterations

VARIANCE_FLOOR = 0.01
"""What EM routing adds to the variance of the votes, as a fraction of the mean square of a position's votes.

A capsule can otherwise collapse onto a single vote, there being more capsules than votes, and its gradient, as
1 / sigma, drowns all others. A fraction keeps the assignment free of the votes' scale, as Eq. 11-16 are.
"""


class RoutingOutput(NamedTuple):
    """What routing returns.

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

    Arguments, result and errors are those of [`dynamic_routing`].
    """
    return _agreement_routing(votes, num_iterations, mask, return_all_coefficients, normalize=True)


def em_routing(
    votes: Tensor,
    beta_a: Tensor,
    beta_u: Tensor,
    num_iterations: int = 3,
    input_activations: Tensor | None = None,
    inverse_temperature: float = 0.01,
    mask: Tensor | None = None,
    return_all_coefficients: bool = False,
) -> RoutingOutput:
    """EM routing (Dou et al. 2019, Algorithm 2, Eq. 10-16; Hinton et al. 2018).

    Args:
        votes: `[..., I, N, D]`, any floating dtype.
        beta_a: `[N]`, the cost of activating an output capsule.
        beta_u: `[N]`, the cost of an input capsule when the output capsule is not active.
        num_iterations: iterations, at least 1.
        input_activations: probabilities `[..., I, 1]`, or `[..., I, N]` where an input capsule has one for every output
            capsule; 1 by default.
        inverse_temperature: lambda's limit; iteration t = 1, 2, ... uses `inverse_temperature * (1 - 0.95**t)`.
        mask: `[..., I]` bool, True where the input capsule exists; all exist by default.
        return_all_coefficients: whether to return the assignment of every iteration too.

    Raises:
        ValueError: if the shapes do not fit or `num_iterations` is not positive.
    """
    _check_votes(votes, num_iterations, mask)
    *batch, num_inputs, num_outputs, width = votes.shape
    for name, beta in (("beta_a", beta_a), ("beta_u", beta_u)):
        if beta.shape != (num_outputs,):
            raise ValueError(f"{name} has shape {tuple(beta.shape)}; votes for {num_outputs} capsules need one each")
    if input_activations is None:
        input_activations = votes.new_ones(*batch, num_inputs, 1)
    elif input_activations.shape not in ((*batch, num_inputs, 1), (*batch, num_inputs, num_outputs)):
        raise ValueError(
            f"input_activations has shape {tuple(input_activations.shape)}; votes of shape {tuple(votes.shape)} need "
            f"{(*batch, num_inputs, 1)} or {(*batch, num_inputs, num_outputs)}"
        )
    dtype = votes.dtype
    votes, input_activations, beta_a, beta_u = in_compute_dtype(votes, input_activations, beta_a, beta_u)
    if mask is not None:
        votes = votes.masked_fill(~mask[..., None, None], 0.0)
        input_activations = input_activations.masked_fill(~mask[..., None], 0.0)
    votes = votes.reshape(-1, num_inputs, num_outputs, width)
    input_activations = input_activations.reshape(-1, *input_activations.shape[-2:])
    schedule = tuple(inverse_temperature * (1 - 0.95**t) for t in range(1, num_iterations + 1))
    arguments = votes, input_activations, _variance_floor(votes, mask), beta_a, beta_u, schedule
    capsules, coefficients, activations = EMRoutingFunction.apply(*arguments)
    every = None
    if return_all_coefficients:
        with torch.no_grad():
            every = torch.stack([state.coefficients for state in em_iterations(*arguments)]).to(dtype)
        every = hide_missing(every.view(num_iterations, *batch, num_inputs, num_outputs), mask)
    return RoutingOutput(
        capsules.view(*batch, num_outputs, width).to(dtype),
        hide_missing(coefficients.view(*batch, num_inputs, num_outputs), mask).to(dtype),
        activations.view(*batch, num_outputs).to(dtype),
        every,
    )


def _variance_floor(votes: Tensor, mask: Tensor | None) -> Tensor:
    """The floor `[P]` for votes `[P, I, N, D]`, from the input capsules that exist."""
    mean_square = votes.square().mean((-1, -2))
    if mask is None:
        mean_square = mean_square.mean(-1)
    else:
        mean_square = mean_square.sum(-1) / mask.reshape(mean_square.shape).sum(-1).clamp(min=1)
    return VARIANCE_FLOOR * mean_square + EPSILON


def _agreement_routing(
    votes: Tensor, num_iterations: int, mask: Tensor | None, return_all_coefficients: bool, normalize: bool
) -> RoutingOutput:
    _check_votes(votes, num_iterations, mask)
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


def _check_votes(votes: Tensor, num_iterations: int, mask: Tensor | None) -> None:
    if votes.dim() < 3:
        raise ValueError(f"votes has shape {tuple(votes.shape)}; routing needs [..., inputs, outputs, width]")
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


__all__ = [
    "EPSILON",
    "VARIANCE_FLOOR",
    "RoutingOutput",
    "dynamic_routing",
    "em_routing",
    "simple_routing",
    "squash",
]
