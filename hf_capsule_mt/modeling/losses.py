"""Losses of target tokens, bags of words and capsules. They hold the scores of only a few positions at a time."""

import re
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .differentiation import differentiable_once
from .onednn import add_product, product
from .precision import compute_dtype, in_autocast_dtype, in_compute_dtype

# Scores in a chunk. On a CPU 28 MiB of float32: the allocator returns 32 MiB and more to the system every time. On an
# accelerator 512 MiB, 4,096 positions of 32,000 tokens: it computes smaller chunks faster than the host launches them.
_SCORE_CHUNK = {"cpu": 7 << 20}
_ACCELERATOR_SCORE_CHUNK = 1 << 27
_CPU_POSITIONS = 256  # in a chunk on a CPU: more leave its caches, fewer make products too small


def log_partition_sum(queries: Tensor, embedding: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return sum_n weight_n logsumexp(embedding @ query_n + bias), in the dtype of the weights.

    Queries are `[N, d]`, the embedding `[V, d]`, weights `[N]` and the bias `[V]` without gradient. Sums use the dtype
    of the weights, and products that of the queries. The gradient of the embedding has its own dtype.
    """
    queries, weights = _with_weight(weights, queries)
    differentiable = torch.is_grad_enabled() and (queries.requires_grad or embedding.requires_grad)
    with torch.no_grad():
        total, *gradients = _log_partition(queries, embedding, bias, weights, differentiable)
    if not differentiable:
        gradients = [None, None]
    # The function is called in any case: forward-mode differentiation would otherwise lose this term without a word.
    return KnownGradients.apply(total, queries, embedding, *gradients)


def _with_weight(weights: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
    """Drop positions of weight 0 on a CPU. An accelerator computes them, because counting them would make it wait."""
    if weights.device.type == "cpu" and not torch.compiler.is_compiling():
        wanted = weights.nonzero().squeeze(-1)
        return *(each[wanted] for each in states), weights[wanted]
    return *states, weights


class KnownGradients(torch.autograd.Function):
    """A sum whose gradients were computed with it. The arguments are the sum, N tensors and their N gradients."""

    @staticmethod
    def forward(ctx: Any, total: Tensor, *tensors_and_gradients: Tensor) -> Tensor:
        """Keep the gradients."""
        ctx.save_for_backward(*tensors_and_gradients[len(tensors_and_gradients) // 2 :])
        return total.clone()

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients."""
        scaled = [grad_total * gradient for gradient in ctx.saved_tensors]
        return None, *scaled, *[None] * len(scaled)


# Custom operators, because `torch.compile` would unroll the loop or compute the scores of all positions at once.
# The namespace differs in the copies of this file in checkpoints.
_NAMESPACE = re.sub(r"\W", "_", __name__, flags=re.ASCII)


@torch.library.custom_op(
    f"{_NAMESPACE}::log_partition",
    mutates_args=(),
    schema="(Tensor queries, Tensor embedding, Tensor? bias, Tensor weights, bool gradients) -> Tensor[]",
)
def _log_partition(
    queries: Tensor, embedding: Tensor, bias: Tensor | None, weights: Tensor, gradients: bool
) -> list[Tensor]:
    """Return the sum and, if asked for, the gradients of the queries and the embedding."""
    total = weights.new_zeros(())
    if gradients:
        grad_queries = torch.empty_like(queries)
        # Transposed, because that sum is fastest.
        grad_embedding = weights.new_zeros(embedding.shape[::-1])
    factors = embedding.to(queries.dtype)
    for part in score_chunks(queries, factors):
        exponentials = product(queries[part], factors).to(weights.dtype)
        if bias is not None:
            exponentials += bias
        partition, log_partition = exponentiate(exponentials)
        total += weights[part] @ log_partition.squeeze(-1)
        if gradients:
            exponentials = exponentials.to(queries.dtype)
            scale = (weights[part].unsqueeze(-1) / partition).to(queries.dtype)
            grad_queries[part] = scale * product(exponentials, factors.t())
            add_product(grad_embedding, (scale * queries[part]).t(), exponentials.t())
    if not gradients:
        return [total]
    return [total, grad_queries, grad_embedding.t().contiguous().to(embedding.dtype)]


@_log_partition.register_fake
def _shapes_of_log_partition(
    queries: Tensor, embedding: Tensor, bias: Tensor | None, weights: Tensor, gradients: bool
) -> list[Tensor]:
    return [weights.new_empty(()), *(torch.empty_like(tensor) for tensor in (queries, embedding) if gradients)]


def score_chunks(queries: Tensor, embedding: Tensor) -> list[slice]:
    """Return slices of queries whose scores may exist at the same time."""
    device = queries.device.type
    positions = max(1, _SCORE_CHUNK.get(device, _ACCELERATOR_SCORE_CHUNK) // embedding.shape[0])
    positions = min(positions, _CPU_POSITIONS) if device == "cpu" else positions
    return [slice(start, start + positions) for start in range(0, queries.shape[0], positions)]


def exponentiate(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Turn scores `[N, V]` into exp(score - largest score) in place. Return their sums and log partitions, `[N, 1]`."""
    largest = scores.amax(-1, keepdim=True)
    total = scores.sub_(largest).exp_().sum(-1, keepdim=True)
    return total, total.log() + largest


@torch.library.custom_op(
    f"{_NAMESPACE}::two_passes",
    mutates_args=(),
    schema="(Tensor one, Tensor other, Tensor embedding, Tensor? bias, Tensor weights, float alpha) -> Tensor[]",
)
def _two_passes(
    one: Tensor, other: Tensor, embedding: Tensor, bias: Tensor | None, weights: Tensor, alpha: float
) -> list[Tensor]:
    """Return sum_n weight_n (log Z_n + log Z'_n + alpha D_n), sum_n weight_n D_n, and gradients of the first sum.

    Z_n and Z'_n are the partition functions of the scores embedding @ state + bias of the states one_n and other_n. D_n
    is the mean of both Kullback-Leibler divergences between their distributions p and q, in nats. With d the difference
    of the scores it is (p - q) d / 2, because log Z_n and log Z'_n cancel.

    States are those of the first and of the second pass, `[N, d]`. All else is as in [`log_partition_sum`].
    """
    partitions, apart = weights.new_zeros(()), weights.new_zeros(())
    grads = torch.empty_like(one), torch.empty_like(other)
    # Transposed, because that sum is fastest.
    grad_embedding = weights.new_zeros(embedding.shape[::-1])
    factors = embedding.to(one.dtype)
    for part in score_chunks(one, factors):
        weight = weights[part].unsqueeze(-1)
        p, q = (product(states[part], factors).to(weights.dtype) for states in (one, other))
        difference = p - q
        if bias is not None:
            p += bias
            q += bias
        (p_sum, log_p_sum), (q_sum, log_q_sum) = exponentiate(p), exponentiate(q)
        # The divergence is half of the difference between the means of d under p and under q.
        p_mean = torch.linalg.vecdot(p, difference).unsqueeze(-1) / p_sum
        q_mean = torch.linalg.vecdot(q, difference).unsqueeze(-1) / q_sum
        partitions += (weight * (log_p_sum + log_q_sum)).sum()
        apart += (weight * (p_mean - q_mean)).sum() / 2
        # The gradient of the first scores is p (1 + alpha/2 (1 + d - mean of d under p)) - alpha/2 q.
        half, p_share, q_share = alpha / 2, weight / p_sum, weight / q_sum
        of_p = torch.addcmul((1 + half - half * p_mean) * p_share, difference, half * p_share)
        of_q = torch.addcmul((1 + half + half * q_mean) * q_share, difference, -half * q_share)
        of_p.mul_(p).addcmul_(q, -half * q_share)
        of_q.mul_(q).addcmul_(p, -half * p_share)
        for states, grad, of_scores in ((one, grads[0], of_p), (other, grads[1], of_q)):
            of_scores = of_scores.to(states.dtype)
            grad[part] = product(of_scores, factors.t())
            add_product(grad_embedding, states[part].t(), of_scores.t())
    return [partitions + alpha * apart, apart, *grads, grad_embedding.t().contiguous().to(embedding.dtype)]


@_two_passes.register_fake
def _shapes_of_two_passes(
    one: Tensor, other: Tensor, embedding: Tensor, bias: Tensor | None, weights: Tensor, alpha: float
) -> list[Tensor]:
    return [*(weights.new_empty(()) for _ in range(2)), *map(torch.empty_like, (one, other, embedding))]


def label_smoothed_cross_entropy(
    logits: Tensor, labels: Tensor, label_smoothing: float = 0.0, num_items_in_batch: Tensor | int | None = None
) -> Tensor:
    """Return the cross entropy of target tokens, in nats, with label smoothing (Szegedy et al. 2016).

    Logits `[batch, length, vocabulary]` are converted to float32, unless they are float64. Labels `[batch, length]` of
    -100 do not count. The smoothing is the probability that is spread evenly over the vocabulary. The sum is divided by
    `num_items_in_batch`, which the Trainer counts over all accumulation steps and processes, or by the labels.
    """
    labels = labels.to(logits.device)
    reduction = "mean" if num_items_in_batch is None else "sum"
    logits, labels = logits.flatten(0, 1).to(compute_dtype(logits)), labels.flatten().long()
    loss = F.cross_entropy(logits, labels, label_smoothing=label_smoothing, reduction=reduction)
    if num_items_in_batch is None:
        return loss
    return loss / torch.as_tensor(num_items_in_batch, device=loss.device)


def linear_cross_entropy(
    states: Tensor,
    embedding: Tensor,
    labels: Tensor,
    bias: Tensor | None = None,
    label_smoothing: float = 0.0,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Return [`label_smoothed_cross_entropy`] of the logits states @ embedding.t() + bias, without storing them.

    With logits z, label y and smoothing e, the loss of a position is logsumexp(z) - (1 - e) z_y - e mean(z). Only
    logsumexp needs all scores: mean(z) is the product of the state with the mean row of the embedding.

    States are `[batch, length, d]`, the embedding is `[V, d]`, and the bias `[V]`. The loss is in float32 (float64 for
    float64 states).
    """
    words = _real_words(states, embedding, labels)
    with torch.autocast(states.device.type, enabled=False):
        partitions = log_partition_sum(words.states, words.embedding, words.weights, bias)
        loss = partitions - _scores_of_targets(words, bias, label_smoothing)
    return loss / words.items(num_items_in_batch)


def rdrop_cross_entropy(
    states: Tensor,
    embedding: Tensor,
    labels: Tensor,
    alpha: float,
    bias: Tensor | None = None,
    label_smoothing: float = 0.0,
    num_items_in_batch: Tensor | int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return [`linear_cross_entropy`] of two passes, plus alpha times their divergence (R-Drop, Liang et al. 2021).

    The passes are the two halves of a batch, and differ by dropout. States are `[2 * batch, length, d]`, and labels
    `[2 * batch, length]`, with two equal halves. The divergence is the mean of both Kullback-Leibler divergences (Eq.
    2, in nats, without its alpha). Sums are divided by the tokens of both passes, so the loss is half of Eq. 3. The
    divergence is returned too, without gradient.
    """
    words = _real_words(states, embedding, labels)
    with torch.autocast(states.device.type, enabled=False):
        one, other, weights = _with_weight(words.weights.chunk(2)[0], *words.states.chunk(2))
        with torch.no_grad():
            total, apart, *gradients = _two_passes(one, other, words.embedding, bias, weights, alpha)
        loss = KnownGradients.apply(total, one, other, words.embedding, *gradients)
        loss = loss - _scores_of_targets(words, bias, label_smoothing)
    items = words.items(num_items_in_batch)
    return loss / items, apart / items


class _RealWords(NamedTuple):
    """States `[N, d]`, target token ids `[N]` and weights `[N]`, all zero for padding, and the embedding.

    The embedding has the dtype of the weights, not of the states, because the gradient of a frequent token is a small
    difference of large sums.
    """

    states: Tensor
    embedding: Tensor
    words: Tensor
    weights: Tensor

    def items(self, num_items_in_batch: Tensor | int | None) -> Tensor:
        """Return the number to divide a sum by."""
        given = num_items_in_batch is not None
        return torch.as_tensor(num_items_in_batch, device=self.weights.device) if given else self.weights.sum()


def _real_words(states: Tensor, embedding: Tensor, labels: Tensor) -> _RealWords:
    labels = labels.to(states.device)
    mask = labels != -100
    weights = mask.flatten().to(compute_dtype(states))
    # Padding may hold anything, even NaN, so it is replaced and not multiplied by zero.
    states = in_autocast_dtype(states.masked_fill(~mask.unsqueeze(-1), 0.0).flatten(0, 1))
    return _RealWords(states, embedding.to(weights.dtype), labels.masked_fill(~mask, 0).flatten(), weights)


def _scores_of_targets(of: _RealWords, bias: Tensor | None, label_smoothing: float) -> Tensor:
    """Return the sum of (1 - e) z_y + e mean(z)."""
    dtype = of.weights.dtype
    states, targets = of.states.to(dtype), F.embedding(of.words, of.embedding)
    scores = (states * targets).sum(-1)
    if of.states.dtype != dtype:
        # Round as the products in log Z are rounded. Otherwise the loss could be negative.
        rounded = (states * targets.to(of.states.dtype)).sum(-1).to(of.states.dtype)
        scores = scores + (rounded - scores).detach()
    scores = (1 - label_smoothing) * scores.sum()
    if label_smoothing:
        scores = scores + label_smoothing * (states.sum(0) @ of.embedding.mean(0))
    if bias is None:
        return scores
    biases = (1 - label_smoothing) * bias[of.words].to(dtype)
    if label_smoothing:
        biases = biases + label_smoothing * bias.mean(dtype=dtype)
    return scores + of.weights @ biases


def content_agreement_loss(capsules: Tensor, contents: Tensor, mask: Tensor) -> Tensor:
    """Return the sum over all positions of the mean squared error between capsules and contents, `[B, T, d]`.

    The mask `[B, T]` is True for target tokens.
    """
    capsules, contents = in_compute_dtype(capsules, contents)
    return (capsules - contents).square().mean(-1).masked_fill(~mask, 0.0).sum()


def shares(members: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return equal shares for the members of every row, given a mask `[..., T]`."""
    members = members.to(dtype)
    return members / members.sum(-1, keepdim=True).clamp(min=1)


def bag_of_words_loss(queries: Tensor, embedding: Tensor, words: Tensor, bags: Tensor) -> Tensor:
    """Return the sum over all positions of the mean of -log p over the tokens in the position's bag.

    p is softmax(embedding @ query), of queries `[B, T, d]` and an embedding `[V, d]`. `words` are token ids `[B, T]`,
    and `bags`, `[B, T, T]`, have the share of every token in the bag of every position. Shares sum to 1, or to 0 in an
    empty bag, which adds nothing. The sum is in float32 (float64 for float64 bags).
    """
    queries = in_autocast_dtype(queries)
    # The gradient of a frequent token is a small difference of large sums.
    embedding = embedding.to(bags.dtype)
    vectors = F.embedding(words, embedding)
    with torch.autocast(queries.device.type, enabled=False):
        of_the_bags = (queries.to(bags.dtype) * (bags @ vectors)).sum()
        weights = bags.sum(-1).flatten()
        return log_partition_sum(queries.flatten(0, 1), embedding, weights) - of_the_bags


def bag_of_words_loss_of_scores(scores: Tensor, words: Tensor, bags: Tensor) -> Tensor:
    """Return [`bag_of_words_loss`], given the scores `[B, T, V]` of all tokens."""
    log_shares = scores.to(bags.dtype).log_softmax(-1)
    each = log_shares.gather(-1, words.unsqueeze(1).expand(bags.shape))
    return -(bags * each).sum()
