"""Initial weights of linear maps and of word embeddings."""

from torch import nn
from transformers import initialization as init


def init_unit_gain(linear: nn.Linear) -> None:
    """Draw weights whose outputs are as large as the inputs, and zero the bias, unless they were loaded."""
    init.normal_(linear.weight, mean=0.0, std=linear.in_features**-0.5)
    if linear.bias is not None:
        init.zeros_(linear.bias)


class UnitGainLinear(nn.Linear):
    """A linear map whose outputs start as large as its inputs, for routing shrinks what it is given."""

    def init_weights(self, std: float | None = None) -> None:
        """Draw the weights and zero the bias, unless they were loaded; `std`, a model's own, is for other maps."""
        init_unit_gain(self)


class GateLinear(nn.Linear):
    """Linear map of a vector to the gates of a recurrent network, initialised as Transformers does for LSTMs."""

    def init_weights(self) -> None:
        """Draw the weights and zero the bias, unless they were loaded."""
        init.xavier_uniform_(self.weight)
        init.zeros_(self.bias)


def init_words(words: nn.Embedding, width: int) -> None:
    """Draw words that have unit variance once they are multiplied by sqrt(width), unless they were loaded."""
    init.normal_(words.weight, mean=0.0, std=width**-0.5)
    # The slice does not carry the mark of what was loaded.
    if words.padding_idx is not None and not getattr(words.weight, "_is_hf_initialized", False):
        init.zeros_(words.weight[words.padding_idx])
