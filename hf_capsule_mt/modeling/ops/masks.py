"""Where there is a word, and means over words."""

import torch
from torch import Tensor


def reading_mask(attention_mask: Tensor | None, words: Tensor) -> Tensor:
    """Where words `[batch, length, d]` are read, `[batch, length]` bool: everywhere by default."""
    if attention_mask is not None:
        return attention_mask.bool()
    return torch.ones(words.shape[:2], dtype=torch.bool, device=words.device)


def mean_over_words(states: Tensor, mask: Tensor | None) -> Tensor:
    """The mean `[batch, d]` of states `[batch, length, d]` where the mask `[batch, length]` is True, or everywhere.

    It is zero where there is no word.
    """
    if mask is None:
        return states.mean(1)
    total = states.masked_fill(~mask.unsqueeze(-1), 0.0).sum(1)
    return total / mask.sum(1, keepdim=True).clamp(min=1)
