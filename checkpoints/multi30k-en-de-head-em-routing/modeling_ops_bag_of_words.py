# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/ops/bag_of_words.py.
"""Bags of target words, and the bag-of-words loss."""

import torch
from torch import Tensor
from torch.nn import functional as F

from .modeling_ops_log_partition import log_partition_sum
from .modeling_ops_routing import in_autocast_dtype


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
