# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
"""`pipeline("translation")`, which Transformers 5 took away: one text in, one text out.

Checkpoints carry this file, so it imports nothing of the package. With the package there is a pipeline that does more.
"""

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from transformers import BatchEncoding, Pipeline, PreTrainedModel, StoppingCriteria, StoppingCriteriaList
from transformers.utils import logging

logger = logging.get_logger(__name__)

LANGUAGE_PAIR = re.compile(r"translation_(?P<source>[^_]+)_to_(?P<target>[^_]+)")
_CODE = re.compile(r"\A>>[^<>\s]+<<")
_ANY_CODE = re.compile(_CODE.pattern + r"|\A<2[a-zA-Z]{2}[^<>\s]*>")


class SentenceLimits(StoppingCriteria):
    """Stops each sentence of a batch at its own limit of new tokens, `[sentences]`."""

    def __init__(self, limits: torch.Tensor) -> None:
        self.limits = limits

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        """Return which candidates are at their limit. Each sentence has the same number of candidates."""
        num_candidates = len(input_ids) // len(self.limits)
        limits = self.limits.to(input_ids.device).repeat_interleave(num_candidates)
        return input_ids.shape[1] - 1 >= limits


class SentenceTranslationPipeline(Pipeline):
    """Translates texts, each as one sentence, with any encoder-decoder.

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

    def _sanitize_parameters(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return sorted_options(options, ("tgt_lang", "truncation"))

    def __call__(self, inputs: str | Iterable[str], **kwargs: Any) -> Any:
        """Translate a text, a list of texts, or an iterable of texts, which is read as it is translated.

        Returns:
            A list of one dictionary for a text, a list of dictionaries for a list, and an iterator over the results of
            each text for an iterable. Where `generate()` returns several sequences, each text has a list of them.
        """
        if self.tokenizer.padding_side != "right" and hasattr(self.model.config, "max_position_embeddings"):
            raise ValueError("Positions would count the padding. Set tokenizer.padding_side = 'right'.")
        inputs = list_or_generator(inputs)
        results = []
        if inputs != []:
            results = super().__call__(inputs, **kwargs)
        return flat_results(inputs, results)

    def preprocess(self, text: str, tgt_lang: str | None = None, truncation: bool = False) -> dict[str, Any]:
        """Tokenize one text after the code of its target language for multilingual OPUS-MT."""
        text = self._with_code(checked(text), tgt_lang)
        copy_of_text = copied(text)
        # The model need not read what is copied.
        encoding = self._encode(text if copy_of_text is None else text[:1], truncation)
        return {**encoding, "copied": copy_of_text}

    @cached_property
    def codes(self) -> frozenset[str]:
        """The codes of the target languages of multilingual OPUS-MT, such as >>pt<<."""
        return frozenset(filter(_CODE.fullmatch, self.tokenizer.get_vocab()))

    def _with_code(self, text: str, tgt_lang: str | None) -> str:
        """Return a text after the code of its target language, if the tokenizer has codes and the text has none."""
        if not self.codes or _CODE.match(text):
            return text
        language = tgt_lang
        if language is None:
            language = languages_of_task(self.task)[1]
        code = f">>{language}<<"
        if code in self.codes:
            return f"{code} {text}"
        if tgt_lang is not None:
            raise ValueError(f"tgt_lang is {tgt_lang!r}, but the tokenizer has no code {code}.")
        logger.warning_once("a text does not say which language to write. Give tgt_lang.")
        return text

    def _encode(self, text: str, truncation: bool) -> BatchEncoding:
        """Tokenize a text. Raise a ValueError if it is too long for the model."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        # 0 and -1 stand for no limit of the tokenizer.
        if limit is not None and self.tokenizer.model_max_length > 0:
            limit = min(limit, self.tokenizer.model_max_length)
        max_length = None
        if truncation:
            max_length = limit
        encoding = self.tokenizer(text, return_tensors="pt", truncation=truncation, max_length=max_length)
        length = encoding["input_ids"].shape[1]
        if limit is not None and length > limit:
            raise ValueError(f"A text has {length} tokens, and the model reads {limit}. Give truncation=True.")
        # generate() refuses them.
        encoding.pop("token_type_ids", None)
        return encoding

    def _forward(self, model_inputs: dict[str, Any], **options: Any) -> dict[str, Any]:
        copy_of_text = model_inputs.pop("copied")
        lengths = model_inputs["attention_mask"].sum(-1)
        limits = length_limits(self.model, lengths, options, SentenceLimits)
        generated = self.model.generate(**model_inputs, **{**options, **limits})
        sequences = getattr(generated, "sequences", generated)
        return {"output_ids": sequences.unflatten(0, (len(lengths), -1)), "copied": copy_of_text}

    def postprocess(
        self, outputs: dict[str, Any], return_tensors: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> list[dict[str, Any]]:
        """Return the translations of one text."""
        sequences = outputs["output_ids"][0]
        copy_of_text = outputs["copied"]
        if return_tensors:
            length = 0
            if copy_of_text is None:
                length = None
            return [{"translation_token_ids": token_ids[:length]} for token_ids in sequences]
        if copy_of_text is not None:
            return [{"translation_text": copy_of_text} for _ in sequences]
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": clean_up_tokenization_spaces}
        return [{"translation_text": self.tokenizer.decode(token_ids, **options)} for token_ids in sequences]


def sorted_options(
    options: Mapping[str, Any], of_preprocess: Iterable[str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the options of `preprocess`, `_forward` and `postprocess`. Those that nobody knows go to `generate()`."""
    preprocess, forward, postprocess = {}, {}, {}
    for name, value in options.items():
        if name in of_preprocess:
            preprocess[name] = value
        elif name in ("return_tensors", "clean_up_tokenization_spaces"):
            # None stands for the default.
            if value is not None:
                postprocess[name] = value
        else:
            forward[name] = value
    return preprocess, forward, postprocess


def list_or_generator(inputs: str | Iterable[str]) -> Any:
    """Return the input of a pipeline as a text, a list or a generator. Transformers knows no other iterables."""
    if isinstance(inputs, str | Mapping):
        return inputs
    if isinstance(inputs, Sequence):
        return list(inputs)
    if not hasattr(inputs, "__iter__"):
        # A data set of PyTorch, which need not raise an IndexError behind its end.
        return (inputs[index] for index in range(len(inputs)))
    return (text for text in inputs)


def flat_results(inputs: Any, results: Any) -> Any:
    """Return the results for a list of texts without inner lists, if each text has one translation."""
    if isinstance(inputs, list) and all(len(sequences) == 1 for sequences in results):
        return [sequences[0] for sequences in results]
    return results


def languages_of_task(task: str | None) -> tuple[str | None, str | None]:
    """Return the source and target language of a task such as `translation_en_to_de`, or None for others."""
    pair = LANGUAGE_PAIR.fullmatch(task or "")
    if pair is None:
        return None, None
    return pair["source"], pair["target"]


def length_limits(
    model: PreTrainedModel,
    lengths: torch.Tensor,
    options: Mapping[str, Any],
    criterion: Callable[[torch.Tensor], StoppingCriteria],
) -> dict[str, Any]:
    """Return options that limit the length of translations, unless there is a limit already.

    Args:
        model: the model that translates.
        lengths: the numbers of source tokens, `[sentences]`.
        options: those of `generate()` that are given.
        criterion: makes the stopping criterion from the most new tokens of each sentence, `[sentences]`.
    """
    if options.get("max_new_tokens") is not None:
        # Transformers would warn of two limits in each batch.
        if "max_length" in options:
            return {}
        return {"max_length": None}
    if options.get("max_length") is not None:
        # Transformers would take the limit of the model's settings.
        if "max_new_tokens" in options:
            return {}
        return {"max_new_tokens": None}
    if options.get("stopping_criteria") is not None:
        return {}
    config = options.get("generation_config")
    settings = config or model.generation_config
    has_limit = settings.max_length is not None or settings.max_new_tokens is not None
    if config is not None and has_limit:
        return {}
    most = getattr(model.config, "max_position_embeddings", None) or 1 << 20
    limits = (2 * lengths + 20).clamp(max=most - 1)
    longest: dict[str, Any] = {}
    if not has_limit:
        # One to spare: some models are forced to write an end where the longest translation is cut.
        longest["max_length"] = min(int(limits.max()) + 2, most)
    if config is not None:
        # Transformers wants all settings in one place.
        config = copy.copy(config)
        config.update(**longest)
        longest = {"generation_config": config}
    return {**longest, "stopping_criteria": StoppingCriteriaList([criterion(limits)])}


def checked(text: str) -> str:
    """Return a text without the byte-order mark of its file."""
    if not isinstance(text, str):
        raise ValueError(f"{text!r:.80} is not a text.")
    return text.removeprefix("\ufeff")


def copied(text: str) -> str | None:
    """Return a text without letters, for which a model would invent a translation, and None for other texts."""
    rest = _ANY_CODE.sub("", text)
    has_letters = any(character.isalpha() for character in rest)
    if has_letters:
        return None
    return rest.strip()


__all__ = ["SentenceTranslationPipeline"]
