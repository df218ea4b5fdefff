"""Aggregates that each layer of a stack reads: against loops, where they are read, and how they start."""

import pytest
import torch
from aggregated_models import (
    EACH_LAYER,
    SHAPE,
    WIDTH,
    aggregated,
    aggregated_m2m100,
    m2m100,
    source_batch,
    training_batch,
)
from huggingface_hub.errors import StrictDataclassError
from reference.layer_aggregation import layer_input
from test_layer_aggregation import assert_near, differentiate, leaves

from hf_capsule_mt import (
    CapsuleAggregatedM2M100Config,
    CapsuleAggregatedM2M100ForConditionalGeneration,
    CapsuleAggregatedMarianConfig,
    preset_config,
)
from hf_capsule_mt.modeling.aggregation import StackAggregation
from hf_capsule_mt.modeling.stacks import LayerStates

LAYERS = 3
SIZES = {"encoder_layers": LAYERS, "decoder_layers": LAYERS}
DLCL = {"layer_aggregation_input_norm": True}
DENSE = {"layer_aggregation_input_norm": False}
KINDS = {
    "dlcl_post_norm": (CapsuleAggregatedMarianConfig, aggregated, "linear", {}),
    "dlcl": (CapsuleAggregatedM2M100Config, aggregated_m2m100, "linear", DLCL),
    "dense": (CapsuleAggregatedM2M100Config, aggregated_m2m100, "linear", DENSE),
    "attention": (CapsuleAggregatedM2M100Config, aggregated_m2m100, "attention", DENSE),
    "attention_normed": (CapsuleAggregatedM2M100Config, aggregated_m2m100, "attention", DLCL),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
both_outputs = pytest.mark.parametrize("output", ["replace", "residual"])


def fields_of(kind, output):
    _, _, aggregation, fields = KINDS[kind]
    fields = {**SIZES, **EACH_LAYER, **fields, "layer_aggregation": aggregation}
    return {**fields, "layer_aggregation_output": output}


def make_model(kind, output="replace"):
    _, make, _, _ = KINDS[kind]
    return make("none", **fields_of(kind, output))


def run_states(module, states):
    """What the layers read of h_0..h_L, and what leaves the stack."""
    layer_states = LayerStates(module)
    read = []
    for state in states:
        layer_states.append(state)
        read.append(layer_states.next_input())
    return torch.stack(read)


@both_outputs
@every_kind
def test_matches_loops(kind, output):
    config = KINDS[kind][0](**{**SHAPE, **fields_of(kind, output)})
    module = StackAggregation(config, LAYERS).double()
    torch.manual_seed(0)
    parameters = dict(module.named_parameters())
    for parameter in parameters.values():
        torch.nn.init.normal_(parameter, std=0.5)
    states = leaves([torch.randn(2, 3, WIDTH) for _ in range(LAYERS + 1)], torch.float64)
    cotangent = torch.randn(LAYERS + 1, 2, 3, WIDTH).double()
    fast, fast_gradients = differentiate(lambda states: run_states(module, states), states, parameters, cotangent)

    def by_loops(states):
        return torch.stack([layer_input(config, parameters, states[: layer + 1]) for layer in range(LAYERS + 1)])

    slow, slow_gradients = differentiate(by_loops, states, parameters, cotangent)
    assert_near("inputs", fast, slow, 1e-9)
    for name, expected in slow_gradients.items():
        assert expected.any(), name
        assert_near(name, fast_gradients[name], expected, 1e-9)


@both_outputs
@every_kind
def test_each_layer_reads_all_layers_below(kind, output):
    model = make_model(kind, output).double()
    stacks = {"encoder": model.model.encoder, "decoder": model.model.decoder}
    read = {name: [] for name in stacks}
    wrote = {name: [] for name in stacks}
    for name, stack in stacks.items():
        for layer in stack.layers:
            layer.register_forward_pre_hook(lambda module, args, name=name: read[name].append(args[0]))
            layer.register_forward_hook(lambda module, args, result, name=name: wrote[name].append(result))
    with torch.no_grad():
        outputs = model.model(**source_batch(), decoder_input_ids=torch.tensor([[2, 9, 4]] * 3))
    left = {"encoder": outputs.encoder_last_hidden_state, "decoder": outputs.last_hidden_state}
    for name, stack in stacks.items():
        states = [read[name][0], *wrote[name]]
        parameters = stack.stack_aggregation.state_dict()
        expected = [layer_input(model.config, parameters, states[: layer + 1]) for layer in range(LAYERS + 1)]
        for found, wanted in zip(read[name], expected):
            torch.testing.assert_close(found, wanted)
        top = expected[-1]
        if hasattr(stack, "layer_norm"):
            top = stack.layer_norm(top)
        torch.testing.assert_close(left[name], top)


@every_kind
def test_decoding_with_a_cache(kind):
    model = make_model(kind).double()
    options = {"num_beams": 3, "max_new_tokens": 8}
    cached, uncached = (model.generate(**source_batch(), **options, use_cache=cache) for cache in (True, False))
    assert torch.equal(cached, uncached)


@pytest.mark.parametrize(("kind", "output"), [("dense", "replace"), ("dlcl", "residual"), ("attention", "residual")])
def test_warm_starts_are_exact(kind, output):
    parent = m2m100(**SIZES)
    fields = {name: value for name, value in fields_of(kind, output).items() if name not in SIZES}
    model = CapsuleAggregatedM2M100ForConditionalGeneration.from_m2m100(parent, **fields)
    with torch.no_grad():
        assert torch.equal(model(**training_batch()).logits, parent(**training_batch()).logits)
    model(**training_batch()).loss.backward()
    awake = "aggregator.weight" if kind == "dense" else "gamma"
    for name, parameter in model.named_parameters():
        if name.endswith(awake):
            assert parameter.grad.any(), name


def test_dlcl_starts_as_the_mean():
    config = preset_config(
        "dlcl", "tiny", d_model=16, vocab_size=11, encoder_attention_heads=1, decoder_attention_heads=1
    )
    model = CapsuleAggregatedM2M100ForConditionalGeneration(config)
    for stack in (model.model.encoder, model.model.decoder):
        for layer, aggregation in enumerate(stack.stack_aggregation.layers, start=2):
            assert torch.equal(aggregation.aggregator.weight, torch.full((layer,), 1 / layer))
            assert aggregation.layer_norm is None
        assert {norm.weight.shape for norm in stack.stack_aggregation.norms} == {(16,)}


def test_one_side_alone():
    model = aggregated("each_layer", layer_aggregation_sides=["encoder"])
    assert model.model.encoder.stack_aggregation is not None
    assert model.model.decoder.stack_aggregation is None
    assert model(**training_batch()).loss.isfinite()


def test_parameters_at_base():
    """On each side 2 + ... + 7 scalars, and a norm of the embeddings and of each layer."""
    with torch.device("meta"):
        model, plain = (
            CapsuleAggregatedM2M100ForConditionalGeneration(preset_config(method, "base"))
            for method in ("dlcl", "pre-norm-transformer")
        )
    assert model.num_parameters() - plain.num_parameters() == 2 * (27 + 7 * 2 * 512)


@pytest.mark.parametrize(
    ("method", "fields", "message"),
    [
        ("transformer", {"layer_aggregation": "em_routing"}, "no layer_aggregation 'em_routing'"),
        ("transformer", {"layer_aggregation": "attention"}, "Allowed: linear"),
        ("transformer", {"layer_aggregation": "linear", **DLCL}, "Set it to False"),
        ("pre-norm-transformer", {"layer_aggregation": "dynamic"}, "Allowed: linear, attention"),
        ("pre-norm-transformer", {"layer_aggregation": "linear", "decoder_layerdrop": 0.1}, "decoder_layerdrop"),
        ("pre-norm-transformer", {}, "layer_aggregation is not set"),
    ],
)
def test_what_no_paper_has_is_refused(method, fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        preset_config(method, "tiny", layer_aggregation_place="layers", **fields)
