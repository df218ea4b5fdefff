"""EM routing (Dou et al. 2019, Algorithm 2, Eq. 10-16; Hinton et al. 2018), with a hand-written backward pass.

The forward pass keeps only its inputs, and the backward pass computes the rest again. On a GPU both use the kernels of
em_routing_kernels.py, if these run. All functions but [`em_routing`] take flat tensors of one dtype: P positions, I
input capsules, N output capsules of width D.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.utils import logging

from .differentiation import differentiable_once
from .precision import in_compute_dtype
from .routing import EPSILON, ROUTINGS, RoutingAlgorithm, RoutingOutput, hide_missing

VARIANCE_FLOOR = 0.01
"""Floor of the variance in EM routing, as a fraction of the mean square of a position's votes.

Without it a capsule can collapse onto a single vote, and its gradient, 1 / sigma, dominates all others. Because it is a
fraction, the assignment does not depend on the scale of the votes.
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


ROUTINGS["em_routing"] = RoutingAlgorithm(em_routing, parameters=("beta_a", "beta_u"), reads_activations=True)


def _variance_floor(votes: Tensor, mask: Tensor | None) -> Tensor:
    """Return the floor `[P]` for votes `[P, I, N, D]`, from the input capsules that exist."""
    mean_square = votes.square().mean((-1, -2))
    if mask is None:
        mean_square = mean_square.mean(-1)
    else:
        mean_square = mean_square.sum(-1) / mask.reshape(mean_square.shape).sum(-1).clamp(min=1)
    return VARIANCE_FLOOR * mean_square + EPSILON


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
    """Run EM routing on votes `[P, I, N, D]`, with an inverse temperature for every iteration."""
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
    mean = (assigned.unsqueeze(-1) * votes).sum(-3) / divisor
    deviation = votes - mean.unsqueeze(-3)
    squared_deviation = deviation.square()
    variance = (assigned.unsqueeze(-1) * squared_deviation).sum(-3) / divisor + floor[:, None, None]
    cost = _cost_per_assignment(variance) * assigned_sum
    logits = inverse_temperature * (beta_a - beta_u * assigned_sum - cost)
    return EMState(coefficients, assigned, assigned_sum, mean, variance, deviation, squared_deviation, logits)


def _cost_per_assignment(variance: Tensor) -> Tensor:
    """Eq. 13 summed over the width, for one unit of assignment: `[P, N]`."""
    # The number is (1 + ln 2 pi) / 2. torch.compile(dynamic=True) would treat a named float as an input.
    return _sum_width(0.5 * variance.log()) + variance.shape[-1] * 1.4189385332046727


def _e_step(state: EMState) -> Tensor:
    """Eq. 15-16: the assignment, from the Gaussian log density of every vote and the activations."""
    per_output = torch.nn.functional.logsigmoid(state.activation_logits) - _sum_width(0.5 * state.variance.log())
    precision = (-0.5 / state.variance).unsqueeze(-3)
    if precision.shape[-1] == 1:
        logits = torch.addcmul(per_output.unsqueeze(-2), state.squared_deviation.squeeze(-1), precision.squeeze(-1))
    else:
        logits = (state.squared_deviation * precision).sum(-1) + per_output.unsqueeze(-2)
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
        route, _ = _implementation(tensors[0])
        capsules, coefficients, activations = route(*arguments)
        ctx.mark_non_differentiable(coefficients, activations)
        return capsules, coefficients, activations

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_capsules: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Differentiate every iteration, last to first."""
        arguments = ctx.saved_tensors
        _, route_backward = _implementation(arguments[0])
        return *route_backward(grad_capsules, *arguments, ctx.schedule), None


def _implementation(votes: Tensor) -> tuple[Callable, Callable]:
    # A subclass may have no memory, as in tracing.
    traced = type(votes) is not Tensor or torch.compiler.is_compiling() or torch.jit.is_tracing()
    if votes.device.type == "cuda" and votes.dtype == torch.float32 and not traced:
        kernels = _kernels(votes.device)
        if kernels is not None and kernels[0](votes):
            return kernels[1:]
        if kernels is not None and len(votes):
            logger.warning_once(f"EM routing is slower here: its Triton kernels do not fit votes {[*votes.shape[1:]]}.")
    return _route, _route_backward


@cache
def _kernels(device: torch.device) -> tuple[Callable, Callable, Callable] | None:
    """Return `fit`, `route` and `route_backward` of Triton kernels, if they run here and compute what `_route` does.

    They need a C compiler. A version of Triton may compile them wrongly, so they are tried first.
    """
    try:
        from .em_routing_kernels import fit, route, route_backward

        with torch.autocast(device.type, enabled=False):
            _check_kernels(device, route, route_backward)
    # Memory may be free again later.
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # Triton, its compilers and the driver raise many types.
        logger.warning(
            f"EM routing is several times slower on {device}, because its Triton kernels fail: "
            f"{type(error).__name__}: {error}"
        )
        return None
    return fit, route, route_backward


def _check_kernels(device: torch.device, route: Callable, route_backward: Callable) -> None:
    """Raise ArithmeticError unless kernels compute the same as `_route` and `_route_backward`, up to rounding."""
    # With input activations of both shapes.
    for width, columns in ((1, 64), (2, 1)):
        votes = torch.arange(2 * 3 * 64 * width, device=device, dtype=torch.float32).sin().view(2, 3, 64, width)
        activations, floor = votes[..., :columns, 0].abs(), votes[:, 0, 0, 0].square()
        arguments = votes, activations, floor, *votes[0, :2, :, 0], (0.1, 0.2, 0.3)
        capsules, *others = _route(*arguments)
        wanted = capsules, *others, *_route_backward(capsules, *arguments)
        found = *route(*arguments), *route_backward(capsules, *arguments)
        # The maximum of a tensor is NaN if any element is. Python's max() may skip it.
        error = torch.stack([(a - b).norm() / b.norm() for a, b in zip(found, wanted, strict=True)]).max().item()
        if not error < _ROUNDING:
            raise ArithmeticError(f"their relative error is {error:.1g}")


def _route(
    votes: Tensor, input_activations: Tensor, floor: Tensor, beta_a: Tensor, beta_u: Tensor, schedule: tuple[float, ...]
) -> list[Tensor]:
    """Return the capsules `[P, N, D]`, the assignment `[P, I, N]` and the activations `[P, N]`, chunk by chunk."""
    results = []
    for part in _vote_chunks(votes):
        state = em_iterations(votes[part], input_activations[part], floor[part], beta_a, beta_u, schedule)[-1]
        activations = state.activation_logits.sigmoid()
        results.append((activations.unsqueeze(-1) * state.mean, state.coefficients, activations))
    return _concatenate(results)


def _route_backward(
    grad_capsules: Tensor, votes: Tensor, input_activations: Tensor, floor: Tensor, *others: Any
) -> list[Tensor]:
    """Return gradients of votes, input activations, floor, beta_a and beta_u, chunk by chunk."""
    results = []
    for part in _vote_chunks(votes):
        parts = (tensor[part] for tensor in (grad_capsules, votes, input_activations, floor))
        results.append(_chunk_gradients(*parts, *others))
    of_chunks, of_betas = [result[:3] for result in results], [result[3:] for result in results]
    return [*_concatenate(of_chunks), *map(sum, zip(*of_betas))]


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
    grad_votes, grad_activations = torch.zeros_like(votes), torch.zeros_like(input_activations)
    grad_floor, grad_beta_a, grad_beta_u = map(torch.zeros_like, (floor, beta_a, beta_u))
    for iteration in reversed(range(len(schedule))):
        state = states[iteration]
        scaled = grad_logits * schedule[iteration]
        grad_beta_a += scaled.sum(0)
        grad_beta_u -= (scaled * state.assigned_sum).sum(0)
        grad_assigned = _m_step_backward(state, floor, scaled, beta_u, grad_mean, grad_variance, grad_votes, grad_floor)
        contribution = grad_assigned * state.coefficients
        grad_activations += contribution.sum(-1, keepdim=True) if input_activations.shape[-1] == 1 else contribution
        if iteration:
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
    grad_divisor = _sum_width(-grad_squares * (state.variance - floor[:, None, None]) - grad_weighted * state.mean)
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
    size = max(1, _VOTE_CHUNK.get(votes.device.type, _ACCELERATOR_VOTE_CHUNK) // votes[0].numel())
    return [slice(start, start + size) for start in range(0, positions, size)]


def _concatenate(results: list) -> list[Tensor]:
    return list(results[0]) if len(results) == 1 else [torch.cat(tensors) for tensors in zip(*results)]
