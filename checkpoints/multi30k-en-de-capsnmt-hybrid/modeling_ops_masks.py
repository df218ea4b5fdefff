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


def reading_mask(attention_mask: Tensor | None, words: Tensor) -> Tensor:
    """Return the mask `[batch, length]`, bool, of words `[batch, length, d]`: True everywhere by default."""
    if attention_mask is not None:
        return attention_mask.bool()
    return torch.ones(words.shape[:2], dtype=torch.bool, device=words.device)


def mean_over_words(states: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean `[batch, d]` of states `[batch, length, d]` where a mask `[batch, length]` is True.

    Without a mask it is that of all states; for a sentence without words it is zero.
    """
    if mask is None:
        return states.mean(1)
    total = states.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1)
    return total / mask.sum(1, keepdim=True).clamp(min=1)
