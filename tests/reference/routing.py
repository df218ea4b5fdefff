"""The three routing algorithms as loops over examples, iterations, input capsules and output capsules.

Everything is float64 and differentiated by autograd. An input capsule that the mask rules out is never
visited. Equation numbers are those of Dou et al. 2019 unless another paper is named.
"""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from hf_capsule_mt.modeling.em_routing import VARIANCE_SHARE
from hf_capsule_mt.modeling.routing import EPSILON, RoutingOutput


def dynamic_routing(votes: Tensor, num_iterations: int = 3, mask: Tensor | None = None) -> RoutingOutput:
    """Alg. 1, Eq. 5-9."""
    return _for_each_example(_route_by_agreement, votes, mask, num_iterations=num_iterations, normalize=False)


def simple_routing(votes: Tensor, num_iterations: int = 3, mask: Tensor | None = None) -> RoutingOutput:
    """Li et al. 2019, Alg. 1, Eq. 7-8: as dynamic routing, but the total input is a weighted mean."""
    return _for_each_example(_route_by_agreement, votes, mask, num_iterations=num_iterations, normalize=True)


def em_routing(
    votes: Tensor,
    beta_a: Tensor,
    beta_u: Tensor,
    num_iterations: int = 3,
    input_activations: Tensor | None = None,
    inverse_temperature: float = 0.01,
    mask: Tensor | None = None,
) -> RoutingOutput:
    """Alg. 2, Eq. 11-16, with the density of Eq. 15 divided by sigma and summed over D in the log domain."""
    if input_activations is None:
        input_activations = torch.ones(votes.shape[:-1])
    return _for_each_example(
        _route_by_em,
        votes,
        mask,
        input_activations.double().expand(votes.shape[:-1]),
        beta_a=beta_a.double(),
        beta_u=beta_u.double(),
        num_iterations=num_iterations,
        inverse_temperature=inverse_temperature,
    )


def squash(total: Tensor) -> Tensor:
    """Eq. 5 for one vector [D]; at zero both the value and the gradient are its limit, zero."""
    squared_norm = total.dot(total)
    if squared_norm == 0:
        return 0 * total
    return squared_norm / (1 + squared_norm) * total / squared_norm.sqrt()


def _route_by_agreement(
    votes: Tensor, inputs: list[int], num_iterations: int, normalize: bool
) -> tuple[Tensor, Tensor, None]:
    num_inputs, num_outputs, width = votes.shape
    logits = {(i, n): votes.new_zeros(()) for i in inputs for n in range(num_outputs)}
    history = []
    for _ in range(num_iterations):
        coefficients = votes.new_zeros(num_inputs, num_outputs)
        for i in inputs:
            coefficients[i] = torch.stack([logits[i, n] for n in range(num_outputs)]).softmax(0)
        history.append(coefficients)
        capsules = []
        for n in range(num_outputs):
            total = sum((coefficients[i, n] * votes[i, n] for i in inputs), votes.new_zeros(width))
            if normalize:
                total = total / (sum(coefficients[i, n] for i in inputs) + EPSILON)
            capsules.append(squash(total))
        for i, n in logits:
            logits[i, n] = logits[i, n] + capsules[n].dot(votes[i, n])
    return torch.stack(capsules), torch.stack(history), None


def _route_by_em(
    votes: Tensor,
    inputs: list[int],
    input_activations: Tensor,
    beta_a: Tensor,
    beta_u: Tensor,
    num_iterations: int,
    inverse_temperature: float,
) -> tuple[Tensor, Tensor, Tensor]:
    num_inputs, num_outputs, width = votes.shape
    coefficients = votes.new_zeros(num_inputs, num_outputs)
    coefficients[inputs] = 1 / num_outputs
    squares = [votes[i, n].dot(votes[i, n]) / width for i in inputs for n in range(num_outputs)]
    floor = VARIANCE_SHARE * sum(squares, votes.new_zeros(())) / max(1, len(squares)) + EPSILON
    history = []
    for iteration in range(1, num_iterations + 1):
        history.append(coefficients)
        temperature = inverse_temperature * (1 - 0.95**iteration)
        means, variances, activation_logits = [], [], []
        for n in range(num_outputs):
            mean, variance, cost, assigned = _m_step(votes, inputs, coefficients * input_activations, floor, n)
            means.append(mean)
            variances.append(variance)
            activation_logits.append(temperature * (beta_a[n] - beta_u[n] * assigned - cost))
        coefficients = _e_step(votes, inputs, means, variances, activation_logits)
    activations = torch.stack(activation_logits).sigmoid()
    return activations[:, None] * torch.stack(means), torch.stack(history), activations


def _m_step(
    votes: Tensor, inputs: list[int], assignments: Tensor, floor: Tensor, n: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Eq. 11-13 for output n: mean [D], variance [D], cost summed over D, and the sum of its assignments."""
    zero = votes.new_zeros(votes.shape[-1])
    assigned = sum((assignments[i, n] for i in inputs), votes.new_zeros(()))
    mean = sum((assignments[i, n] * votes[i, n] for i in inputs), zero) / (assigned + EPSILON)
    spread = sum((assignments[i, n] * (votes[i, n] - mean) ** 2 for i in inputs), zero)
    variance = spread / (assigned + EPSILON) + floor
    cost = ((variance.sqrt().log() + (1 + math.log(2 * math.pi)) / 2) * assigned).sum()
    return mean, variance, cost, assigned


def _e_step(
    votes: Tensor, inputs: list[int], means: list[Tensor], variances: list[Tensor], activation_logits: list[Tensor]
) -> Tensor:
    """Eq. 15-16."""
    num_inputs, num_outputs, _ = votes.shape
    coefficients = votes.new_zeros(num_inputs, num_outputs)
    for i in inputs:
        log_joint = []
        for n in range(num_outputs):
            squared_distance = (votes[i, n] - means[n]) ** 2 / variances[n]
            log_density = -(math.log(2 * math.pi) + variances[n].log() + squared_distance) / 2
            log_joint.append(logsigmoid(activation_logits[n]) + log_density.sum())
        coefficients[i] = torch.stack(log_joint).softmax(0)
    return coefficients


def _for_each_example(
    route: Callable, votes: Tensor, mask: Tensor | None, *per_input: Tensor, **settings
) -> RoutingOutput:
    """Route every leading index's votes [I, N, D], given which inputs are present, and stack the results."""
    leading = votes.shape[:-3]
    if mask is None:
        mask = torch.ones(votes.shape[:-2], dtype=torch.bool)
    results = []
    for index in itertools.product(*map(range, leading)):
        present = mask[index].nonzero().flatten().tolist()
        results.append(route(votes[index].double(), present, *(x[index] for x in per_input), **settings))
    capsules, histories, activations = zip(*results)
    all_coefficients = torch.stack(histories, dim=1)
    all_coefficients = all_coefficients.reshape(len(histories[0]), *leading, *histories[0].shape[1:])
    return RoutingOutput(
        capsules=torch.stack(capsules).reshape(*leading, *capsules[0].shape),
        coefficients=all_coefficients[-1],
        activations=torch.stack(activations).reshape(*leading, -1) if route is _route_by_em else None,
        all_coefficients=all_coefficients,
    )
