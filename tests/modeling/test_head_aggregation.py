"""Head aggregation against its loops, its place in the attentions, and the published parameter counts."""

import pytest
import torch
from aggregated_models import changed, without_weights
from reference.head_aggregation import aggregate_heads as aggregate_in_loops
from torch import nn

from hf_capsule_mt.configuration import preset_config
from hf_capsule_mt.modeling.aggregation import RoutedHeads
from hf_capsule_mt.modeling.modeling_capsule_aggregated_marian import CapsuleAggregatedMarianForConditionalGeneration
from hf_capsule_mt.modeling.routing import CapsuleRouting
from hf_capsule_mt.modeling.stacks import aggregate_heads

HEADS, WIDTH = 4, 8
every_kind = pytest.mark.parametrize("kind", ["simple_routing", "em_routing"])
both_outputs = pytest.mark.parametrize("output", ["replace", "residual"])
with_and_without_norm = pytest.mark.parametrize("norm", [False, True])
capsule_numbers = pytest.mark.parametrize("num_output_capsules", [None, 4, 1])


class Attention(nn.Module):
    """What an aggregation needs of one."""

    def __init__(self):
        super().__init__()
        self.num_heads = HEADS
        self.out_proj = nn.Linear(WIDTH, WIDTH)


def make_config(kind, output="replace", **overrides):
    plain = preset_config("transformer", "tiny", d_model=WIDTH)
    return changed(plain, head_aggregation=kind, head_aggregation_output=output, **overrides)


def make_module(config, dtype=torch.float64):
    """A module whose every parameter is random."""
    attention = Attention()
    aggregate_heads(attention, config, "encoder_self", 0)
    module = attention.out_proj.to(dtype)
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def make_heads(*leading, dtype=torch.float64):
    torch.manual_seed(1)
    return torch.randn(*leading, WIDTH, dtype=torch.float64).to(dtype)


def compare_with_loops(config, dtype):
    """Yield (name, actual, expected) of the aggregate and of every gradient."""
    module = make_module(config, dtype)
    heads = make_heads(3, dtype=dtype).requires_grad_()
    cotangent = torch.randn(3, WIDTH).to(dtype)
    parameters = dict(module.named_parameters())
    fast = module(heads)
    gradients = torch.autograd.grad(fast, [heads, *parameters.values()], cotangent)
    exact = {name: value.detach().double().requires_grad_() for name, value in parameters.items()}
    exact_heads = heads.detach().double().requires_grad_()
    slow, _ = aggregate_in_loops(config, exact, HEADS, exact_heads)
    expected = torch.autograd.grad(slow, [exact_heads, *exact.values()], cotangent.double())
    yield "aggregate", fast, slow
    yield from zip(["heads", *parameters], gradients, expected, strict=True)


@both_outputs
@capsule_numbers
@every_kind
@with_and_without_norm
def test_matches_loops(kind, num_output_capsules, output, norm):
    config = make_config(
        kind, output, num_output_capsules=num_output_capsules, inverse_temperature=0.3, head_aggregation_input_norm=norm
    )
    for name, actual, expected in compare_with_loops(config, torch.float64):
        # With one capsule simple routing has nothing to decide, and EM's beta_u acts through lambda = 0.0014 alone.
        assert expected.any(), f"{name} is zero and shows nothing"
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9 * expected.abs().max().item())


@both_outputs
@every_kind
def test_assignments_match_loops(kind, output):
    config = make_config(kind, output, num_output_capsules=4, routing_iterations=4)
    module, heads = make_module(config), make_heads(2, 3)
    _, expected = aggregate_in_loops(config, module.state_dict(), HEADS, heads)
    routed = module.routed if output == "residual" else module
    votes = routed.votes(routed.input_capsules(heads))
    place, assignment = routed.routing(votes)[1]
    assert place == "encoder_self.0"
    torch.testing.assert_close(assignment, expected[..., -1, :, :])
    every = CapsuleRouting.forward(routed.routing, votes, every_iteration=True)[1]
    torch.testing.assert_close(every, expected)


@pytest.mark.parametrize(
    ("fields", "sites"),
    [
        ({}, {"encoder.layers.0.self_attn", "encoder.layers.1.self_attn", "encoder.layers.2.self_attn"}),
        ({"head_aggregation_encoder_layers": [2]}, {"encoder.layers.2.self_attn"}),
        (
            {"head_aggregation_encoder_layers": [], "head_aggregation_decoder_layers": [1]},
            {"decoder.layers.1.self_attn"},
        ),
        (
            {"head_aggregation_encoder_layers": [0], "head_aggregation_cross_layers": None},
            {"encoder.layers.0.self_attn", "decoder.layers.0.encoder_attn", "decoder.layers.1.encoder_attn"},
        ),
    ],
)
@both_outputs
def test_sites(fields, sites, output):
    config = make_config("em_routing", output, encoder_layers=3, decoder_layers=2, vocab_size=11, **fields)
    model = CapsuleAggregatedMarianForConditionalGeneration(config)
    tail = ".out_proj.routed" if output == "residual" else ".out_proj"
    routed = {name for name, module in model.model.named_modules() if isinstance(module, RoutedHeads)}
    assert routed == {site + tail for site in sites}


@pytest.mark.parametrize(
    ("method", "sites", "published"),
    [("head-simple-routing", "e", 12.6), ("head-em-routing", "d", 12.6), ("head-em-routing", "ecd", 37.8)],
)
def test_published_counts_by_site(method, sites, published):
    """Li et al. 2019, Table 2, in millions."""
    fields = {"e": "encoder", "c": "cross", "d": "decoder"}
    chosen = {f"head_aggregation_{name}_layers": None if key in sites else [] for key, name in fields.items()}
    models = without_weights(method, "base", **chosen), without_weights("transformer", "base")
    added = models[0].num_parameters() - models[1].num_parameters()
    assert added / 1e6 == pytest.approx(published, rel=0.01)
