"""Aggregates of the encoder's layers for each layer of the decoder: against loops, and where they are read."""

import pytest
import torch
from aggregated_models import (
    SHAPE,
    SOURCE_AGGREGATIONS,
    WIDTH,
    aggregated,
    aggregated_m2m100,
    m2m100,
    marian,
    source_batch,
    training_batch,
    without_weights,
)
from huggingface_hub.errors import StrictDataclassError
from reference.layer_aggregation import source_states
from test_layer_aggregation import assert_near, differentiate, leaves
from transformers.modeling_outputs import BaseModelOutput

from hf_capsule_mt import CapsuleAggregatedMarianConfig, CapsuleAggregatedMarianForSequenceClassification, preset_config
from hf_capsule_mt.configuration.description import describe_architecture
from hf_capsule_mt.hub.model_card import papers_of
from hf_capsule_mt.modeling.aggregation import SourceAggregation

KINDS = list(SOURCE_AGGREGATIONS)
ROUTINGS = ["source_dynamic_routing", "source_em_routing"]
DECODER_LAYERS = 3
every_kind = pytest.mark.parametrize("kind", KINDS)
both_outputs = pytest.mark.parametrize("output", ["replace", "residual"])
each_family = pytest.mark.parametrize("family", [aggregated, aggregated_m2m100])


def make_config(kind, output="replace", **fields):
    fields = {"decoder_layers": DECODER_LAYERS, "inverse_temperature": 0.3, **fields}
    return CapsuleAggregatedMarianConfig(
        **{**SHAPE, **SOURCE_AGGREGATIONS[kind], "layer_aggregation_output": output, **fields}
    )


def make_module(config):
    """A module whose every parameter is random, and layers `[2, 3, d]`, the embeddings among them."""
    module = SourceAggregation(config).double()
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    layers = [torch.randn(2, 3, WIDTH).double() for _ in range(config.encoder_layers + 1)]
    return module, layers


@both_outputs
@pytest.mark.parametrize("context", ["all", "own"])
@every_kind
def test_matches_loops(kind, context, output):
    config = make_config(kind, output, layer_aggregation_context=context)
    module, layers = make_module(config)
    parameters = dict(module.named_parameters())
    layers = leaves(layers, torch.float64)
    cotangent = torch.randn(2, DECODER_LAYERS, 3, WIDTH).double()
    fast, fast_gradients = differentiate(lambda layers: module(layers)[0], layers, parameters, cotangent)
    slow, slow_gradients = differentiate(
        lambda layers: source_states(config, parameters, layers)[0], layers, parameters, cotangent
    )
    assert_near("states", fast, slow, 1e-9)
    for name, expected in slow_gradients.items():
        assert expected.any(), name
        assert_near(name, fast_gradients[name], expected, 1e-9)


@pytest.mark.parametrize("kind", ROUTINGS)
def test_assignments_match_loops(kind):
    config = make_config(kind, num_output_capsules=4)
    module, layers = make_module(config)
    _, expected = source_states(config, module.state_dict(), layers)
    assert expected.shape == (2, DECODER_LAYERS, 3, 3, SHAPE["encoder_layers"] + 1, 4)
    assert module(layers)[1] is None
    torch.testing.assert_close(module(layers, output_routing="all")[1], expected)
    torch.testing.assert_close(module(layers, output_routing=True)[1], expected[..., -1, :, :])


def states_in_a_pass(model):
    """The states h_0..h_L of the encoder, what each layer of the decoder attends to, and the outputs."""
    encoder, decoder = model.model.encoder, model.model.decoder
    states = []
    read = []

    def keep_embeddings(module, args):
        states.append(args[0])

    def keep_output(module, args, output):
        states.append(output)

    def keep_source(module, args, kwargs):
        read.append(kwargs["key_value_states"])

    hooks = [encoder.layers[0].register_forward_pre_hook(keep_embeddings)]
    hooks += [layer.register_forward_hook(keep_output) for layer in encoder.layers]
    hooks += [layer.encoder_attn.register_forward_pre_hook(keep_source, with_kwargs=True) for layer in decoder.layers]
    with torch.no_grad():
        outputs = model(**training_batch(), output_routing=True)
    for hook in hooks:
        hook.remove()
    return states, read, outputs


@both_outputs
@every_kind
@each_family
def test_each_decoder_layer_reads_its_own_states(family, kind, output):
    fields = {"decoder_layers": DECODER_LAYERS, "layer_aggregation_output": output, "inverse_temperature": 0.3}
    fields |= {"layer_aggregation_context": "own", "layer_aggregation_input_norm": False}
    model = family(kind, **fields).double()
    states, read, outputs = states_in_a_pass(model)
    encoder = model.model.encoder
    expected, _ = source_states(model.config, encoder.source_aggregation.state_dict(), states)
    top = states[-1]
    if family is aggregated_m2m100:
        expected = encoder.layer_norm(expected)
        top = encoder.layer_norm(top)
    assert len(read) == DECODER_LAYERS
    for layer, source in enumerate(read):
        torch.testing.assert_close(source, expected[:, layer])
    # What a user reads of the encoder is its top layer.
    assert torch.equal(outputs.encoder_last_hidden_state, top)
    assert ("source_layer_routing" in outputs) == (kind in ROUTINGS)
    assert "encoder_layer_routing" not in outputs


@each_family
def test_without_gamma_the_encoder_is_plain(family):
    parent = (marian if family is aggregated else m2m100)(decoder_layers=DECODER_LAYERS)
    model = family("source_em_routing", decoder_layers=DECODER_LAYERS, layer_aggregation_output="residual")
    parent.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        for layer in model.model.encoder.source_aggregation.layers:
            layer.gamma.zero_()
        assert torch.equal(model(**training_batch()).logits, parent(**training_batch()).logits)


@pytest.mark.parametrize("kind", ["source_linear", "source_em_routing"])
def test_outputs_of_the_encoder_that_are_given(kind):
    model = aggregated(kind, guided_routing="gdr", guided_capsule_dim=4)
    batch = training_batch()
    with torch.no_grad():
        expected = model(**batch).loss
        del batch["input_ids"]
        for fields in ({}, {"output_hidden_states": True, "output_routing": True}):
            for returns_dict in (True, False):
                encoded = model.get_encoder()(**source_batch(), return_dict=returns_dict, **fields)
                assert torch.equal(model(**batch, encoder_outputs=encoded).loss, expected)
        top = model.get_encoder()(**source_batch()).last_hidden_state
        for part in (BaseModelOutput(last_hidden_state=top), (top,)):
            with pytest.raises(ValueError, match="reads source_states"):
                model(**batch, encoder_outputs=part)


def test_a_classifier_has_no_part_for_a_decoder(tmp_path):
    translator = aggregated("source_em_routing")
    translator.save_pretrained(tmp_path)
    classifier = CapsuleAggregatedMarianForSequenceClassification.from_pretrained(tmp_path)
    assert not [name for name in classifier.state_dict() if "source_aggregation" in name]
    with torch.no_grad():
        states = classifier.model(**source_batch()).last_hidden_state
        assert torch.equal(states, translator.get_encoder()(**source_batch()).last_hidden_state)


@pytest.mark.parametrize(
    ("method", "added"),
    [
        ("transparent-attention", 7 * 6),
        ("source-attention", 512 * 6),
        # For each of 7 layers two maps d -> d with biases, and a norm.
        ("source-dynamic-routing", (7 * 2 * (512**2 + 512) + 2 * 512) * 6),
        # Also an activation for each layer, and two costs for each capsule.
        ("source-em-routing", (7 * (2 * (512**2 + 512) + 512 + 1) + 4 * 512) * 6),
    ],
)
def test_parameters_at_base(method, added):
    plain = without_weights("transformer", "base").num_parameters()
    assert without_weights(method, "base").num_parameters() - plain == added


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "layer_aggregation is not set"),
        ({"layer_aggregation": "linear", "layer_aggregation_sides": ["decoder"]}, "Add 'encoder'"),
        ({"layer_aggregation": "linear", "encoder_layerdrop": 0.1}, "encoder_layerdrop"),
    ],
)
def test_what_has_no_effect_is_refused(fields, message):
    with pytest.raises(StrictDataclassError, match=message):
        preset_config("transformer", "tiny", layer_aggregation_place="source", **fields)


def test_a_card_names_place_and_paper():
    source = aggregated("source_linear").config
    assert "read at each layer of the decoder" in describe_architecture(source)
    assert "bapna2018training" in {paper["key"] for paper in papers_of(source)}
    each = aggregated("each_layer").config
    assert "read at each layer of a stack" in describe_architecture(each)
    assert [paper["key"] for paper in papers_of(each)] == ["vaswani2017attention", "wang2019learning"]
    top = aggregated("linear").config
    assert "read at" not in describe_architecture(top)
    assert "bapna2018training" not in {paper["key"] for paper in papers_of(top)}
