"""The configurations of the recurrent families: presets, and the rejection of wrong values."""

import pytest
from transformers import AutoConfig

from hf_capsule_mt import CapsNMTConfig, RNMTConfig, preset_config
from hf_capsule_mt.configuration import decoding_fields, method_config_class

CLASSES = {"capsnmt": CapsNMTConfig, "rnmt": RNMTConfig}
STRATEGIES = ("position_aware_routing", "share_routing_weights", "separable_scoring")


@pytest.mark.parametrize(("size", "width"), [("tiny", 128), ("base", 512), ("big", 1024)])
@pytest.mark.parametrize("method", ["capsnmt", "capsnmt-pooling"])
def test_sizes(method, size, width):
    """Wang et al. 2019, section 4.2."""
    config = preset_config(method, size)
    assert (config.d_model, config.encoder_layers, config.decoder_layers, config.dropout) == (width, 4, 3, 0.3)
    assert (config.num_sentence_capsules, config.routing_iterations) == (6, 3)
    assert [getattr(config, name) for name in STRATEGIES] == [True, False, True]


@pytest.mark.parametrize(("size", "width"), [("tiny", 128), ("base", 512), ("big", 1024)])
@pytest.mark.parametrize("method", ["rnmt", "capsnmt-hybrid"])
def test_sizes_of_rnmt(method, size, width):
    config = preset_config(method, size)
    assert (config.d_model, config.encoder_layers, config.dropout) == (width, 1, 0.3)
    assert (config.num_sentence_capsules, config.routing_iterations) == (6, 3)


def test_the_one_layer_of_rnmts_decoder(tmp_path):
    """Transformers asks for it, so files may have it."""
    config = RNMTConfig(decoder_layers=1)
    assert config.decoder_layers == 1
    assert "decoder_layers" not in config.to_dict()
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="decoder_layers is 2; allowed are 1"):
        AutoConfig.from_pretrained(tmp_path, decoder_layers=2)
    with pytest.raises(ValueError, match="decoder_layers is 2; allowed are 1"):
        RNMTConfig(decoder_layers=2)


def test_methods():
    assert preset_config("capsnmt", "tiny").sentence_aggregation == "capsule"
    assert preset_config("capsnmt-pooling", "tiny").sentence_aggregation == "pooling"
    assert preset_config("capsnmt", "tiny").num_sentence_vectors == 6
    assert preset_config("capsnmt-pooling", "tiny").num_sentence_vectors == 4
    assert method_config_class("capsnmt") is method_config_class("capsnmt-pooling") is CapsNMTConfig
    assert preset_config("rnmt", "tiny").sentence_aggregation is None
    assert preset_config("rnmt", "tiny").num_sentence_vectors == 0
    assert preset_config("capsnmt-hybrid", "tiny").sentence_aggregation == "capsule"
    assert method_config_class("rnmt") is method_config_class("capsnmt-hybrid") is RNMTConfig


def test_decoding():
    assert decoding_fields("capsnmt") == decoding_fields("capsnmt-pooling") == {"num_beams": 8, "length_penalty": 0.8}
    assert decoding_fields("capsnmt-hybrid") == decoding_fields("capsnmt")
    assert decoding_fields("em-routing") == decoding_fields("rnmt") == {"num_beams": 4}
    with pytest.raises(ValueError, match="method is 'em'; allowed are 'transformer'"):
        decoding_fields("em")


@pytest.mark.parametrize("method", CLASSES)
def test_overrides_reach_the_config(method, tmp_path):
    overrides = {
        "encoder_layers": 5,
        "sentence_aggregation": "capsule",
        "num_sentence_capsules": 8,
        "routing_iterations": 4,
        "position_aware_routing": False,
        "share_routing_weights": True,
        "separable_scoring": False,
        "dropout": 0,
        "label_smoothing": 0.1,
        "vocab_size": 77,
        "tie_word_embeddings": False,
    }
    config = preset_config(method, "tiny", **overrides)
    config.save_pretrained(tmp_path)
    for made in (config, CLASSES[method].from_pretrained(tmp_path)):
        assert {name: getattr(made, name) for name in overrides} == overrides
        assert made.to_dict() == config.to_dict()
    assert CLASSES[method].from_pretrained(tmp_path, num_sentence_capsules=2).num_sentence_capsules == 2


@pytest.mark.parametrize("method", CLASSES)
def test_fields_by_the_names_of_transformers(method, tmp_path):
    config = CLASSES[method](hidden_size=64, num_hidden_layers=2)
    assert (config.d_model, config.encoder_layers, config.hidden_size) == (64, 2, 64)
    config.save_pretrained(tmp_path)
    for wrong, message in (
        ({"hidden_size": 63}, "d_model is 63; allowed are even"),
        ({"num_hidden_layers": 0}, "encoder_layers is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            CLASSES[method](**wrong)
        with pytest.raises(ValueError, match=message):
            AutoConfig.from_pretrained(tmp_path, **wrong)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        *(
            (name, value, "integers of at least 1")
            for name in ("vocab_size", "d_model", "encoder_layers")
            for value in (0, -1)
        ),
        *(
            (name, value, "integers of at least 1")
            for name in ("num_sentence_capsules", "routing_iterations")
            for value in (0, True, 2.5, "3", None)
        ),
        ("d_model", 127, "even integers"),
        ("sentence_aggregation", "mean", "'capsule', 'pooling'"),
        *((name, value, "True and False") for name in STRATEGIES for value in (1, "yes", None)),
        *(
            (name, value, r"\[0, 1\)")
            for name in ("dropout", "label_smoothing")
            for value in (1.0, -0.1, float("nan"), "0.1", True)
        ),
    ],
)
@pytest.mark.parametrize("method", CLASSES)
def test_a_wrong_value_is_rejected_by_name(method, field, value, allowed, tmp_path):
    with pytest.raises(ValueError, match=f"{field}.*") as caught:
        preset_config(method, "tiny", **{field: value})
    assert repr(value) in str(caught.value)
    preset_config(method, "tiny").save_pretrained(tmp_path)
    # Also where a saved configuration is changed.
    with pytest.raises(ValueError, match=f"{field} is .*allowed are .*{allowed}"):
        CLASSES[method].from_pretrained(tmp_path, **{field: value})


@pytest.mark.parametrize(
    ("method", "field", "value", "message"),
    [
        ("capsnmt", "decoder_layers", 0, "decoder_layers is 0; allowed are integers of at least 1"),
        ("capsnmt", "sentence_aggregation", None, "sentence_aggregation is None; allowed are 'capsule', 'pooling'"),
        ("rnmt", "sentence_aggregation", "", "sentence_aggregation is ''; allowed are None, 'capsule', 'pooling'"),
        ("rnmt", "decoder_layers", 1, "RNMTConfig has no field 'decoder_layers'; did you mean encoder_layers"),
    ],
)
def test_what_only_one_family_rejects(method, field, value, message):
    with pytest.raises(ValueError, match=message):
        preset_config(method, "tiny", **{field: value})


@pytest.mark.parametrize("method", ["capsnmt", "capsnmt-hybrid"])
@pytest.mark.parametrize(("field", "value"), [("share_routing_weights", True), ("separable_scoring", False)])
def test_what_one_iteration_does_not_read(method, field, value):
    with pytest.raises(ValueError, match=f"{field} is {value}, which .*='capsule', routing_iterations=1 does not read"):
        preset_config(method, "tiny", routing_iterations=1, **{field: value})
    preset_config(method, "tiny", routing_iterations=1, **{field: not value}, position_aware_routing=False)
    preset_config(method, "tiny", routing_iterations=2, **{field: value})


def test_an_unknown_name_is_told_those_that_are_near_or_all():
    with pytest.raises(ValueError, match=r"no field 'xyz'; it has .*d_model, .*layer_aggregation, "):
        preset_config("em-routing", "tiny", xyz=1)
    with pytest.raises(ValueError, match=r"no field 'layer_aggregation'; did you mean .*sentence_aggregation"):
        preset_config("capsnmt", "tiny", layer_aggregation="linear")
    with pytest.raises(ValueError, match=r"no field 'sentence_aggregation'; did you mean .*layer_aggregation"):
        preset_config("em-routing", "tiny", sentence_aggregation="capsule")
