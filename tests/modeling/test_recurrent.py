"""The recurrent families next to their loops, and all that a Transformers user asks of forward and backward pass."""

import math
from dataclasses import fields

import pytest
import torch
from aggregated_models import VOCABULARY, WIDTH, source_batch, training_batch
from families import translator
from recurrent_models import CAPSNMT_KINDS, CAPSULES, GUIDED_KINDS, KINDS, ONE_OF_EACH_FAMILY, ROUTED_KINDS, recurrent
from reference.caps_nmt import caps_nmt as caps_nmt_in_loops
from reference.rnmt import rnmt as rnmt_in_loops
from torch.nn import functional as F
from transformers.utils.output_capturing import OutputRecorder

from hf_capsule_mt.modeling.recurrent import LSTM, ConditionalGRU
from hf_capsule_mt.modeling.transformers_versions import CACHE

every_kind = pytest.mark.parametrize("kind", KINDS)
each_family = pytest.mark.parametrize("kind", ONE_OF_EACH_FAMILY)
# Of which the logits know nothing.
NO_LOSSES = {kind: {"bow_loss_weight": 0, "bca_loss_weight": 0} for kind in GUIDED_KINDS}
TARGETS = torch.tensor([[0, 9, 4, 17, 5], [0, 6, 6, 21, 7], [0, 11, 3, 12, 4]])


def gradients(model):
    """Every gradient, by name, of the loss of one batch."""
    model.zero_grad()
    model(**training_batch()).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def in_loops(kind, config, parameters, source, target):
    """The logits and, where there is attention, its weights."""
    if kind in CAPSNMT_KINDS:
        return caps_nmt_in_loops(config, parameters, source, target), None
    return rnmt_in_loops(config, parameters, source, target)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        *(pytest.param(kind, {}, id=f"{kind}-tied") for kind in KINDS),
        *(pytest.param(kind, {"tie_word_embeddings": False}, id=f"{kind}-untied") for kind in KINDS),
        # With two layers the first and the last are also the only ones.
        pytest.param("capsule", {"encoder_layers": 4, "decoder_layers": 3}, id="capsule-deep"),
        pytest.param("rnmt", {"encoder_layers": 3}, id="rnmt-deep"),
    ],
)
def test_matches_loops(kind, fields):
    model = recurrent(kind, **fields, **NO_LOSSES.get(kind, {})).double()
    source = source_batch()
    parameters = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}
    words = parameters["model.encoder.embed_tokens.weight"]
    tied = {name: words for name in ("model.decoder.embed_tokens.weight", "lm_head.weight") if name not in parameters}
    assert bool(tied) == model.config.tie_word_embeddings
    sentences = [ids[mask.bool()].tolist() for ids, mask in zip(source["input_ids"], source["attention_mask"])]
    all_parameters = {**parameters, **tied}
    slow, attention = zip(
        *(in_loops(kind, model.config, all_parameters, *pair) for pair in zip(sentences, TARGETS.tolist()))
    )
    slow = torch.stack(slow)
    outputs = model(**source, decoder_input_ids=TARGETS, output_attentions=True)
    fast = outputs.logits
    torch.testing.assert_close(fast, slow)
    if kind not in CAPSNMT_KINDS:
        (weights,) = outputs.cross_attentions
        for row, expected in enumerate(attention):
            length = expected.shape[1]
            torch.testing.assert_close(weights[row, 0, :, :length], expected)
            assert weights[row, 0, :, length:].count_nonzero() == 0
    cotangent = torch.randn(fast.shape, dtype=torch.float64)
    fast.backward(cotangent)
    expected = dict(zip(parameters, torch.autograd.grad(slow, list(parameters.values()), cotangent)))
    actual = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert set(actual) == set(expected)
    for name, gradient in expected.items():
        assert gradient.any(), f"{name} has no gradient and shows nothing"
        scale = gradient.abs().max().item()
        torch.testing.assert_close(actual[name], gradient, rtol=1e-9, atol=1e-9 * scale, msg=name)


@pytest.mark.parametrize("side", ["left", "right", "middle"])
@every_kind
def test_padding_of_the_source_changes_nothing(kind, side):
    model, batch = recurrent(kind).double(), training_batch()
    expected, expected_gradients = model(**batch, output_routing=True), gradients(model)

    def pad(values):
        if side == "middle":
            return torch.cat([values[:, :1], torch.zeros_like(values[:, :3]), values[:, 1:]], dim=1)
        return F.pad(values, (3, 0) if side == "left" else (0, 3))

    padded = {name: pad(batch[name]) for name in ("input_ids", "attention_mask")}
    actual = model(**padded, labels=batch["labels"], output_routing=True)
    torch.testing.assert_close(actual.logits, expected.logits)
    if kind in ROUTED_KINDS:
        real, was_real = padded["attention_mask"].bool(), batch["attention_mask"].bool()
        torch.testing.assert_close(actual.sentence_routing[real], expected.sentence_routing[was_real])
        assert actual.sentence_routing[~real].count_nonzero() == 0
    model.zero_grad()
    actual.loss.backward()
    for name, parameter in model.named_parameters():
        # The loss is computed in float32.
        torch.testing.assert_close(parameter.grad, expected_gradients[name], rtol=1e-5, atol=1e-7, msg=name)


@every_kind
def test_padding_of_the_target_changes_nothing(kind):
    model, source = recurrent(kind).double(), source_batch()
    expected = model(**source, decoder_input_ids=TARGETS).logits
    for padding in ((2, 0), (0, 2)):
        targets, mask = F.pad(TARGETS, padding, value=11), F.pad(torch.ones_like(TARGETS), padding)
        for use_cache in (False, True):
            logits = model(**source, decoder_input_ids=targets, decoder_attention_mask=mask, use_cache=use_cache).logits
            torch.testing.assert_close(logits[:, padding[0] : padding[0] + TARGETS.shape[1]], expected)


@every_kind
def test_the_decoder_does_not_look_ahead(kind):
    model, source = recurrent(kind).double(), source_batch()
    changed = TARGETS.clone()
    changed[:, 3] = 1
    before, after = (model(**source, decoder_input_ids=targets).logits for targets in (TARGETS, changed))
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.isclose(before[:, 3:], after[:, 3:]).all(-1).any()


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@each_family
def test_loss(kind, label_smoothing):
    model, batch = recurrent(kind, label_smoothing=label_smoothing), training_batch()
    outputs = model(**batch)
    assert outputs.lm_loss is outputs.loss
    assert CACHE not in outputs
    real = batch["labels"] != -100
    log_probabilities = outputs.logits[real].log_softmax(-1)
    likelihood = log_probabilities.gather(-1, batch["labels"][real][:, None]).squeeze(-1)
    expected = -(1 - label_smoothing) * likelihood - label_smoothing * log_probabilities.mean(-1)
    torch.testing.assert_close(outputs.loss, expected.mean())


@each_family
def test_labels_are_shifted_into_decoder_inputs(kind):
    model, batch = recurrent(kind), training_batch()
    labels = batch["labels"]
    decoder_input_ids = F.pad(labels[:, :-1], (1, 0), value=model.config.decoder_start_token_id)
    decoder_input_ids = decoder_input_ids.masked_fill(decoder_input_ids == -100, model.config.pad_token_id)
    assert torch.equal(model.prepare_decoder_input_ids_from_labels(labels), decoder_input_ids)
    assert torch.equal(model(**batch).logits, model(**source_batch(), decoder_input_ids=decoder_input_ids).logits)


@every_kind
def test_routing_on_request(kind):
    model, batch = recurrent(kind), training_batch()
    plain, last, every = (model(**batch, output_routing=option) for option in (False, True, "all"))
    assert "sentence_routing" not in plain
    for outputs in (last, every):
        assert torch.equal(outputs.logits, plain.logits)
    if kind not in ROUTED_KINDS:
        assert "sentence_routing" not in every
        return
    assert every.sentence_routing.shape == (3, 3, 7, CAPSULES)
    assert torch.equal(last.sentence_routing, every.sentence_routing[:, -1])
    real = batch["attention_mask"].float()
    torch.testing.assert_close(last.sentence_routing.sum(-1), real)


@pytest.mark.parametrize("kind", ["rnmt", "hybrid"])
def test_hidden_states_of_a_conditional_gru(kind):
    """What is read, and the states that predict words; the readout of both and of what is attended to predicts them."""
    model, batch = recurrent(kind).double(), training_batch()
    outputs = model(**batch, output_hidden_states=True, output_attentions=True)
    words, states = outputs.decoder_hidden_states
    encoded, decoder = model.get_encoder()(**source_batch()), model.get_decoder()
    read = decoder.embed_tokens(model.prepare_decoder_input_ids_from_labels(batch["labels"])) * WIDTH**0.5
    torch.testing.assert_close(words, read + encoded.sentence_state[:, None] if kind == "hybrid" else read)
    contexts = outputs.cross_attentions[0].squeeze(1) @ encoded.last_hidden_state
    readout = decoder.readout(torch.cat([words, states, contexts], dim=-1)).tanh()
    torch.testing.assert_close(model.lm_head(readout), outputs.logits)


@pytest.mark.parametrize("kind", ["rnmt", "hybrid"])
def test_a_source_without_words(kind):
    model, source = recurrent(kind), source_batch()
    source["attention_mask"][1] = 0
    outputs = model(**source, decoder_input_ids=TARGETS, output_attentions=True)
    assert outputs.cross_attentions[0][1].count_nonzero() == 0
    other = {**source, "input_ids": source["input_ids"].clone()}
    other["input_ids"][1] = 11
    assert torch.equal(model(**other, decoder_input_ids=TARGETS).logits, outputs.logits)
    outputs.logits.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@every_kind
def test_autocast(kind):
    model, batch = recurrent(kind), training_batch()
    expected = model(**batch)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model(**batch)
        stepped = model(**source_batch(), decoder_input_ids=TARGETS[:, :1])
    outputs.loss.backward()
    assert (outputs.logits.float() - expected.logits).norm() < 0.1 * expected.logits.norm()
    assert stepped.logits.shape == (3, 1, VOCABULARY)
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_long_sum_in_an_lstms_cell_under_autocast():
    """Every word adds a sixteenth, where bfloat16 would stop at 16."""
    lstm = LSTM(8, 8)
    with torch.no_grad():
        for weight in lstm.parameters():
            weight.zero_()
        # Of the forget gate, and of what is written, half of which the other gate lets pass.
        lstm.bias_ih_l0[8:24] = torch.tensor([20.0, 0.125]).repeat_interleave(8)
    words = torch.zeros(1, 1000, 8)
    with torch.autocast("cpu", torch.bfloat16):
        cell, states = lstm(words)[2], None
        for word in words.split(1, dim=1):
            states = lstm(word, states)[1:]
    for found in (cell, states[1]):
        torch.testing.assert_close(found, torch.full((1, 8), 500 * math.tanh(0.125)), rtol=1e-4, atol=0)


def test_a_conditional_gru_that_keeps_nearly_all_under_autocast():
    """Every word changes the state by 0.15%, and bfloat16 has a gate that keeps 99.85% at 1."""
    gru = ConditionalGRU(8)
    with torch.no_grad():
        for weight in gru.parameters():
            weight.zero_()
        # Of what keeps, and of the candidate; what follows the attention keeps all.
        gru.from_words.bias[8:24] = torch.tensor([6.5, 1.0]).repeat_interleave(8)
        gru.step.from_context.bias[8:16] = 30.0
    with torch.autocast("cpu", torch.bfloat16):
        states = gru(*(torch.zeros(1, 60, 8) if place != 1 else torch.zeros(1, 8) for place in range(4)))[0]
    kept = torch.tensor(6.5).sigmoid() ** 60
    torch.testing.assert_close(states[:, -1], ((1 - kept) * math.tanh(1)).expand(1, 8), rtol=1e-4, atol=0)


@pytest.mark.skipif(
    "num_hidden_layers_key" not in {field.name for field in fields(OutputRecorder)},
    reason="before Transformers 5.24 all hidden states are returned",
)
@pytest.mark.parametrize("name", ["marian-none", "marian-em_routing_joint", "recurrent-capsule", "recurrent-rnmt"])
@pytest.mark.parametrize("layers", [1, 3])
def test_from_behind(name, layers):
    # RNMT's decoder has one layer.
    layers = {"encoder_layers": layers + 1} if name == "recurrent-rnmt" else {"decoder_layers": layers}
    model = translator(name, **layers)
    assert model.config.encoder_layers != model.config.decoder_layers
    with torch.no_grad():
        every = model(**training_batch(), output_hidden_states=True)
        some = model(**training_batch(), output_hidden_states=[0, -1])
    for side in ("encoder_hidden_states", "decoder_hidden_states"):
        chosen = {number: state for number, state in enumerate(some[side]) if state is not None}
        assert chosen.keys() == {0, len(every[side]) - 1}
        assert all(torch.equal(state, every[side][number]) for number, state in chosen.items())
