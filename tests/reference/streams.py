"""Streams between the layers of a stack as loops over positions, layers and streams, given parameters."""

import itertools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from .layer_aggregation import layer_input

Layer = Callable[[Tensor], Tensor]


def run_stream(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], embeddings: Tensor, layers: Sequence[Layer]
) -> list[Tensor]:
    """What each of L layers reads, and what leaves the stack: L + 1 tensors [..., d] for embeddings [..., d].

    A layer maps a vector [d] to one with its residual connection, [d].
    """
    is_hyper = config.layer_aggregation.endswith("hyper-connections")
    run = _hyper_connections if is_hyper else _mixture
    leading = embeddings.shape[:-1]
    positions = []
    for position in itertools.product(*map(range, leading)):
        vectors = run(config, parameters, embeddings[position], layers)
        positions.append(torch.stack(vectors))
    by_layer = torch.stack(positions, dim=1)
    return list(by_layer.reshape(len(layers) + 1, *leading, -1))


def _mixture(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], embedding: Tensor, layers: Sequence[Layer]
) -> list[Tensor]:
    """One position: x_{l+1} is an aggregate of h_0..h_l, or for delta-attention of h_0 and what each layer added."""
    parts, top, inputs = [embedding], embedding, [embedding]
    for layer in layers:
        output = layer(inputs[-1])
        parts.append(output - inputs[-1] if config.layer_aggregation == "delta-attention" else output)
        top = output
        states = [part[None, None] for part in parts]
        inputs.append(layer_input(config, parameters, states, top[None, None])[0, 0])
    return inputs


def _hyper_connections(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], embedding: Tensor, layers: Sequence[Layer]
) -> list[Tensor]:
    """One position: x = sum_i a_i S_i, and S'_j = sum_i R_ij S_i + b_j (y - x)."""
    count = config.layer_aggregation_streams
    streams = [embedding] * count
    inputs = []
    for number, layer in enumerate(layers):
        reading, mixing, writing = _numbers(config, parameters, streams, number)
        read = sum(reading[i] * streams[i] for i in range(count))
        added = layer(read) - read

        new = []
        for j in range(count):
            mixed = sum(mixing[i][j] * streams[i] for i in range(count))
            new.append(mixed + writing[j] * added)

        streams = new
        inputs.append(read)

    return [*inputs, sum(streams) / count]


def _numbers(
    config: PreTrainedConfig, parameters: Mapping[str, Tensor], streams: list[Tensor], number: int
) -> tuple[list[Tensor], list[list[Tensor]], list[Tensor]]:
    """a, R and b of a layer."""
    count = len(streams)
    if config.layer_aggregation == "hyper-connections":
        reading = _of_each_stream(parameters, f"reading.{number}", streams)
        mixing = _of_each_stream(parameters, f"mixing.{number}", streams)
        writing = _of_each_stream(parameters, f"writing.{number}", streams)
        return [row[0] for row in reading], mixing, [row[0] for row in writing]

    reading = _of_all_streams(parameters, f"reading.{number}", streams)
    mixing = _of_all_streams(parameters, f"mixing.{number}", streams)
    writing = _of_all_streams(parameters, f"writing.{number}", streams)
    matrix = [[number.exp() for number in row] for row in mixing]
    for _ in range(20):
        matrix = [[value / sum(row) for value in row] for row in matrix]
        sums = [sum(row[j] for row in matrix) for j in range(count)]
        matrix = [[row[j] / sums[j] for j in range(count)] for row in matrix]
    return [_sigmoid(row[0]) for row in reading], matrix, [2 * _sigmoid(row[0]) for row in writing]


def _of_each_stream(parameters: Mapping[str, Tensor], name: str, streams: list[Tensor]) -> list[list[Tensor]]:
    """Start + s tanh(RMSNorm(S_i) W): for each stream its numbers."""
    start, weight, scale = (parameters[f"{name}.{part}"] for part in ("start", "weight", "scale"))
    rows = []
    for row, stream in zip(start, streams):
        normed = stream / (stream.square().mean() + 1e-6).sqrt()
        rows.append([row[k] + scale[0] * (normed @ weight[:, k]).tanh() for k in range(len(row))])
    return rows


def _of_all_streams(parameters: Mapping[str, Tensor], name: str, streams: list[Tensor]) -> list[list[Tensor]]:
    """Start + s RMSNorm([S_1..S_n]) W: for each stream its numbers."""
    start, weight, scale = (parameters[f"{name}.{part}"] for part in ("start", "weight", "scale"))
    vector = torch.cat(streams)
    normed = vector / (vector.square().mean() + 1e-6).sqrt()
    columns = iter(weight.T)
    return [[number + scale[0] * (normed @ next(columns)) for number in row] for row in start]


def _sigmoid(number: Tensor) -> Tensor:
    return 1 / (1 + (-number).exp())
