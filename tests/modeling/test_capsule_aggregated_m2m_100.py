"""The family of M2M-100 next to Transformers': its start, its layers before the last norm, and its embeddings."""

import pytest
import torch
from aggregated_models import (
    ALL,
    OUTPUTS,
    aggregated_m2m100,
    m2m100,
    marian,
    random_tokens,
)
from huggingface_hub.errors import StrictDataclassError
from torch.nn import functional as F
from transformers import M2M100ForConditionalGeneration
from transformers.testing_utils import CaptureLogger
from transformers.utils import logging

from hf_capsule_mt import CapsuleAggregatedM2M100Config, CapsuleAggregatedM2M100ForConditionalGeneration
from hf_capsule_mt.loading import load_model
from hf_capsule_mt.modeling import modeling_capsule_aggregated_m2m_100 as module
from hf_capsule_mt.modeling.warm_start import added_weights

# Those of the published models.
PAD, EOS = 1, 2
SPECIAL = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": EOS}
LENGTHS = (7, 5, 2)


def batch(side="right"):
    """Sources with padding on a side, and labels."""
    input_ids = random_tokens(LENGTHS, seed=1, padding=PAD)
    if side == "left":
        rows = [torch.roll(row, len(row) - length) for row, length in zip(input_ids, LENGTHS, strict=True)]
        input_ids = torch.stack(rows)
    labels = random_tokens((4, 6, 3), seed=2, vocabulary=20, padding=-100)
    return {"input_ids": input_ids, "attention_mask": input_ids.ne(PAD).long(), "labels": labels}


def start(parent, **fields):
    return CapsuleAggregatedM2M100ForConditionalGeneration.from_m2m100(parent, **fields)


def run(model, **arguments):
    with torch.no_grad():
        return model(**batch(), output_hidden_states=True, **arguments)


def assert_same(actual, expected):
    assert torch.equal(actual.logits, expected.logits)
    assert torch.equal(actual.lm_loss, expected.loss)
    for name in ("encoder_hidden_states", "decoder_hidden_states"):
        for states, others in zip(actual[name], expected[name], strict=True):
            assert torch.equal(states, others), name


@pytest.mark.parametrize("kind", ALL)
def test_warm_start_is_m2m100_at_first(kind):
    parent = m2m100(**SPECIAL)
    model = start(parent, **ALL[kind])
    assert ALL[kind].items() <= model.config.to_dict().items()
    assert set(model.state_dict()) - added_weights(model) == set(parent.state_dict())
    assert_same(run(model), run(parent))
    source = {name: value for name, value in batch("left").items() if name != "labels"}
    options = {"num_beams": 3, "max_new_tokens": 6, "forced_bos_token_id": 17}
    assert torch.equal(model.generate(**source, **options), parent.generate(**source, **options))
    model(**batch()).loss.backward()
    gammas = {name: weight.grad for name, weight in model.named_parameters() if name.endswith("gamma")}
    aggregates = "layer_aggregation" in ALL[kind] or "head_aggregation" in ALL[kind]
    assert bool(gammas) == aggregates
    assert all(gradient.abs().max() > 0 for gradient in gammas.values())


def test_guided_routing_is_switched_off_and_learns():
    model = start(m2m100(**SPECIAL), guided_routing="gdr", guided_capsule_dim=4)
    routing = model.model.guided_routing
    assert not routing.fc2.weight.any()
    model(**batch()).loss.backward()
    assert routing.fc2.weight.grad.abs().max() > 0


def test_it_differs_once_the_capsules_are_on():
    model = start(m2m100(**SPECIAL), layer_aggregation="em_routing")
    torch.nn.init.ones_(model.model.decoder.aggregation.gamma)
    assert not torch.equal(run(model).logits, run(m2m100(**SPECIAL)).logits)


def test_defaults_of_the_family(caplog):
    parent = m2m100(**SPECIAL)
    assert parent.config.encoder_layerdrop == parent.config.decoder_layerdrop == 0.05
    model = start(parent, layer_aggregation="em_routing", decoder_layerdrop=0)
    config = model.config
    assert (config.encoder_layerdrop, config.decoder_layerdrop) == (0, 0)
    assert model.model.encoder.layerdrop == 0
    assert [record.getMessage() for record in caplog.records] == [
        "LayerDrop is switched off: 0 is the new value of encoder_layerdrop."
    ]
    assert (config.layer_aggregation_context, config.layer_aggregation_input_norm) == ("own", True)
    assert (config.layer_aggregation_output, config.head_aggregation_output) == ("residual", "residual")
    with pytest.raises(StrictDataclassError, match="encoder_layerdrop cannot be combined with layer_aggregation"):
        start(parent, layer_aggregation="em_routing", encoder_layerdrop=0.05)


@pytest.mark.parametrize("saved_in", [torch.float32, torch.float16])
def test_warm_start_from_a_folder(saved_in, tmp_path):
    parent = m2m100(**SPECIAL).to(saved_in)
    parent.generation_config.update(num_beams=6, forced_bos_token_id=17)
    parent.save_pretrained(tmp_path)
    model = start(tmp_path, layer_aggregation="em_routing")
    assert model.dtype == torch.float32
    kept = model.generation_config
    assert (kept.num_beams, kept.forced_bos_token_id) == (6, 17)
    plain = M2M100ForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32)
    assert_same(run(model), run(plain))


def test_what_it_does_not_start_from(tmp_path):
    marian().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"from_m2m100 takes a M2M-100 model \(M2M100ForConditionalGeneration\)"):
        start(marian())
    with pytest.raises(ValueError, match="from_m2m100 takes a plain M2M-100 model, not marian"):
        start(tmp_path)
    with pytest.raises(ValueError, match="not capsule_aggregated_m2m_100 with routing"):
        start(aggregated_m2m100("linear"))


@pytest.mark.parametrize("kind", ["none", "heads_and_layers_em", "everything"])
def test_padding_on_the_left(kind):
    model = aggregated_m2m100(kind, **SPECIAL)
    torch.testing.assert_close(model(**batch("left")).logits, model(**batch("right")).logits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("output", OUTPUTS)
def test_layers_are_aggregated_before_the_last_norm(output):
    model = aggregated_m2m100("linear", **SPECIAL, **OUTPUTS[output])
    decoder = model.model.decoder
    states = run(model).decoder_hidden_states
    layers = [states[1]]
    hooked = decoder.layers[-1].register_forward_hook(lambda module, args, result: layers.append(result))
    found = model.model(
        **{name: value for name, value in batch().items() if name != "labels"},
        decoder_input_ids=model.prepare_decoder_input_ids_from_labels(batch()["labels"]),
    )
    hooked.remove()
    width = (layers[0].shape[-1],)
    normalised = [F.layer_norm(layer, width) for layer in layers]
    aggregation = decoder.aggregation
    combined = sum(weight * layer for weight, layer in zip(aggregation.aggregator.weight, normalised, strict=True))
    expected = aggregation.layer_norm(combined)
    if output == "residual":
        expected = layers[-1] + aggregation.gamma * expected
    torch.testing.assert_close(found.last_hidden_state, decoder.layer_norm(expected), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
def test_more_words(tied):
    """Without tied embeddings, those of the source, the target and the output are three."""
    model = start(m2m100(**SPECIAL, tie_word_embeddings=tied), layer_aggregation="linear")
    before = run(model).logits
    words = model.config.vocab_size
    model.resize_token_embeddings(words + 5, mean_resizing=False)
    assert torch.equal(run(model).logits[..., :words], before)
    decoder = model.model.decoder.embed_tokens
    assert len(decoder.weight) == len(model.lm_head.weight) == words + 5
    assert (decoder.weight is model.model.encoder.embed_tokens.weight) == tied


def test_configurations_that_have_no_effect_are_refused():
    with pytest.raises(StrictDataclassError, match="head_aggregation_encoder_layers"):
        CapsuleAggregatedM2M100Config(encoder_layers=2, head_aggregation_encoder_layers=[2])


@pytest.mark.parametrize("make", [m2m100, aggregated_m2m100], ids=["plain", "routed"])
@pytest.mark.parametrize(("start", "is_warned_of"), [(PAD, True), (EOS, False)], ids=["padding", "EOS"])
def test_a_model_whose_targets_begin_with_padding_is_warned_of(make, start, is_warned_of, tmp_path):
    """It was trained at other positions than it decodes at."""
    make(**{**SPECIAL, "decoder_start_token_id": start}).save_pretrained(tmp_path)
    logging.warning_once.cache_clear()

    with CaptureLogger(logging.get_logger(module.__name__)) as captured:
        load_model(tmp_path)

    assert captured.out.count("which has no position in M2M-100") == is_warned_of
