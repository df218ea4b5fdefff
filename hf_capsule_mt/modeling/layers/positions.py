"""Sinusoids of positions."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding


class Positions(MarianSinusoidalPositionalEmbedding):
    """Marian's sinusoids, which say when a text is longer than they are."""

    def forward(
        self, input_ids_shape: Sequence[int], cache_length: int | Tensor = 0, position_ids: Tensor | None = None
    ) -> Tensor:
        """Return the sinusoids of a text's positions, behind those of a cache: arguments and result of Marian's.

        Raises:
            ValueError: if there are fewer. Not while a program is compiled or exported, nor of a static cache, whose
                length is on the device.
        """
        # On a GPU what is looked up past the end is an assertion of the device, after which nothing runs on it.
        if not torch.compiler.is_compiling() and isinstance(cache_length, int):
            longest = cache_length + input_ids_shape[1]
            if longest > self.num_embeddings:
                raise ValueError(
                    f"a text has {longest} tokens, and the model {self.num_embeddings} positions "
                    "(max_position_embeddings); cut a source, as a tokenizer does with truncation=True, or write a "
                    "shorter translation, by max_new_tokens"
                )
        return super().forward(input_ids_shape, cache_length, position_ids)


def use_positions(stack: nn.Module) -> None:
    """Make a [`Positions`] of those of Marian's encoder or decoder, as they are: new ones would draw random numbers."""
    stack.embed_positions.__class__ = Positions
