"""How far two passes over the same words differ in what they expect (Liang et al. 2021, R-Drop)."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .log_partition import score_chunks
from .products import add_product, product


def divergence_sum(
    one: Tensor, other: Tensor, embedding: Tensor, weights: Tensor, bias: Tensor | None = None
) -> Tensor:
    """Return sum_n weight_n (KL(p_n || q_n) + KL(q_n || p_n)) / 2, in nats, in the dtype of the weights.

    p_n and q_n are the distributions over the vocabulary that follow from the states one_n and other_n: softmax of
    embedding @ state + bias. With d the difference of their scores the term is (p - q) d / 2, for the partition
    functions cancel. Gradients are computed with it, and scores of a few positions exist at a time.

    Args:
        one: states of the first pass, `[N, d]`.
        other: states of the second pass, `[N, d]`.
        embedding: of the vocabulary, `[V, d]`, in the dtype of the states.
        weights: `[N]`, without gradient.
        bias: `[V]`.
    """
    return DivergenceFunction.apply(one, other, embedding, bias, weights)


class DivergenceFunction(torch.autograd.Function):
    """[`divergence_sum`], with its gradients."""

    @staticmethod
    def forward(
        ctx: Any, one: Tensor, other: Tensor, embedding: Tensor, bias: Tensor | None, weights: Tensor
    ) -> Tensor:
        """Sum up chunk by chunk."""
        total, states = weights.new_zeros(()), (one, other)
        grad_states = torch.empty_like(one), torch.empty_like(other)
        grad_embedding = weights.new_zeros(embedding.shape[::-1])
        grad_scores_sum = weights.new_zeros(embedding.shape[0])
        for part in score_chunks(one, embedding):
            scores = [product(each[part], embedding).to(weights.dtype) for each in states]
            difference = scores[0] - scores[1]
            p, q = ((each if bias is None else each + bias).softmax(-1) for each in scores)
            del scores
            weight, apart = weights[part].unsqueeze(-1) / 2, p - q
            total += (weight * apart * difference).sum()
            means = [(each * difference).sum(-1, keepdim=True) for each in (p, q)]
            of_scores = apart + p * (difference - means[0]), -apart - q * (difference - means[1])
            for gradient, state, scored in zip(grad_states, states, of_scores):
                grad_scores_sum += (weight * scored).sum(0)
                scored = (weight * scored).to(state.dtype)
                gradient[part] = product(scored, embedding.t())
                add_product(grad_embedding, state[part].t(), scored.t())
        ctx.save_for_backward(*grad_states, grad_embedding.t().to(embedding.dtype), grad_scores_sum)
        ctx.has_bias = bias is not None
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        """Scale what the forward pass computed."""
        one, other, embedding, bias = (grad_total * tensor for tensor in ctx.saved_tensors)
        return one, other, embedding, bias if ctx.has_bias else None, None
