"""EM routing on a GPU by Triton: all iterations of a position in one program, which reads its votes once.

Equations and names are as in em_routing.py, and tensors are flat and float32. The votes of a program are a block
`[I, N, D]` whose sides are powers of two. Its padding has votes, activations or coefficients of 0 and adds nothing.
"""

import math
from functools import cache

import torch
from torch import Tensor

# ruff: noqa: ANN001, ANN202
# Kernels take pointers and numbers, and their helpers blocks: Triton has no types for them.

# Transformers requires every import of a checkpoint's files, unless it is in a `try` block.
try:
    import triton
    from triton import language as tl
except ImportError:
    raise

_LARGEST_BLOCK = 1 << 13  # votes. With more, the backward pass runs out of registers.
_VOTES_OF_A_WARP = 256
_EPSILON = 1e-8  # As in em_routing.py. A checkpoint carries this file separately, so it cannot be imported.
_COST = tl.constexpr(1.4189385332046727)  # (1 + ln 2 pi) / 2, in Eq. 13, for each number of a vote.


def fit(votes: Tensor) -> bool:
    """Return whether the kernels can route votes `[P, I, N, D]`: there are some, and not too many in a position."""
    return len(votes) > 0 and math.prod(_block(votes)) <= _LARGEST_BLOCK


def _block(votes: Tensor) -> list[int]:
    """Return the sides of the block that holds a position's votes."""
    return [triton.next_power_of_2(size) for size in votes.shape[1:]]


def route(
    votes: Tensor, input_activations: Tensor, floor: Tensor, beta_a: Tensor, beta_u: Tensor, schedule: tuple[float, ...]
) -> tuple[Tensor, Tensor, Tensor]:
    """Route the votes of every position.

    Args:
        votes: `[P, I, N, D]`, of I input capsules for N output capsules at P positions.
        input_activations: `[P, I, 1]`, one for each input capsule, or `[P, I, N]`, one for each pair.
        floor: what is added to every variance, `[P]`.
        beta_a: `[N]`.
        beta_u: `[N]`.
        schedule: the inverse temperature of every iteration.

    Returns:
        The capsules `[P, N, D]`, the assignment `[P, I, N]` and the activations `[P, N]`.
    """
    positions, _, outputs, width = votes.shape
    capsules = votes.new_empty(positions, outputs, width)
    coefficients, activations = votes.new_empty(votes.shape[:-1]), votes.new_empty(positions, outputs)
    inputs = _inputs(votes, input_activations, floor, beta_a, beta_u, schedule)
    settings = _settings(votes, input_activations, schedule)
    # Triton runs on the current device.
    with torch.cuda.device_of(votes):
        _route[(positions,)](*inputs, capsules, coefficients, activations, **settings)
    return capsules, coefficients, activations


def route_backward(
    grad_capsules: Tensor,
    votes: Tensor,
    input_activations: Tensor,
    floor: Tensor,
    beta_a: Tensor,
    beta_u: Tensor,
    schedule: tuple[float, ...],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients of [`route`] again from its inputs.

    Args:
        grad_capsules: the gradient of the capsules, `[P, N, D]`.
        votes: as in [`route`].
        input_activations: the same.
        floor: the same.
        beta_a: the same.
        beta_u: the same.
        schedule: the same.

    Returns:
        The gradients of the votes, the input activations, the floor, beta_a and beta_u.
    """
    positions, _, outputs, _ = votes.shape
    grad_votes, grad_floor = votes.new_empty(votes.shape), votes.new_empty(positions)
    grad_activations = votes.new_empty(input_activations.shape)
    # A row for each position: programs would add them up in another order every time.
    grad_beta_a, grad_beta_u = (votes.new_empty(positions, outputs) for _ in range(2))
    inputs = _inputs(votes, input_activations, floor, beta_a, beta_u, schedule)
    gradients = grad_votes, grad_activations, grad_floor, grad_beta_a, grad_beta_u
    settings = _settings(votes, input_activations, schedule)
    with torch.cuda.device_of(votes):
        _route_backward[(positions,)](*inputs, grad_capsules.contiguous(), *gradients, **settings)
    return grad_votes, grad_activations, grad_floor, grad_beta_a.sum(0), grad_beta_u.sum(0)


def _inputs(
    votes: Tensor, input_activations: Tensor, floor: Tensor, beta_a: Tensor, beta_u: Tensor, schedule: tuple[float, ...]
) -> list[Tensor | int]:
    tensors = votes, input_activations, floor, beta_a, beta_u, _schedule_on(votes.device, schedule)
    return [*(tensor.contiguous() for tensor in tensors), *votes.shape[1:]]


@cache
def _schedule_on(device: torch.device, schedule: tuple[float, ...]) -> Tensor:
    """Return the inverse temperatures. They are copied once, because each copy waits for the device."""
    return torch.tensor(schedule, device=device, dtype=torch.float32)


def _settings(votes: Tensor, input_activations: Tensor, schedule: tuple[float, ...]) -> dict[str, int | bool | float]:
    inputs, outputs, width = _block(votes)
    warps = max(1, min(16, inputs * outputs * width // _VOTES_OF_A_WARP))
    return {
        "INPUTS": inputs,
        "OUTPUTS": outputs,
        "WIDTH": width,
        "ITERATIONS": len(schedule),
        # Whether an input capsule has an activation for every output capsule.
        "JOINT": input_activations.shape[-1] != 1,
        "EPSILON": _EPSILON,
        "num_warps": warps,
    }


@triton.jit
def _of_assignment(inputs, outputs, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr):
    """Return where the entries of an assignment `[I, N]` are, and which exist."""
    i = tl.arange(0, INPUTS)[:, None]
    n = tl.arange(0, OUTPUTS)[None, :]
    place = i * outputs + n
    exist = (i < inputs) & (n < outputs)
    return place, exist


@triton.jit
def _of_votes(inputs, outputs, width, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr):
    """Return where votes `[I, N, D]` are, and which exist."""
    place, exist = _of_assignment(inputs, outputs, INPUTS, OUTPUTS)
    d = tl.arange(0, WIDTH)[None, None, :]
    place = place[:, :, None] * width + d
    exist = exist[:, :, None] & (d < width)
    return place, exist


@triton.jit
def _of_capsules(outputs, width, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr):
    """Return where the output capsules `[N, D]` are, and which of their numbers exist."""
    n = tl.arange(0, OUTPUTS)[:, None]
    d = tl.arange(0, WIDTH)[None, :]
    place = n * width + d
    exist = (n < outputs) & (d < width)
    return place, exist


@triton.jit
def _of_activations(inputs, outputs, JOINT: tl.constexpr, INPUTS: tl.constexpr, OUTPUTS: tl.constexpr):
    """Return where the input activations `[I, 1 or N]` are, and which exist."""
    if JOINT:
        place, exist = _of_assignment(inputs, outputs, INPUTS, OUTPUTS)
    else:
        place, exist = _of_assignment(inputs, 1, INPUTS, 1)
    return place, exist


@triton.jit
def _m_step(coefficients, votes, activations, floor, beta_a, beta_u, temperature_at, width, EPSILON: tl.constexpr):
    """Eq. 11-14, as `_m_step` of em_routing.py."""
    assigned = coefficients * activations
    assigned_sum = tl.sum(assigned, 0)
    divisor = (assigned_sum + EPSILON)[:, None]
    mean = tl.sum(assigned[:, :, None] * votes, 0) / divisor
    deviation = votes - mean[None, :, :]
    variance = tl.sum(assigned[:, :, None] * deviation * deviation, 0) / divisor + floor
    d = tl.arange(0, votes.shape[2])[None, :]
    log_deviation = tl.sum(tl.where(d < width, 0.5 * tl.log(variance), 0.0), 1)
    cost = log_deviation + width * _COST
    logits = tl.load(temperature_at) * (beta_a - beta_u * assigned_sum - cost * assigned_sum)
    return assigned, assigned_sum, mean, variance, log_deviation, logits


@triton.jit
def _e_step(votes, mean, variance, log_deviation, logits, outputs):
    """Eq. 15-16, as `_e_step` of em_routing.py."""
    # Without an exponential of a large number.
    log_one_plus = tl.log(1.0 + tl.exp(-tl.abs(logits)))
    log_sigmoid = tl.minimum(logits, 0.0) - log_one_plus
    per_output = log_sigmoid - log_deviation
    deviation = votes - mean[None, :, :]
    factor = (-0.5 / variance)[None, :, :]
    scores = tl.sum(deviation * deviation * factor, 2) + per_output[None, :]
    n = tl.arange(0, votes.shape[1])[None, :]
    scores = tl.where(n < outputs, scores, float("-inf"))
    exponentials = tl.exp(scores - tl.max(scores, 1)[:, None])
    return exponentials / tl.sum(exponentials, 1)[:, None]


@triton.jit
def _load(
    votes_at, activations_at, floor_at, beta_a_at, beta_u_at, inputs, outputs, width,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr, JOINT: tl.constexpr,
):  # fmt: skip
    """Return votes, input activations and floor of this program's position, the betas, and the first assignment."""
    position = tl.program_id(0).to(tl.int64)
    place, exist = _of_votes(inputs, outputs, width, INPUTS, OUTPUTS, WIDTH)
    votes = tl.load(votes_at + position * inputs * outputs * width + place, mask=exist, other=0.0)
    columns = outputs if JOINT else 1
    place, exist = _of_activations(inputs, outputs, JOINT, INPUTS, OUTPUTS)
    activations = tl.load(activations_at + position * inputs * columns + place, mask=exist, other=0.0)
    n = tl.arange(0, OUTPUTS)
    beta_a = tl.load(beta_a_at + n, mask=n < outputs, other=0.0)
    beta_u = tl.load(beta_u_at + n, mask=n < outputs, other=0.0)
    of_each_input = tl.where(n < outputs, 1.0 / outputs, 0.0)
    uniform = of_each_input[None, :] + tl.zeros([INPUTS, OUTPUTS], tl.float32)
    return votes, activations, tl.load(floor_at + position), beta_a, beta_u, uniform


@triton.jit
def _route(
    votes_at, activations_at, floor_at, beta_a_at, beta_u_at, schedule_at, inputs, outputs, width,
    capsules_at, coefficients_at, output_activations_at,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr, ITERATIONS: tl.constexpr, JOINT: tl.constexpr,
    EPSILON: tl.constexpr,
):  # fmt: skip
    """Route the votes of one position."""
    votes, activations, floor, beta_a, beta_u, coefficients = _load(
        votes_at, activations_at, floor_at, beta_a_at, beta_u_at, inputs, outputs, width, INPUTS, OUTPUTS, WIDTH, JOINT
    )
    _, _, mean, variance, log_deviation, logits = _m_step(
        coefficients, votes, activations, floor, beta_a, beta_u, schedule_at, width, EPSILON
    )
    for iteration in tl.range(1, ITERATIONS):
        coefficients = _e_step(votes, mean, variance, log_deviation, logits, outputs)
        _, _, mean, variance, log_deviation, logits = _m_step(
            coefficients, votes, activations, floor, beta_a, beta_u, schedule_at + iteration, width, EPSILON
        )
    probability = tl.sigmoid(logits)
    position = tl.program_id(0).to(tl.int64)
    place, exist = _of_capsules(outputs, width, OUTPUTS, WIDTH)
    capsules = probability[:, None] * mean
    tl.store(capsules_at + position * outputs * width + place, capsules, mask=exist)
    place, exist = _of_assignment(inputs, outputs, INPUTS, OUTPUTS)
    tl.store(coefficients_at + position * inputs * outputs + place, coefficients, mask=exist)
    n = tl.arange(0, OUTPUTS)
    tl.store(output_activations_at + position * outputs + n, probability, mask=n < outputs)


@triton.jit
def _route_backward(
    votes_at, activations_at, floor_at, beta_a_at, beta_u_at, schedule_at, inputs, outputs, width,
    grad_capsules_at, grad_votes_at, grad_activations_at, grad_floor_at, grad_beta_a_at, grad_beta_u_at,
    INPUTS: tl.constexpr, OUTPUTS: tl.constexpr, WIDTH: tl.constexpr, ITERATIONS: tl.constexpr, JOINT: tl.constexpr,
    EPSILON: tl.constexpr,
):  # fmt: skip
    """Differentiate every iteration of one position, last to first, as `_chunk_gradients` of em_routing.py.

    Each iteration is computed again, because there are not enough registers to keep all results. The loops must not be
    unrolled: the compiler would then keep the results.
    """
    votes, activations, floor, beta_a, beta_u, uniform = _load(
        votes_at, activations_at, floor_at, beta_a_at, beta_u_at, inputs, outputs, width, INPUTS, OUTPUTS, WIDTH, JOINT
    )
    position = tl.program_id(0).to(tl.int64)
    place, exist = _of_capsules(outputs, width, OUTPUTS, WIDTH)
    grad_capsules = tl.load(grad_capsules_at + position * outputs * width + place, mask=exist, other=0.0)
    grad_votes, grad_activations = tl.zeros_like(votes), tl.zeros_like(uniform)
    grad_variance, grad_floor = tl.zeros_like(grad_capsules), tl.sum(tl.zeros_like(beta_a), 0)
    grad_beta_a, grad_beta_u = tl.zeros_like(beta_a), tl.zeros_like(beta_a)
    grad_mean, grad_logits = tl.zeros_like(grad_capsules), tl.zeros_like(beta_a)
    for back in tl.range(0, ITERATIONS):
        coefficients = uniform
        assigned, assigned_sum, mean, variance, log_deviation, logits = _m_step(
            coefficients, votes, activations, floor, beta_a, beta_u, schedule_at, width, EPSILON
        )
        # Fresh tensors: Triton treats a name that a loop sets to its current value as unchanged.
        last_mean, last_logits = tl.zeros_like(mean), tl.zeros_like(logits)
        last_variance = tl.zeros_like(variance) + 1.0
        for iteration in tl.range(1, ITERATIONS - back):
            last_mean, last_variance, last_logits = mean, variance, logits
            coefficients = _e_step(votes, mean, variance, log_deviation, logits, outputs)
            assigned, assigned_sum, mean, variance, log_deviation, logits = _m_step(
                coefficients, votes, activations, floor, beta_a, beta_u, schedule_at + iteration, width, EPSILON
            )
        # The output is A * mean, of the last iteration.
        probability = tl.sigmoid(logits)
        grad_mean = tl.where(back == 0, probability[:, None] * grad_capsules, grad_mean)
        of_output = tl.sum(grad_capsules * mean, 1) * probability * (1.0 - probability)
        grad_logits = tl.where(back == 0, of_output, grad_logits)
        # The M-step, as `_m_step_backward`.
        scaled = grad_logits * tl.load(schedule_at + ITERATIONS - 1 - back)
        grad_beta_a += scaled
        grad_beta_u -= scaled * assigned_sum
        divisor = (assigned_sum + EPSILON)[:, None]
        grad_variance += tl.where(exist, (scaled * assigned_sum)[:, None] * (-0.5 / variance), 0.0)
        grad_floor += tl.sum(tl.sum(grad_variance, 1), 0)
        grad_squares = grad_variance / divisor
        grad_weighted = (grad_mean - 2.0 * EPSILON * grad_squares * mean) / divisor
        grad_divisor = tl.sum(-grad_squares * (variance - floor) - grad_weighted * mean, 1)
        cost = log_deviation + width * _COST
        constant = tl.sum(grad_weighted * mean, 1) + grad_divisor - scaled * (beta_u + cost)
        deviation = votes - mean[None, :, :]
        bend = grad_squares[None, :, :] * deviation
        slope = bend + grad_weighted[None, :, :]
        grad_assigned = tl.sum(slope * deviation, 2) + constant[None, :]
        grad_votes += (bend + slope) * assigned[:, :, None]
        grad_activations += grad_assigned * coefficients
        # The E-step before it, as `_e_step_backward`. There is none before the first iteration.
        grad_coefficients = grad_assigned * activations
        inner = tl.sum(grad_coefficients * coefficients, 1)[:, None]
        grad_scores = tl.where(back < ITERATIONS - 1, (grad_coefficients - inner) * coefficients, 0.0)
        summed = tl.sum(grad_scores, 0)
        precision = 1.0 / last_variance
        deviation = votes - last_mean[None, :, :]
        weighted = grad_scores[:, :, None] * deviation
        grad_mean = tl.sum(weighted, 0) * precision
        squares = tl.sum(weighted * deviation, 0)
        grad_variance = tl.where(exist, 0.5 * precision * (squares * precision - summed[:, None]), 0.0)
        grad_votes -= weighted * precision[None, :, :]
        grad_logits = summed * tl.sigmoid(-last_logits)
    place, exist = _of_votes(inputs, outputs, width, INPUTS, OUTPUTS, WIDTH)
    tl.store(grad_votes_at + position * inputs * outputs * width + place, grad_votes, mask=exist)
    place, exist = _of_activations(inputs, outputs, JOINT, INPUTS, OUTPUTS)
    if JOINT:
        tl.store(grad_activations_at + position * inputs * outputs + place, grad_activations, mask=exist)
    else:
        summed_activations = tl.sum(grad_activations, 1)[:, None]
        tl.store(grad_activations_at + position * inputs + place, summed_activations, mask=exist)
    tl.store(grad_floor_at + position, grad_floor)
    n = tl.arange(0, OUTPUTS)
    tl.store(grad_beta_a_at + position * outputs + n, grad_beta_a, mask=n < outputs)
    tl.store(grad_beta_u_at + position * outputs + n, grad_beta_u, mask=n < outputs)
