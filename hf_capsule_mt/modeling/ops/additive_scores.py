"""Additive scores (Bahdanau et al. 2015) of every query with every key, whose hidden layer is never held whole.

The forward keeps only its inputs; the backward computes the hidden layer again, a chunk at a time. Both take
tanh(x) as 2 sigmoid(2 x) - 1, for not every CPU's vector library has a fast tanh. Compiled, there is one chunk, and in
the backward it is the compiler that decides whether the hidden layer exists.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Hidden units in a chunk: on a CPU its temporaries stay in a core's cache, on an accelerator it is 64 MiB of float32.
_CHUNK = {"cpu": 1 << 17}
_ACCELERATOR_CHUNK = 1 << 24


def additive_scores(queries: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    """sum_d weight[k, d] tanh(queries[..., t, d] + keys[..., s, d]).

    Args:
        queries: `[..., T, D]`.
        keys: `[..., S, D]`, with the same leading dimensions.
        weight: `[K, D]`.

    Returns:
        `[..., T, S, K]`.

    Raises:
        ValueError: if the leading dimensions are not the same.
    """
    leading = queries.shape[:-2]
    if keys.shape[:-2] != leading:
        raise ValueError(f"queries have shape {tuple(queries.shape)}, but keys {tuple(keys.shape)}")
    queries, keys = (tensor.reshape(-1, *tensor.shape[-2:]) for tensor in (queries, keys))
    scores = AdditiveScoresFunction.apply(queries, keys, weight)
    return scores.reshape(*leading, *scores.shape[1:])


class AdditiveScoresFunction(torch.autograd.Function):
    """[`additive_scores`] with one leading dimension."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
        """Score chunk by chunk."""
        ctx.save_for_backward(queries, keys, weight)
        (rows, length, _), source = queries.shape, keys.shape[1]
        scores = queries.new_empty(rows, length, source, weight.shape[0])
        for row, part in _chunks(queries, keys):
            scores[row, part] = _product(_hidden(queries, keys, row, part), 2 * weight)
        return scores.sub_(weight.sum(-1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Differentiate chunk by chunk."""
        queries, keys, weight = ctx.saved_tensors
        grad_queries, grad_keys, grad_weight = map(torch.zeros_like, (queries, keys, weight))
        for row, part in _chunks(queries, keys):
            hidden, gradient = _hidden(queries, keys, row, part), grad_scores[row, part]
            grad_weight += 2 * _product(gradient.flatten(0, -2).t(), hidden.flatten(0, -2).t())
            gradient = torch.ops.aten.sigmoid_backward(_product(gradient, 4 * weight.t()), hidden)
            grad_queries[row, part] = gradient.sum(-2)
            grad_keys[row] += gradient.sum(-3)
        return grad_queries, grad_keys, grad_weight - grad_scores.sum((0, 1, 2)).unsqueeze(-1)


def _hidden(queries: Tensor, keys: Tensor, row: slice, part: slice) -> Tensor:
    """The sigmoids of a chunk, `[rows, length, source, D]`."""
    return torch.add(2 * queries[row, part].unsqueeze(-2), keys[row].unsqueeze(-3), alpha=2).sigmoid_()


def _product(inputs: Tensor, weight: Tensor) -> Tensor:
    """inputs @ weight.t(); under compilation as a sum, into which a compiler fuses what makes the inputs."""
    if torch.compiler.is_compiling():
        return (inputs.unsqueeze(-2) * weight).sum(-1)
    return inputs @ weight.t()


def _chunks(queries: Tensor, keys: Tensor) -> Iterator[tuple[slice, slice]]:
    """Slices of the rows and of the queries in them; one for all under compilation, which unrolls loops."""
    (rows, length, width), source = queries.shape, keys.shape[1]
    if torch.compiler.is_compiling():
        yield slice(None), slice(None)
        return
    budget = _CHUNK.get(queries.device.type, _ACCELERATOR_CHUNK) // max(1, source * width)
    row_step, step = max(1, budget // max(1, length)), max(1, min(length, budget))
    for row in range(0, rows, row_step):
        for start in range(0, length, step):
            yield slice(row, row + row_step), slice(start, start + step)
