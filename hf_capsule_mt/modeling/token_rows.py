"""Which tokens a model has: a row of embeddings and of the output layer for each."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel


@torch.no_grad()
def take_token_rows(model: PreTrainedModel, rows: Sequence[int], source_rows: Sequence[int] | None = None) -> None:
    """Give each token id the embedding, the row of the output layer and the bias of a token that the model has.

    `[0, 1, 2, 57]` keeps four tokens, and `[*range(size), 57]` adds one that begins as token 57.

    The public `resize_token_embeddings` is not for this. It ties the output layer of T5 v1.1 to the embeddings, and
    gives encoder and decoder of M2M-100 one embedding where they have two.

    Args:
        model: is changed. Its configuration gets the new sizes, but special ids there stay as they are.
        rows: for each new token id the id of the token whose rows it gets.
        source_rows: the same for sources, if the model has a vocabulary for each side, as some of Marian have. None:
            `rows` are for both sides.
    """
    if source_rows is None:
        source_rows = rows
    # Before any layer changes, for several may share a weight.
    index_by_layer: dict[nn.Module, Tensor] = {}
    for layer in _target_layers(model):
        index_by_layer[layer] = torch.tensor(rows)
    for layer in _source_layers(model):
        index_by_layer[layer] = torch.tensor(source_rows)
    new_weights: dict[nn.Parameter, nn.Parameter] = {}
    for layer, index in index_by_layer.items():
        old_weight = layer.weight
        if old_weight not in new_weights:
            taken = old_weight.index_select(0, index.to(old_weight.device))
            new_weights[old_weight] = nn.Parameter(taken, requires_grad=old_weight.requires_grad)
        layer.weight = new_weights[old_weight]
        size_name = "num_embeddings" if isinstance(layer, nn.Embedding) else "out_features"
        setattr(layer, size_name, len(index))
    bias = getattr(model, "final_logits_bias", None)
    if bias is not None:
        # Only Marian and mBART have one.
        index = torch.tensor(rows, device=bias.device)
        model.register_buffer("final_logits_bias", bias.index_select(1, index))
    model.config.vocab_size = len(source_rows)
    if hasattr(model.config, "decoder_vocab_size"):
        model.config.decoder_vocab_size = len(rows)


def _source_layers(model: PreTrainedModel) -> list[nn.Module]:
    """Return the embeddings of sources, and those that a model shares between both sides, or keeps without a use."""
    layers = [model.get_input_embeddings(), model.get_encoder().get_input_embeddings()]
    shared = getattr(model.base_model, "shared", None)
    return layers if shared is None else [*layers, shared]


def _target_layers(model: PreTrainedModel) -> list[nn.Module]:
    """Return the embedding of targets and the output layer."""
    return [model.get_decoder().get_input_embeddings(), model.get_output_embeddings()]
