"""Presets, and the rejection of wrong configurations."""

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration, preset_config
from hf_capsule_mt.configuration import METHODS, SIZES, CapsuleAggregatedMarianConfig, method_config_class

AGGREGATIONS = {"transformer": None, "linear-combination": "linear", "dynamic-combination": "dynamic"}
AGGREGATIONS |= {"layer-attention": "attention", "dynamic-routing": "dynamic_routing", "em-routing": "em_routing"}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("method", METHODS)
def test_every_preset_survives_saving(method, size, tmp_path):
    config = preset_config(method, size)
    config.save_pretrained(tmp_path)
    assert method_config_class(method).from_pretrained(tmp_path).to_dict() == config.to_dict()


@pytest.mark.parametrize(("method", "aggregation"), AGGREGATIONS.items())
def test_method_chooses_the_aggregation(method, aggregation):
    config = preset_config(method, "tiny")
    assert config.layer_aggregation == aggregation
    assert config.aggregates_layers("encoder") == config.aggregates_layers("decoder") == (aggregation is not None)


@pytest.mark.parametrize(
    ("method", "head_aggregation", "layers"),
    [
        ("transformer", None, []),
        ("head-simple-routing", "simple_routing", [0, 1, 2, 3, 4, 5]),
        ("head-em-routing", "em_routing", [0, 1, 2, 3, 4, 5]),
        ("head-em-effective", "em_routing", [0, 1]),
    ],
)
def test_method_chooses_the_heads(method, head_aggregation, layers):
    config = preset_config(method, "base")
    assert config.head_aggregation == head_aggregation
    assert [layer for layer in range(6) if config.aggregates_heads("encoder_self", layer)] == layers
    for site in ("decoder_self", "cross"):
        assert not any(config.aggregates_heads(site, layer) for layer in range(6))


@pytest.mark.parametrize(
    ("site", "field"),
    [
        ("encoder_self", "head_aggregation_encoder_layers"),
        ("decoder_self", "head_aggregation_decoder_layers"),
        ("cross", "head_aggregation_cross_layers"),
    ],
)
def test_each_site_has_its_own_layers(site, field):
    def chosen(layers):
        # Another site is routed too, so that this one may have no layer.
        other = "head_aggregation_cross_layers" if site != "cross" else "head_aggregation_decoder_layers"
        fields = {"head_aggregation_encoder_layers": [], other: [0], field: layers}
        config = preset_config("head-em-routing", "tiny", encoder_layers=3, decoder_layers=3, **fields)
        return [layer for layer in range(3) if config.aggregates_heads(site, layer)]

    assert chosen(None) == [0, 1, 2]
    assert chosen([2, 0]) == [0, 2]
    assert chosen([]) == []


@pytest.mark.parametrize(
    ("size", "expected"),
    [("tiny", (4, 128, 256, 4, 0.3)), ("base", (6, 512, 2048, 8, 0.1)), ("big", (6, 1024, 4096, 16, 0.3))],
)
def test_sizes(size, expected):
    config = preset_config("transformer", size)
    for side in ("encoder", "decoder"):
        layers, ffn, heads = (getattr(config, f"{side}_{field}") for field in ("layers", "ffn_dim", "attention_heads"))
        assert (layers, config.d_model, ffn, heads, config.dropout) == expected


@pytest.mark.parametrize("size", SIZES)
def test_both_transformers_have_the_same_size_and_dropout(size):
    """Transformers' M2M-100 has other defaults, such as for the dropout of attention."""
    post_norm = preset_config("transformer", size).to_dict()
    pre_norm = preset_config("pre-norm-transformer", size).to_dict()
    names = [f"{side}_{part}" for side in ("encoder", "decoder") for part in ("layers", "ffn_dim", "attention_heads")]
    names += ["d_model", "dropout", "attention_dropout", "activation_dropout", "activation_function", "init_std"]
    for name in [*names, "scale_embedding", "max_position_embeddings"]:
        assert pre_norm[name] == post_norm[name], name


def test_overrides_reach_the_config(tmp_path):
    overrides = {"layer_aggregation_sides": ["decoder"], "layer_aggregation_context": "own"}
    overrides |= {"layer_aggregation_parameterization": "joint", "layer_aggregation_output": "residual"}
    overrides |= {"num_output_capsules": 16, "routing_iterations": 2, "inverse_temperature": 1}
    overrides |= {"label_smoothing": 0.1, "vocab_size": 77, "encoder_layerdrop": 0.2}
    config = preset_config("em-routing", "tiny", **overrides)
    config.save_pretrained(tmp_path)
    for made in (config, CapsuleAggregatedMarianConfig.from_pretrained(tmp_path)):
        assert {name: getattr(made, name) for name in overrides} == overrides
        assert made.layer_aggregation == "em_routing"
        assert made.aggregates_layers("decoder")
        assert not made.aggregates_layers("encoder")


@pytest.mark.parametrize(
    ("method", "field", "value"),
    [
        ("em-routing", "layer_aggregation_sides", "encoder"),
        ("em-routing", "layer_aggregation_sides", ["encoder", "middle"]),
        ("em-routing", "layer_aggregation_context", "some"),
        ("em-routing", "layer_aggregation_parameterization", "shared"),
        ("em-routing", "layer_aggregation_output", "add"),
        ("em-routing", "label_smoothing", 1.0),
        ("em-routing", "label_smoothing", float("nan")),
        ("em-routing", "encoder_layerdrop", 0.1),
        ("em-routing", "routing_iterations", 2.5),
        ("head-em-routing", "head_aggregation_encoder_layers", [4]),
        ("head-em-routing", "head_aggregation_decoder_layers", [-1]),
        ("head-em-routing", "head_aggregation_encoder_layers", []),
        ("head-em-routing", "head_aggregation_output", "add"),
        ("gdr", "guided_routing", "routing"),
        ("rnmt-gdr", "guided_routing", "routing"),
        ("rnmt", "sentence_aggregation", "mean"),
        ("capsnmt", "sentence_aggregation", None),
        ("capsnmt", "label_smoothing", -0.1),
        ("capsnmt", "share_routing_weights", "yes"),
    ],
)
def test_a_wrong_value_is_refused(method, field, value):
    with pytest.raises(StrictDataclassError, match=field.partition("_")[0]):
        preset_config(method, "tiny", **{field: value})


FORBIDDEN = [
    # The width of this preset is 128.
    ("em-routing", "num_output_capsules", 7, "Give a divisor of d_model, which is 128"),
    ("em-routing", "num_output_capsules", 0, "Give a divisor of d_model, which is 128"),
    ("em-routing", "routing_iterations", 0, "Give 1 or more"),
    ("em-routing", "inverse_temperature", -1, "Give 0 or more"),
    ("em-routing", "inverse_temperature", float("nan"), "Give 0 or more"),
    ("gdr", "guided_routing_iterations", 0, "Give 1 or more"),
    ("gdr", "num_past_capsules", 0, "Give 1 or more"),
    ("gdr", "num_future_capsules", 0, "Give 1 or more"),
    ("gdr", "num_redundant_capsules", -1, "Give 0 or more"),
    ("rnmt-gdr", "guided_capsule_dim", 0, "Give 1 or more"),
    ("rnmt-gdr", "bow_loss_weight", -1, "Give 0 or more"),
    ("gdr", "bca_loss_weight", float("inf"), "Give 0 or more"),
    ("capsnmt", "d_model", 15, "Give an even number"),
    ("rnmt", "d_model", 0, "Give an even number"),
    ("rnmt", "encoder_layers", 0, "Give 1 or more"),
    ("capsnmt", "decoder_layers", 0, "Give 1 or more"),
    ("capsnmt", "routing_iterations", 0, "Give 1 or more"),
    ("capsnmt-hybrid", "num_sentence_capsules", 0, "Give 1 or more"),
    ("rnmt", "dropout", 1.0, r"Give a number in \[0, 1\)"),
]


@pytest.mark.parametrize(("method", "field", "value", "remedy"), FORBIDDEN)
def test_a_value_that_would_fail_later_is_refused_at_once(method, field, value, remedy):
    with pytest.raises(StrictDataclassError, match=rf"{field} is {value}\. {remedy}"):
        preset_config(method, "tiny", **{field: value})


WIDTH, CAPSULE, HIDDEN = 512, 256, 2048
WITHOUT_LOSSES = {"bow_loss_weight": 0, "bca_loss_weight": 0}


def parameters(method, **overrides):
    """Of a model with few layers: what guided routing adds does not depend on them."""
    config = preset_config(method, "base", encoder_layers=1, decoder_layers=1, **overrides)
    with torch.device("meta"):
        return CapsuleAggregatedMarianForConditionalGeneration(config).num_parameters()


@pytest.mark.parametrize(
    ("method", "kind"), [("gdr", "gdr"), ("gdr-classifier", "classifier"), ("gdr-attention", "attention")]
)
def test_presets(method, kind):
    config = preset_config(method, "base")
    assert config.guided_routing == kind
    assert config.layer_aggregation is config.head_aggregation is None
    # Section 4, "Training": J / 2 = 2, d_c = 256, r = 3, and both weights 1.
    assert (config.num_past_capsules, config.num_future_capsules, config.num_redundant_capsules) == (2, 2, 2)
    assert (config.guided_capsule_dim, config.guided_routing_iterations) == (256, 3)
    assert config.bow_loss_weight == config.bca_loss_weight == 1
    assert preset_config("transformer", "base").guided_routing is None


def test_parameters_are_those_of_the_equations():
    votes, guide, score = 6 * WIDTH * CAPSULE, (WIDTH + 2 * CAPSULE) * CAPSULE, CAPSULE
    feed_forward = (WIDTH + 4 * CAPSULE) * HIDDEN + HIDDEN + HIDDEN * WIDTH + WIDTH
    plain, routed = parameters("transformer"), parameters("gdr", **WITHOUT_LOSSES)
    assert routed - plain == votes + guide + score + feed_forward
    one_loss = 2 * WIDTH * 2 * CAPSULE
    # Table 1: 68.9M with GDR, and 69.4M with the agreement loss too.
    assert parameters("gdr", bow_loss_weight=0) - routed == one_loss == pytest.approx(0.5e6, rel=0.05)
    assert parameters("gdr", bca_loss_weight=0) - routed == one_loss
    assert parameters("gdr") - routed == 2 * one_loss
    assert parameters("gdr", num_redundant_capsules=0) == parameters("gdr") - 2 * WIDTH * CAPSULE


def test_parameters_of_the_baselines():
    plain = parameters("transformer")
    feed_forward = (WIDTH + 4 * CAPSULE) * HIDDEN + HIDDEN + HIDDEN * WIDTH + WIDTH
    values = 4 * WIDTH * CAPSULE
    classifier = parameters("gdr-classifier", **WITHOUT_LOSSES) - plain - feed_forward - values
    assert classifier == 2 * WIDTH * CAPSULE + 3 * CAPSULE
    attention = parameters("gdr-attention", **WITHOUT_LOSSES) - plain - feed_forward - values
    assert attention == 2 * 2 * WIDTH * CAPSULE
