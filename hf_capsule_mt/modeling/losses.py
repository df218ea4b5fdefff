"""Losses of target tokens, bags of words and capsules. They hold the scores of only a few positions at a time."""

import re
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .linear import add_product, product
from .numerics import compute_dtype, differentiable_once, in_autocast_dtype, in_compute_dtype

# Scores in a chunk. On a CPU 28 MiB of float32: the allocator returns 32 MiB and more to the system every time. On an
# accelerator 512 MiB, 4,096 positions of 32,000 tokens: it computes smaller chunks faster than the host launches them.
_SCORE_CHUNK = {"cpu": 7 << 20}
_ACCELERATOR_SCORE_CHUNK = 1 << 27
_CPU_POSITIONS = 256  # in a chunk on a CPU: more leave its caches, fewer make products too small


def log_partition_sum(queries: Tensor, embedding: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return sum_n weight_n logsumexp(embedding @ query_n + bias).

    Sums use the dtype of the weights, products that of the queries, and the gradient of the embedding its own.

    Args:
        queries: `[N, d]`.
        embedding: `[V, d]`.
        weights: `[N]`, without gradient.
        bias: `[V]`, without gradient, none by default.

    Returns:
        The sum, in the dtype of the weights.
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
        wanted_states = [positions[wanted] for positions in states]
        return *wanted_states, weights[wanted]
    return *states, weights


class KnownGradients(torch.autograd.Function):
    """A sum whose gradients were computed with it. The arguments are the sum, N tensors and their N gradients."""

    @staticmethod
    def forward(ctx: Any, total: Tensor, *tensors_and_gradients: Tensor) -> Tensor:
        """Keep the gradients, which are the second half of the arguments."""
        num_tensors = len(tensors_and_gradients) // 2
        ctx.save_for_backward(*tensors_and_gradients[num_tensors:])
        return total.clone()

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients."""
        scaled = [grad_total * gradient for gradient in ctx.saved_tensors]
        # The sum and the gradients themselves have none.
        nothing = [None] * len(scaled)
        return None, *scaled, *nothing


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
            scale = weights[part].unsqueeze(-1) / partition
            scale = scale.to(queries.dtype)
            # With the scale, exponentials are probabilities times the weight. The smaller factor is scaled.
            grad_queries[part] = scale * product(exponentials, factors.t())
            scaled_queries = scale * queries[part]
            add_product(grad_embedding, scaled_queries.t(), exponentials.t())
    if not gradients:
        return [total]
    grad_embedding = grad_embedding.t().contiguous().to(embedding.dtype)
    return [total, grad_queries, grad_embedding]


@_log_partition.register_fake
def _shapes_of_log_partition(
    queries: Tensor, embedding: Tensor, bias: Tensor | None, weights: Tensor, gradients: bool
) -> list[Tensor]:
    total = weights.new_empty(())
    if not gradients:
        return [total]
    return [total, torch.empty_like(queries), torch.empty_like(embedding)]


def score_chunks(queries: Tensor, embedding: Tensor) -> list[slice]:
    """Return slices of queries whose scores may exist at the same time."""
    device = queries.device.type
    scores_in_chunk = _SCORE_CHUNK.get(device, _ACCELERATOR_SCORE_CHUNK)
    positions = max(1, scores_in_chunk // embedding.shape[0])
    if device == "cpu":
        positions = min(positions, _CPU_POSITIONS)
    starts = range(0, queries.shape[0], positions)
    return [slice(start, start + positions) for start in starts]


def exponentiate(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Turn scores `[N, V]` into exp(score - largest score) in place. Return their sums and log partitions, `[N, 1]`."""
    largest = scores.amax(-1, keepdim=True)
    scores.sub_(largest).exp_()
    total = scores.sum(-1, keepdim=True)
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
    partitions = weights.new_zeros(())
    apart = weights.new_zeros(())
    grad_one = torch.empty_like(one)
    grad_other = torch.empty_like(other)
    # Transposed, because that sum is fastest.
    grad_embedding = weights.new_zeros(embedding.shape[::-1])
    factors = embedding.to(one.dtype)
    half = alpha / 2
    for part in score_chunks(one, factors):
        weight = weights[part].unsqueeze(-1)
        scores_one = product(one[part], factors).to(weights.dtype)
        scores_other = product(other[part], factors).to(weights.dtype)
        difference = scores_one - scores_other
        if bias is not None:
            scores_one += bias
            scores_other += bias
        # The memory of the scores holds their exponentials from here on.
        exp_one = scores_one
        exp_other = scores_other
        sum_one, log_sum_one = exponentiate(scores_one)
        sum_other, log_sum_other = exponentiate(scores_other)
        # The divergence is half of the difference between the means of d under p and under q.
        mean_one = torch.linalg.vecdot(exp_one, difference).unsqueeze(-1) / sum_one
        mean_other = torch.linalg.vecdot(exp_other, difference).unsqueeze(-1) / sum_other
        log_sums = log_sum_one + log_sum_other
        partitions += (weight * log_sums).sum()
        twice_divergence = mean_one - mean_other
        apart += (weight * twice_divergence).sum() / 2
        share_one = weight / sum_one
        share_other = weight / sum_other
        # The gradient of the first scores is p (1 + alpha/2 (1 + d - mean of d under p)) - alpha/2 q.
        grad_scores_one = torch.addcmul((1 + half - half * mean_one) * share_one, difference, half * share_one)
        grad_scores_one.mul_(exp_one).addcmul_(exp_other, -half * share_other)
        # That of the second scores is the same with p and q exchanged, and -d in the place of d.
        grad_scores_other = torch.addcmul((1 + half + half * mean_other) * share_other, difference, -half * share_other)
        grad_scores_other.mul_(exp_other).addcmul_(exp_one, -half * share_one)
        grad_scores_one = grad_scores_one.to(one.dtype)
        grad_one[part] = product(grad_scores_one, factors.t())
        add_product(grad_embedding, one[part].t(), grad_scores_one.t())
        grad_scores_other = grad_scores_other.to(other.dtype)
        grad_other[part] = product(grad_scores_other, factors.t())
        add_product(grad_embedding, other[part].t(), grad_scores_other.t())
    grad_embedding = grad_embedding.t().contiguous().to(embedding.dtype)
    return [partitions + alpha * apart, apart, grad_one, grad_other, grad_embedding]


@_two_passes.register_fake
def _shapes_of_two_passes(
    one: Tensor, other: Tensor, embedding: Tensor, bias: Tensor | None, weights: Tensor, alpha: float
) -> list[Tensor]:
    total = weights.new_empty(())
    apart = weights.new_empty(())
    gradients = [torch.empty_like(tensor) for tensor in (one, other, embedding)]
    return [total, apart, *gradients]


def label_smoothed_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Return the cross entropy of target tokens, in nats, with label smoothing (Szegedy et al. 2016).

    Args:
        logits: `[batch, length, V]`. They are converted to float32, unless they are float64.
        labels: token ids `[batch, length]`, -100 for positions that do not count.
        label_smoothing: the probability in [0, 1) that is spread evenly over the vocabulary.
        num_items_in_batch: what the sum is divided by. The Trainer counts it over all accumulation steps and processes.
            By default it is the number of labels that count.

    Returns:
        The loss, a scalar in float32 or float64.
    """
    logits = logits.flatten(0, 1).to(compute_dtype(logits))
    labels = labels.to(logits.device).flatten().long()
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss = F.cross_entropy(logits, labels, label_smoothing=label_smoothing, reduction=reduction)
    if num_items_in_batch is None:
        return loss
    items = torch.as_tensor(num_items_in_batch, device=loss.device)
    return loss / items


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

    Args:
        states: `[batch, length, d]`.
        embedding: `[V, d]`.
        labels: as in [`label_smoothed_cross_entropy`].
        bias: `[V]`, without gradient, none by default.
        label_smoothing: as in [`label_smoothed_cross_entropy`].
        num_items_in_batch: the same.

    Returns:
        The loss, a scalar in float32 (float64 for float64 states).
    """
    targets = _real_targets(states, embedding, labels)
    with torch.autocast(states.device.type, enabled=False):
        partitions = log_partition_sum(targets.states, targets.embedding, targets.weights, bias)
        loss = partitions - _scores_of_targets(targets, bias, label_smoothing)
    return loss / targets.items(num_items_in_batch)


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

    The passes are the two halves of a batch, and differ by dropout. The divergence is the mean of both Kullback-Leibler
    divergences (Eq. 2, in nats, without its alpha). Sums are divided by the tokens of both passes, so the loss is half
    of Eq. 3.

    Args:
        states: `[2 * batch, length, d]`, first those of one pass, then those of the other.
        embedding: `[V, d]`.
        labels: token ids `[2 * batch, length]` with two equal halves, -100 for positions that do not count.
        alpha: the weight of the divergence.
        bias: as in [`linear_cross_entropy`].
        label_smoothing: the same.
        num_items_in_batch: the same.

    Returns:
        The loss, and the divergence without gradient, two scalars.
    """
    targets = _real_targets(states, embedding, labels)
    with torch.autocast(states.device.type, enabled=False):
        states_one, states_other = targets.states.chunk(2)
        weights_one, _ = targets.weights.chunk(2)
        one, other, weights = _with_weight(weights_one, states_one, states_other)
        with torch.no_grad():
            total, apart, *gradients = _two_passes(one, other, targets.embedding, bias, weights, alpha)
        loss = KnownGradients.apply(total, one, other, targets.embedding, *gradients)
        loss = loss - _scores_of_targets(targets, bias, label_smoothing)
    items = targets.items(num_items_in_batch)
    return loss / items, apart / items


class _RealTargets(NamedTuple):
    """The positions of a batch in one row, with zeros for padding, and the embedding.

    Attributes:
        states: `[N, d]`.
        embedding: `[V, d]`. It has the dtype of the weights, not of the states, because the gradient of a frequent
            token is a small difference of large sums.
        token_ids: `[N]`.
        weights: `[N]`, 1 for target tokens.
    """

    states: Tensor
    embedding: Tensor
    token_ids: Tensor
    weights: Tensor

    def items(self, num_items_in_batch: Tensor | int | None) -> Tensor:
        """Return the number to divide a sum by."""
        if num_items_in_batch is None:
            return self.weights.sum()
        return torch.as_tensor(num_items_in_batch, device=self.weights.device)


def _real_targets(states: Tensor, embedding: Tensor, labels: Tensor) -> _RealTargets:
    labels = labels.to(states.device)
    mask = labels != -100
    weights = mask.flatten().to(compute_dtype(states))
    token_ids = labels.masked_fill(~mask, 0).flatten()
    # Padding may hold anything, even NaN, so it is replaced and not multiplied by zero.
    states = states.masked_fill(~mask.unsqueeze(-1), 0.0).flatten(0, 1)
    return _RealTargets(in_autocast_dtype(states), embedding.to(weights.dtype), token_ids, weights)


def _scores_of_targets(targets: _RealTargets, bias: Tensor | None, label_smoothing: float) -> Tensor:
    """Return the sum of (1 - e) z_y + e mean(z), with logits z, target y and label smoothing e."""
    dtype = targets.weights.dtype
    states = targets.states.to(dtype)
    vectors = F.embedding(targets.token_ids, targets.embedding)
    scores = (states * vectors).sum(-1)
    low_dtype = targets.states.dtype
    if low_dtype != dtype:
        # Round as the products in log Z are rounded. Otherwise the loss could be negative.
        rounded = (states * vectors.to(low_dtype)).sum(-1).to(low_dtype)
        scores = scores + (rounded - scores).detach()
    scores = (1 - label_smoothing) * scores.sum()
    if label_smoothing:
        mean_vector = targets.embedding.mean(0)
        scores = scores + label_smoothing * (states.sum(0) @ mean_vector)
    if bias is None:
        return scores
    biases = (1 - label_smoothing) * bias[targets.token_ids].to(dtype)
    if label_smoothing:
        biases = biases + label_smoothing * bias.mean(dtype=dtype)
    return scores + targets.weights @ biases


def content_agreement_loss(capsules: Tensor, contents: Tensor, mask: Tensor) -> Tensor:
    """Return the sum over all positions of the mean squared error between capsules and contents, `[B, T, d]`.

    The mask `[B, T]` is True for target tokens.
    """
    capsules, contents = in_compute_dtype(capsules, contents)
    errors = (capsules - contents).square().mean(-1)
    return errors.masked_fill(~mask, 0.0).sum()


def shares(members: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return equal shares for the members of every row, given a mask `[..., T]`."""
    members = members.to(dtype)
    sizes = members.sum(-1, keepdim=True)
    # A row without members has no shares.
    return members / sizes.clamp(min=1)


def bag_of_words_loss(queries: Tensor, embedding: Tensor, token_ids: Tensor, bags: Tensor) -> Tensor:
    """Return the sum over all positions of the mean of -log p over the tokens in the position's bag.

    p is softmax(embedding @ query).

    Args:
        queries: `[B, T, d]`.
        embedding: `[V, d]`.
        token_ids: `[B, T]`.
        bags: `[B, T, T]`, the share of every token in the bag of every position. Shares sum to 1, or to 0 in an empty
            bag, which adds nothing.

    Returns:
        The sum, a scalar in float32 (float64 for float64 bags).
    """
    queries = in_autocast_dtype(queries)
    # The gradient of a frequent token is a small difference of large sums.
    embedding = embedding.to(bags.dtype)
    vectors = F.embedding(token_ids, embedding)
    with torch.autocast(queries.device.type, enabled=False):
        mean_vectors = bags @ vectors
        scores_of_bags = (queries.to(bags.dtype) * mean_vectors).sum()
        weights = bags.sum(-1).flatten()
        partitions = log_partition_sum(queries.flatten(0, 1), embedding, weights)
        return partitions - scores_of_bags


def bag_of_words_loss_of_scores(scores: Tensor, token_ids: Tensor, bags: Tensor) -> Tensor:
    """Return [`bag_of_words_loss`], given the scores `[B, T, V]` of all tokens."""
    log_probabilities = scores.to(bags.dtype).log_softmax(-1)
    # Of every token of the sentence, at every position: [B, T, T].
    token_ids = token_ids.unsqueeze(1).expand(bags.shape)
    of_tokens = log_probabilities.gather(-1, token_ids)
    return -(bags * of_tokens).sum()
