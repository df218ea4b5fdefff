"""`pipeline("translation")` with the decoder engine, documents, tags, and parts that are kept."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from regex import Pattern
from transformers import BatchEncoding, LogitsProcessorList
from transformers.pipelines.base import ChunkPipeline
from transformers.utils import logging

from hf_capsule_mt import decoding
from hf_capsule_mt.data.encoding import TOKENIZING, source_limit

from . import pipeline_translation
from .attention import aligner, cross_attention
from .documents import Segment, check_language, cut_document, cut_text, language_code
from .language_codes import LanguageCodes
from .loading import check_loaded, in_usable_precision
from .marked_segments import MarkedSegment, keep_pattern, marked_segments
from .pipeline_translation import LANGUAGE_PAIR, checked, copied
from .translator import ENGINES, engine_takes, evaluating, settings_of

logger = logging.get_logger(__name__)


class TranslationPipeline(pipeline_translation.TranslationPipeline, ChunkPipeline):
    """Translates texts with any encoder-decoder.

    `pipeline("translation", model=...)` makes one. `pipeline("translation_xx_to_yy", ...)` also names the languages.

    Example:

        translator = pipeline("translation", model="Helsinki-NLP/opus-mt-en-de")
        translator("A dog runs.")                    # [{"translation_text": "Ein Hund läuft."}]
        translator(["A dog runs.", "It is late."], num_beams=5, batch_size=2)
        for result in tqdm(translator(data["en"])):  # a generator, or a column of a stream: translated as they come
            ...

    The decoder engine of this package gives the same tokens as `generate()`, which decodes where the engine cannot. On
    a CPU, weights that were saved in 16 bits are used in 32 bits, unless `dtype` says otherwise.

    The arguments below can be given when the pipeline is made or when it is called. All others go to `generate()`.
    Without a limit to the length, a translation has at most twice as many tokens as its source and 20 more.

    Args:
        src_lang: code of the source language, for tokenizers that take one (mBART, M2M-100, NLLB).
        tgt_lang: code of the target language, likewise. For multilingual OPUS-MT it is the `pt` of `>>pt<<`. A text may
            also begin with `>>pt<<`.
        truncation: whether a text that is too long for the model is cut. By default it is refused.
        documents: whether texts are documents of any length. Their sentences are translated one by one, and paragraphs
            are kept. Give the language, such as "en", or True where `src_lang` names it. Needs the library sentencex.
        tags: whether texts have tags of XML or HTML. The model does not see them, and its cross-attention says where
            they go in the translation. Tags of blocks, such as `<p>`, end a sentence.
        keep: a regular expression for parts that are not translated, such as numbers, placeholders or addresses.
        return_tensors: whether results have `translation_token_ids` instead of `translation_text`.
        clean_up_tokenization_spaces: as in a tokenizer's `decode()`.
        batch_size: sentences translated together; 1 by default.
        engine: "fast", the default; "transformers" leaves all to `generate()`.

    A text without letters is its own translation.
    """

    _sentence_limits = decoding.NewTokenLimits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if hasattr(self.model, "unfit_weights"):
            check_loaded(self.model, self.model.unfit_weights)
        if getattr(self.model, "has_dtype_of_checkpoint", False):
            in_usable_precision(self.model, self.device)
        tasks = getattr(self.model.config, "task_specific_params", None) or {}
        others = sorted(task for task in tasks if task.startswith("translation"))
        if others and self.task not in others:
            logger.warning(f"texts have no prefix, unless you name the task, as in pipeline({others[0]!r})")
        self._language_codes = LanguageCodes(self.tokenizer) if self.codes else None

    def _sanitize_parameters(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if options.get("engine") not in (None, *ENGINES):
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}")
        own = {name: options.pop(name) for name in ("documents", "tags", "keep") if name in options}
        if own.get("keep") is not None:
            own["keep"] = keep_pattern(own["keep"])
        preprocess, forward, postprocess = super()._sanitize_parameters(**options)
        return {**preprocess, **own}, forward, postprocess

    def preprocess(
        self,
        text: str,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
        truncation: bool = False,
        documents: bool | str = False,
        tags: bool = False,
        keep: Pattern | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Tokenize one string, or the segments of one document, or of one with tags."""
        text = checked(text)
        languages = self.languages(src_lang, tgt_lang)
        language = language_code(src_lang or languages[0]) if documents is True else documents
        if language:
            check_language(language)
        segments = self._segments(text, languages, language, tags, keep)
        if self._language_codes:
            # The name of a task may have a language without a code.
            has_code = tgt_lang is not None or languages[1] in self._language_codes.languages
            code = self._language_codes.of(languages[1], "tgt_lang") if has_code else ""
            segments = self._language_codes.put(segments, code)
            if not all(segment.code for segment in segments if segment.text):
                logger.warning_once(self._language_codes.missing("tgt_lang={!r}"))
        for number, segment in enumerate(segments, 1):
            encoding = self.encode(segment.source, *languages, truncation)
            chunk = {"segment": segment, "is_last": number == len(segments), "copied": copied(segment.text)}
            yield {**encoding, **chunk}

    def _segments(
        self,
        text: str,
        languages: tuple[str | None, str | None],
        language: str | bool,
        tags: bool,
        keep: Pattern | None,
    ) -> Sequence[Segment]:
        """Return the parts of a text that are translated one by one. Those of a document fit the model."""
        # A code takes one token.
        limit = source_limit(self.model.config, self.tokenizer) - bool(self._language_codes)

        def fits(part: str) -> bool:
            return self.tokenize(part, *languages)["input_ids"].shape[1] <= limit

        if tags or keep is not None:
            cut = partial(cut_text, language=language, fits=fits) if language else None
            return marked_segments(text, tags, keep, cut)
        if language:
            return cut_document(text, language, fits)
        return [Segment("", text.strip() if self._language_codes else text, "")]

    def tokenize(self, *args: Any, **options: Any) -> BatchEncoding:
        """Tokenize a text. A tokenizer has one language, and one way to cut, for all threads."""
        with TOKENIZING:
            return super().tokenize(*args, **options)

    def generate(self, source: dict[str, torch.Tensor], options: dict[str, Any]) -> Any:
        """Return what the model writes: by the engine, if it can do what is asked."""
        engine = options.pop("engine", "fast")
        checks = []
        if settings_of(self.model, options).stop_strings is not None:
            options.setdefault("tokenizer", self.tokenizer)
        if engine == "fast" and engine_takes(self.model, options):
            options["custom_generate"] = decoding.generate
        elif options.get("custom_generate") is None:
            checks = [decoding.FiniteScores(self.model)]
            options["logits_processor"] = LogitsProcessorList([*checks, *(options.get("logits_processor") or ())])
        with evaluating(self.model):
            words = super().generate(source, options)
        for check in checks:
            check.check()
        return words

    def _forward(self, model_inputs: dict[str, Any], **options: Any) -> dict[str, Any]:
        chunk = {name: model_inputs.pop(name) for name in ("segment", "is_last")}
        source = {name: model_inputs[name] for name in ("input_ids", "attention_mask")}
        found = {**super()._forward(model_inputs, **options), **chunk}
        segments = chunk["segment"] if isinstance(chunk["segment"], list) else [chunk["segment"]]
        if any(isinstance(segment, MarkedSegment) and segment.needs_alignment for segment in segments):
            sentences, sequences = found["output_ids"].shape[:2]
            each = {name: tensor.repeat_interleave(sequences, dim=0) for name, tensor in source.items()}
            with evaluating(self.model):
                attention = cross_attention(self.model, found["output_ids"].flatten(0, 1), **each)
            found |= {"attention": attention.unflatten(0, (sentences, -1)), "input_ids": source["input_ids"]}
        return found

    def postprocess(
        self,
        outputs: Sequence[dict[str, Any]],
        return_tensors: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> list[dict[str, Any]]:
        """Return the translations of one string, with the tags of its segments, and the parts that are kept."""
        if len(outputs) > 1 and (return_tensors or outputs[0]["output_ids"].shape[1] > 1):
            raise ValueError("a text in several parts has one translation, as text; give num_return_sequences=1")
        if return_tensors:
            return super().postprocess(outputs[0], return_tensors)
        parts = []
        for output in outputs:
            found = super().postprocess(output, clean_up_tokenization_spaces=clean_up_tokenization_spaces)
            texts = [
                self._put_back(output, number, text["translation_text"], clean_up_tokenization_spaces)
                for number, text in enumerate(found)
            ]
            parts.append([output["segment"].around(text) for text in texts])
        return [{"translation_text": "".join(texts)} for texts in zip(*parts, strict=True)]

    def _put_back(self, output: dict[str, Any], number: int, text: str, clean_up: bool) -> str:
        """Return the text of a sequence with the tags of its segment, and the parts that are kept."""
        segment = output["segment"]
        if not isinstance(segment, MarkedSegment):
            return text
        if not segment.needs_alignment:
            return segment.put_back(text)
        ids, words = output["input_ids"][0].tolist(), output["output_ids"][0, number, 1:].tolist()
        attention = output["attention"][0, number]
        return segment.put_back(text, aligner(attention, self.tokenizer, segment.text, ids, words, clean_up))


__all__ = ["LANGUAGE_PAIR", "TranslationPipeline"]
