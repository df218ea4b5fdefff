"""CapsNMT (Wang et al. 2019) word by word, given a model's parameters; every sentence alone, without its padding."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import layer_norm
from transformers import PreTrainedConfig

from .recurrent import both_ways, embed, lstm, within
from .sentence_capsules import sentence_state


def caps_nmt(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], source: list[int], target: list[int]
) -> Tensor:
    """The logits [T, V] after each of the words that the decoder reads."""
    encoder, decoder = within(parameters, "model.encoder."), within(parameters, "model.decoder.")
    states = embed(config, encoder["embed_tokens.weight"], source)
    for layer in range(config.encoder_layers):
        # Eq. 1
        of_layer = within(encoder, f"layers.{layer}.")
        ahead, back = within(of_layer, "forward_lstm."), within(of_layer, "backward_lstm.")
        states = _residual(of_layer, states, both_ways(lstm, ahead, back, states))
    # Eq. 5
    sentence = sentence_state(config, encoder, states)
    states = [sentence + word for word in embed(config, decoder["embed_tokens.weight"], target)]
    for layer in range(config.decoder_layers):
        of_layer = within(decoder, f"layers.{layer}.")
        states = _residual(of_layer, states, lstm(within(of_layer, "lstm."), states))
    # Eq. 6
    return torch.stack([parameters["lm_head.weight"] @ state for state in states])


def _residual(parameters: Mapping[str, Tensor], inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
    weight, bias = parameters["layer_norm.weight"], parameters["layer_norm.bias"]
    return [layer_norm(x + y, x.shape, weight, bias) for x, y in zip(inputs, outputs)]
