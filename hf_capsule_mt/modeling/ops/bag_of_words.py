"""Bags of target words, and the bag-of-words loss, which holds the probabilities of a few positions at a time.

Where gradients are wanted they are computed with the loss itself: to compute the probabilities again in the backward
pass would cost another product with the whole vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

_CHUNK = 1 << 23  # probabilities in a chunk, 32 MiB of float32


def words_before(mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Shares `[B, T, T]` of equal size of the target words before every position, by the mask `[B, T]` of words."""
    return _shares(_pairs(mask).tril(-1), dtype)


def words_until(mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Shares as those of [`words_before`], of the words before every position and its own."""
    return _shares(_pairs(mask).tril(), dtype)


def words_from(mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Shares as those of [`words_before`], of every position's own word and those after it."""
    return _shares(_pairs(mask).triu(), dtype)


def _pairs(mask: Tensor) -> Tensor:
    """Mask `[B, T, T]` of the pairs of positions that both have a word."""
    return mask.unsqueeze(1) & mask.unsqueeze(2)


def _shares(members: Tensor, dtype: torch.dtype) -> Tensor:
    """Shares of equal size for the members of every row."""
    members = members.to(dtype)
    return members / members.sum(-1, keepdim=True).clamp(min=1)


def bag_of_words_loss(queries: Tensor, embedding: Tensor, words: Tensor, bags: Tensor) -> Tensor:
    """The sum over all positions of the mean of -log p over the words of the position's bag.

    p = softmax(embedding @ query). A position whose bag is empty adds nothing.

    Args:
        queries: `[B, T, d]`.
        embedding: of the vocabulary, `[V, d]`.
        words: ids `[B, T]`.
        bags: `[B, T, T]`: the share of every word in the bag of every position; they sum to 1, or 0 of an empty bag.

    Returns:
        The sum, in float32 (float64 for float64 bags).
    """
    if torch.is_autocast_enabled(queries.device.type):
        dtype = torch.get_autocast_dtype(queries.device.type)
        queries, embedding = queries.to(dtype), embedding.to(dtype)
    vectors = F.embedding(words, embedding).to(bags.dtype)
    with torch.autocast(queries.device.type, enabled=False):
        of_the_bags = (queries.to(bags.dtype) * (bags @ vectors)).sum()
        queries, weights = queries.flatten(0, 1), bags.sum(-1).flatten()
        if not torch.compiler.is_compiling():
            # How many are left a compiler could not know.
            queries, weights = queries[weights > 0], weights[weights > 0]
        wanted = torch.is_grad_enabled() and (queries.requires_grad or embedding.requires_grad)
        return LogPartitionFunction.apply(queries, embedding, weights, wanted) - of_the_bags


class LogPartitionFunction(torch.autograd.Function):
    """sum_n weight_n logsumexp(embedding @ query_n), of queries `[N, d]`, an embedding `[V, d]` and weights `[N]`."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, embedding: Tensor, weights: Tensor, wanted: bool) -> Tensor:
        """Compute the sum, and the gradients if they are wanted."""
        grad_queries, grad_embedding = None, None
        if wanted:
            grad_queries, grad_embedding = torch.zeros_like(queries), torch.zeros_like(embedding, dtype=weights.dtype)
        total = weights.new_zeros(())
        for part in _chunks(queries, embedding):
            logits = (queries[part] @ embedding.t()).to(weights.dtype)
            log_partition = logits.logsumexp(-1)
            total += weights[part] @ log_partition
            if wanted:
                probabilities = logits.sub_(log_partition.unsqueeze(-1)).exp_().to(queries.dtype)
                weight = weights[part].unsqueeze(-1).to(queries.dtype)
                grad_queries[part] = weight * (probabilities @ embedding)
                _add_product(grad_embedding, probabilities.t(), weight * queries[part])
        ctx.save_for_backward(grad_queries, None if grad_embedding is None else grad_embedding.to(embedding.dtype))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """Scale what the forward pass computed."""
        grad_queries, grad_embedding = ctx.saved_tensors
        return grad_total * grad_queries, grad_total * grad_embedding, None, None


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, where `total` may be of a higher precision."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


def _chunks(queries: Tensor, embedding: Tensor) -> list[slice]:
    """Slices of the queries; one for all under compilation."""
    size = queries.shape[0] if torch.compiler.is_compiling() else max(1, _CHUNK // embedding.shape[0])
    return [slice(start, start + size) for start in range(0, queries.shape[0], size)]
