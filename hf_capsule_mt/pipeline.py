# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
"""`pipeline("translation")`, as it was in Transformers 4, for every encoder-decoder that translates."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BatchEncoding, Pipeline
from transformers.utils import logging

logger = logging.get_logger(__name__)

LANGUAGE_PAIR = re.compile(r"translation_(?P<source>[^_]+)_to_(?P<target>[^_]+)")


class TranslationPipeline(Pipeline):
    """Translates strings with a sequence-to-sequence model.

    `pipeline("translation", model=...)` makes one; so does `pipeline("translation_xx_to_yy", ...)`, which says from and
    to which language, for models that must be told.

    Example:

        translator = pipeline("translation", model="Helsinki-NLP/opus-mt-en-de")
        translator("A dog runs.")                    # [{"translation_text": "Ein Hund läuft."}]
        translator(["A dog runs.", "It is late."], num_beams=5, batch_size=2)
        for result in tqdm(translator(dataset)):     # a generator or a data set of strings: translated as they come
            ...

    Every argument below can be given when the pipeline is made or when it is called. All others go to `generate()`.

    Args:
        src_lang: code of the source language, if the tokenizer takes one (mBART, M2M-100, NLLB).
        tgt_lang: code of the target language, likewise.
        truncation: as a tokenizer's: whether a source longer than the model can read is cut.
        return_tensors: whether results hold the words' ids as `translation_token_ids` instead of text.
        clean_up_tokenization_spaces: as in a tokenizer's `decode()`.
        batch_size: sentences translated together; 1 by default.

    A blank string is translated by an empty one.

    Raises:
        ValueError: if the weights are not those of the model, the input is not text, or the languages or words are not
            those of the tokenizer and the model.
        OSError: if the checkpoint lacks a file that its translations depend on.
    """

    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.tokenizer is None:
            raise ValueError(f"the {self.task} pipeline needs a tokenizer; give it one as tokenizer=...")
        if not getattr(self.model.config, "is_encoder_decoder", False) or not self.model.can_generate():
            raise ValueError(
                f"{type(self.model).__name__} cannot translate; load a sequence-to-sequence model with "
                "AutoModelForSeq2SeqLM"
            )
        unfit = sorted(getattr(self.model, "unfit_tensors", ()))
        if unfit:
            raise ValueError(
                f"the weights in {self.model.name_or_path} do not fit its configuration: {', '.join(unfit[:8])}"
                f"{f' and {len(unfit) - 8} more' if len(unfit) > 8 else ''}. Put back the config.json that was saved "
                "with them, name another checkpoint, or train the model first"
            )
        self._check_tokenizer_config()

    def _check_tokenizer_config(self) -> None:
        """Raise an OSError if the tokenizer is that of a checkpoint of ours that lost the file of its settings."""
        folder = Path(self.tokenizer.name_or_path)
        is_ours = hasattr(self.model.config, "auto_classes") and (folder / "config.json").is_file()
        if is_ours and not (folder / "tokenizer_config.json").is_file():
            raise OSError(f"{folder} lacks tokenizer_config.json, which says how its tokenizer cuts; copy it again")

    def _sanitize_parameters(
        self,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        truncation: bool | str | None = None,
        return_tensors: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        **generate_kwargs: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        preprocess = {"src_lang": src_lang, "tgt_lang": tgt_lang, "truncation": truncation}
        postprocess = {
            "return_tensors": return_tensors,
            "clean_up_tokenization_spaces": clean_up_tokenization_spaces,
        }
        given = (
            {name: value for name, value in part.items() if value is not None} for part in (preprocess, postprocess)
        )
        preprocess, postprocess = given
        return preprocess, generate_kwargs, postprocess

    def __call__(self, inputs: str | Iterable[str], **kwargs: Any) -> Any:
        """Translate.

        Args:
            inputs: one string, a list of them, or a generator or data set of them.
            **kwargs: arguments of the class, and of `generate()`.

        Returns:
            For a string, a list with a dictionary for each returned sequence, with `translation_text` or
            `translation_token_ids`; for a list of strings, a list with such a dictionary for each, or a list of them
            if `generate()` returns several; for anything else, an iterator over the results of each string.
        """
        if isinstance(inputs, tuple):
            inputs = list(inputs)
        if isinstance(inputs, list) and not inputs:
            return []
        results = super().__call__(inputs, **kwargs)
        if isinstance(inputs, list) and all(len(sequences) == 1 for sequences in results):
            return [sequences[0] for sequences in results]
        return results

    def preprocess(
        self,
        inputs: str,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        truncation: bool | str = False,
    ) -> BatchEncoding:
        """Tokenize one string."""
        if not isinstance(inputs, str):
            raise ValueError(f"{inputs!r} is a {type(inputs).__name__}; the {self.task} pipeline takes strings")
        options = {"return_tensors": "pt", "truncation": truncation}
        if hasattr(self.tokenizer, "_build_translation_inputs"):
            source, target = self._languages(src_lang, tgt_lang)
            encoding = self.tokenizer._build_translation_inputs(inputs, src_lang=source, tgt_lang=target, **options)
        else:
            if src_lang is not None or tgt_lang is not None:
                logger.warning_once(
                    f"{type(self.tokenizer).__name__} takes no languages: src_lang={src_lang!r} and "
                    f"tgt_lang={tgt_lang!r} do nothing"
                )
            encoding = self.tokenizer(self._task_settings().get("prefix", "") + inputs, **options)
        # Some tokenizers return them, and generate() refuses them.
        encoding.pop("token_type_ids", None)
        self._check_words(encoding["input_ids"])
        encoding["is_blank"] = torch.tensor([not inputs.strip()])
        return encoding

    def _check_words(self, input_ids: Tensor) -> None:
        """Raise a ValueError unless the model has an embedding for each word."""
        num_words = self.model.get_input_embeddings().weight.shape[0]
        if input_ids.numel() and input_ids.max() >= num_words:
            raise ValueError(
                f"the tokenizer makes a word {int(input_ids.max())}, and the model {self.model.name_or_path} has "
                f"{num_words}: it is another model's; name that which the model was trained with as tokenizer=..."
            )

    def _languages(self, src_lang: str | None, tgt_lang: str | None) -> tuple[str, str]:
        """The two codes: those given, else those of the task's name, else the tokenizer's."""
        pair = LANGUAGE_PAIR.fullmatch(self.task or "")
        languages = {
            "src_lang": src_lang or (pair and pair["source"]) or getattr(self.tokenizer, "src_lang", None),
            "tgt_lang": tgt_lang or (pair and pair["target"]) or getattr(self.tokenizer, "tgt_lang", None),
        }
        for name, code in languages.items():
            if code is None:
                raise ValueError(f"{type(self.tokenizer).__name__} needs to know {name}; give it as {name}=...")
            if not self._knows(code):
                raise ValueError(
                    f"{name} is {code!r}, which this {type(self.tokenizer).__name__} does not know; it knows "
                    f"{', '.join(sorted(self._language_codes())) or 'no language'}"
                )
        return languages["src_lang"], languages["tgt_lang"]

    def _knows(self, code: str) -> bool:
        token = getattr(self.tokenizer, "lang_code_to_token", {}).get(code, code)
        return self.tokenizer.convert_tokens_to_ids(token) not in (None, self.tokenizer.unk_token_id)

    def _language_codes(self) -> set[str]:
        for name in ("lang_code_to_token", "lang_code_to_id"):
            if hasattr(self.tokenizer, name):
                return set(getattr(self.tokenizer, name))
        special = self.tokenizer.all_special_tokens
        return {token for token in special if re.fullmatch(r"[a-z]{2,3}_[A-Za-z]{2,4}", token)}

    def _task_settings(self) -> dict[str, Any]:
        """Task settings in the configurations of T5 and its like: a prefix, and arguments of `generate()`."""
        return (getattr(self.model.config, "task_specific_params", None) or {}).get(self.task, {})

    def _forward(self, model_inputs: dict[str, Tensor], **generate_kwargs: Any) -> dict[str, Tensor]:
        settings = {name: value for name, value in self._task_settings().items() if name != "prefix"}
        first_word = model_inputs.pop("forced_bos_token_id", None)
        if first_word is not None:
            # A batch has one for each sentence, all for the same language.
            settings["forced_bos_token_id"] = first_word[0] if isinstance(first_word, list) else first_word
        if "generation_config" in generate_kwargs:
            settings = {name: value for name, value in settings.items() if name == "forced_bos_token_id"}
        is_blank = model_inputs.pop("is_blank")
        words = self.model.generate(**model_inputs, **{**settings, **generate_kwargs})
        return {"output_ids": words.unflatten(0, (model_inputs["input_ids"].shape[0], -1)), "is_blank": is_blank}

    def postprocess(
        self,
        model_outputs: dict[str, Tensor],
        return_tensors: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> list[dict[str, str | Tensor]]:
        """Turn the sequences `[1, sequences, length]` of one string into its results; empty for a blank one."""
        sequences = torch.unbind(model_outputs["output_ids"][0])
        if model_outputs["is_blank"].item():
            sequences = [words[:0] for words in sequences]
        if return_tensors:
            return [{"translation_token_ids": words} for words in sequences]
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": clean_up_tokenization_spaces}
        return [{"translation_text": self.tokenizer.decode(words, **options)} for words in sequences]


__all__ = ["TranslationPipeline"]
