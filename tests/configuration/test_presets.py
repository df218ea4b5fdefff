"""Presets, and the rejection of wrong configurations."""

import pytest
from transformers import AutoConfig

from hf_capsule_mt.configuration import (
    METHODS,
    SIZES,
    CapsNMTConfig,
    CapsuleAggregatedMarianConfig,
    RNMTConfig,
    method_config_class,
    preset_config,
)

AGGREGATION_OF_METHOD = {
    "transformer": None,
    "linear-combination": "linear",
    "dynamic-combination": "dynamic",
    "dynamic-routing": "dynamic_routing",
    "em-routing": "em_routing",
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("method", METHODS)
def test_every_preset_survives_saving(method, size, tmp_path):
    config = preset_config(method, size)
    config.save_pretrained(tmp_path)
    assert method_config_class(method).from_pretrained(tmp_path).to_dict() == config.to_dict()


@pytest.mark.parametrize(("method", "aggregation"), AGGREGATION_OF_METHOD.items())
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
    assert chosen([2, 0]) == chosen((0, 2)) == [0, 2]
    assert chosen([]) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"head_aggregation": "dynamic_routing"}, "head_aggregation is 'dynamic_routing'; allowed are None, 'simple_"),
        ({"head_aggregation_output": "add"}, "head_aggregation_output is 'add'; allowed are 'replace', 'residual'"),
        (
            {"head_aggregation_encoder_layers": [4]},
            r"head_aggregation_encoder_layers is \[4\]; .* integers from 0 to 3",
        ),
        ({"head_aggregation_decoder_layers": [-1]}, r"head_aggregation_decoder_layers is \[-1\]; .* from 0 to 3"),
        ({"head_aggregation_cross_layers": [1, 1]}, r"head_aggregation_cross_layers is \[1, 1\]; .* different"),
        ({"head_aggregation_encoder_layers": []}, "head_aggregation is 'em_routing', but .* are all .*leave out"),
        *(
            ({"head_aggregation_encoder_layers": wrong}, "head_aggregation_encoder_layers is .* allowed are None")
            for wrong in ("all", "", 0, {0}, [[0]], [True], [0.0], [0.5])
        ),
        ({"head_aggregation_input_norm": 1}, "head_aggregation_input_norm is 1; allowed are False, True"),
        (
            {"head_aggregation": None, "head_aggregation_encoder_layers": None, "head_aggregation_input_norm": True},
            "head_aggregation is None, but head_aggregation_input_norm is True",
        ),
        ({"head_aggregation_encoder_layers": ()}, "are all .*name a layer"),
        ({"head_aggregation": None, "head_aggregation_cross_layers": [0]}, "head_aggregation is None, but .*cross"),
    ],
)
def test_wrong_heads_are_rejected_by_name(fields, message):
    with pytest.raises(ValueError, match=message):
        preset_config("head-em-routing", "tiny", **fields)


@pytest.mark.parametrize(
    ("size", "expected"),
    [("tiny", (4, 128, 256, 4, 0.3)), ("base", (6, 512, 2048, 8, 0.1)), ("big", (6, 1024, 4096, 16, 0.3))],
)
def test_sizes(size, expected):
    config = preset_config("transformer", size)
    for side in ("encoder", "decoder"):
        layers, ffn, heads = (getattr(config, f"{side}_{field}") for field in ("layers", "ffn_dim", "attention_heads"))
        assert (layers, config.d_model, ffn, heads, config.dropout) == expected


@pytest.mark.parametrize(("field", "value"), [("num_labels", "x"), ("id2label", 5)])
def test_values_that_transformers_does_not_check(field, value):
    with pytest.raises(ValueError, match=f"CapsuleAggregatedMarianConfig does not take .'{field}': {value!r}"):
        preset_config("em-routing", "tiny", **{field: value})


def test_overrides_reach_the_config(tmp_path):
    overrides = {
        "layer_aggregation_sides": ["decoder"],
        "layer_aggregation_context": "own",
        "layer_aggregation_parameterization": "joint",
        "layer_aggregation_output": "residual",
        "num_output_capsules": 16,
        "routing_iterations": 2,
        "inverse_temperature": 1,
        "label_smoothing": 0.1,
        "vocab_size": 77,
        "encoder_layerdrop": 0.2,
    }
    config = preset_config("em-routing", "tiny", **overrides)
    config.save_pretrained(tmp_path)
    for made in (config, CapsuleAggregatedMarianConfig.from_pretrained(tmp_path)):
        assert {name: getattr(made, name) for name in overrides} == overrides
        assert made.layer_aggregation == "em_routing"
        assert made.aggregates_layers("decoder")
        assert not made.aggregates_layers("encoder")


@pytest.mark.parametrize(
    ("method", "field", "value", "message"),
    [
        ("gdr", "routing_iterations", 7, "guided_routing='gdr' does not read; leave it out, or did you mean guided_ro"),
        ("rnmt-gdr", "routing_iterations", 7, "sentence_aggregation=None does not read; leave it out, or did you mean"),
        ("gdr-attention", "guided_routing_iterations", 1, "guided_routing='attention' does not read"),
        ("gdr-attention", "num_redundant_capsules", 0, "guided_routing='attention' does not read"),
        ("em-routing", "bow_loss_weight", 0, "guided_routing=None does not read; leave it out$"),
        ("dynamic-routing", "inverse_temperature", 1.0, "layer_aggregation='dynamic_routing'"),
        ("head-simple-routing", "inverse_temperature", 1.0, "head_aggregation='simple_routing'"),
        ("linear-combination", "num_output_capsules", 8, "layer_aggregation='linear'"),
        ("dynamic-combination", "layer_aggregation_context", "own", "layer_aggregation='dynamic'"),
        ("head-em-routing", "layer_aggregation_output", "residual", "or did you mean head_aggregation_output"),
        ("em-routing", "head_aggregation_output", "residual", "or did you mean layer_aggregation_output"),
        ("transformer", "layer_aggregation_sides", ["encoder"], "layer_aggregation=None"),
        ("capsnmt-pooling", "num_sentence_capsules", 2, "sentence_aggregation='pooling'"),
        ("rnmt", "separable_scoring", False, "sentence_aggregation=None"),
    ],
)
def test_a_field_that_the_method_does_not_read_is_rejected(method, field, value, message):
    with pytest.raises(ValueError, match=f"{field} is .*, which a model with .*{message}"):
        preset_config(method, "tiny", **{field: value})
    # As it is by default it says nothing.
    default = getattr(preset_config(method, "tiny"), field)
    assert preset_config(method, "tiny", **{field: default}).to_dict() == preset_config(method, "tiny").to_dict()


@pytest.mark.parametrize(
    ("config_class", "name", "message"),
    [
        (CapsuleAggregatedMarianConfig, "layer_agregation", "did you mean .*layer_aggregation"),
        (CapsuleAggregatedMarianConfig, "label_smoothing_factor", r"did you mean label_smoothing\?"),
        (CapsuleAggregatedMarianConfig, "sentence_aggregation", "it is of another family, or of none; leave it out"),
        (CapsNMTConfig, "guided_routing", "it is of another family"),
        (RNMTConfig, "layer_aggregation", "it is of another family"),
    ],
)
def test_a_name_that_was_meant_for_a_field_is_rejected(config_class, name, message, tmp_path):
    with pytest.raises(ValueError, match=f"{config_class.__name__} has no field '{name}'; {message}"):
        config_class(**{name: "em_routing"})
    config_class().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=f"{config_class.__name__} has no field '{name}'; {message}"):
        AutoConfig.from_pretrained(tmp_path, **{name: "em_routing"})
    with pytest.raises(ValueError, match=f"{config_class.__name__} has no field '{name}'; {message}"):
        setattr(config_class(), name, "em_routing")


def test_names_of_old_configurations_are_accepted():
    """Those that OPUS-MT models have, and fields of later versions of Transformers."""
    old = {"classif_dropout": 0.1, "add_bias_logits": False, "normalize_before": False, "extra_pos_embeddings": 2}
    assert CapsuleAggregatedMarianConfig(**old).normalize_before is False


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(ValueError, match="method is 'em'.*" + ".*".join(METHODS)):
        preset_config("em", "tiny")
    with pytest.raises(ValueError, match="size is 'huge'.*" + ".*".join(SIZES)):
        preset_config("em-routing", "huge")
    with pytest.raises(ValueError, match=r"'layer_agregation'.*layer_aggregation"):
        preset_config("em-routing", "tiny", layer_agregation="linear")


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("layer_aggregation", "foo", "None, 'linear', 'dynamic', 'dynamic_routing', 'em_routing'"),
        ("layer_aggregation_sides", [], "'encoder', 'decoder'"),
        ("layer_aggregation_sides", "encoder", "'encoder', 'decoder'"),
        ("layer_aggregation_sides", ["encoder", "middle"], "'encoder', 'decoder'"),
        ("layer_aggregation_sides", ["encoder", "encoder"], "'encoder', 'decoder'"),
        ("layer_aggregation_context", "some", "'all', 'own'"),
        ("layer_aggregation_parameterization", "shared", "'factored', 'joint'"),
        ("layer_aggregation_output", "add", "'replace', 'residual'"),
        ("num_output_capsules", 0, "integers of at least 1"),
        ("num_output_capsules", 3, "divisors of d_model=128"),
        ("num_output_capsules", 256, "divisors of d_model=128"),
        ("routing_iterations", 0, "integers of at least 1"),
        ("routing_iterations", True, "integers of at least 1"),
        ("inverse_temperature", 0.0, "positive"),
        ("inverse_temperature", -0.01, "positive"),
        ("inverse_temperature", float("nan"), "positive"),
        ("label_smoothing", 1.0, r"\[0, 1\)"),
        ("label_smoothing", -0.1, r"\[0, 1\)"),
        ("label_smoothing", float("nan"), r"\[0, 1\)"),
        ("encoder_layerdrop", 0.1, "0.0"),
        ("decoder_layerdrop", 0.1, "0.0"),
    ],
)
def test_a_wrong_value_is_rejected_by_name(field, value, allowed):
    value_text = "middle" if field == "layer_aggregation_sides" and "middle" in value else repr(value)
    with pytest.raises(ValueError, match=f"{field}.*{allowed}") as caught:
        preset_config("em-routing", "tiny", **{field: value})
    assert value_text in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"), [("routing_iterations", 2.5), ("label_smoothing", "0.1"), ("layer_aggregation", 3)]
)
def test_a_wrong_type_is_rejected_by_name(field, value):
    with pytest.raises(ValueError, match=f"{field}"):
        preset_config("em-routing", "tiny", **{field: value})


def test_a_wrong_value_in_a_saved_config_is_rejected(tmp_path):
    preset_config("em-routing", "tiny").save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace('"routing_iterations": 3', '"routing_iterations": 0'))
    with pytest.raises(ValueError, match="routing_iterations is 0"):
        CapsuleAggregatedMarianConfig.from_pretrained(tmp_path)


def test_a_wrong_override_of_a_saved_config_is_rejected(tmp_path):
    preset_config("em-routing", "tiny").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="routing_iterations is 0"):
        CapsuleAggregatedMarianConfig.from_pretrained(tmp_path, routing_iterations=0)


def test_layerdrop_is_accepted_where_no_layer_is_aggregated():
    assert preset_config("transformer", "tiny", encoder_layerdrop=0.1).encoder_layerdrop == 0.1


@pytest.mark.parametrize("name", ["translation_pipeline_translation.py", "modeling_rnmt.py"])
def test_files_of_others_are_left_alone(tmp_path, name):
    (tmp_path / name).write_text("mine = True\n")
    with pytest.raises(
        FileExistsError, match=f"{name} is not of hf-capsule-mt, .*; save the model to a folder of its own"
    ):
        preset_config("rnmt", "tiny").save_pretrained(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine = True\n"
    (tmp_path / name).unlink()
    # Its own it replaces.
    for _ in range(2):
        preset_config("rnmt", "tiny").save_pretrained(tmp_path)
    assert (tmp_path / name).is_file()
