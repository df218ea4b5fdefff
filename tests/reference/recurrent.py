"""Words and gates of recurrent models, one vector at a time, given a model's parameters."""

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedConfig


def within(parameters: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The parameters of a module, by their names in it."""
    return {name.removeprefix(prefix): value for name, value in parameters.items() if name.startswith(prefix)}


def embed(config: PreTrainedConfig, embedding: Tensor, words: list[int]) -> list[Tensor]:
    # As a word that is read, padding (which begins a target) is not learned: what `padding_idx` means.
    rows = [embedding[word].detach() if word == config.pad_token_id else embedding[word] for word in words]
    return [row * config.d_model**0.5 for row in rows]


def lstm(parameters: Mapping[str, Tensor], inputs: list[Tensor]) -> list[Tensor]:
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


def gru_step(by_input: Tensor, by_state: Tensor, state: Tensor) -> Tensor:
    """Cho et al. 2014, as `torch.nn.GRU` has it: what the gates get of the input and of the state, and the state."""
    width = len(state)
    reset = torch.sigmoid(by_input[:width] + by_state[:width])
    keep = torch.sigmoid(by_input[width : 2 * width] + by_state[width : 2 * width])
    candidate = torch.tanh(by_input[2 * width :] + reset * by_state[2 * width :])
    return keep * state + (1 - keep) * candidate


def gru(parameters: Mapping[str, Tensor], inputs: list[Tensor]) -> list[Tensor]:
    state = torch.zeros(parameters["weight_hh_l0"].shape[1], dtype=torch.float64)
    outputs = []
    for vector in inputs:
        by_input = parameters["weight_ih_l0"] @ vector + parameters["bias_ih_l0"]
        by_state = parameters["weight_hh_l0"] @ state + parameters["bias_hh_l0"]
        state = gru_step(by_input, by_state, state)
        outputs.append(state)
    return outputs


def both_ways(network, ahead: Mapping[str, Tensor], back: Mapping[str, Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """The outputs of two networks, one of which reads from the end."""
    return [torch.cat(pair) for pair in zip(network(ahead, inputs), network(back, inputs[::-1])[::-1])]
