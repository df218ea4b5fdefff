# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
"""`pipeline("translation")`, as it was in Transformers 4, for every encoder-decoder that translates."""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from re import Pattern
from types import ModuleType
from typing import Any

from torch import Tensor
from transformers import BatchEncoding, GenerationConfig, LogitsProcessorList, PreTrainedModel
from transformers.generation import GenerationMode
from transformers.pipelines.base import ChunkPipeline
from transformers.utils import TRANSFORMERS_DYNAMIC_MODULE_NAME, logging

from ..modeling.checkpoint_files import first_names

# These and what they import are copied beside a checkpoint, each with a licence of its own.
from .attention import aligner, cross_attention
from .documents import Segment, check_language, cut_document, cut_text, language_code
from .language_codes import LanguageCodes
from .marked_segments import MarkedSegment, keep_pattern, marked_segments
from .source_limits import TOKENIZING, check_text, check_words, positions, source_limit
from .teacher_forcing import evaluating

logger = logging.get_logger(__name__)

LANGUAGE_PAIR = re.compile(r"translation_(?P<source>[^_]+)_to_(?P<target>[^_]+)")
_Languages = tuple[str | None, str | None]
ENGINES = ("fast", "transformers")
_ONE_TRANSLATION = (
    "of a text in several parts, as documents and pages are, there is one translation, as text; give "
    "num_return_sequences=1 and no return_tensors"
)
# What generate() gives to its own loops alone.
_OF_TRANSFORMERS = ("custom_generate", "streamer", "tokenizer", "assistant_model", "assistant_tokenizer", "synced_gpus")


class TranslationPipeline(ChunkPipeline):
    """Translates strings with a sequence-to-sequence model.

    `pipeline("translation", model=...)` makes one; so does `pipeline("translation_xx_to_yy", ...)`, which says from and
    to which language, for models that must be told.

    Example:

        translator = pipeline("translation", model="Helsinki-NLP/opus-mt-en-de")
        translator("A dog runs.")                    # [{"translation_text": "Ein Hund läuft."}]
        translator(["A dog runs.", "It is late."], num_beams=5, batch_size=2)
        for result in tqdm(translator(data["en"])):  # a generator, or a column of a stream: translated as they come
            ...

    It decodes with the engine of this package, to the tokens of `generate()`, where that can do what is asked; a
    checkpoint with source of its own carries the engine too.

    Every argument below can be given when the pipeline is made or when it is called. All others go to `generate()`.

    Args:
        src_lang: code of the source language, if the tokenizer takes one (mBART, M2M-100, NLLB).
        tgt_lang: code of the target language, likewise; for multilingual OPUS-MT as in its code (`pt` of `>>pt<<`),
            which texts may begin with instead.
        truncation: as a tokenizer's: whether a source longer than the model can read is cut.
        documents: whether strings are documents of any length: paragraphs are kept, and sentences translated one by
            one, in batches across documents. True, where `src_lang` says in which language; or its code of two letters,
            such as "en". Needs the library sentencex.
        tags: whether tags of XML or HTML in strings are taken out, and put back where the words that they belong to
            went, by the cross-attention of the model; those of blocks, such as `<p>`, end a segment.
        keep: a regular expression for what is not translated, such as numbers, placeholders or addresses; it is
            carried over by the same alignment.
        return_tensors: whether results hold the words' ids as `translation_token_ids` instead of text.
        clean_up_tokenization_spaces: as in a tokenizer's `decode()`.
        batch_size: sentences translated together; 1 by default.
        engine: "fast", the default; "transformers" leaves all to `generate()`.

    A blank string is translated by an empty one.

    Raises:
        ValueError: if the weights are not those of the model, the input is not text or longer than the model can read,
            a translation grows longer than it can write,
            the languages or words are not those of the tokenizer and the model, the tokenizer pads on the left of
            positions that are counted, there is no such engine, of a document
            more than one text is asked for, sentencex is missing, tags are not well-formed, `keep` is no expression or
            searches for too long, or the model has no attention to put them back by.
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
                f"the weights in {self.model.name_or_path} do not fit its configuration: {first_names(unfit)}. "
                "Put back the config.json that was saved with them, name another checkpoint, or train the model first"
            )
        self._check_tokenizer_config()
        self._tell_missing_prefix()

    def _check_tokenizer_config(self) -> None:
        """Raise an OSError if the tokenizer is that of a checkpoint of ours that lost the file of its settings."""
        folder = Path(self.tokenizer.name_or_path)
        is_ours = hasattr(self.model.config, "auto_classes") and (folder / "config.json").is_file()
        if is_ours and not (folder / "tokenizer_config.json").is_file():
            raise OSError(f"{folder} lacks tokenizer_config.json, which says how its tokenizer cuts; copy it again")

    def _tell_missing_prefix(self) -> None:
        """Warn of a model such as T5, which has prefixes for other tasks than this one."""
        others = sorted(task for task in self._all_task_settings() if task.startswith("translation"))
        if others and self.task not in others:
            logger.warning(
                f"the model has settings for {', '.join(others)} and none for {self.task}, so texts have no prefix; "
                f"name one of them, as in pipeline({others[0]!r}), unless the model was trained without a prefix"
            )

    def _sanitize_parameters(
        self,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        truncation: bool | str | None = None,
        documents: bool | str | None = None,
        tags: bool | None = None,
        keep: str | None = None,
        return_tensors: bool | None = None,
        clean_up_tokenization_spaces: bool | None = None,
        engine: str | None = None,
        **generate_kwargs: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if engine not in (None, *ENGINES):
            raise ValueError(f"engine is {engine!r}; it must be one of {', '.join(ENGINES)}")
        if isinstance(generate_kwargs.get("assistant_model"), str):
            raise ValueError(f"assistant_model is {generate_kwargs['assistant_model']!r}; give the loaded model")
        preprocess = {
            **{"src_lang": src_lang, "tgt_lang": tgt_lang, "truncation": truncation, "documents": documents},
            **{"tags": tags, "keep": None if keep is None else keep_pattern(keep)},
        }
        postprocess = {
            "return_tensors": return_tensors,
            "clean_up_tokenization_spaces": clean_up_tokenization_spaces,
        }
        preprocess, engine_choice, postprocess = (
            {name: value for name, value in part.items() if value is not None}
            for part in (preprocess, {"engine": engine}, postprocess)
        )
        return preprocess, {**engine_choice, **generate_kwargs}, postprocess

    def __call__(self, inputs: str | Iterable[str], **kwargs: Any) -> Any:
        """Translate.

        Args:
            inputs: one string, a list of them or a column of a data set; or a generator or another iterable of them,
                such as a column of a streamed data set or a `KeyDataset`.
            **kwargs: arguments of the class, and of `generate()`.

        Returns:
            For a string, a list with a dictionary for each returned sequence, with `translation_text` or
            `translation_token_ids`; for a list or a column, a list with such a dictionary for each, or a list of them
            if `generate()` returns several; for anything else, an iterator over the results of each string.
        """
        if isinstance(inputs, Sequence) and not isinstance(inputs, str):
            inputs = list(inputs)
        elif isinstance(inputs, Iterable) and not isinstance(inputs, str | Mapping):
            # Of iterators, Transformers knows generators alone.
            inputs = (text for text in inputs)
        if isinstance(inputs, list) and not inputs:
            return []
        self._check_padding_side()
        self._check_together({**self._preprocess_params, **self._forward_params, **self._postprocess_params, **kwargs})
        results = super().__call__(inputs, **kwargs)
        if isinstance(inputs, list) and all(len(sequences) == 1 for sequences in results):
            return [sequences[0] for sequences in results]
        return results

    def _check_padding_side(self) -> None:
        """Raise a ValueError if a batch would be padded on the left, where positions count the padding."""
        if self.tokenizer.padding_side != "right" and positions(self.model.config) is not None:
            raise ValueError(
                f"padding_side of the tokenizer is {self.tokenizer.padding_side!r}, and {type(self.model).__name__} "
                "would count the padding of a batch among its positions; set tokenizer.padding_side = 'right'"
            )

    def _check_together(self, options: Mapping[str, Any]) -> None:
        """Raise a ValueError if what is asked for cannot be had together of any text."""
        as_ids = options.get("return_tensors")
        if options.get("documents") and (as_ids or (settings_of(self.model, options).num_return_sequences or 1) > 1):
            raise ValueError(_ONE_TRANSLATION)
        if as_ids and (options.get("tags") or options.get("keep") is not None):
            raise ValueError("ids of words have no place for tags and for what is kept; leave out return_tensors")

    def preprocess(
        self,
        inputs: str,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        truncation: bool | str = False,
        documents: bool | str = False,
        tags: bool = False,
        keep: Pattern | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Tokenize one string, or the segments of one document, or of one with tags."""
        if not isinstance(inputs, str):
            raise ValueError(
                f"{inputs!r} is a {type(inputs).__name__}; the {self.task} pipeline takes strings, as in a column: "
                "data['en']"
            )
        check_text(inputs)
        languages = self._languages(src_lang, tgt_lang, documents)
        language = None
        if documents:
            language = documents if isinstance(documents, str) else language_code(src_lang or languages[0])
            check_language(language)
        segments = self._segments(inputs, languages, language, tags, keep)
        if self._codes:
            segments = self._codes.put(segments, self._code(tgt_lang, languages[1]))
            if not all(segment.code for segment in segments if segment.text):
                logger.warning_once(self._codes.missing("tgt_lang={!r}"))
        for number, segment in enumerate(segments, 1):
            encoding = self._encode(segment.source, *languages, truncation)
            self._check_length(encoding)
            yield {**encoding, "segment": segment, "is_last": number == len(segments)}

    def _segments(
        self,
        text: str,
        languages: tuple[str | None, str | None],
        language: str | None,
        tags: bool,
        keep: Pattern | None,
    ) -> list[Segment]:
        """Return what is translated at a time of a text; of a document in a language, sentences that fit."""
        # A code takes one word.
        limit = source_limit(self.model.config, self.tokenizer) - bool(self._codes)
        fits = partial(self._fits, limit, languages)
        if tags or keep is not None:
            cut = partial(cut_text, language=language, fits=fits) if language else None
            return marked_segments(text, tags, keep, cut)
        if language:
            return cut_document(text, language, fits)
        return [Segment("", text.strip() if self._codes else text, "")]

    def _code(self, tgt_lang: str | None, of_task: str | None) -> str:
        """Return what tells the model which language to write; the name of a task may have one without a code."""
        if tgt_lang is None and of_task not in self._codes.languages:
            return ""
        return self._codes.of(tgt_lang or of_task, "tgt_lang")

    @cached_property
    def _codes(self) -> LanguageCodes | None:
        # Other tokenizers put languages in by themselves, and a prefix may be a code.
        return None if self._takes_languages() or self._task_settings().get("prefix") else LanguageCodes(self.tokenizer)

    def _encode(self, text: str, source: str | None, target: str | None, truncation: bool | str) -> BatchEncoding:
        options: dict[str, Any] = {"return_tensors": "pt", "truncation": truncation}
        if truncation and positions(self.model.config) is not None:
            options["max_length"] = source_limit(self.model.config, self.tokenizer)
        with self._own_language():
            if self._takes_languages():
                encoding = self.tokenizer._build_translation_inputs(text, src_lang=source, tgt_lang=target, **options)
            else:
                encoding = self.tokenizer(self._task_settings().get("prefix", "") + text, **options)
        # Some tokenizers return them, and generate() refuses them.
        encoding.pop("token_type_ids", None)
        largest = max(encoding["input_ids"].flatten().tolist(), default=0)
        check_words(largest, self.model, "name that which the model was trained with as tokenizer=...")
        return encoding

    def _fits(self, limit: int, languages: _Languages, text: str) -> bool:
        return self._encode(text, *languages, truncation=False)["input_ids"].shape[1] <= limit

    def _check_length(self, encoding: BatchEncoding) -> None:
        length, limit = encoding["input_ids"].shape[1], positions(self.model.config)
        if limit is not None and length > limit:
            raise ValueError(
                f"a text has {length} tokens, and {type(self.model).__name__} reads at most {limit} at a time; "
                "translate it as a document, sentence by sentence, with documents='en' (its language), or cut it with "
                "truncation=True"
            )

    @contextmanager
    def _own_language(self) -> Iterator[str | None]:
        """Keep the tokenizer's source language, of which it has one for all threads, as it is behind the block."""
        with TOKENIZING:
            own = getattr(self.tokenizer, "src_lang", None)
            try:
                yield own
            finally:
                if own is not None and self.tokenizer.src_lang != own:
                    self.tokenizer.src_lang = own

    def _takes_languages(self) -> bool:
        return hasattr(self.tokenizer, "_build_translation_inputs")

    def _languages(self, src_lang: str | None, tgt_lang: str | None, documents: bool | str) -> _Languages:
        """The two codes: those given, else those of the task's name, else the tokenizer's; None if it takes none."""
        pair = LANGUAGE_PAIR.fullmatch(self.task or "")
        if not self._takes_languages():
            names = {
                "src_lang": None if documents else src_lang,
                "tgt_lang": None if self._codes else tgt_lang,
            }
            unread = [f"{name}={code!r}" for name, code in names.items() if code is not None]
            if unread:
                logger.warning_once(
                    f"{type(self.tokenizer).__name__} takes no languages: {' and '.join(unread)} without effect"
                )
            return pair and pair["source"], tgt_lang or (pair and pair["target"])
        with self._own_language() as own:
            source = src_lang or (pair and pair["source"]) or own
        languages = {
            "src_lang": source,
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

    def _all_task_settings(self) -> dict[str, Any]:
        """Settings by task in the configurations of T5 and its like: a prefix, and arguments of `generate()`."""
        return getattr(self.model.config, "task_specific_params", None) or {}

    def _task_settings(self) -> dict[str, Any]:
        return self._all_task_settings().get(self.task, {})

    def _forward(self, model_inputs: dict[str, Any], engine: str = "fast", **generate_kwargs: Any) -> dict[str, Any]:
        settings = _plain_settings(self._task_settings())
        # Of a batch, a list of each.
        chunk = {name: model_inputs.pop(name) for name in ("segment", "is_last")}
        first_word = model_inputs.pop("forced_bos_token_id", None)
        if first_word is not None:
            # A batch has one for each sentence, all for the same language.
            settings["forced_bos_token_id"] = first_word[0] if isinstance(first_word, list) else first_word
        if "generation_config" in generate_kwargs:
            settings = {name: value for name, value in settings.items() if name == "forced_bos_token_id"}
        options = {**settings, **generate_kwargs}
        if settings_of(self.model, options).stop_strings is not None:
            options.setdefault("tokenizer", self.tokenizer)
        checks = self._choose_decoder(options, engine)
        segments = chunk["segment"] if isinstance(chunk["segment"], list) else [chunk["segment"]]
        with evaluating(self.model):
            with self._naming_positions(options):
                words = self.model.generate(**model_inputs, **options)
            for check in checks:
                check.check()
            words = getattr(words, "sequences", words)
            found = {"output_ids": words.unflatten(0, (model_inputs["input_ids"].shape[0], -1)), **chunk}
            if any(_needs_alignment(segment) for segment in segments):
                found |= {"attention": self._attention(words, model_inputs), "input_ids": model_inputs["input_ids"]}
        return found

    @contextmanager
    def _naming_positions(self, options: Mapping[str, Any]) -> Iterator[None]:
        """Raise a ValueError in the place of the IndexError of a translation that grows beyond the positions."""
        try:
            yield
        except IndexError as error:
            settings, most = settings_of(self.model, options), positions(self.model.config)
            name = "max_length" if settings.max_new_tokens is None else "max_new_tokens"
            limit = getattr(settings, name)
            # The start token takes a position too.
            longest = (limit or 0) + (name == "max_new_tokens")
            if most is None or longest <= most:
                raise
            raise ValueError(
                f"{name} is {limit}, and a translation grows longer than the {most} positions of "
                f"{type(self.model).__name__}; give max_new_tokens={most - 1} at most"
            ) from error

    def _attention(self, words: Tensor, source: Mapping[str, Tensor]) -> Tensor:
        """Return the attention of all sequences `[batch * sequences, length]`, `[batch, sequences, steps, source]`."""
        sentences = source["input_ids"].shape[0]
        each = {name: tensor.repeat_interleave(len(words) // sentences, dim=0) for name, tensor in source.items()}
        return cross_attention(self.model, words, **each).unflatten(0, (sentences, -1))

    def _choose_decoder(self, options: dict[str, Any], engine: str) -> list[Any]:
        """Name the engine among the options if it can do this; else a check of the scores, to be asked in the end."""
        decoding = _decoding_of(self.model)
        if decoding is None or options.get("custom_generate") is not None:
            return []
        if engine == "fast" and engine_takes(self.model, options):
            options["custom_generate"] = decoding.generate
            return []
        scores = decoding.FiniteScores(self.model)
        options["logits_processor"] = LogitsProcessorList([scores, *(options.get("logits_processor") or ())])
        return [scores]

    def postprocess(
        self,
        model_outputs: Sequence[dict[str, Any]],
        return_tensors: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> list[dict[str, str | Tensor]]:
        """Turn the sequences `[1, sequences, length]` of one string, or of each of its segments, into its results."""
        segments = [output["segment"] for output in model_outputs]
        sequences = [output["output_ids"][0].unbind() for output in model_outputs]
        # Of nothing, a model makes something.
        sequences = [
            [words[:0] for words in found] if self._is_blank(segment.text) else found
            for segment, found in zip(segments, sequences, strict=True)
        ]
        if len(sequences) > 1 and len(sequences[0]) > 1:
            raise ValueError(_ONE_TRANSLATION)
        if return_tensors:
            return [{"translation_token_ids": words} for words in sequences[0]]
        options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": clean_up_tokenization_spaces}
        texts = [
            [
                self._put_back(output, number, self.tokenizer.decode(words, **options), clean_up_tokenization_spaces)
                for number, words in enumerate(found)
            ]
            for output, found in zip(model_outputs, sequences, strict=True)
        ]
        joined = ["".join(map(Segment.around, segments, parts)) for parts in zip(*texts, strict=True)]
        return [{"translation_text": text} for text in joined]

    def _is_blank(self, text: str) -> bool:
        """Return whether the model reads nothing of a text: tokenizers leave out characters that nobody sees."""
        if not text.strip():
            return True
        with TOKENIZING:
            return not self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]

    def _put_back(self, output: dict[str, Any], number: int, text: str, clean_up: bool | None) -> str:
        """Return the text of a sequence with the tags of its segment, and what is kept."""
        segment = output["segment"]
        if not isinstance(segment, MarkedSegment):
            return text
        if not segment.needs_alignment:
            return segment.put_back(text)
        ids, words = output["input_ids"][0].tolist(), output["output_ids"][0, number, 1:].tolist()
        attention = output["attention"][0, number]
        return segment.put_back(text, aligner(attention, self.tokenizer, segment.text, ids, words, clean_up))


def engine_takes(model: PreTrainedModel, options: Mapping[str, Any]) -> bool:
    """Return whether `generate()` would search greedily or by beams, and hand over all that it is given."""
    if any(options.get(name) is not None for name in _OF_TRANSFORMERS):
        return False
    mode = settings_of(model, options).get_generation_mode()
    return mode in (GenerationMode.GREEDY_SEARCH, GenerationMode.BEAM_SEARCH)


def settings_of(model: PreTrainedModel, options: Mapping[str, Any]) -> GenerationConfig:
    """Return what `generate()` would decode with, given these options, of which None is a value too."""
    config = copy.copy(model.generation_config)
    given = options.get("generation_config")
    fields = {} if given is None else {name: value for name, value in vars(given).items() if value is not None}
    for name, value in {**fields, **options}.items():
        if hasattr(config, name):
            setattr(config, name, value)
    return config


def _plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the generation settings of a downloaded configuration. Arguments of `generate()`, which could load and run
    code, are left out.
    """
    fields = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    return {name: value for name, value in settings.items() if name in fields and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, list) else isinstance(value, str | int | float | None)


def _needs_alignment(segment: Segment) -> bool:
    return isinstance(segment, MarkedSegment) and segment.needs_alignment


def _decoding_of(model: PreTrainedModel) -> ModuleType | None:
    """Return `decoding.generation` with the engine that knows the model's class; None if there is no engine.

    Transformers loads the pipeline and the models of a checkpoint from copies of its source, which have classes of
    their own: the engine is taken from the copy that the model is of, and after the model has been loaded.
    """
    folder = type(model).__module__.rpartition(".")[0]
    travelled = folder.startswith(f"{TRANSFORMERS_DYNAMIC_MODULE_NAME}.")
    engine = f"{folder}.decoding_generation" if travelled else "hf_capsule_mt.decoding.generation"
    try:
        return import_module(engine)
    except ModuleNotFoundError as error:
        # A checkpoint of an earlier version, or a model of Transformers with the pipeline of a checkpoint.
        if error.name is None or not engine.startswith(error.name):
            raise
        return None


__all__ = ["TranslationPipeline"]
