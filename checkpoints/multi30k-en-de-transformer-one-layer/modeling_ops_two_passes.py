# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/ops/two_passes.py.
"""The loss of two passes over the same words, and how far apart they are (Liang et al. 2021, R-Drop).

Both parts need the same scores of the whole vocabulary, so they are computed together, with their gradients, a few
positions at a time.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .modeling_ops_log_partition import exponentiate, score_chunks
from .modeling_ops_products import add_product, product


def two_pass_sums(
    one: Tensor, other: Tensor, embedding: Tensor, weights: Tensor, alpha: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return sum_n weight_n (log Z_n + log Z'_n + alpha D_n), and sum_n weight_n D_n without its gradient.

    Z_n and Z'_n are the partition functions of the scores embedding @ state + bias of the states one_n and other_n. D_n
    is the mean of both Kullback-Leibler divergences between the distributions p and q that follow from them, in nats:
    with d the difference of the scores it is (p - q) d / 2, for log Z_n and log Z'_n cancel. Sums are taken in the
    dtype of the weights, products in that of the states.

    Args:
        one: states of the first pass, `[N, d]`.
        other: states of the second pass, `[N, d]`.
        embedding: of the vocabulary, `[V, d]`; its gradient is in its own dtype.
        weights: `[N]`, without gradient; positions of weight 0 are skipped.
        alpha: weight of the divergence.
        bias: `[V]`.
    """
    if not torch.compiler.is_compiling():
        # How many are left a compiler could not know. Counted once: each time, the host waits for an accelerator.
        wanted = weights.nonzero().squeeze(-1)
        one, other, weights = one[wanted], other[wanted], weights[wanted]
    return TwoPassFunction.apply(one, other, embedding, bias, weights, alpha)


class TwoPassFunction(torch.autograd.Function):
    """[`two_pass_sums`], with the gradients of the first."""

    @staticmethod
    def forward(
        ctx: Any, one: Tensor, other: Tensor, embedding: Tensor, bias: Tensor | None, weights: Tensor, alpha: float
    ) -> tuple[Tensor, Tensor]:
        """Sum up chunk by chunk."""
        partitions, apart = weights.new_zeros(()), weights.new_zeros(())
        grads = torch.empty_like(one), torch.empty_like(other)
        # Transposed: that is how its sum is fastest.
        grad_embedding = weights.new_zeros(embedding.shape[::-1])
        grad_bias = None if bias is None else torch.zeros_like(bias, dtype=weights.dtype)
        factors = embedding.to(one.dtype)
        for part in score_chunks(one, factors):
            weight = weights[part].unsqueeze(-1)
            p, q = (product(states[part], factors).to(weights.dtype) for states in (one, other))
            difference = p - q
            if bias is not None:
                p += bias
                q += bias
            (p_sum, log_p_sum), (q_sum, log_q_sum) = exponentiate(p), exponentiate(q)
            # The means of the difference under either distribution; half of what parts them is the divergence.
            p_mean = torch.linalg.vecdot(p, difference).unsqueeze(-1) / p_sum
            q_mean = torch.linalg.vecdot(q, difference).unsqueeze(-1) / q_sum
            partitions += (weight * (log_p_sum + log_q_sum)).sum()
            apart += (weight * (p_mean - q_mean)).sum() / 2
            # Of the first pass's scores: p (1 + alpha/2 (1 + d - mean of d under p)) - alpha/2 q; the other's alike.
            half, p_share, q_share = alpha / 2, weight / p_sum, weight / q_sum
            of_p = torch.addcmul((1 + half - half * p_mean) * p_share, difference, half * p_share)
            of_q = torch.addcmul((1 + half + half * q_mean) * q_share, difference, -half * q_share)
            of_p.mul_(p).addcmul_(q, -half * q_share)
            of_q.mul_(q).addcmul_(p, -half * p_share)
            for states, grad, of_scores in ((one, grads[0], of_p), (other, grads[1], of_q)):
                if grad_bias is not None:
                    grad_bias += of_scores.sum(0)
                of_scores = of_scores.to(states.dtype)
                grad[part] = product(of_scores, factors.t())
                add_product(grad_embedding, states[part].t(), of_scores.t())
        grad_embedding = grad_embedding.t().contiguous().to(embedding.dtype)
        ctx.save_for_backward(*grads, grad_embedding, None if bias is None else grad_bias.to(bias.dtype))
        ctx.mark_non_differentiable(apart)
        return partitions + alpha * apart, apart

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what the forward pass computed."""
        return *(None if tensor is None else grad_total * tensor for tensor in ctx.saved_tensors), None, None
