"""Scores of additive attention for every pair of a query and a key, chunk by chunk, so that they need little memory."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .numerics import differentiable_once

# Hidden units in a chunk. On a CPU they stay in the cache of a core. On an accelerator they are 64 MiB of float32.
_PAIR_CHUNK = {"cpu": 1 << 18}
_ACCELERATOR_PAIR_CHUNK = 1 << 24
# With so few queries or keys, as in decoding, an exponential for each costs as much as one for each pair.
_FEW = 8


def additive_scores(queries: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    """Return sum_d weight[k, d] tanh(queries[..., t, d] + keys[..., s, d]), `[..., T, S, K]`.

    Queries are `[..., T, D]`, keys `[..., S, D]` with the same leading dimensions, and the weight is `[K, D]`.
    """
    leading = queries.shape[:-2]
    queries = queries.reshape(-1, *queries.shape[-2:])
    keys = keys.reshape(-1, *keys.shape[-2:])
    scores = AdditiveScoresFunction.apply(queries, keys, weight)
    return scores.reshape(*leading, *scores.shape[1:])


class AdditiveScoresFunction(torch.autograd.Function):
    """[`additive_scores`] with one leading dimension."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
        """Score chunk by chunk.

        Args:
            ctx: keeps the arguments.
            queries: `[rows, T, D]`.
            keys: `[rows, S, D]`.
            weight: `[K, D]`.

        Returns:
            The scores, `[rows, T, S, K]`.
        """
        ctx.save_for_backward(queries, keys, weight)
        rows, length, _ = queries.shape
        scores = queries.new_empty(rows, length, keys.shape[1], weight.shape[0])
        hidden_of = _hidden_layer(queries, keys)
        # tanh(x) = 2 sigmoid(2 x) - 1
        twice = 2 * weight
        for row, part in _pair_chunks(queries, keys):
            hidden = hidden_of(row, part)
            scores[row, part] = _product(hidden, twice)
        return scores.sub_(twice.sum(-1) / 2)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Differentiate chunk by chunk."""
        queries, keys, weight = ctx.saved_tensors
        grad_queries = torch.zeros_like(queries)
        grad_keys = torch.zeros_like(keys)
        grad_weight = torch.zeros_like(weight)
        has_one_score = weight.shape[0] == 1
        hidden_of = _hidden_layer(queries, keys)
        for row, part in _pair_chunks(queries, keys):
            hidden = hidden_of(row, part)
            gradient = grad_scores[row, part]
            if has_one_score:
                # Every gradient has the weight as a factor, which follows at the end.
                slope = hidden * gradient
                grad_weight += slope.sum((0, 1, 2))
            else:
                # Rows are the pairs of the chunk.
                gradient_rows = gradient.flatten(0, -2)
                hidden_rows = hidden.flatten(0, -2)
                grad_weight += _product(gradient_rows.t(), hidden_rows.t())
                slope = _product(gradient, weight.t()).mul_(hidden)
            # The derivative of a sigmoid h is h (1 - h).
            slope = slope.addcmul_(slope, hidden, value=-1)
            grad_queries[row, part] = slope.sum(-2)
            grad_keys[row] += slope.sum(-3)
        # tanh(x) = 2 sigmoid(2 x) - 1 has two factors 2.
        factor = 4 * weight[0] if has_one_score else 4
        grad_queries.mul_(factor)
        grad_keys.mul_(factor)
        # The -1 of every pair.
        constant = grad_scores.sum((0, 1, 2)).unsqueeze(-1)
        grad_weight = 2 * grad_weight - constant
        return grad_queries, grad_keys, grad_weight


def _hidden_layer(queries: Tensor, keys: Tensor) -> Callable[[slice, slice], Tensor]:
    """Return the function from a chunk to its sigmoids of twice the sums, `[rows, length, source, D]`."""
    if _can_multiply(queries, keys):
        # sigmoid(2 (q + k)) = 1 / (1 + exp(-2 q) exp(-2 k)) needs no exponential for each pair.
        exp_queries = (-2 * queries).exp_()
        exp_keys = (-2 * keys).exp_()

        def multiply(row: slice, part: slice) -> Tensor:
            exponentials = exp_queries[row, part, None] * exp_keys[row, None]
            # In place: new memory would take longer than the sum.
            return exponentials.add_(1).reciprocal_()

        return multiply
    twice_queries = 2 * queries

    def add(row: slice, part: slice) -> Tensor:
        # With 2 * keys, decoding would copy the keys of all sentences at every step.
        return torch.add(twice_queries[row, part, None], keys[row, None], alpha=2).sigmoid_()

    return add


def _can_multiply(queries: Tensor, keys: Tensor) -> bool:
    """Return whether there are enough pairs, and exp(-2 q) and exp(-2 k) are finite and not zero.

    An accelerator would have to wait for the answer, so there it is False.
    """
    # A compiler would turn unknown lengths into conditions.
    if torch.compiler.is_compiling() or queries.device.type != "cpu":
        return False
    if min(queries.shape[1], keys.shape[1]) < _FEW:
        return False
    # So that exp(2 * largest) is finite.
    largest = 0.49 * math.log(torch.finfo(queries.dtype).max)
    for tensor in (queries, keys):
        if tensor.numel() == 0:
            continue
        # A tensor of absolute values would take longer.
        if not -largest < tensor.amin().item() or not tensor.amax().item() < largest:
            return False
    return True


def _product(inputs: Tensor, weight: Tensor) -> Tensor:
    """Return inputs @ weight.t(). Under compilation it is a sum, so that the compiler fuses the inputs into it."""
    if torch.compiler.is_compiling():
        products = inputs.unsqueeze(-2) * weight
        return products.sum(-1)
    return inputs @ weight.t()


def _pair_chunks(queries: Tensor, keys: Tensor) -> Iterator[tuple[slice, slice]]:
    """Return slices of the rows and of the queries in them, or one chunk under compilation, which unrolls loops."""
    if torch.compiler.is_compiling():
        yield slice(None), slice(None)
        return
    rows, length, width = queries.shape
    units_of_query = max(1, keys.shape[1] * width)
    units_in_chunk = _PAIR_CHUNK.get(queries.device.type, _ACCELERATOR_PAIR_CHUNK)
    # Queries in a chunk: several rows of them, or a part of one row.
    budget = units_in_chunk // units_of_query
    row_step = max(1, budget // max(1, length))
    step = max(1, min(length, budget))
    for first_row in range(0, rows, row_step):
        row_slice = slice(first_row, first_row + row_step)
        for start in range(0, length, step):
            yield row_slice, slice(start, start + step)
