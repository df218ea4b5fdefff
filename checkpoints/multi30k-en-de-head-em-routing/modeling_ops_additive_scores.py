# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/ops/additive_scores.py.
"""Additive scores (Bahdanau et al. 2015) of every query with every key, whose hidden layer is never held whole.

The forward keeps only its inputs; the backward computes the hidden layer again, a chunk at a time. Both take
tanh(x) as 2 sigmoid(2 x) - 1, whose exponential of a sum is a product of exponentials. Compiled, there is one
chunk, and in the backward it is the compiler that decides whether the hidden layer exists.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Hidden units in a chunk: on a CPU its temporaries stay in a core's cache, on an accelerator it is 64 MiB of float32.
_CHUNK = {"cpu": 1 << 18}
_ACCELERATOR_CHUNK = 1 << 24
# Queries or keys, as in decoding, with which exponentials of each cost as much as those of their pairs.
_FEW = 8


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
        hidden_of, weight = _hidden_layer(queries, keys), 2 * weight
        for row, part in _chunks(queries, keys):
            scores[row, part] = _product(hidden_of(row, part), weight)
        return scores.sub_(weight.sum(-1) / 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Differentiate chunk by chunk."""
        queries, keys, weight = ctx.saved_tensors
        grad_queries, grad_keys, grad_weight = map(torch.zeros_like, (queries, keys, weight))
        hidden_of = _hidden_layer(queries, keys)
        for row, part in _chunks(queries, keys):
            hidden, gradient = hidden_of(row, part), grad_scores[row, part]
            if weight.shape[0] == 1:
                # The weight is in every gradient: it is multiplied by at the end.
                slope = hidden * gradient
                grad_weight += slope.sum((0, 1, 2))
            else:
                grad_weight += _product(gradient.flatten(0, -2).t(), hidden.flatten(0, -2).t())
                slope = _product(gradient, weight.t()).mul_(hidden)
            slope = slope.addcmul_(slope, hidden, value=-1)
            grad_queries[row, part] = slope.sum(-2)
            grad_keys[row] += slope.sum(-3)
        factor = 4 * weight[0] if weight.shape[0] == 1 else 4
        grad_weight = 2 * grad_weight - grad_scores.sum((0, 1, 2)).unsqueeze(-1)
        return grad_queries.mul_(factor), grad_keys.mul_(factor), grad_weight


def _hidden_layer(queries: Tensor, keys: Tensor) -> Callable[[slice, slice], Tensor]:
    """Return the function from a chunk to its sigmoids of twice the sums, `[rows, length, source, D]`."""
    if _can_multiply(queries, keys):
        # sigmoid(2 (q + k)) = 1 / (1 + exp(-2 q) exp(-2 k)): no exponential for each pair.
        queries, keys = (-2 * queries).exp_(), (-2 * keys).exp_()
        return lambda row, part: _pairs(torch.mul, queries, keys, row, part).add_(1).reciprocal_()
    # Not 2 * keys: in decoding that would copy the keys of all sentences at every step.
    queries, add_twice = 2 * queries, partial(torch.add, alpha=2)
    return lambda row, part: _pairs(add_twice, queries, keys, row, part).sigmoid_()


def _pairs(
    operation: Callable[[Tensor, Tensor], Tensor], queries: Tensor, keys: Tensor, row: slice, part: slice
) -> Tensor:
    """The result of an operation for every query of a chunk with every key of its row."""
    return operation(queries[row, part].unsqueeze(-2), keys[row].unsqueeze(-3))


def _can_multiply(queries: Tensor, keys: Tensor) -> bool:
    """Return whether there are pairs enough, and exp(-2 q) and exp(-2 k) are finite and not zero.

    Only on a CPU is that known at once.
    """
    # Of lengths that are not known a compiled program would make conditions.
    if torch.compiler.is_compiling() or queries.device.type != "cpu":
        return False
    if min(queries.shape[1], keys.shape[1]) < _FEW:
        return False
    largest = 0.49 * math.log(torch.finfo(queries.dtype).max)
    return all(tensor.numel() == 0 or _largest(tensor) < largest for tensor in (queries, keys))


def _largest(tensor: Tensor) -> float:
    """The largest absolute value; without a copy of absolute values, which takes longer than to find it."""
    return max(tensor.amax().item(), -tensor.amin().item())


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
