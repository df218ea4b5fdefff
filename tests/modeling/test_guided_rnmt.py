"""Guided routing in RNMT: what its losses read, and what it refuses."""

import pytest
import torch
from aggregated_models import PAD, source_batch, training_batch
from recurrent_models import recurrent


def test_the_losses_read_the_states_of_the_conditional_gru():
    model, batch = recurrent("guided"), training_batch()
    seen = []
    model.guided_losses.register_forward_pre_hook(lambda module, args: seen.extend(args))
    _, states = model(**batch, output_hidden_states=True).decoder_hidden_states
    assert torch.equal(seen[0], states)
    assert seen[1].shape == (3, 6, 4, 4)
    assert seen[3] is model.get_input_embeddings().weight


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ("rnmt", "guided", "encoder_outputs has no guided_votes; .* or its first 4 elements"),
        ("hybrid", "guided_hybrid", "encoder_outputs has no guided_votes; .* or its first 5 elements"),
        ("guided", "rnmt", "guided_votes is given, but guided_routing is None"),
    ],
)
def test_outputs_of_an_encoder_that_is_not_guided_alike_are_refused(one, other, message):
    source, targets = source_batch(), torch.tensor([[PAD, 5]] * 3)
    encoded = recurrent(one).get_encoder()(**source)
    with pytest.raises(ValueError, match=message):
        recurrent(other)(**source, encoder_outputs=encoded, decoder_input_ids=targets)


def test_a_wrong_field_is_refused():
    with pytest.raises(ValueError, match=r"guided_routing is 'guided'; allowed are"):
        recurrent("rnmt", guided_routing="guided")
