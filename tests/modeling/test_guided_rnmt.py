"""Guided routing in RNMT: what its losses read, and what it refuses."""

import torch
from aggregated_models import training_batch
from recurrent_models import recurrent


def test_the_losses_read_the_states_of_the_conditional_gru():
    model, batch = recurrent("guided"), training_batch()
    seen = []
    model.guided_losses.register_forward_pre_hook(lambda module, args: seen.extend(args))
    _, states = model(**batch, output_hidden_states=True).decoder_hidden_states
    assert torch.equal(seen[0], states)
    assert seen[1].shape == (3, 6, 4, 4)
    assert seen[3] is model.get_input_embeddings().weight
