# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/ops/losses.py.
"""Losses of target words and of capsules; bag_of_words.py has that of bags."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .modeling_ops_log_partition import log_partition_sum
from .modeling_ops_routing import compute_dtype, in_autocast_dtype, in_compute_dtype
from .modeling_ops_two_passes import two_pass_sums


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
