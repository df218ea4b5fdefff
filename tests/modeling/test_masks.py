"""Masks that do not fit the words are refused: by the recurrent families, and by guided routing."""

import pytest
import torch
from aggregated_models import training_batch
from families import names, translator

RECURRENT = names("recurrent", ["capsule", "rnmt", "guided_hybrid"])


def forward(name, **masks):
    with torch.no_grad():
        translator(name)(**{**training_batch(), **masks})


@pytest.mark.parametrize("shape", [(3, 5), (3, 9), (1, 7), (2, 7), (3, 1, 1, 7), (7,)])
@pytest.mark.parametrize("name", RECURRENT)
def test_of_the_source(name, shape):
    with pytest.raises(ValueError, match="attention mask"):
        forward(name, attention_mask=torch.ones(shape))


@pytest.mark.parametrize("name", RECURRENT)
def test_of_the_target(name):
    with pytest.raises(ValueError, match="attention mask"):
        forward(name, decoder_attention_mask=torch.ones(1, 6))
