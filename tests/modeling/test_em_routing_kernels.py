"""Triton's kernels of EM routing against its loops: on a GPU, or by Triton's interpreter."""

import importlib
import sys

import pytest
import torch
from test_routing import SCALES, assert_matches_loops, differentiate, make_arguments, to

# The package has the function under this name.
em_routing = importlib.import_module("hf_capsule_mt.modeling.em_routing")


HAS_CUDA = torch.cuda.is_available()
pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="Triton is for Linux")]
if HAS_CUDA:
    pytestmark.append(pytest.mark.cuda)
DEVICE = torch.device("cuda" if HAS_CUDA else "cpu")
SHAPES = [(1, 1, 1), (3, 4, 2), (4, 8, 1), (5, 6, 3), (1, 4, 3), (4, 1, 3), (6, 33, 1), (9, 17, 5)]


@pytest.fixture(autouse=True)
def routed(monkeypatch):
    """The shapes of the votes that the kernels, which route all, have routed."""
    from hf_capsule_mt.modeling import em_routing_kernels

    shapes = []

    def route(votes, *others):
        shapes.append(votes.shape)
        return em_routing_kernels.route(votes, *others)

    by_kernels = em_routing.EMImplementation(route, em_routing_kernels.route_backward)
    monkeypatch.setattr(em_routing, "_implementation", lambda votes: by_kernels)
    return shapes


def arguments_in_float32(*given, **options):
    return to(make_arguments("em_routing", *given, **options), torch.float32)


def there(value):
    """A tensor, or several by name, on the device."""
    return {name: each.to(DEVICE) for name, each in value.items()} if isinstance(value, dict) else value.to(DEVICE)


@pytest.mark.parametrize("activations", [None, "factored", "joint"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_match_loops(shape, activations, routed):
    assert_matches_loops("em_routing", there(arguments_in_float32((2, 1), shape, activations=activations)))
    assert routed == [(2, *shape)]


@pytest.mark.parametrize("inverse_temperature", [0.01, 1.0])
@pytest.mark.parametrize("num_iterations", [1, 2, 5])
def test_match_loops_of_every_iteration(num_iterations, inverse_temperature):
    options = {"num_iterations": num_iterations, "inverse_temperature": inverse_temperature}
    assert_matches_loops("em_routing", there(arguments_in_float32(activations="joint")), **options)


@pytest.mark.parametrize("scale", [0.0, *SCALES])
@pytest.mark.parametrize("identical", [False, True])
def test_match_loops_at_every_scale(scale, identical):
    if identical and scale > 1:
        pytest.skip("float32 cannot tell the variance of such votes from zero")
    arguments = arguments_in_float32((1,), (5, 6, 3), scale=scale, activations="joint")
    if identical:
        arguments["votes"][:] = scale
    assert_matches_loops("em_routing", there(arguments))


def test_missing_inputs():
    arguments = there(arguments_in_float32(activations="factored"))
    mask = there(torch.tensor([[False, False, False], [True, True, False]]))
    assert_matches_loops("em_routing", arguments, mask=mask)


def test_strided_votes_and_expanded_gradient(monkeypatch):
    # Of strided votes a GPU adds the floor up in another order.
    floor = em_routing._variance_floor
    monkeypatch.setattr(em_routing, "_variance_floor", lambda votes, mask: floor(votes.contiguous(), mask))
    arguments = there(arguments_in_float32(shape=(4, 4, 4), activations="joint"))
    expected, expected_gradients = differentiate(em_routing.em_routing, arguments, {}, there(torch.ones(2, 4, 4)))
    strided = {name: x.flip(0).flip(0) if x.dim() == 1 else x.mT.contiguous().mT for name, x in arguments.items()}
    assert not strided["votes"].is_contiguous()
    output, gradients = differentiate(em_routing.em_routing, strided, {}, there(torch.ones(())).expand(2, 4, 4))
    assert torch.equal(output.capsules, expected.capsules)
    assert all(torch.equal(gradients[name], expected_gradients[name]) for name in gradients)


def test_the_same_every_time():
    arguments = there(arguments_in_float32((6,), (6, 33, 1), activations="factored"))
    runs = [differentiate(em_routing.em_routing, arguments, {}, there(torch.ones(6, 33, 1))) for _ in range(2)]
    (output, gradients), (again, gradients_again) = runs
    assert torch.equal(output.capsules, again.capsules)
    assert all(torch.equal(gradients[name], gradients_again[name]) for name in gradients)


def test_a_device_has_them_if_it_can_go_back_too(monkeypatch):
    from hf_capsule_mt.modeling import em_routing_kernels

    def fail(*given):
        raise RuntimeError("too many registers")

    find = em_routing._kernels.__wrapped__
    implementation = em_routing.EMImplementation(em_routing_kernels.route, em_routing_kernels.route_backward)
    assert find(DEVICE) == em_routing.EMKernels(em_routing_kernels.fit, implementation)
    monkeypatch.setattr(em_routing_kernels, "route_backward", fail)
    assert find(DEVICE) is None


@pytest.mark.parametrize("factor", [1.01, float("nan")])
@pytest.mark.parametrize("result", range(3 + 5))
def test_a_device_has_them_if_they_compute_what_loops_do(monkeypatch, result, factor):
    from hf_capsule_mt.modeling import em_routing_kernels

    name, place = ("route", result) if result < 3 else ("route_backward", result - 3)
    compute = getattr(em_routing_kernels, name)

    def compute_something_else(*given):
        results = list(compute(*given))
        results[place] = results[place] * factor
        return results

    monkeypatch.setattr(em_routing_kernels, name, compute_something_else)
    said = []
    monkeypatch.setattr(em_routing.logger, "warning", said.append)
    assert em_routing._kernels.__wrapped__(DEVICE) is None
    assert f"relative error is {'nan' if factor != factor else '0.01'}" in said[0]


@pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device")
def test_a_gpu_has_them(monkeypatch, routed):
    monkeypatch.undo()
    votes = torch.empty(1, 2, 2, 2, device=DEVICE)
    assert em_routing._implementation(votes) == em_routing._kernels(DEVICE).implementation
    by_pytorch = em_routing.EMImplementation(em_routing._route, em_routing._route_backward)
    assert em_routing._implementation(votes.double()) == by_pytorch
    assert em_routing._implementation(torch.empty(1, 200, 200, 2, device=DEVICE)).route is em_routing._route
