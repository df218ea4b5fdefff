"""The classifier: what it reads, what it learns, and where its encoder comes from."""

import pytest
import torch
from aggregated_models import ALL, SHAPE, aggregated, randomise, source_batch
from torch.nn import functional as F
from transformers import AutoModelForSequenceClassification

from hf_capsule_mt import CapsuleAggregatedMarianConfig, CapsuleAggregatedMarianForSequenceClassification

every_kind = pytest.mark.parametrize("kind", ALL)
LABELS = torch.tensor([2, 0, 4])


def classifier(kind="heads_em", **fields):
    config = CapsuleAggregatedMarianConfig(**{**SHAPE, **ALL[kind], "num_labels": 5, **fields})
    model = CapsuleAggregatedMarianForSequenceClassification(config).eval()
    # A classifier has no final_logits_bias, which randomise() sets.
    model.final_logits_bias = torch.zeros(1)
    randomise(model, seed=0)
    del model.final_logits_bias
    return model


@every_kind
def test_reads_the_mean_of_the_real_positions(kind):
    model, source = classifier(kind), source_batch()
    states = model.model.encoder(**source).last_hidden_state
    means = torch.stack([rows[mask.bool()].mean(0) for rows, mask in zip(states, source["attention_mask"])])
    head = model.classification_head
    expected = head.out_proj(torch.tanh(head.dense(means)))
    torch.testing.assert_close(model(**source).logits, expected)


@every_kind
def test_padding_changes_nothing(kind):
    model, source = classifier(kind).double(), source_batch()
    expected = model(**source).logits
    padded = {name: F.pad(value, (0, 3)) for name, value in source.items()}
    torch.testing.assert_close(model(**padded).logits, expected)
    for row, length in enumerate(source["attention_mask"].sum(-1)):
        alone = {name: value[row : row + 1, :length] for name, value in source.items()}
        torch.testing.assert_close(model(**alone).logits[0], expected[row])
    # Without padding there need be no mask.
    torch.testing.assert_close(model(source["input_ids"][:1]).logits[0], expected[0])


def test_loss():
    model = classifier()
    outputs = model(**source_batch(), labels=LABELS)
    expected = -outputs.logits.log_softmax(-1)[range(3), LABELS]
    torch.testing.assert_close(outputs.loss, expected.mean())
    torch.testing.assert_close(model(**source_batch(), labels=LABELS, num_items_in_batch=6).loss, expected.sum() / 6)


@every_kind
def test_every_parameter_learns(kind):
    model = classifier(kind).train()
    model(**source_batch(), labels=LABELS).loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name


@every_kind
def test_round_trip(kind, tmp_path):
    model = classifier(kind)
    model.save_pretrained(tmp_path)
    loaded, report = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert type(loaded) is CapsuleAggregatedMarianForSequenceClassification
    assert not any(report.values())
    assert torch.equal(loaded(**source_batch()).logits, model(**source_batch()).logits)


@pytest.mark.parametrize("fields", [{}, {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23}])
@every_kind
def test_takes_the_encoder_of_a_translation_model(kind, fields, tmp_path):
    translator = aggregated(kind, **fields)
    translator.save_pretrained(tmp_path)
    model, report = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3, output_loading_info=True)
    assert {name.split(".")[0] for name in report["missing_keys"]} == {"classification_head"}
    assert not report["unexpected_keys"]
    expected = translator.get_encoder()(**source_batch()).last_hidden_state
    assert torch.equal(model.model(**source_batch()).last_hidden_state, expected)
    assert model(**source_batch()).logits.shape == (3, 3)


def test_resize_token_embeddings():
    model = classifier()
    before = model(**source_batch()).logits
    model.resize_token_embeddings(40)
    assert model.get_input_embeddings().weight is model.model.shared.weight
    assert torch.equal(model(**source_batch()).logits, before)


def test_outputs():
    model = classifier("heads_and_layers_em")
    model.set_attn_implementation("eager")
    outputs = model(**source_batch(), output_routing=True, output_hidden_states=True, output_attentions=True)
    assert [tuple(x.shape) for x in outputs.head_routing] == [(3, 7, 4, 16)] * 2
    assert outputs.encoder_layer_routing.shape == (3, 7, 2, 16)
    assert len(outputs.hidden_states) == 3
    assert [tuple(x.shape) for x in outputs.attentions] == [(3, 4, 7, 7)] * 2
    assert not any("routing" in name for name in model(**source_batch()))
    assert isinstance(model(**source_batch(), return_dict=False), tuple)
