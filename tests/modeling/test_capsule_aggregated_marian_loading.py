"""Checkpoints of the model: saving, loading, missing weights, placement on devices, resizing and copies."""

import copy
import pickle

import pytest
import torch
from aggregated_models import (
    AGGREGATIONS,
    ALL,
    EOS,
    OUTPUTS,
    VOCABULARY,
    added,
    aggregated,
    source_batch,
    training_batch,
)
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from hf_capsule_mt import (
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianModel,
    preset_config,
)

every_kind = pytest.mark.parametrize("kind", ALL)
every_aggregation = pytest.mark.parametrize("kind", AGGREGATIONS)


def logits(model):
    with torch.no_grad():
        return model(**training_batch()).logits


@pytest.fixture
def checkpoint(tmp_path):
    def save(model):
        model.save_pretrained(tmp_path)
        return tmp_path

    return save


@every_kind
def test_round_trip(kind, checkpoint):
    model = aggregated(kind, **OUTPUTS["residual"], label_smoothing=0.1)
    model.generation_config.num_beams = 5
    folder = checkpoint(model)
    config = AutoConfig.from_pretrained(folder)
    assert type(config) is type(model.config)
    assert config.to_diff_dict() == model.config.to_diff_dict()
    loaded, report = AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert type(loaded) is CapsuleAggregatedMarianForConditionalGeneration
    assert not any(report.values())
    assert not loaded.training
    assert loaded.generation_config.num_beams == 5
    assert torch.equal(logits(loaded), logits(model))


@every_kind
def test_base_model_of_a_checkpoint(kind, checkpoint):
    model = aggregated(kind)
    base = AutoModel.from_pretrained(checkpoint(model))
    assert type(base) is CapsuleAggregatedMarianModel
    for name, value in base.state_dict().items():
        assert torch.equal(value, model.model.state_dict()[name]), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_load_in_another_dtype(dtype, checkpoint):
    model = aggregated("em_routing")
    loaded = AutoModelForSeq2SeqLM.from_pretrained(checkpoint(model), dtype=dtype)
    assert {tensor.dtype for tensor in loaded.state_dict().values()} == {dtype}
    assert torch.equal(logits(loaded), logits(model.to(dtype)))


@pytest.mark.parametrize("fields", [{"tie_word_embeddings": False}, {"share_encoder_decoder_embeddings": False}])
def test_round_trip_of_separate_embeddings(fields, checkpoint):
    model = aggregated("em_routing", **fields)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(checkpoint(model))
    encoder, decoder = loaded.get_encoder(), loaded.get_decoder()
    assert encoder.embed_tokens.weight is not decoder.embed_tokens.weight
    assert (loaded.lm_head.weight is decoder.embed_tokens.weight) == loaded.config.tie_word_embeddings
    assert torch.equal(logits(loaded), logits(model))


def test_embeddings_are_one_tensor():
    model = aggregated("em_routing")
    modules = (model.model.shared, model.get_encoder().embed_tokens, model.get_decoder().embed_tokens, model.lm_head)
    assert len({module.weight.data_ptr() for module in modules}) == 1


@pytest.mark.parametrize("output", OUTPUTS)
@every_aggregation
def test_missing_weights_start_as_in_a_new_model(kind, output, checkpoint):
    plain = aggregated("none")
    folder = checkpoint(plain)
    fields = {**AGGREGATIONS[kind], **OUTPUTS[output], "init_std": 0.3}
    loaded, report = CapsuleAggregatedMarianForConditionalGeneration.from_pretrained(
        folder, output_loading_info=True, **fields
    )
    new = CapsuleAggregatedMarianForConditionalGeneration(loaded.config)
    assert set(report["missing_keys"]) == added(loaded)
    for name, parameter in loaded.named_parameters():
        if name not in added(loaded):
            assert torch.equal(parameter, plain.get_parameter(name)), name
            continue
        fresh = new.get_parameter(name)
        if fresh.unique().numel() == 1:
            assert torch.equal(parameter, fresh), name
        else:
            expected = fresh.shape[-1] ** -0.5 if ".out_proj." in name else 0.3
            # Five standard errors of the standard deviation of that many normal numbers.
            assert parameter.std().item() == pytest.approx(expected, rel=5 / (2 * parameter.numel()) ** 0.5), name
    # Guided routing is switched off by from_marian alone.
    if output == "residual" and loaded.config.guided_routing is None:
        assert torch.equal(logits(loaded), logits(plain))


@pytest.mark.parametrize("size", ["tiny", "base"])
@pytest.mark.parametrize("method", ["transformer", "em-routing"])
def test_presets_start_with_words_of_unit_variance(method, size, checkpoint):
    config = preset_config(method, size, vocab_size=2000, encoder_layers=1, decoder_layers=1)
    model = CapsuleAggregatedMarianForConditionalGeneration(config)
    for loaded in (model, AutoModelForSeq2SeqLM.from_pretrained(checkpoint(model))):
        words = loaded.get_input_embeddings().weight
        assert not words[config.pad_token_id].any()
        assert (words * config.d_model**0.5).var().item() == pytest.approx(1, rel=0.05)
        assert loaded.lm_head.weight is words
        assert loaded.model.encoder.layers[0].fc1.weight.std().item() == pytest.approx(config.init_std, rel=0.05)
    assert torch.equal(words, model.get_input_embeddings().weight)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layer_aggregation": "em"}, "layer_aggregation is 'em'"),
        ({"layer_aggregation": "em_routing", "encoder_layerdrop": 0.1}, "encoder_layerdrop is 0.1"),
    ],
)
def test_load_refuses_fields(fields, message, checkpoint):
    with pytest.raises(ValueError, match=message):
        AutoModelForSeq2SeqLM.from_pretrained(checkpoint(aggregated("none")), **fields)


@pytest.mark.parametrize("device_map", ["auto", "cpu", {"": "cpu"}])
@pytest.mark.parametrize("output", OUTPUTS)
@every_kind
def test_device_map(kind, output, device_map, checkpoint):
    model = aggregated(kind, **OUTPUTS[output])
    loaded = AutoModelForSeq2SeqLM.from_pretrained(checkpoint(model), device_map=device_map)
    assert torch.equal(logits(loaded), logits(model))


@pytest.mark.filterwarnings("ignore:.*do not match any submodules.*final_logits_bias")
@pytest.mark.parametrize("output", OUTPUTS)
@every_kind
def test_offloaded_to_disk(kind, output, checkpoint, tmp_path):
    model = aggregated(kind, **OUTPUTS[output])
    stacks = ("encoder", "decoder")
    # Every second layer, and the aggregation of the decoder, are on disk but for the time that they run.
    device_map = {"model.shared": "cpu", "lm_head": "cpu", "final_logits_bias": "cpu"}
    for stack in stacks:
        device_map |= {f"model.{stack}.{part}": "cpu" for part in ("embed_tokens", "embed_positions", "layers.0")}
        device_map[f"model.{stack}.layers.1"] = "disk"
    if model.config.layer_aggregation is not None:
        device_map |= {"model.encoder.aggregation": "cpu", "model.decoder.aggregation": "disk"}
    if model.config.guided_routing is not None:
        device_map |= {"model.encoder.guided_votes": "disk", "model.guided_routing": "disk", "guided_losses": "cpu"}
    loaded = AutoModelForSeq2SeqLM.from_pretrained(
        checkpoint(model), device_map=device_map, offload_folder=tmp_path / "offload"
    )
    assert loaded.model.decoder.layers[1].fc1.weight.is_meta
    assert torch.equal(logits(loaded), logits(model))
    arguments = {**source_batch(), "num_beams": 2, "max_length": 6}
    assert torch.equal(loaded.generate(**arguments), model.generate(**arguments))


@pytest.mark.parametrize("kind", ["none", "em_routing"])
@pytest.mark.parametrize("size", [VOCABULARY + 4, VOCABULARY - 4])
def test_resize_token_embeddings(kind, size, checkpoint):
    model = aggregated(kind)
    before = logits(model)
    model.resize_token_embeddings(size, mean_resizing=False)
    assert model.config.vocab_size == size
    kept = min(size, VOCABULARY)
    assert logits(model).shape[-1] == size
    torch.testing.assert_close(logits(model)[..., :kept], before[..., :kept])
    model(**training_batch()).loss.backward()
    assert model.generate(**source_batch(), max_length=5).shape[0] == 3
    assert torch.equal(logits(AutoModelForSeq2SeqLM.from_pretrained(checkpoint(model))), logits(model))


@pytest.mark.parametrize("kind", ["none", "em_routing"])
def test_resize_separate_vocabularies(kind):
    model = aggregated(kind, share_encoder_decoder_embeddings=False, decoder_vocab_size=23)
    before = logits(model)
    model.resize_decoder_token_embeddings(26)
    assert model.config.decoder_vocab_size == 26
    assert model.config.vocab_size == VOCABULARY
    torch.testing.assert_close(logits(model)[..., :23], before)


@every_kind
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies(kind, duplicate):
    model = aggregated(kind)
    expected = logits(model)
    other = duplicate(model)
    assert torch.equal(logits(other), expected)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert torch.equal(logits(model), expected)


@pytest.mark.parametrize("kind", ["none", "em_routing"])
def test_encoder_alone(kind, tmp_path):
    encoder = aggregated(kind).get_encoder()
    encoder.save_pretrained(tmp_path)
    loaded = type(encoder).from_pretrained(tmp_path)
    expected = encoder(**source_batch()).last_hidden_state
    assert torch.equal(loaded(**source_batch()).last_hidden_state, expected)


def test_gradient_checkpointing_of_old_configurations(checkpoint):
    model = aggregated("em_routing")
    model.config.gradient_checkpointing = True
    loaded = AutoModelForSeq2SeqLM.from_pretrained(checkpoint(model))
    assert all(
        layer.gradient_checkpointing for stack in (loaded.get_encoder(), loaded.get_decoder()) for layer in stack.layers
    )
    assert not hasattr(loaded.config, "gradient_checkpointing")
    assert loaded.config.eos_token_id == EOS
