"""A model in evaluation mode for a block of statements."""

from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedModel


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Switch dropout off until the end of the block. Parts that were in evaluation mode before stay in it.

    A model in training mode is for one thread: the end of its block would switch dropout on for the others.
    """
    trained = [module for module in model.modules() if module.training]
    if trained:
        model.eval()
    try:
        yield
    finally:
        for module in trained:
            module.training = True
