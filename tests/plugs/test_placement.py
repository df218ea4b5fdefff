"""Where and in which precision models of every family are loaded, with `MarianMTModel` as the yardstick."""

import pytest
import torch
import torchao.quantization
from accelerate import cpu_offload
from aggregated_models import source_batch, training_batch
from families import logits, translator
from plug_table import FAMILIES, promised
from torch import equal, nn
from transformers import AutoModelForSeq2SeqLM, TorchAoConfig

from hf_capsule_mt import decoding
from hf_capsule_mt.decoding import generate


def saved(family, folder):
    model = FAMILIES[family]()
    model.save_pretrained(folder)
    return model


def generated(model, **options):
    return model.generate(**source_batch(), num_beams=2, max_length=6, **options)


@promised('`device_map="auto"`, one device')
def test_device_map(family, tmp_path):
    model = saved(family, tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, device_map="auto")
    assert torch.equal(logits(loaded), logits(model))
    assert torch.equal(generated(loaded), generated(model))


@promised("bfloat16, float16")
def test_half_precision(family, tmp_path):
    expected = logits(saved(family, tmp_path))
    for dtype in (torch.bfloat16, torch.float16):
        loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=dtype)
        assert {tensor.dtype for tensor in loaded.state_dict().values()} == {dtype}
        assert torch.equal(logits(loaded), logits(FAMILIES[family]().to(dtype)))
        assert (logits(loaded).float() - expected).norm() < 0.1 * expected.norm()
        assert generated(loaded).shape[0] == 3


def assert_runs_from_disk(family, share, folder):
    """With memory for a share of its weights a model translates as it does in memory."""
    model = saved(family, folder / "model")
    size = sum(parameter.numel() * parameter.element_size() for parameter in {*model.parameters()})
    limits = {"max_memory": {"cpu": int(share * size)}, "offload_folder": folder / "disk"}
    loaded = AutoModelForSeq2SeqLM.from_pretrained(folder / "model", device_map="auto", **limits)
    assert any(parameter.is_meta for parameter in loaded.parameters())
    assert torch.equal(generated(loaded), generated(model))
    assert torch.equal(generated(loaded, custom_generate=generate), generated(model))


@promised("Offload to disk, most of it")
def test_most_on_disk(family, tmp_path):
    # Earlier versions of accelerate want room for the embeddings, which of RNMT are half of it.
    assert_runs_from_disk(family, 0.55 if family == "RNMT" else 0.45, tmp_path)


@pytest.mark.parametrize("name", ["marian-none", "marian-gdr", "marian-everything", "recurrent-guided_hybrid"])
def test_the_loss_of_an_offloaded_model(name):
    """The weights are where they are needed as their module runs, and nowhere else."""
    model = translator(name).eval()
    expected = model(**training_batch())
    found = cpu_offload(model, torch.device("cpu"))(**training_batch())
    torch.testing.assert_close(found.loss, expected.loss)


LOGITS_ERROR = 0.1
"""The most that int8 may change the logits of a model with random weights, as a share of their size."""


@pytest.fixture
def quantized(tmp_path):
    """The model of a family, and what was made of it by a configuration of torchao."""

    def make(family, kind="Int8WeightOnlyConfig"):
        model = FAMILIES[family]()
        model.save_pretrained(tmp_path / "model")
        config = TorchAoConfig(getattr(torchao.quantization, kind)(version=2))
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
