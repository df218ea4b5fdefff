"""Losses of target words, bags of words and capsules, which hold the scores of a few positions at a time."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .linear import add_product, product
from .routing import compute_dtype, in_autocast_dtype, in_compute_dtype

# Scores in a chunk. On a CPU 28 MiB of float32, for 32 and more are given back to the system every time; on an
# accelerator 128 MiB, for it works through fewer faster than it is told to.
_SCORE_CHUNK = {"cpu": 7 << 20}
_ACCELERATOR_SCORE_CHUNK = 1 << 25
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
    positions = max(1, _SCORE_CHUNK.get(device, _ACCELERATOR_SCORE_CHUNK) // embedding.shape[0])
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


def label_smoothed_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Cross entropy of target words, in nats, with label smoothing (Szegedy et al. 2016).

    Args:
        logits: `[batch, length, vocabulary]`; computed in float32, or float64 if they are.
        labels: `[batch, length]`; positions with -100 do not count.
        label_smoothing: the mass spread evenly over the vocabulary.
        num_items_in_batch: what the sum is divided by, instead of the number of real labels: the Trainer's count over
            all accumulation steps and processes.
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
    """[`label_smoothed_cross_entropy`] of the logits states @ embedding.t() + bias, which never exist as a whole.

    With logits z, label y and smoothing e, a position's loss is logsumexp(z) - (1 - e) z_y - e mean(z), and mean(z) is
    the product of the state with the mean row of the embedding: only logsumexp takes the vocabulary.

    Args:
        states: `[batch, length, d]`.
        embedding: of the vocabulary, `[V, d]`.
        labels: `[batch, length]`; positions with -100 do not count.
        bias: of the logits, `[V]`.
        label_smoothing: see [`label_smoothed_cross_entropy`].
        num_items_in_batch: likewise.

    Returns:
        The loss, in float32 (float64 for float64 states).
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
    """[`linear_cross_entropy`] of two passes over the same pairs, plus alpha times how much dropout changes in them.

    That is the mean of both Kullback-Leibler divergences between the distributions of the two passes, which are the
    first and the second half of a batch (Liang et al. 2021, Eq. 2, in nats, without its alpha). Both sums over all
    words are divided by the words of both passes, so the loss is half of the paper's Eq. 3.

    Args:
        states: `[2 * batch, length, d]`.
        embedding: of the vocabulary, `[V, d]`.
        labels: `[2 * batch, length]`, both halves alike; positions with -100 do not count.
        alpha: weight of the divergence.
        bias: of the logits, `[V]`.
        label_smoothing: see [`label_smoothed_cross_entropy`].
        num_items_in_batch: likewise.

    Returns:
        The loss, and the divergence in it, which has no gradient of its own.

    Raises:
        ValueError: if the two halves of the labels differ.
    """
    if not torch.equal(*labels.tensor_split(2)):
        raise ValueError("R-Drop compares two passes: give each pair twice, the second half of the batch as the first")
    words = _real_words(states, embedding, labels)
    with torch.autocast(states.device.type, enabled=False):
        weights = words.weights.chunk(2)[0]
        loss, apart = two_pass_sums(*words.states.chunk(2), words.embedding, weights, alpha, bias)
        loss = loss - _scores_of_targets(words, bias, label_smoothing)
    items = words.items(num_items_in_batch)
    return loss / items, apart / items


class _RealWords(NamedTuple):
    """States `[N, d]` and target words `[N]`, zero where the weights `[N]` are, and the embedding in their dtype.

    That is not the states': a frequent word's gradient is a small difference of large sums, which need its digits.
    """

    states: Tensor
    embedding: Tensor
    words: Tensor
    weights: Tensor

    def items(self, num_items_in_batch: Tensor | int | None) -> Tensor:
        """The number that a sum over the words is divided by."""
        given = num_items_in_batch is not None
        return torch.as_tensor(num_items_in_batch, device=self.weights.device) if given else self.weights.sum()


def _real_words(states: Tensor, embedding: Tensor, labels: Tensor) -> _RealWords:
    labels = labels.to(states.device)
    mask = labels != -100
    weights = mask.flatten().to(compute_dtype(states))
    # Zero, not times zero: what a position without a word holds may be anything.
    states = in_autocast_dtype(states.masked_fill(~mask.unsqueeze(-1), 0.0).flatten(0, 1))
    return _RealWords(states, embedding.to(weights.dtype), labels.masked_fill(~mask, 0).flatten(), weights)


def _scores_of_targets(of: _RealWords, bias: Tensor | None, label_smoothing: float) -> Tensor:
    """Sum the scores that the loss wants: (1 - e) z_y + e mean(z), whose mean takes no product with the vocabulary."""
    dtype = of.weights.dtype
    states, targets = of.states.to(dtype), F.embedding(of.words, of.embedding)
    scores = (states * targets).sum(-1)
    if of.states.dtype != dtype:
        # As the products are, from which log Z comes: a loss that differs by their rounding may be negative.
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
    """The sum over all positions of the mean squared error between capsules and contents.

    Args:
        capsules: `[B, T, d]`.
        contents: targets of the capsules, `[B, T, d]`.
        mask: `[B, T]`, True where there is a target word.
    """
    capsules, contents = in_compute_dtype(capsules, contents)
    return (capsules - contents).square().mean(-1).masked_fill(~mask, 0.0).sum()


def shares(members: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return shares of equal size for the members of every row, by a mask `[..., T]`."""
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
    queries = in_autocast_dtype(queries)
    # A frequent word's gradient is a small difference of large sums, which need these digits.
    embedding = embedding.to(bags.dtype)
    vectors = F.embedding(words, embedding)
    with torch.autocast(queries.device.type, enabled=False):
        of_the_bags = (queries.to(bags.dtype) * (bags @ vectors)).sum()
        weights = bags.sum(-1).flatten()
        return log_partition_sum(queries.flatten(0, 1), embedding, weights) - of_the_bags


def bag_of_words_loss_of_scores(scores: Tensor, words: Tensor, bags: Tensor) -> Tensor:
    """[`bag_of_words_loss`] by the scores `[B, T, V]` of all words, which is embedding @ query or a head's own."""
    log_shares = scores.to(bags.dtype).log_softmax(-1)
    each = log_shares.gather(-1, words.unsqueeze(1).expand(bags.shape))
    return -(bags * each).sum()
