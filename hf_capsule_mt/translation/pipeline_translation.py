# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
"""`pipeline("translation")`, which Transformers 5 took away: one text in, one text out.

Checkpoints carry this file. The pipeline of the package is built on it.
"""

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from transformers import BatchEncoding, Pipeline, StoppingCriteria, StoppingCriteriaList
from transformers.utils import logging

logger = logging.get_logger(__name__)

LANGUAGE_PAIR = re.compile(r"translation_(?P<source>[^_]+)_to_(?P<target>[^_]+)")
_CODE = re.compile(r"\A>>[^<>\s]+<<")


class SentenceLimits(StoppingCriteria):
    """Stops each sentence of a batch at its own limit of new tokens, `[sentences]`."""

    def __init__(self, limits: torch.Tensor) -> None:
        self.limits = limits

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Return which candidates are at their limit. Each sentence has the same number of candidates."""
        limits = self.limits.to(input_ids.device).repeat_interleave(len(input_ids) // len(self.limits))
        return input_ids.shape[1] - 1 >= limits


class TranslationPipeline(Pipeline):
    """Translates texts with any encoder-decoder.

    Args:
        tgt_lang: code of the target language, for multilingual OPUS-MT: `pt` of `>>pt<<`.
        truncation: whether a text that is too long for the model is cut. By default it is refused.
        return_tensors: whether results hold `translation_token_ids` instead of `translation_text`.
        clean_up_tokenization_spaces: as in a tokenizer's `decode()`.

    All other arguments go to `generate()`. Without a limit to the length, a translation has at most twice as many
    tokens as its source and 20 more.
    """

    _load_processor = _load_image_processor = _load_feature_extractor = False
    _load_tokenizer = True
    _sentence_limits: Any = SentenceLimits

    def _sanitize_parameters(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        preprocess = {name: options.pop(name) for name in ("tgt_lang", "truncation") if name in options}
        names = ("return_tensors", "clean_up_tokenization_spaces")
        postprocess = {name: value for name in names if (value := options.pop(name, None)) is not None}
        return preprocess, options, postprocess

    def __call__(self, inputs: str | Iterable[str], **kwargs: Any) -> Any:
        """Translate a text, a list of texts, or an iterable of texts, which is read as it is translated.

        Returns:
            A list of one dictionary for a text, a list of dictionaries for a list, and an iterator over the results of
            each text for an iterable. Where `generate()` returns several sequences, each text has a list of them.
        """
        if self.tokenizer.padding_side != "right" and hasattr(self.model.config, "max_position_embeddings"):
            raise ValueError("Positions would count the padding. Set tokenizer.padding_side = 'right'.")
        if not isinstance(inputs, str | Mapping):
            # Transformers knows lists and generators only.
            inputs = list(inputs) if isinstance(inputs, Sequence) else (text for text in inputs)
        results = super().__call__(inputs, **kwargs) if inputs != [] else []
        if isinstance(inputs, list) and all(len(sequences) == 1 for sequences in results):
            return [sequences[0] for sequences in results]
        return results

    def preprocess(self, text: str, tgt_lang: str | None = None, truncation: bool = False) -> dict[str, Any]:
        """Tokenize one text after the code of its target language for multilingual OPUS-MT."""
        text = checked(text)
        if self.codes and not _CODE.match(text):
            pair = LANGUAGE_PAIR.fullmatch(self.task or "")
            code = f">>{tgt_lang or (pair and pair['target'])}<<"
            if code in self.codes:
                text = f"{code} {text}"
            elif tgt_lang is not None:
                raise ValueError(f"tgt_lang is {tgt_lang!r}, but the tokenizer has no code {code}.")
            else:
                logger.warning_once("a text does not say which language to write. Give tgt_lang.")
        found = copied(text)
        # The model need not read what is copied.
        return {**self.encode(text if found is None else text[:1], truncation), "copied": found}

    @cached_property
    def codes(self) -> frozenset[str]:
        """The codes of the target languages of multilingual OPUS-MT, such as >>pt<<."""
        return frozenset(filter(_CODE.fullmatch, self.tokenizer.get_vocab()))

    def encode(self, text: str, truncation: bool, **languages: str | None) -> BatchEncoding:
        """Tokenize a text. Raise a ValueError if it is too long for the model."""
        most = getattr(self.model.config, "max_position_embeddings", None)
        limit = None if most is None else min(most, self.tokenizer.model_max_length or most)
        found = self.tokenize(text, truncation=truncation, max_length=limit if truncation else None, **languages)
        if limit is not None and (length := found["input_ids"].shape[1]) > limit:
            raise ValueError(f"A text has {length} tokens, and the model reads {limit}. Give truncation=True.")
        # generate() refuses them.
        found.pop("token_type_ids", None)
        return found

    def tokenize(self, text: str, **options: Any) -> BatchEncoding:
        """Tokenize a text."""
        return self.tokenizer(text, return_tensors="pt", **options)

    def _forward(self, model_inputs: dict[str, Any], **options: Any) -> dict[str, Any]:
        text, sentences = model_inputs.pop("copied"), len(model_inputs["input_ids"])
        words = self.generate(model_inputs, {**options, **self.length_limits(model_inputs, options)})
        return {"output_ids": getattr(words, "sequences", words).unflatten(0, (sentences, -1)), "copied": text}

    def generate(self, source: dict[str, Any], options: dict[str, Any]) -> Any:
        """Generate translations."""
        return self.model.generate(**source, **options)

    def length_limits(self, source: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> dict[str, Any]:
        """Return a limit to the length of translations, unless the options have one."""
        if options.get("max_new_tokens") is not None:
            # Transformers would warn of two limits in each batch.
            return {} if "max_length" in options else {"max_length": None}
        config = options.get("generation_config")
        own = config or self.model.generation_config
        has_limit = (own.max_length, own.max_new_tokens) != (None, None)
        is_given = any(options.get(name) is not None for name in ("max_length", "stopping_criteria"))
        if is_given or (config is not None and has_limit):
            return {}
        most = getattr(self.model.config, "max_position_embeddings", None) or 1 << 20
        limits = (2 * source["attention_mask"].sum(-1) + 20).clamp(max=most - 1)
        # One to spare: some models are forced to write an end where the longest translation is cut.
        longest = {} if has_limit else {"max_length": min(int(limits.max()) + 2, most)}
        if config is not None:
            # Transformers wants all settings in one place.
            config = copy.copy(config)
            config.update(**longest)
            longest = {"generation_config": config}
        return {**longest, "stopping_criteria": StoppingCriteriaList([self._sentence_limits(limits)])}

    def postprocess(
        self, outputs: dict[str, Any], return_tensors: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> list[dict[str, Any]]:
        """Return the translations of one text."""
        sequences, text = outputs["output_ids"][0], outputs["copied"]
        if return_tensors:
            return [{"translation_token_ids": words[: None if text is None else 0]} for words in sequences]
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": clean_up_tokenization_spaces}
        texts = [self.tokenizer.decode(words, **options) if text is None else text for words in sequences]
        return [{"translation_text": text} for text in texts]


def checked(text: str) -> str:
    """Return a text without the byte-order mark of its file."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r:.80} is not a text.")
    return text.removeprefix("\ufeff")


def copied(text: str) -> str | None:
    """Return a text without letters, for which a model would invent a translation, and None for other texts."""
    rest = _CODE.sub("", text)
    return None if any(map(str.isalpha, rest)) else rest.strip()


__all__ = ["TranslationPipeline"]
