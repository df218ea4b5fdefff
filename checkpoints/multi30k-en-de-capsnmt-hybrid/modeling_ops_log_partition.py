# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/ops/log_partition.py.
"""Sums of log partition functions over a vocabulary, which hold the scores of a few positions at a time.

Where gradients are wanted they are computed with the sum itself: to compute the scores again in the backward pass would
cost another product with the whole vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .modeling_ops_products import add_product, product

# Scores in a chunk. On a CPU 28 MiB of float32, for 32 and more are given back to the system every time; on an
# accelerator 128 MiB, for it works through fewer faster than it is told to.
_CHUNK = {"cpu": 7 << 20}
_ACCELERATOR_CHUNK = 1 << 25
_CPU_POSITIONS = 256  # in a chunk on a CPU: more leave its caches, fewer make too little of a product


def log_partition_sum(queries: Tensor, embedding: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return sum_n weight_n logsumexp(embedding @ query_n + bias), in the dtype of the weights.

    Sums over the vocabulary and over positions are taken in that dtype, products in that of the queries.

    Args:
        queries: `[N, d]`.
        embedding: of the vocabulary, `[V, d]`; its gradient is in its own dtype.
        weights: `[N]`, without gradient; positions of weight 0 are skipped.
        bias: `[V]`.
    """
    if not torch.compiler.is_compiling():
        # How many are left a compiler could not know. Counted once: each time, the host waits for an accelerator.
        wanted = weights.nonzero().squeeze(-1)
        queries, weights = queries[wanted], weights[wanted]
    differentiable = (tensor for tensor in (queries, embedding, bias) if tensor is not None)
    gradients = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in differentiable)
    return LogPartitionFunction.apply(queries, embedding, bias, weights, gradients)


class LogPartitionFunction(torch.autograd.Function):
    """[`log_partition_sum`], whose gradients are computed with it if `gradients` is True."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, embedding: Tensor, bias: Tensor | None, weights: Tensor, gradients: bool
    ) -> Tensor:
        """Sum up chunk by chunk."""
        total = weights.new_zeros(())
        grad_queries = grad_embedding = grad_bias = None
        if gradients:
            grad_queries = torch.zeros_like(queries)
            # Transposed: that is how its sum is fastest.
            grad_embedding = weights.new_zeros(embedding.shape[::-1])
            grad_bias = None if bias is None else torch.zeros_like(bias, dtype=weights.dtype)
        factors = embedding.to(queries.dtype)
        for part in score_chunks(queries, factors):
            exponentials = product(queries[part], factors).to(weights.dtype)
            if bias is not None:
                exponentials += bias
            partition, log_partition = exponentiate(exponentials)
            total += weights[part] @ log_partition.squeeze(-1)
            if gradients:
                scale = weights[part].unsqueeze(-1) / partition
                if bias is not None:
                    grad_bias += exponentials.t() @ scale.squeeze(-1)
                exponentials, scale = exponentials.to(queries.dtype), scale.to(queries.dtype)
                grad_queries[part] = scale * product(exponentials, factors.t())
                add_product(grad_embedding, (scale * queries[part]).t(), exponentials.t())
        if gradients:
            grad_embedding = grad_embedding.t().contiguous()
        in_dtype = (
            None if gradient is None else gradient.to(tensor.dtype)
            for gradient, tensor in ((grad_queries, queries), (grad_embedding, embedding), (grad_bias, bias))
        )
        ctx.save_for_backward(*in_dtype)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what the forward pass computed."""
        return *(None if tensor is None else grad_total * tensor for tensor in ctx.saved_tensors), None, None


def score_chunks(queries: Tensor, embedding: Tensor) -> list[slice]:
    """Return slices of queries whose scores may exist at one time; one for all under compilation."""
    if torch.compiler.is_compiling():
        # Not by `range`, which would tie what is compiled to the number of queries.
        return [slice(None)]
    device = queries.device.type
    positions = max(1, _CHUNK.get(device, _ACCELERATOR_CHUNK) // embedding.shape[0])
    positions = min(positions, _CPU_POSITIONS) if device == "cpu" else positions
    return [slice(start, start + positions) for start in range(0, queries.shape[0], positions)]


def exponentiate(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Turn scores into exp(score - largest score) in their place; return their sums, and the log partition functions.

    Args:
        scores: `[N, V]`.

    Returns:
        Both `[N, 1]`.
    """
    largest = scores.amax(-1, keepdim=True)
    total = scores.sub_(largest).exp_().sum(-1, keepdim=True)
    return total, total.log() + largest
