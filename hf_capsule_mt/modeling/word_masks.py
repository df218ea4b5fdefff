"""Masks of tokens, True for tokens and False for padding."""

import torch
from torch import Tensor


def word_mask(attention_mask: Tensor | None, words: Tensor) -> Tensor | None:
    """Return an attention mask as bool.

    Args:
        attention_mask: `[batch, length]`, 1 for tokens and 0 for padding, or None.
        words: embeddings or states of the tokens, `[batch, length, d]`.

    Returns:
        The mask, or None if there is none.

    Raises:
        ValueError: if the mask is not `[batch, length]`.
    """
    if attention_mask is None:
        return None
    expected_shape = words.shape[:2]
    if attention_mask.shape != expected_shape:
        raise ValueError(f"The attention mask is {[*attention_mask.shape]}. It must be {[*expected_shape]}.")
    return attention_mask.bool()


def next_word_mask(attention_mask: Tensor | None, words: Tensor) -> Tensor | None:
    """Return `word_mask` for the last columns of a mask, which may include the tokens before."""
    if attention_mask is None:
        return None
    length = words.shape[1]
    return word_mask(attention_mask[:, -length:], words)


def reading_mask(mask: Tensor | None, words: Tensor) -> Tensor:
    """Return the mask of `word_mask`, or one that is True everywhere."""
    if mask is not None:
        return mask
    return torch.ones(words.shape[:2], dtype=torch.bool, device=words.device)


def mean_over_words(states: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mean `[batch, d]` of states `[batch, length, d]` where the mask is True, or zero if it never is."""
    if mask is None:
        return states.mean(1)
    is_padding = ~mask.unsqueeze(-1)
    total = states.masked_fill(is_padding, 0.0).sum(1)
    length = mask.sum(1, keepdim=True)
    # A sentence without tokens would be divided by zero.
    return total / length.clamp(min=1)
