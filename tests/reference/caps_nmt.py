"""CapsNMT (Wang et al. 2019) word by word, given a model's parameters; every sentence alone, without its padding."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import layer_norm
from transformers import PretrainedConfig

from .sentence_capsules import pool_sentences, route_sentences


def caps_nmt(
    config: PretrainedConfig, parameters: Mapping[str, Tensor], source: list[int], target: list[int]
) -> Tensor:
    """The logits [T, V] after each of the words that the decoder reads."""
    states = _embed(config, parameters["model.encoder.embed_tokens.weight"], source)
    for layer in range(config.encoder_layers):
        states = _encoder_layer(_within(parameters, f"model.encoder.layers.{layer}."), states)
    mask = torch.ones(1, len(states), dtype=torch.bool)
    if config.sentence_aggregation == "capsule":
        routing = _within(parameters, "model.encoder.aggregation.")
        vectors = route_sentences(config, routing, torch.stack(states)[None], mask)[0]
    else:
        vectors = pool_sentences(torch.stack(states)[None], mask)
    # Eq. 5
    sentence = parameters["model.encoder.projection.weight"] @ torch.cat(list(vectors[0]))
    inputs = _embed(config, parameters["model.decoder.embed_tokens.weight"], target)
    states = [sentence + word for word in inputs]
    for layer in range(config.decoder_layers):
        within = _within(parameters, f"model.decoder.layers.{layer}.")
        states = _residual(within, states, _lstm(_within(within, "lstm."), states))
    # Eq. 6
    return torch.stack([parameters["lm_head.weight"] @ state for state in states])


def _within(parameters: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}


def _embed(config: PretrainedConfig, embedding: Tensor, words: list[int]) -> list[Tensor]:
    # As a word that is read, padding (which begins a target) is not learned: what `padding_idx` means.
    rows = [embedding[word].detach() if word == config.pad_token_id else embedding[word] for word in words]
    return [row * config.d_model**0.5 for row in rows]


def _encoder_layer(parameters: Mapping[str, Tensor], states: list[Tensor]) -> list[Tensor]:
    # Eq. 1
    ahead = _lstm(_within(parameters, "forward_lstm."), states)
    back = _lstm(_within(parameters, "backward_lstm."), states[::-1])[::-1]
    return _residual(parameters, states, [torch.cat(pair) for pair in zip(ahead, back)])


def _residual(parameters: Mapping[str, Tensor], inputs: list[Tensor], outputs: list[Tensor]) -> list[Tensor]:
    weight, bias = parameters["layer_norm.weight"], parameters["layer_norm.bias"]
    return [layer_norm(x + y, x.shape, weight, bias) for x, y in zip(inputs, outputs)]


def _lstm(parameters: Mapping[str, Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """Hochreiter and Schmidhuber 1997 with forget gates; the gates in the order of `torch.nn.LSTM`."""
    width = parameters["weight_hh_l0"].shape[1]
    hidden = cell = torch.zeros(width, dtype=torch.float64)
    outputs = []
    for vector in inputs:
        gates = parameters["weight_ih_l0"] @ vector + parameters["bias_ih_l0"]
        gates = gates + parameters["weight_hh_l0"] @ hidden + parameters["bias_hh_l0"]
        write, keep, candidate, read = gates.split(width)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(write) * torch.tanh(candidate)
        hidden = torch.sigmoid(read) * torch.tanh(cell)
        outputs.append(hidden)
    return outputs
