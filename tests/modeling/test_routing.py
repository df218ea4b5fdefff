"""The routing algorithms against their loops, in outputs, coefficients, activations and gradients."""

import importlib
import math
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import routing as reference
from torch._subclasses.fake_tensor import FakeTensorMode

from hf_capsule_mt import modeling as routing

# The package has the function under this name.
em_routing = importlib.import_module("hf_capsule_mt.modeling.em_routing")

ALGORITHMS = ["dynamic_routing", "simple_routing", "em_routing"]

SCALES = [1e-4, 1.0, 1e4]
# Of routing itself: it runs in float64 for float64 votes and in float32 for all others.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 1e-5, torch.float16: 1e-5}


def make_arguments(algorithm, leading=(2,), shape=(3, 4, 2), *, scale=1.0, activations=None, seed=0):
    """Float64 arguments with votes [*leading, I, N, D]; activations: None, "factored" or "joint"."""
    torch.manual_seed(seed)
    num_inputs, num_outputs, _ = shape
    arguments = {"votes": scale * torch.randn(*leading, *shape, dtype=torch.float64)}
    if algorithm == "em_routing":
        for beta in ("beta_a", "beta_u"):
            arguments[beta] = torch.randn(num_outputs, dtype=torch.float64)
        if activations:
            columns = {"factored": 1, "joint": num_outputs}[activations]
            logits = torch.randn(*leading, num_inputs, columns, dtype=torch.float64)
            arguments["input_activations"] = logits.sigmoid()
    return arguments


def to(arguments, dtype):
    return {name: value.to(dtype) for name, value in arguments.items()}


def differentiate(route, arguments, options, cotangent):
    """All that `route` returns, and the gradient of every tensor argument."""
    leaves = {name: value.detach().requires_grad_() for name, value in arguments.items()}
    output = route(**leaves, **options)
    gradients = torch.autograd.grad(output.capsules, list(leaves.values()), cotangent, materialize_grads=True)
    return output, dict(zip(leaves, gradients))


def assert_near(name, actual, expected, size):
    """Equal but for the rounding of routing, relative to terms of `size`, and of the result's dtype."""
    assert actual.shape == expected.shape, name
    assert expected.isfinite().all(), name
    tolerance, dtype = TOLERANCE[actual.dtype], torch.finfo(actual.dtype)
    torch.testing.assert_close(
        actual.cpu().double(),
        expected,
        rtol=tolerance + dtype.eps / 2,
        # Below the smallest normal number a dtype's steps no longer shrink.
        atol=tolerance * size + dtype.smallest_normal * dtype.eps,
        msg=lambda text: f"{name}: {text}",
    )


def _for_loops(value):
    """A tensor, or all in a dictionary, on the CPU and in float64 unless it is a mask."""
    if isinstance(value, dict):
        return {name: _for_loops(each) for name, each in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    return value.cpu() if value.dtype == torch.bool else value.cpu().double()


def assert_matches_loops(algorithm, arguments, **options):
    """Compare everything returned and every gradient with the float64 loops on the same rounded arguments.

    The loops run on the CPU, wherever the arguments are.
    """
    votes = arguments["votes"]
    *leading, _, num_outputs, width = votes.shape
    torch.manual_seed(1)
    cotangent = torch.randn(*leading, num_outputs, width).to(votes)
    fast, fast_gradients = differentiate(
        getattr(routing, algorithm), arguments, options | {"return_all_coefficients": True}, cotangent
    )
    slow, slow_gradients = differentiate(
        getattr(reference, algorithm), *(_for_loops(each) for each in (arguments, options, cotangent))
    )
    for name, expected in slow._asdict().items():
        actual = getattr(fast, name)
        if expected is None:
            assert actual is None, name
            continue
        assert actual.dtype == votes.dtype, name
        assert_near(name, actual, expected, expected.abs().max().item())
    for name, expected in slow_gradients.items():
        assert fast_gradients[name].dtype == arguments[name].dtype, name
        # Where votes agree, the gradient of an activation is a difference of terms as large as the votes.
        size = (votes if name == "input_activations" else expected).abs().max().item()
        assert_near(f"gradient of {name}", fast_gradients[name], expected, size)


def entropy(coefficients):
    return -(coefficients * coefficients.log()).sum(-1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=40)
@given(data=st.data())
def test_matches_loops(algorithm, data):
    leading = tuple(data.draw(st.lists(st.integers(1, 2), max_size=3), label="leading"))
    shape = data.draw(st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4)), label="I, N, D")
    activations = data.draw(st.sampled_from([None, "factored", "joint"]), label="activations")
    arguments = make_arguments(
        algorithm, leading, shape, activations=activations, seed=data.draw(st.integers(0, 999), label="seed")
    )
    options = {"num_iterations": data.draw(st.integers(1, 4), label="iterations")}
    if algorithm == "em_routing":
        options["inverse_temperature"] = data.draw(st.sampled_from([0.01, 1.0]), label="inverse temperature")
    if data.draw(st.booleans(), label="masked"):
        mask = torch.rand(*leading, shape[0]) < 0.6
        mask[..., data.draw(st.integers(0, shape[0] - 1), label="input present everywhere")] = True
        options["mask"] = mask
    assert_matches_loops(algorithm, arguments, **options)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    ("algorithm", "activations"),
    [*((name, None) for name in ALGORITHMS), *(("em_routing", kind) for kind in ("factored", "joint"))],
)
def test_float32_at_every_scale(algorithm, activations, scale):
    arguments = make_arguments(algorithm, (2,), (4, 5, 3), scale=scale, activations=activations)
    assert_matches_loops(algorithm, to(arguments, torch.float32))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_half_precision_only_rounds_the_result(algorithm, dtype, scale):
    arguments = make_arguments(algorithm, (2,), (4, 5, 3), scale=scale, activations="joint")
    assert_matches_loops(algorithm, to(arguments, dtype))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_identical_huge_votes_stay_finite(algorithm):
    """Float32 cannot tell the variance of such votes from zero, so only the capsules are compared."""
    arguments = to(make_arguments(algorithm, activations="joint"), torch.float32)
    arguments["votes"][:] = 1e4
    output, gradients = differentiate(getattr(routing, algorithm), arguments, {}, torch.ones(2, 4, 2))
    expected = getattr(reference, algorithm)(**arguments).capsules
    torch.testing.assert_close(output.capsules.double(), expected, rtol=1e-5, atol=0)
    for name, gradient in gradients.items():
        assert gradient.isfinite().all(), name
        assert gradient.abs().max() <= 1e4, name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_masked_inputs_contribute_exactly_nothing(algorithm, dtype):
    arguments = to(make_arguments(algorithm, shape=(5, 4, 2), activations="joint"), dtype)
    mask = torch.tensor([True, False, True, True, False])
    padded = arguments | {"votes": arguments["votes"].masked_fill(~mask[:, None, None], 1e30)}
    shortened = {name: x[:, mask] if name in ("votes", "input_activations") else x for name, x in arguments.items()}
    route, cotangent = getattr(routing, algorithm), torch.ones(2, 4, 2, dtype=dtype)
    output, gradients = differentiate(route, padded, {"mask": mask.expand(2, 5)}, cotangent)
    expected, expected_gradients = differentiate(route, shortened, {}, cotangent)
    for name in ("votes", "input_activations"):
        if name in gradients:
            assert gradients[name][:, ~mask].count_nonzero() == 0
            gradients[name] = gradients[name][:, mask]
    assert output.coefficients[:, ~mask].count_nonzero() == 0
    torch.testing.assert_close(output.coefficients[:, mask], expected.coefficients)
    torch.testing.assert_close(output.capsules, expected.capsules)
    torch.testing.assert_close(gradients, expected_gradients)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_inputs_masked_gives_zero(algorithm):
    arguments = make_arguments(algorithm, activations="joint")
    mask = torch.tensor([[False, False, False], [True, True, False]])
    assert_matches_loops(algorithm, arguments, mask=mask)
    output, gradients = differentiate(
        getattr(routing, algorithm), arguments, {"mask": mask}, torch.ones(2, 4, 2, dtype=torch.float64)
    )
    assert output.capsules[0].count_nonzero() == 0
    assert output.coefficients[0].count_nonzero() == 0
    assert gradients["votes"][0].count_nonzero() == 0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_coefficients_sum_to_one_and_start_uniform(algorithm):
    arguments = to(make_arguments(algorithm, (2, 3), (4, 7, 2), activations="factored"), torch.float32)
    output = getattr(routing, algorithm)(**arguments, num_iterations=4, return_all_coefficients=True)
    assert output.all_coefficients.shape == (4, 2, 3, 4, 7)
    torch.testing.assert_close(output.all_coefficients.sum(-1), torch.ones(4, 2, 3, 4))
    torch.testing.assert_close(entropy(output.all_coefficients[0]), torch.full((2, 3, 4), math.log(7)))
    assert torch.equal(output.coefficients, output.all_coefficients[-1])
    assert (entropy(output.coefficients) < math.log(7) - 1e-3).any()
    assert getattr(routing, algorithm)(**arguments).all_coefficients is None


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_autocast_does_not_lower_precision(algorithm):
    arguments = to(make_arguments(algorithm, (2,), (4, 5, 3), activations="joint"), torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert_matches_loops(algorithm, arguments)


def test_votes_without_memory_are_routed_without_kernels(monkeypatch):
    monkeypatch.setattr(em_routing, "_kernels", lambda device: pytest.fail("there is no memory that they could read"))
    with FakeTensorMode():
        votes = torch.empty(2, 2, 2, 2, device="cuda")
    assert em_routing._implementation(votes) == (em_routing._route, em_routing._route_backward)


def test_a_device_without_kernels_is_told_of(monkeypatch):
    told = []
    monkeypatch.setattr(em_routing.logger, "warning", told.append)
    monkeypatch.setitem(sys.modules, "hf_capsule_mt.modeling.em_routing_kernels", None)
    assert em_routing._kernels.__wrapped__(torch.device("cpu")) is None
    assert len(told) == 1
    assert "slower on cpu" in told[0]


def test_one_iteration_by_hand():
    """Uniform coefficients give a closed form; votes 3 and 5 for the first of two outputs of width 1."""
    votes = torch.tensor([[[3.0], [0.0]], [[5.0], [0.0]]], dtype=torch.float64)
    zeros = torch.zeros(2, dtype=torch.float64)
    mean_square = (9 + 0 + 25 + 0) / 4
    total, mean, variance = (3 + 5) / 2, 4.0, 1.0 + 0.01 * mean_square
    dynamic = routing.dynamic_routing(votes, num_iterations=1).capsules[0].item()
    simple = routing.simple_routing(votes, num_iterations=1).capsules[0].item()
    em = routing.em_routing(votes, zeros, zeros, num_iterations=1, inverse_temperature=0.5).activations[0].item()
    assert dynamic == pytest.approx(total**2 / (1 + total**2))
    assert simple == pytest.approx(mean**2 / (1 + mean**2), rel=1e-6)
    cost = math.log(math.sqrt(variance)) + (1 + math.log(2 * math.pi)) / 2
    assert em == pytest.approx(1 / (1 + math.exp(0.5 * 0.05 * cost)), rel=1e-6)
