"""EM routing (Dou et al. 2019, Algorithm 2, Eq. 10-16; Hinton et al. 2018), with a hand-written backward pass.

The forward pass keeps only its inputs, and the backward pass computes the rest again. On a GPU both use the kernels of
em_routing_kernels.py, if these run. All functions but [`em_routing`] take flat tensors of one dtype: P positions, I
input capsules, N output capsules of width D.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.utils import logging

from .numerics import differentiable_once, in_compute_dtype
from .routing import EPSILON, ROUTINGS, RoutingAlgorithm, RoutingOutput, hide_missing

VARIANCE_SHARE = 0.01
"""What is added to the variance in EM routing, as a share of the mean square of a position's votes.

Without it a capsule can collapse onto a single vote, and its gradient, 1 / sigma, dominates all others. Because it is a
share, the assignment does not depend on the scale of the votes. In the code the result is called `floor`: no variance
is smaller.
"""

# Votes in a chunk. On a CPU their temporaries stay in the cache of a core. On an accelerator they are 16 MiB.
_VOTE_CHUNK = {"cpu": 1 << 17}
_ACCELERATOR_VOTE_CHUNK = 1 << 22
_ROUNDING = 1e-3  # the largest relative error of kernels

logger = logging.get_logger(__name__)


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
        input_activations: probabilities `[..., I, 1]`, or `[..., I, N]` for each pair of capsules, 1 by default.
        inverse_temperature: lambda's limit. Iteration t = 1, 2, ... uses `inverse_temperature * (1 - 0.95**t)`.
        mask: `[..., I]` bool, False for input capsules that do not exist.
        return_all_coefficients: whether to also return the assignment of every iteration.

    Returns:
        Capsules, assignment and activations in the dtype of the votes.
    """
    *batch, num_inputs, num_outputs, width = votes.shape
    if input_activations is None:
        input_activations = votes.new_ones(*batch, num_inputs, 1)
    dtype = votes.dtype
    votes, input_activations, beta_a, beta_u = in_compute_dtype(votes, input_activations, beta_a, beta_u)
    if mask is not None:
        votes = votes.masked_fill(~mask[..., None, None], 0.0)
        input_activations = input_activations.masked_fill(~mask[..., None], 0.0)
    votes = votes.reshape(-1, num_inputs, num_outputs, width)
    input_activations = input_activations.reshape(-1, *input_activations.shape[-2:])
    floor = _variance_floor(votes, mask)
    schedule = tuple(inverse_temperature * (1 - 0.95**t) for t in range(1, num_iterations + 1))
    arguments = votes, input_activations, floor, beta_a, beta_u, schedule
    capsules, coefficients, activations = EMRoutingFunction.apply(*arguments)
    coefficients = hide_missing(coefficients.view(*batch, num_inputs, num_outputs), mask)
    all_coefficients = None
    if return_all_coefficients:
        with torch.no_grad():
            states = em_iterations(*arguments)
        all_coefficients = torch.stack([state.coefficients for state in states]).to(dtype)
        all_coefficients = all_coefficients.view(num_iterations, *batch, num_inputs, num_outputs)
        all_coefficients = hide_missing(all_coefficients, mask)
    return RoutingOutput(
        capsules.view(*batch, num_outputs, width).to(dtype),
        coefficients.to(dtype),
        activations.view(*batch, num_outputs).to(dtype),
        all_coefficients,
    )


ROUTINGS["em_routing"] = RoutingAlgorithm(em_routing, parameters=("beta_a", "beta_u"), reads_activations=True)


def _variance_floor(votes: Tensor, mask: Tensor | None) -> Tensor:
    """Return the floor `[P]` for votes `[P, I, N, D]`, from the input capsules that exist."""
    of_inputs = votes.square().mean((-1, -2))
    if mask is None:
        of_position = of_inputs.mean(-1)
    else:
        num_inputs = mask.reshape(of_inputs.shape).sum(-1)
        # A position without input capsules would be divided by zero.
        of_position = of_inputs.sum(-1) / num_inputs.clamp(min=1)
    return VARIANCE_SHARE * of_position + EPSILON


class EMState(NamedTuple):
    """One iteration of EM routing: inputs and results of its M-step."""

    coefficients: Tensor  # c [P, I, N]
    assigned: Tensor  # r = c * A_in [P, I, N]
    assigned_sum: Tensor  # sum_i r [P, N]
    mean: Tensor  # [P, N, D]
    variance: Tensor  # [P, N, D]
    deviation: Tensor  # V - mean [P, I, N, D]
    squared_deviation: Tensor  # [P, I, N, D]
    activation_logits: Tensor  # [P, N]


def em_iterations(
    votes: Tensor, input_activations: Tensor, floor: Tensor, beta_a: Tensor, beta_u: Tensor, schedule: tuple[float, ...]
) -> list[EMState]:
    """Run EM routing.

    Args:
        votes: `[P, I, N, D]`.
        input_activations: `[P, I, 1 or N]`.
        floor: what is added to every variance, `[P]`.
        beta_a: `[N]`.
        beta_u: `[N]`.
        schedule: the inverse temperature of each iteration.

    Returns:
        The state of each iteration.
    """
    coefficients = votes.new_full(votes.shape[:-1], 1 / votes.shape[-2])
    states = []
    for inverse_temperature in schedule:
        if states:
            coefficients = _e_step(states[-1])
        states.append(_m_step(coefficients, votes, input_activations, floor, beta_a, beta_u, inverse_temperature))
    return states


def _m_step(
    coefficients: Tensor,
    votes: Tensor,
    input_activations: Tensor,
    floor: Tensor,
    beta_a: Tensor,
    beta_u: Tensor,
    inverse_temperature: float,
) -> EMState:
    """Eq. 11-14: mean, variance and activation of every output capsule."""
    assigned = coefficients * input_activations
    assigned_sum = assigned.sum(-2)
    divisor = (assigned_sum + EPSILON).unsqueeze(-1)
    weights = assigned.unsqueeze(-1)
    mean = (weights * votes).sum(-3) / divisor
    deviation = votes - mean.unsqueeze(-3)
    squared_deviation = deviation.square()
    variance = (weights * squared_deviation).sum(-3) / divisor + floor[:, None, None]
    cost = _cost_per_assignment(variance) * assigned_sum
    logits = inverse_temperature * (beta_a - beta_u * assigned_sum - cost)
    return EMState(coefficients, assigned, assigned_sum, mean, variance, deviation, squared_deviation, logits)


def _cost_per_assignment(variance: Tensor) -> Tensor:
    """Eq. 13 summed over the width, for one unit of assignment: `[P, N]`."""
    # The number is (1 + ln 2 pi) / 2. torch.compile(dynamic=True) would treat a named float as an input.
    return _sum_width(0.5 * variance.log()) + variance.shape[-1] * 1.4189385332046727


def _e_step(state: EMState) -> Tensor:
    """Eq. 15-16: the assignment, from the Gaussian log density of every vote and the activations."""
    log_activation = F.logsigmoid(state.activation_logits)
    log_deviation = _sum_width(0.5 * state.variance.log())
    per_output = (log_activation - log_deviation).unsqueeze(-2)
    precision = (-0.5 / state.variance).unsqueeze(-3)
    if precision.shape[-1] == 1:
        # The same in one pass over the memory.
        logits = torch.addcmul(per_output, state.squared_deviation.squeeze(-1), precision.squeeze(-1))
    else:
        logits = (state.squared_deviation * precision).sum(-1) + per_output
    return logits.softmax(-1)


def _sum_width(tensor: Tensor) -> Tensor:
    # With D = 1, the setting of the papers, the sum is a view and costs nothing.
    return tensor.squeeze(-1) if tensor.shape[-1] == 1 else tensor.sum(-1)


class EMRoutingFunction(torch.autograd.Function):
    """[`em_iterations`] with capsules `[P, N, D]`. Assignment and activations have no gradient."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Route, and keep only the arguments, which are those of [`em_iterations`]."""
        *tensors, ctx.schedule = arguments
        ctx.save_for_backward(*tensors)
        votes = tensors[0]
        capsules, coefficients, activations = _implementation(votes).route(*arguments)
        ctx.mark_non_differentiable(coefficients, activations)
        return capsules, coefficients, activations

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_capsules: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Differentiate every iteration, last to first."""
        arguments = ctx.saved_tensors
        votes = arguments[0]
        gradients = _implementation(votes).route_backward(grad_capsules, *arguments, ctx.schedule)
        # The schedule has no gradient.
        return *gradients, None


class EMImplementation(NamedTuple):
    """The forward and the backward pass of EM routing: those below, or Triton kernels.

    Attributes:
        route: returns capsules, assignment and activations, given the arguments of [`em_iterations`].
        route_backward: returns the gradients of votes, input activations, floor, beta_a and beta_u, given the gradient
            of the capsules and the same arguments.
    """

    route: Callable[..., Sequence[Tensor]]
    route_backward: Callable[..., Sequence[Tensor]]


class EMKernels(NamedTuple):
    """Triton kernels that work on this machine.

    Attributes:
        fit: whether they can route votes of a given shape.
        implementation: their forward and backward pass.
    """

    fit: Callable[[Tensor], bool]
    implementation: EMImplementation


def _implementation(votes: Tensor) -> EMImplementation:
    """Return how to route votes `[P, I, N, D]`: by Triton kernels, or by PyTorch."""
    # A subclass may have no memory, as in tracing.
    is_traced = type(votes) is not Tensor or torch.compiler.is_compiling() or torch.jit.is_tracing()
    by_pytorch = EMImplementation(_route, _route_backward)
    if is_traced or votes.device.type != "cuda" or votes.dtype != torch.float32:
        return by_pytorch
    kernels = _kernels(votes.device)
    if kernels is None:
        return by_pytorch
    if kernels.fit(votes):
        return kernels.implementation
    # Without votes nothing is slow.
    if len(votes):
        logger.warning_once(f"EM routing is slower here: its Triton kernels do not fit votes {[*votes.shape[1:]]}.")
    return by_pytorch


@cache
def _kernels(device: torch.device) -> EMKernels | None:
    """Return the Triton kernels, if they run here and compute what `_route` does.

    They need a C compiler. A version of Triton may compile them wrongly, so they are tried first.
    """
    try:
        from .em_routing_kernels import fit, route, route_backward

        implementation = EMImplementation(route, route_backward)
        with torch.autocast(device.type, enabled=False):
            _check_kernels(device, implementation)
    # Memory may be free again later.
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # Triton, its compilers and the driver raise many types.
        logger.warning(
            f"EM routing is several times slower on {device}, because its Triton kernels fail: "
            f"{type(error).__name__}: {error}"
        )
        return None
    return EMKernels(fit, implementation)


def _check_kernels(device: torch.device, implementation: EMImplementation) -> None:
    """Raise ArithmeticError unless kernels compute the same as `_route` and `_route_backward`, up to rounding."""
    # The kernels have a branch for input activations of each shape.
    for width, activation_columns in ((1, 64), (2, 1)):
        shape = torch.Size([2, 3, 64, width])
        numbers = torch.arange(shape.numel(), device=device, dtype=torch.float32)
        votes = numbers.sin().view(shape)
        activations = votes[..., :activation_columns, 0].abs()
        floor = votes[:, 0, 0, 0].square()
        beta_a = votes[0, 0, :, 0]
        beta_u = votes[0, 1, :, 0]
        arguments = votes, activations, floor, beta_a, beta_u, (0.1, 0.2, 0.3)
        expected = _route(*arguments)
        grad_capsules = expected[0]
        errors = _relative_errors(implementation.route(*arguments), expected)
        errors += _relative_errors(
            implementation.route_backward(grad_capsules, *arguments), _route_backward(grad_capsules, *arguments)
        )
        # The maximum of a tensor is NaN if any element is. Python's max() may skip it.
        error = torch.stack(errors).max().item()
        if not error < _ROUNDING:
            raise ArithmeticError(f"their relative error is {error:.1g}")


def _relative_errors(computed: Sequence[Tensor], expected: Sequence[Tensor]) -> list[Tensor]:
    """Return the relative error of each tensor."""
    return [(one - other).norm() / other.norm() for one, other in zip(computed, expected, strict=True)]


def _route(
    votes: Tensor, input_activations: Tensor, floor: Tensor, beta_a: Tensor, beta_u: Tensor, schedule: tuple[float, ...]
) -> list[Tensor]:
    """Return the capsules `[P, N, D]`, the assignment `[P, I, N]` and the activations `[P, N]`, chunk by chunk."""
    results = []
    for part in _vote_chunks(votes):
        states = em_iterations(votes[part], input_activations[part], floor[part], beta_a, beta_u, schedule)
        state = states[-1]
        activations = state.activation_logits.sigmoid()
        results.append((activations.unsqueeze(-1) * state.mean, state.coefficients, activations))
    return _concatenate(results)


def _route_backward(
    grad_capsules: Tensor, votes: Tensor, input_activations: Tensor, floor: Tensor, *others: Any
) -> list[Tensor]:
    """Return gradients of votes, input activations, floor, beta_a and beta_u, chunk by chunk."""
    by_position, of_betas = [], []
    for part in _vote_chunks(votes):
        gradients = _chunk_gradients(grad_capsules[part], votes[part], input_activations[part], floor[part], *others)
        by_position.append(gradients[:3])
        of_betas.append(gradients[3:])
    grad_beta_a = sum(grad_beta_a for grad_beta_a, _ in of_betas)
    grad_beta_u = sum(grad_beta_u for _, grad_beta_u in of_betas)
    return [*_concatenate(by_position), grad_beta_a, grad_beta_u]


def _chunk_gradients(
    grad_capsules: Tensor,
    votes: Tensor,
    input_activations: Tensor,
    floor: Tensor,
    beta_a: Tensor,
    beta_u: Tensor,
    schedule: tuple[float, ...],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return gradients of votes, input activations, floor, beta_a and beta_u."""
    states = em_iterations(votes, input_activations, floor, beta_a, beta_u, schedule)
    last = states[-1]
    probability = last.activation_logits.sigmoid()
    # The output is A * mean.
    grad_mean = probability.unsqueeze(-1) * grad_capsules
    grad_variance = None
    grad_logits = _sum_width(grad_capsules * last.mean) * probability * (1 - probability)
    grad_votes = torch.zeros_like(votes)
    grad_activations = torch.zeros_like(input_activations)
    grad_floor = torch.zeros_like(floor)
    grad_beta_a = torch.zeros_like(beta_a)
    grad_beta_u = torch.zeros_like(beta_u)
    for iteration in reversed(range(len(schedule))):
        state = states[iteration]
        scaled = grad_logits * schedule[iteration]
        grad_beta_a += scaled.sum(0)
        grad_beta_u -= (scaled * state.assigned_sum).sum(0)
        grad_assigned = _m_step_backward(state, floor, scaled, beta_u, grad_mean, grad_variance, grad_votes, grad_floor)
        contribution = grad_assigned * state.coefficients
        if input_activations.shape[-1] == 1:
            contribution = contribution.sum(-1, keepdim=True)
        grad_activations += contribution
        # The first iteration has no E-step before it.
        if iteration > 0:
            grad_coefficients = grad_assigned.mul_(input_activations)
            grad_mean, grad_variance, grad_logits = _e_step_backward(
                states[iteration - 1], state.coefficients, grad_coefficients, grad_votes
            )
    return grad_votes, grad_activations, grad_floor, grad_beta_a, grad_beta_u


def _m_step_backward(
    state: EMState,
    floor: Tensor,
    scaled: Tensor,
    beta_u: Tensor,
    grad_mean: Tensor,
    grad_variance: Tensor | None,
    grad_votes: Tensor,
    grad_floor: Tensor,
) -> Tensor:
    """Return the gradient of `assigned` [P, I, N]. Add the gradients of votes and floor in place.

    `scaled` is lambda times the gradient of the activation logits.
    """
    divisor = (state.assigned_sum + EPSILON).unsqueeze(-1)
    from_cost = (scaled * state.assigned_sum).unsqueeze(-1) * (-0.5 / state.variance)
    grad_variance = from_cost if grad_variance is None else grad_variance + from_cost
    grad_floor += grad_variance.sum((-1, -2))
    # variance = (sum_i r * deviation^2) / divisor + floor, mean = (sum_i r * V) / divisor
    grad_squares = grad_variance / divisor
    # sum_i r * deviation is EPSILON * mean, not exactly zero
    grad_mean = grad_mean - 2 * EPSILON * grad_squares * state.mean
    grad_weighted = grad_mean / divisor
    weighted_variance = state.variance - floor[:, None, None]
    grad_divisor = _sum_width(-grad_squares * weighted_variance - grad_weighted * state.mean)
    grad_sum = grad_divisor - scaled * (beta_u + _cost_per_assignment(state.variance))
    # With V = mean + deviation, d/dr = grad_squares * deviation^2 + grad_weighted * (mean + deviation) + grad_sum
    constant = _sum_width(grad_weighted * state.mean) + grad_sum
    bend = grad_squares.unsqueeze(-3) * state.deviation
    slope = bend + grad_weighted.unsqueeze(-3)
    grad_assigned = _sum_width(slope * state.deviation) + constant.unsqueeze(-2)
    # d/dV = r * (2 * grad_squares * deviation + grad_weighted)
    grad_votes.addcmul_(bend.add_(slope), state.assigned.unsqueeze(-1))
    return grad_assigned


def _e_step_backward(
    state: EMState, coefficients: Tensor, grad_coefficients: Tensor, grad_votes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of mean, variance and activation logits of the iteration before `coefficients`."""
    inner = (grad_coefficients * coefficients).sum(-1, keepdim=True)
    grad_scores = (grad_coefficients - inner).mul_(coefficients)
    summed = grad_scores.sum(-2)
    precision = 1 / state.variance
    weighted = grad_scores.unsqueeze(-1) * state.deviation
    grad_mean = weighted.sum(-3) * precision
    squares = (weighted * state.deviation).sum(-3)
    grad_variance = 0.5 * precision * (squares * precision - summed.unsqueeze(-1))
    grad_votes.addcmul_(weighted, precision.unsqueeze(-3), value=-1)
    grad_logits = summed * torch.sigmoid(-state.activation_logits)
    return grad_mean, grad_variance, grad_logits


def _vote_chunks(votes: Tensor) -> list[slice]:
    """Return slices of the positions, or one slice under compilation."""
    positions = votes.shape[0]
    if torch.compiler.is_compiling() or positions == 0:
        return [slice(None)]
    votes_in_chunk = _VOTE_CHUNK.get(votes.device.type, _ACCELERATOR_VOTE_CHUNK)
    size = max(1, votes_in_chunk // votes[0].numel())
    return [slice(start, start + size) for start in range(0, positions, size)]


def _concatenate(results: list[Sequence[Tensor]]) -> list[Tensor]:
    """Join the results of all chunks, one tensor after the other."""
    if len(results) == 1:
        return list(results[0])
    return [torch.cat(tensors) for tensors in zip(*results)]
