"""The configurations of the recurrent families: presets, and the rejection of wrong values."""

import pytest
from transformers import AutoConfig

from hf_capsule_mt import CapsNMTConfig, RNMTConfig, preset_config
from hf_capsule_mt.configuration import method_config_class

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
    with pytest.raises(ValueError, match="decoder_layers is 2"):
        AutoConfig.from_pretrained(tmp_path, decoder_layers=2)
    with pytest.raises(ValueError, match="decoder_layers is 2"):
        RNMTConfig(decoder_layers=2)


def test_methods():
    assert preset_config("capsnmt", "tiny").sentence_aggregation == "capsule"
    assert preset_config("capsnmt-pooling", "tiny").sentence_aggregation == "pooling"
    assert method_config_class("capsnmt") is method_config_class("capsnmt-pooling") is CapsNMTConfig
    assert preset_config("rnmt", "tiny").sentence_aggregation is None
    assert preset_config("capsnmt-hybrid", "tiny").sentence_aggregation == "capsule"
    assert method_config_class("rnmt") is method_config_class("capsnmt-hybrid") is RNMTConfig
