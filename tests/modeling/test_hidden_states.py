"""Hidden states by their numbers, of decoders with more or fewer layers than the encoder."""

from dataclasses import fields

import pytest
import torch
from aggregated_models import training_batch
from families import translator
from transformers.utils.output_capturing import OutputRecorder


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
