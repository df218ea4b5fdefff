"""What a model can read: text, sources of a length, and words that it has."""

import os
from threading import RLock

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

TOKENIZING = RLock()
"""Held while a tokenizer is called: it has one way to cut, and one language, at a time for all threads."""
# A process that is forked meanwhile has no thread that could release it.
os.register_at_fork(after_in_child=TOKENIZING._at_fork_reinit)


def positions(config: PreTrainedConfig) -> int | None:
    """Return the most tokens that a model has positions for; None if it needs none."""
    return getattr(config, "max_position_embeddings", None)


def source_limit(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the length of the longest source, in tokens, that model and tokenizer take."""
    return min(tokenizer.model_max_length, positions(config) or tokenizer.model_max_length)


def check_text(text: str) -> None:
    """Raise a ValueError if `text` holds a surrogate, half a character, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"the text {text!r:.80} holds half a character, {text[error.start]!r}, at {error.start}; take it out, or "
            "decode the text again, as UTF-8"
        ) from error


def check_words(largest: int, model: PreTrainedModel, remedy: str) -> None:
    """Raise a ValueError, with a `remedy`, unless the model has an embedding for the `largest` word of a source."""
    num_words = model.get_input_embeddings().weight.shape[0]
    if largest >= num_words:
        raise ValueError(
            f"the tokenizer makes a word {largest}, and the model {model.name_or_path} has {num_words}: it is another "
            f"model's; {remedy}"
        )
