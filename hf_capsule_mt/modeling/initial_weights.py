"""Initial weights that several models share."""

from torch import nn
from transformers import initialization as init


def init_unit_gain(linear: nn.Linear) -> None:
    """Draw weights that keep the size of the inputs, and zero the bias, unless they were loaded."""
    init.normal_(linear.weight, mean=0.0, std=linear.in_features**-0.5)
    if linear.bias is not None:
        init.zeros_(linear.bias)


def init_words(words: nn.Embedding, width: int) -> None:
    """Draw embeddings that have unit variance after multiplication by sqrt(width), unless they were loaded."""
    init.normal_(words.weight, mean=0.0, std=width**-0.5)
    if words.padding_idx is None:
        return
    with_zero_row = words.weight.detach().clone()
    with_zero_row[words.padding_idx] = 0
    # Transformers marks loaded weights, and `init` leaves those as they are. A row of a weight has no mark, so a loaded
    # row would become zero.
    init.copy_(words.weight, with_zero_row)
