"""The attention of a model, from one call of it."""

import torch

from hf_capsule_mt.translation.alignment.forced import (
    aligning_attention,
    alignment_heads,
    attending,
    cross_attentions_of,
)


@torch.no_grad()
def cross_attention(model, sequences, **source):
    """How much each step of translations `[batch, length]` with a start attends to each source token."""
    reader = attending(model).base_model
    read = sequences[:, :-1].clamp(min=0)
    output = reader(**source, decoder_input_ids=read, use_cache=False, output_attentions=True)
    layers = [layer.float() for layer in cross_attentions_of(model, output)]
    return aligning_attention(layers, alignment_heads(model))
