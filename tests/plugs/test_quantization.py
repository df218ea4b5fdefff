"""int8 by torchao: loading, decoding, saving."""

import pytest
from aggregated_models import source_batch
from families import logits
from plug_table import FAMILIES, library, promised
from torch import equal, nn
from transformers import AutoModelForSeq2SeqLM, TorchAoConfig

from hf_capsule_mt import decoding

LOGITS_ERROR = 0.1
"""The most that int8 may change the logits of a model with random weights, as a share of their size."""


@pytest.fixture
def quantized(tmp_path):
    """The model of a family, and what was made of it by a configuration of torchao."""

    def make(family, kind="Int8WeightOnlyConfig"):
        model = FAMILIES[family]()
        model.save_pretrained(tmp_path / "model")
        config = TorchAoConfig(getattr(library("torchao.quantization"), kind)(version=2))
        return model, AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model", quantization_config=config)

    return make


def assert_works(model, small):
    """All linear maps but the head are in int8, the outputs nearly the same, and the engine leaves it alone."""
    linear = {name: module for name, module in small.named_modules() if isinstance(module, nn.Linear)}
    plain = {name for name, module in linear.items() if type(module.weight) is nn.Parameter}
    # Transformers leaves out a model's last layer too.
    assert "lm_head" in plain
    assert all(name == "lm_head" or name.startswith("guided_losses") for name in plain)
    expected, found = logits(model), logits(small)
    assert 0 < (found - expected).norm() < LOGITS_ERROR * expected.norm()
    options = {**source_batch(), "max_length": 6}
    words = small.generate(**options)
    assert equal(small.generate(**options, custom_generate=decoding.generate), words)


@promised("torchao, weights in int8")
def test_weights(family, quantized):
    assert_works(*quantized(family))


@promised("torchao, activations in int8 too")
def test_weights_and_activations(family, quantized):
    assert_works(*quantized(family, "Int8DynamicActivationInt8WeightConfig"))


@promised("torchao, saved and loaded")
def test_saved_and_loaded(family, quantized, tmp_path):
    _, small = quantized(family)
    small.save_pretrained(tmp_path / "small")
    assert equal(logits(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "small")), logits(small))
