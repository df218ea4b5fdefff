# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
"""What a model can read: text, sources of a length, and words that it has."""

from threading import RLock

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

TOKENIZING = RLock()
"""Held while a tokenizer is called: it has one way to cut, and one language, at a time for all threads."""


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
