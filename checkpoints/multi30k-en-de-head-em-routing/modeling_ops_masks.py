# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/ops/masks.py.
"""Masks of words, and means over words."""

import torch
from torch import Tensor


def word_mask(attention_mask: Tensor | None, words: Tensor) -> Tensor | None:
    """Return a mask `[batch, length]` of words `[batch, length, d]` as bool; None where all are words.

    Raises:
        ValueError: if the mask has another shape.
    """
    if attention_mask is None:
        return None
    if attention_mask.shape != words.shape[:2]:
        raise ValueError(
            f"the attention mask has shape {tuple(attention_mask.shape)}; that of these words is [batch, length] = "
            f"{tuple(words.shape[:2])}"
        )
    return attention_mask.bool()


def next_word_mask(attention_mask: Tensor | None, words: Tensor) -> Tensor | None:
    """Return the same as `word_mask`, of the last columns of a mask that is also of the words before."""
    return None if attention_mask is None else word_mask(attention_mask[:, -words.shape[1] :], words)


def reading_mask(mask: Tensor | None, words: Tensor) -> Tensor:
    """Return the mask that `word_mask` returned for `words`: True everywhere where there is none."""
    return torch.ones(words.shape[:2], dtype=torch.bool, device=words.device) if mask is None else mask


def mean_over_words(states: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean `[batch, d]` of states `[batch, length, d]` where a mask `[batch, length]` is True.

    Without a mask it is that of all states; for a sentence without words it is zero.
    """
    if mask is None:
        return states.mean(1)
    total = states.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1)
    return total / mask.sum(1, keepdim=True).clamp(min=1)
