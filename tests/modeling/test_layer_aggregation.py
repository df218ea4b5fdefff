"""Layer aggregation against its loops, its place in the stack, and the published parameter counts."""

import itertools

import pytest
import torch
from aggregated_models import changed, without_weights
from reference.layer_aggregation import aggregate_layers

from hf_capsule_mt.configuration import preset_config
from hf_capsule_mt.modeling.aggregation import LayerAggregation
from hf_capsule_mt.modeling.modeling_capsule_aggregated_marian import CapsuleAggregatedMarianForConditionalGeneration

NUM_LAYERS, WIDTH = 3, 8
ROUTINGS = ["dynamic_routing", "em_routing"]
KINDS = [
    ("linear", "factored", "all"),
    ("dynamic", "factored", "all"),
    ("attention", "factored", "all"),
    *itertools.product(ROUTINGS, ["factored", "joint"], ["all", "own"]),
]
every_kind = pytest.mark.parametrize("kind", KINDS, ids="-".join)
both_outputs = pytest.mark.parametrize("output", ["replace", "residual"])


def make_config(kind, output="replace", **overrides):
    aggregation, parameterization, context = kind
    fields = {"parameterization": parameterization, "context": context, "output": output}
    return changed(
        preset_config("transformer", "tiny", d_model=WIDTH, layer_aggregation=aggregation),
        **{f"layer_aggregation_{name}": value for name, value in fields.items()},
        **overrides,
    )


def make_module(config, dtype=torch.float64):
    """A module whose every parameter is random."""
    module = LayerAggregation(config, NUM_LAYERS).to(dtype)
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module


def make_layers(*leading, dtype=torch.float64):
    torch.manual_seed(1)
    return [torch.randn(*leading, WIDTH, dtype=torch.float64).to(dtype) for _ in range(NUM_LAYERS)]


def differentiate(aggregate, layers, parameters, cotangent):
    """Aggregate, and the gradients of every layer and parameter."""
    result = aggregate(layers)
    names = [f"layer {index}" for index in range(len(layers))] + list(parameters)
    gradients = torch.autograd.grad(result, [*layers, *parameters.values()], cotangent)
    return result, dict(zip(names, gradients))


def leaves(tensors, dtype):
    return [tensor.detach().to(dtype).requires_grad_() for tensor in tensors]


def compare_with_loops(config, dtype, leading):
    """Yield (name, actual, expected) of the aggregate and of every gradient."""
    module = make_module(config, dtype)
    parameters = dict(module.named_parameters())
    layers = leaves(make_layers(*leading, dtype=dtype), dtype)
    cotangent = torch.randn(*leading, WIDTH).to(dtype)
    fast, fast_gradients = differentiate(lambda layers: module(layers)[0], layers, parameters, cotangent)
    exact = dict(zip(parameters, leaves(parameters.values(), torch.float64)))
    given = leaves(layers, torch.float64), exact, cotangent.double()
    slow, slow_gradients = differentiate(lambda layers: aggregate_layers(config, exact, layers)[0], *given)
    assert fast.dtype == dtype
    yield "aggregate", fast, slow
    for name, expected in slow_gradients.items():
        yield f"gradient of {name}", fast_gradients[name], expected


def assert_near(name, actual, expected, tolerance):
    """Equal relative to each value, or to the largest where terms cancel."""
    assert actual.shape == expected.shape, name
    near = {"rtol": tolerance, "atol": tolerance * expected.abs().max().item()}
    torch.testing.assert_close(actual.double(), expected, **near, msg=lambda text: f"{name}: {text}")


@both_outputs
@pytest.mark.parametrize("num_output_capsules", [None, 4])
@every_kind
def test_matches_loops(kind, num_output_capsules, output):
    config = make_config(kind, output, num_output_capsules=num_output_capsules, inverse_temperature=0.3)
    for name, actual, expected in compare_with_loops(config, torch.float64, (3,)):
        assert expected.any(), f"{name} is zero and shows nothing"
        assert_near(name, actual, expected, 1e-9)


@every_kind
def test_assignments_match_loops(kind):
    config = make_config(kind, num_output_capsules=4)
    module, layers = make_module(config), make_layers(2, 3)
    _, expected = aggregate_layers(config, module.state_dict(), layers)
    assert module(layers)[1] is None
    if expected is None:
        assert module(layers, output_routing=True)[1] is None
        return
    assert expected.shape == (2, 3, 3, NUM_LAYERS, 4)
    torch.testing.assert_close(module(layers, output_routing="all")[1], expected)
    torch.testing.assert_close(module(layers, output_routing=True)[1], expected[..., -1, :, :])


@pytest.mark.parametrize("routing", ROUTINGS)
def test_the_gradient_of_the_norm_under_autocast(routing):
    """That of the bias is the sum over thousands of positions, where bfloat16 would stop at 256."""
    config = make_config((routing, "factored", "all"), num_output_capsules=4)
    module = LayerAggregation(config, NUM_LAYERS)
    torch.manual_seed(0)
    layers, wanted = torch.randn(NUM_LAYERS, 4000, WIDTH), torch.rand(4000, WIDTH)
    with torch.autocast("cpu", torch.bfloat16):
        aggregate = module(list(layers))[0]
    (aggregate.float() * wanted).sum().backward()
    torch.testing.assert_close(module.layer_norm.bias.grad, wanted.sum(0), rtol=0.01, atol=0)


@every_kind
def test_a_new_residual_is_exactly_the_top_layer(kind):
    model = CapsuleAggregatedMarianForConditionalGeneration(make_config(kind, "residual", vocab_size=11))
    layers = make_layers(2, 5, dtype=torch.float32)
    layers.append(torch.randn(2, 5, WIDTH))
    for stack in (model.model.encoder, model.model.decoder):
        assert torch.equal(stack.aggregation(layers)[0], layers[-1])


@pytest.mark.parametrize(
    ("method", "size", "published"),
    [
        ("dynamic-combination", "base", 25.2e6),
        ("dynamic-routing", "base", 37.8e6),
        ("em-routing", "base", 56.8e6),
        ("em-routing", "big", 226e6),
    ],
)
def test_published_parameter_counts(method, size, published):
    """Dou et al. 2019, Tables 1 and 2, over the plain model."""
    joint = {"layer_aggregation_parameterization": "joint"} if method.endswith("routing") else {}
    model = without_weights(method, size, **joint).model
    added = model.num_parameters() - without_weights("transformer", size).model.num_parameters()
    assert added == pytest.approx(published, rel=0.01)
    for stack in (model.encoder, model.decoder):
        assert sum(parameter.numel() for parameter in stack.aggregation.parameters()) == added / 2
