"""Checkpoints of every family: saving, loading, missing weights, placement on devices, resizing and copies."""

import pytest
import torch
from aggregated_models import ALL, OUTPUTS, VOCABULARY, WIDTH, added, aggregated, source_batch, training_batch
from families import KINDS, MARIAN, ONE_OF_EACH_FAMILY, RECURRENT, each_family, logits, translator
from recurrent_models import CAPSNMT_KINDS, CAPSULES, recurrent
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration, preset_config

both_ties = pytest.mark.parametrize("tied", [True, False])


@pytest.fixture
def checkpoint(tmp_path):
    def save(model):
        model.save_pretrained(tmp_path)
        return tmp_path

    return save


def embeddings(model):
    """The modules that read or score words."""
    return [model.get_encoder().embed_tokens, model.get_decoder().embed_tokens, model.lm_head]


def number_of_tables(model):
    return len({module.weight.data_ptr() for module in embeddings(model)})


@pytest.mark.parametrize(
    ("name", "tied"), [*((name, True) for name in KINDS), *((name, False) for name in ONE_OF_EACH_FAMILY)]
)
def test_round_trip(name, tied, checkpoint):
    model = translator(name, label_smoothing=0.1, tie_word_embeddings=tied)
    model.generation_config.num_beams = 5
    folder = checkpoint(model)
    loaded, report = type(model).from_pretrained(folder, output_loading_info=True)
    assert not any(report.values())
    assert not loaded.training
    assert loaded.generation_config.num_beams == 5
    assert torch.equal(logits(loaded), logits(model))
    assert number_of_tables(loaded) == number_of_tables(model)


@pytest.mark.parametrize("kind", ["gdr", "guided_rnmt"])
def test_losses_that_have_been_switched_off(kind, tmp_path):
    model = aggregated(kind) if kind == "gdr" else recurrent("guided")
    model.config.bow_loss_weight = 0
    model.save_pretrained(tmp_path)
    loaded, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert torch.equal(logits(loaded), logits(model))


@pytest.mark.parametrize("fields", [{"tie_word_embeddings": False}, {"share_encoder_decoder_embeddings": False}])
def test_round_trip_of_separate_embeddings(fields, checkpoint):
    model = aggregated("em_routing", **fields)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(checkpoint(model))
    encoder, decoder = loaded.get_encoder(), loaded.get_decoder()
    assert encoder.embed_tokens.weight is not decoder.embed_tokens.weight
    assert (loaded.lm_head.weight is decoder.embed_tokens.weight) == loaded.config.tie_word_embeddings
    assert torch.equal(logits(loaded), logits(model))


@pytest.mark.parametrize(
    ("kind", "output"), [("heads_and_layers_em", "replace"), *((kind, "residual") for kind in MARIAN[1:])]
)
def test_missing_weights_start_as_in_a_new_model(kind, output, checkpoint):
    plain = aggregated("none")
    folder = checkpoint(plain)
    fields = {**ALL[kind], **OUTPUTS[output], "init_std": 0.3}
    loaded, report = CapsuleAggregatedMarianForConditionalGeneration.from_pretrained(
        folder, output_loading_info=True, **fields
    )
    new = CapsuleAggregatedMarianForConditionalGeneration(loaded.config)
    new_names = added(loaded)
    assert set(report["missing_keys"]) == new_names
    for name, parameter in loaded.named_parameters():
        if name not in new_names:
            assert torch.equal(parameter, plain.get_parameter(name)), name
            continue
        fresh = new.get_parameter(name)
        if fresh.unique().numel() == 1:
            assert torch.equal(parameter, fresh), name
        else:
            assert_drawn(parameter, fresh.shape[-1] ** -0.5 if ".out_proj." in name else 0.3, name)
    # Guided routing is switched off by from_marian alone.
    if output == "residual" and loaded.config.guided_routing is None:
        assert torch.equal(logits(loaded), logits(plain))


def assert_drawn(parameter, std, name):
    """Within five standard errors of the standard deviation of that many normal numbers."""
    assert parameter.std().item() == pytest.approx(std, rel=5 / (2 * parameter.numel()) ** 0.5), name


def expected_std(name, parameter, config):
    """Of a recurrent model's weights that are drawn; None for those that are constant."""
    if "bias" in name or "norm" in name:
        return None
    if any(part in name for part in ("lstm", "gru", "from_")):
        # Glorot and Bengio 2010, all gates being one matrix.
        return (2 / sum(parameter.shape)) ** 0.5
    if name.endswith("encoder.projection.weight"):
        return (4 * WIDTH if config.sentence_aggregation == "pooling" else CAPSULES) ** -0.5
    reads_more = "readout" in name or "guided" in name
    return (parameter.shape[-1] if reads_more else WIDTH) ** -0.5


@pytest.mark.parametrize("kind", RECURRENT)
def test_missing_recurrent_weights_start_as_in_a_new_model(kind, checkpoint):
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
            assert_drawn(parameter[1:] if "embed" in name else parameter, std, name)
            assert "embed" not in name or not parameter[0].any(), name


@pytest.mark.parametrize(
    ("method", "size"),
    [("transformer", "tiny"), ("em-routing", "tiny"), ("capsnmt", "tiny"), ("rnmt", "tiny"), ("rnmt-gdr", "tiny")],
)
def test_presets_start_with_words_of_unit_variance(method, size, checkpoint):
    model = AutoModelForSeq2SeqLM.from_config(preset_config(method, size, vocab_size=2000))
    config = model.config
    for loaded in (model, AutoModelForSeq2SeqLM.from_pretrained(checkpoint(model))):
        words = loaded.get_input_embeddings().weight
        assert not words[config.pad_token_id].any()
        assert (words * config.d_model**0.5).var().item() == pytest.approx(1, rel=0.05)
        assert loaded.lm_head.weight is words
        if isinstance(loaded, CapsuleAggregatedMarianForConditionalGeneration):
            assert loaded.model.encoder.layers[0].fc1.weight.std().item() == pytest.approx(config.init_std, rel=0.05)
    assert torch.equal(words, model.get_input_embeddings().weight)


@both_ties
@each_family
@pytest.mark.parametrize("size", [VOCABULARY + 4])
def test_resize_token_embeddings(name, tied, size, checkpoint):
    model = translator(name, tie_word_embeddings=tied)
    before, tables = logits(model), number_of_tables(model)
    model.resize_token_embeddings(size, mean_resizing=False)
    assert model.config.vocab_size == size
    kept = min(size, VOCABULARY)
    assert logits(model).shape[-1] == size
    torch.testing.assert_close(logits(model)[..., :kept], before[..., :kept])
    assert [module.weight.shape[0] for module in embeddings(model)] == [size] * 3
    assert number_of_tables(model) == tables
    model(**training_batch()).loss.backward()
    assert model.generate(**source_batch(), max_length=5).shape[0] == 3
    assert torch.equal(logits(AutoModelForSeq2SeqLM.from_pretrained(checkpoint(model))), logits(model))


def test_only_the_source_of_two_vocabularies_is_resized():
    model = translator("marian-none", share_encoder_decoder_embeddings=False, decoder_vocab_size=23)
    model.resize_token_embeddings(40)
    assert [table.weight.shape[0] for table in (model.model.encoder.embed_tokens, model.lm_head)] == [40, 23]


@each_family
def test_encoder_alone(name, tmp_path):
    encoder = translator(name).get_encoder()
    encoder.save_pretrained(tmp_path)
    loaded = type(encoder).from_pretrained(tmp_path)
    expected, actual = encoder(**source_batch()), loaded(**source_batch())
    assert set(actual) == set(expected)
    assert all(torch.equal(value, expected[key]) for key, value in actual.items())
