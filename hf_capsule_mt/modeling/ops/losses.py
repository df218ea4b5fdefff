"""Losses of target words and of capsules; bag_of_words.py has that of bags."""

import torch
from torch import Tensor
from torch.nn import functional as F

from .divergence import divergence_sum
from .log_partition import log_partition_sum
from .routing import compute_dtype, in_autocast_dtype, in_compute_dtype


def label_smoothed_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Cross entropy of target words, in nats, with label smoothing (Szegedy et al. 2016).

    Args:
        logits: `[batch, length, vocabulary]`; computed in float32.
        labels: `[batch, length]`; positions with -100 do not count.
        label_smoothing: the mass spread evenly over the vocabulary.
        num_items_in_batch: what the sum is divided by, instead of the number of real labels: the Trainer's count over
            all accumulation steps and processes.
    """
    labels = labels.to(logits.device)
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss = F.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), label_smoothing=label_smoothing, reduction=reduction
    )
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
    labels = labels.to(states.device)
    mask = labels != -100
    dtype = compute_dtype(states)
    # Zero, not times zero: what a position without a word holds may be anything.
    states = states.masked_fill(~mask.unsqueeze(-1), 0.0).flatten(0, 1)
    words = labels.masked_fill(~mask, 0).flatten()
    states, embedding = in_autocast_dtype(states, embedding)
    with torch.autocast(states.device.type, enabled=False):
        weights = mask.flatten().to(dtype)
        targets = (1 - label_smoothing) * F.embedding(words, embedding).to(dtype)
        if label_smoothing:
            targets = targets + label_smoothing * embedding.mean(0, dtype=dtype)
        of_the_targets = (states.to(dtype) * targets).sum()
        if bias is not None:
            biases = (1 - label_smoothing) * bias[words].to(dtype) + label_smoothing * bias.mean(dtype=dtype)
            of_the_targets = of_the_targets + weights @ biases
        loss = log_partition_sum(states, embedding, weights, bias) - of_the_targets
    items = weights.sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch, device=loss.device)
    return loss / items


def rdrop_loss(
    states: Tensor,
    embedding: Tensor,
    labels: Tensor,
    bias: Tensor | None = None,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """How much dropout changes what is expected of each word, in nats: Liang et al. 2021, Eq. 2, divided by alpha.

    It is the mean of both Kullback-Leibler divergences between the distributions of two passes over the same pairs,
    which are the first and the second half of a batch. The sum over all words is divided by the words of both passes,
    as that of their cross entropies is: with alpha as its weight the loss is half of the paper's Eq. 3.

    Args:
        states: `[2 * batch, length, d]`.
        embedding: of the vocabulary, `[V, d]`.
        labels: `[2 * batch, length]`, both halves alike; positions with -100 do not count.
        bias: of the logits, `[V]`.
        num_items_in_batch: see [`label_smoothed_cross_entropy`].

    Raises:
        ValueError: if the two halves of the labels differ.
    """
    one, other = labels.to(states.device).tensor_split(2)
    if not torch.equal(one, other):
        raise ValueError("R-Drop compares two passes: give each pair twice, the second half of the batch as the first")
    mask = one != -100
    states, embedding = in_autocast_dtype(states, embedding)
    with torch.autocast(states.device.type, enabled=False):
        passes = (half[mask] for half in states.chunk(2))
        weights = torch.ones(int(mask.sum()), dtype=compute_dtype(states), device=states.device)
        total = divergence_sum(*passes, embedding, weights, bias)
    items = 2 * len(weights) if num_items_in_batch is None else num_items_in_batch
    return total / torch.as_tensor(items, device=total.device)


def content_agreement_loss(capsules: Tensor, contents: Tensor, mask: Tensor) -> Tensor:
    """The sum over all positions of the mean squared error between capsules and contents.

    Args:
        capsules: `[B, T, d]`.
        contents: targets of the capsules, `[B, T, d]`.
        mask: `[B, T]`, True where there is a target word.
    """
    capsules, contents = in_compute_dtype(capsules, contents)
    return (capsules - contents).square().mean(-1).masked_fill(~mask, 0.0).sum()
