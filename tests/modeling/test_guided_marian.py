"""Guided routing in the Marian family: what its losses read, and how it is saved and started from a parent."""

import pytest
import torch
from aggregated_models import EOS, GUIDED_ROUTINGS, PAD, WIDTH, added, aggregated, marian, source_batch, training_batch
from transformers.modeling_outputs import BaseModelOutput

from hf_capsule_mt import (
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianForSequenceClassification,
    CapsuleAggregatedMarianModel,
)

every_kind = pytest.mark.parametrize("kind", GUIDED_ROUTINGS)


def test_the_losses_read_what_the_routing_made():
    """The states that guide, and the capsules, without those that are redundant."""
    model, batch = aggregated("everything"), training_batch()
    seen = []
    model.guided_losses.register_forward_pre_hook(lambda module, args: seen.extend(args))
    model(**batch)
    states, capsules, _, embedding, items = seen
    decoder_input_ids = model.prepare_decoder_input_ids_from_labels(batch.pop("labels"))
    assert "guided_capsules" not in model.model(**batch, decoder_input_ids=decoder_input_ids)
    inner = model.model(**batch, decoder_input_ids=decoder_input_ids, output_guided_capsules=True)
    assert torch.equal(inner.guided_capsules, capsules)
    assert torch.equal(inner.guided_states, states)
    assert capsules.shape == (3, 6, 4, 4)
    assert not torch.equal(states, inner.last_hidden_state)
    # The last layer's, aggregated.
    decoded = model.get_decoder()(
        decoder_input_ids, None, inner.encoder_last_hidden_state, encoder_attention_mask=batch["attention_mask"]
    )
    assert torch.equal(states, decoded.last_hidden_state)
    assert embedding is model.model.shared.weight
    assert items is None


@every_kind
def test_encoder_outputs_without_votes(kind):
    model, batch = aggregated(kind), training_batch()
    expected = model(**batch)
    encoded = model.get_encoder()(**source_batch(), output_hidden_states=True)
    bare = BaseModelOutput(last_hidden_state=encoded.last_hidden_state)
    for outputs in (bare, (encoded.last_hidden_state,), encoded.to_tuple()):
        actual = model(**batch, encoder_outputs=outputs)
        assert torch.equal(actual.logits, expected.logits)
        assert ("encoder_hidden_states" in actual) == (len(outputs) > 1)
        assert set(actual) - {"encoder_hidden_states"} == set(expected)


def test_the_hidden_states_of_padding_are_never_read():
    """Bit for bit: neither through the votes that travel, nor through a cache."""
    model, source = aggregated("gdr"), source_batch()
    encoded = model.get_encoder()(**source)
    targets = torch.tensor([[PAD, 5, 9, EOS]] * 3)
    expected = model(**source, encoder_outputs=encoded, decoder_input_ids=targets).logits
    for name in ("guided_votes", "guided_keys"):
        encoded[name].transpose(1, 2)[source["attention_mask"] == 0] = 1e30
    actual = model(**source, encoder_outputs=encoded, decoder_input_ids=targets).logits
    assert torch.equal(actual, expected)


@every_kind
def test_the_auxiliary_weights_are_saved(kind, tmp_path):
    model = aggregated(kind)
    model.save_pretrained(tmp_path)
    loaded = CapsuleAggregatedMarianForConditionalGeneration.from_pretrained(tmp_path)
    expected, actual = model(**training_batch()), loaded(**training_batch())
    for name in ("loss", "lm_loss", "bow_loss", "bca_loss"):
        assert torch.equal(actual[name], expected[name]), name
    base, report = CapsuleAggregatedMarianModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not [name for name in report["missing_keys"] if "guided" in name]
    assert torch.equal(base.guided_routing.fc2.weight, model.model.guided_routing.fc2.weight)


def test_the_encoder_of_a_guided_model_classifies(tmp_path):
    """It has no votes, for there is no decoder to read them."""
    model = aggregated("gdr")
    model.save_pretrained(tmp_path)
    how = {"num_labels": 3, "output_loading_info": True}
    classifier, report = CapsuleAggregatedMarianForSequenceClassification.from_pretrained(tmp_path, **how)
    assert not report["unexpected_keys"]
    assert all(name.startswith("classification_head.") for name in report["missing_keys"])
    assert not [name for name in classifier.state_dict() if "guided" in name]
    assert classifier(**source_batch()).logits.shape == (3, 3)


def test_warm_start_learns_to_use_the_capsules():
    """What the capsules add is zero at first, and then it is not."""
    parent = marian()
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(parent, guided_routing="gdr")
    assert model.config.guided_capsule_dim == 256
    assert {name.partition("guided")[1] for name in added(model)} == {"guided"}
    states = torch.randn(3, 2, WIDTH)
    votes = model.model.encoder.guided_votes(torch.randn(3, 5, WIDTH))
    assert torch.equal(model.model.guided_routing(states, *votes).states, states)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(**training_batch()).loss.backward()
    optimizer.step()
    assert not torch.equal(model.model.guided_routing(states, *votes).states, states)
