"""Training with weights that are spread over processes by FSDP2."""

from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel


@contextmanager
def embeddings_in_one_group(model: PreTrainedModel) -> Iterator[None]:
    """Hide a model's embeddings from what spreads its weights, so that they stay in the group of the model itself.

    Encoder, decoder and head may have one embedding. accelerate puts those of source and head in a group of their own,
    and torch does not allow a weight in two groups.
    """
    names = ("get_input_embeddings", "get_output_embeddings")
    for name in names:
        setattr(model, name, lambda: None)
    try:
        yield
    finally:
        for name in names:
            delattr(model, name)
