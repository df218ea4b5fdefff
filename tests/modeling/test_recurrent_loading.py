"""Checkpoints of the recurrent families: saving, loading, initial weights, placement, resizing and copies."""

import copy
import pickle

import pytest
import torch
from aggregated_models import VOCABULARY, WIDTH, source_batch, training_batch
from recurrent_models import CAPSNMT_KINDS, CAPSULES, GUIDED_KINDS, KINDS, LAYERS, ONE_OF_EACH_FAMILY, recurrent
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from hf_capsule_mt import preset_config

every_kind = pytest.mark.parametrize("kind", KINDS)
each_family = pytest.mark.parametrize("kind", ONE_OF_EACH_FAMILY)


def logits(model):
    with torch.no_grad():
        return model(**training_batch()).logits


@pytest.fixture
def checkpoint(tmp_path):
    def save(model):
        model.save_pretrained(tmp_path)
        return tmp_path

    return save


@pytest.mark.parametrize("tied", [True, False])
@every_kind
def test_round_trip(kind, tied, checkpoint):
    model = recurrent(kind, label_smoothing=0.1, tie_word_embeddings=tied)
    model.generation_config.num_beams = 5
    folder = checkpoint(model)
    config = AutoConfig.from_pretrained(folder)
    assert type(config) is type(model.config)
    assert config.to_diff_dict() == model.config.to_diff_dict()
    loaded, report = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert type(loaded) is type(model)
    assert not any(report.values())
    assert not loaded.training
    assert loaded.generation_config.num_beams == 5
    assert torch.equal(logits(loaded), logits(model))
    modules = (loaded.get_encoder().embed_tokens, loaded.get_decoder().embed_tokens, loaded.lm_head)
    assert len({module.weight.data_ptr() for module in modules}) == (1 if tied else 3)


@every_kind
def test_base_model_of_a_checkpoint(kind, checkpoint):
    model = recurrent(kind)
    base = AutoModel.from_pretrained(checkpoint(model))
    assert type(base) is type(model.model)
    for name, value in base.state_dict().items():
        assert torch.equal(value, model.model.state_dict()[name]), name


@each_family
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_load_in_another_dtype(kind, dtype, checkpoint):
    model = recurrent(kind)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(checkpoint(model), dtype=dtype)
    assert {tensor.dtype for tensor in loaded.state_dict().values()} == {dtype}
    assert torch.equal(logits(loaded), logits(model.to(dtype)))


def expected_std(name, parameter, config):
    """Of the weights that are drawn; None for those that are constant."""
    if "bias" in name or "norm" in name:
        return None
    if any(part in name for part in ("lstm", "gru", "from_")):
        # Glorot and Bengio 2010, all gates being one matrix.
        return (2 / sum(parameter.shape)) ** 0.5
    if name.endswith("encoder.projection.weight"):
        return (4 * WIDTH if config.sentence_aggregation == "pooling" else CAPSULES) ** -0.5
    reads_more = "readout" in name or "guided" in name
    return (parameter.shape[-1] if reads_more else WIDTH) ** -0.5


@every_kind
def test_missing_weights_start_as_in_a_new_model(kind, checkpoint):
    model = recurrent(kind, tie_word_embeddings=False)
    kept = "model.decoder." + ("layers.0.layer_norm.bias" if kind in CAPSNMT_KINDS else "readout.bias")
    folder = checkpoint(model)
    # A checkpoint without any weight but one.
    model.save_pretrained(folder, state_dict={kept: model.state_dict()[kept]})
    loaded, report = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert len(report["missing_keys"]) == len(model.state_dict()) - 1
    for name, parameter in loaded.named_parameters():
        std = expected_std(name, parameter, model.config)
        if name == kept:
            assert torch.equal(parameter, model.get_parameter(kept))
        elif std is None and name.endswith("lstm.bias_ih_l0"):
            gates = parameter.chunk(4)
            assert [set(gate.tolist()) for gate in gates] == [{0.0}, {1.0}, {0.0}, {0.0}], name
        elif std is None:
            assert set(parameter.flatten().tolist()) == {1.0 if name.endswith("norm.weight") else 0.0}, name
        else:
            drawn = parameter[1:] if "embed" in name else parameter
            # Five standard errors of the standard deviation of that many normal numbers.
            assert drawn.std().item() == pytest.approx(std, rel=5 / (2 * drawn.numel()) ** 0.5), name
            assert "embed" not in name or not parameter[0].any(), name


@pytest.mark.parametrize("method", ["capsnmt", "capsnmt-pooling", "rnmt", "capsnmt-hybrid", "rnmt-gdr"])
def test_presets_start_with_words_of_unit_variance(method, checkpoint):
    config = preset_config(method, "tiny", vocab_size=2000)
    model = AutoModelForSeq2SeqLM.from_config(config)
    for loaded in (model, AutoModelForSeq2SeqLM.from_pretrained(checkpoint(model))):
        words = loaded.get_input_embeddings().weight
        assert not words[config.pad_token_id].any()
        assert (words * config.d_model**0.5).var().item() == pytest.approx(1, rel=0.05)
        assert loaded.lm_head.weight is words
    assert torch.equal(words, model.get_input_embeddings().weight)


@each_family
@pytest.mark.parametrize("device_map", ["auto", "cpu", {"": "cpu"}])
def test_device_map(kind, device_map, checkpoint):
    model = recurrent(kind)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(checkpoint(model), device_map=device_map)
    assert torch.equal(logits(loaded), logits(model))


@every_kind
def test_offloaded_to_disk(kind, checkpoint, tmp_path):
    model = recurrent(kind)
    # What is on disk is not in memory but for the time that it runs.
    offloaded = ["key_projection", "projection", "aggregation", "layers.1", "recurrence", "start", "readout"]
    offloaded += ["guided_votes", "guided_routing"]
    device_map = {}
    for name, module in model.model.named_children():
        for part, child in module.named_children():
            parts = [f"layers.{layer}" for layer in range(LAYERS)] if part == "layers" else [part]
            if any(True for _ in child.parameters()):
                device_map |= {f"model.{name}.{part}": "disk" if part in offloaded else "cpu" for part in parts}
    device_map |= {"lm_head": "cpu"} | ({"guided_losses": "cpu"} if kind in GUIDED_KINDS else {})
    loaded = AutoModelForSeq2SeqLM.from_pretrained(
        checkpoint(model), device_map=device_map, offload_folder=tmp_path / "offload"
    )
    last = "layers.1.lstm.weight_ih_l0" if kind in CAPSNMT_KINDS else "recurrence.step.attention.score"
    assert loaded.get_decoder().get_parameter(last).is_meta
    assert torch.equal(logits(loaded), logits(model))
    arguments = {**source_batch(), "num_beams": 2, "max_length": 6}
    assert torch.equal(loaded.generate(**arguments), model.generate(**arguments))


@each_family
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [VOCABULARY + 4, VOCABULARY - 4])
def test_resize_token_embeddings(kind, size, tied, checkpoint):
    model = recurrent(kind, tie_word_embeddings=tied)
    before = logits(model)
    model.resize_token_embeddings(size, mean_resizing=False)
    assert model.config.vocab_size == size
    kept = min(size, VOCABULARY)
    assert logits(model).shape[-1] == size
    torch.testing.assert_close(logits(model)[..., :kept], before[..., :kept])
    modules = (model.get_encoder().embed_tokens, model.get_decoder().embed_tokens, model.lm_head)
    assert [module.weight.shape[0] for module in modules] == [size] * 3
    assert len({module.weight.data_ptr() for module in modules}) == (1 if tied else 3)
    model(**training_batch()).loss.backward()
    assert model.generate(**source_batch(), max_length=5).shape[0] == 3
    assert torch.equal(logits(AutoModelForSeq2SeqLM.from_pretrained(checkpoint(model))), logits(model))


@each_family
@pytest.mark.parametrize("tied", [True, False])
def test_set_input_embeddings(kind, tied):
    model = recurrent(kind, tie_word_embeddings=tied)
    new = torch.nn.Embedding(VOCABULARY, WIDTH)
    model.set_input_embeddings(new)
    assert model.get_input_embeddings() is model.get_encoder().embed_tokens is new
    assert (model.get_decoder().embed_tokens is new) == tied


@every_kind
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies(kind, duplicate):
    model = recurrent(kind)
    expected = logits(model)
    other = duplicate(model)
    assert torch.equal(logits(other), expected)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert torch.equal(logits(model), expected)


@every_kind
def test_encoder_alone(kind, tmp_path):
    encoder = recurrent(kind).get_encoder()
    encoder.save_pretrained(tmp_path)
    loaded = type(encoder).from_pretrained(tmp_path)
    expected, actual = encoder(**source_batch()), loaded(**source_batch())
    assert set(actual) == set(expected)
    assert all(torch.equal(value, expected[name]) for name, value in actual.items())
