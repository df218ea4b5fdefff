"""`pipeline("translation")` with the decoder engine, documents, tags, and parts that are kept."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from regex import Pattern
from transformers import BatchEncoding, GenerationConfig, LogitsProcessorList
from transformers.pipelines.base import ChunkPipeline
from transformers.utils import logging

from hf_capsule_mt import decoding
from hf_capsule_mt.data.encoding import TOKENIZING, source_limit
from hf_capsule_mt.data.language_codes import LanguageCodes
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.loading import check_loaded, in_usable_precision

from . import pipeline_translation
from .attention import aligner, cross_attention
from .documents import Segment, cut_text, language_code, segments_with_codes
from .marked_segments import keep_pattern, marked_segments
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
    a CPU, weights that were saved in 16 bits are used in 32 bits, unless `dtype` says otherwise. A text without letters
    is its own translation.

    The arguments below can be given when the pipeline is made or when it is called. All others go to `generate()`.
    Without a limit to the length, a translation has at most twice as many tokens as its source and 20 more.

    Args:
        src_lang: code of the source language, for tokenizers that take one (mBART, M2M-100, NLLB).
        tgt_lang: code of the target language, for the same tokenizers. For multilingual OPUS-MT it is the `pt` of
            `>>pt<<`. A text may also begin with `>>pt<<`.
        truncation: whether a text that is too long for the model is cut. By default it is refused.
        documents: whether texts are documents of any length. Their sentences are translated one by one, and paragraphs
            are kept. Give the language, such as "en", or True where `src_lang` names it. Needs the library sentencex.
        tags: whether texts have tags of XML or HTML. The model does not see them, and its cross-attention says where
            they go in the translation. Tags of blocks, such as `<p>`, end a sentence.
        keep: a regular expression for parts that are not translated, such as numbers, placeholders or addresses.
        return_tensors: whether results have `translation_token_ids` instead of `translation_text`.
        clean_up_tokenization_spaces: as in a tokenizer's `decode()`.
        batch_size: sentences translated together, by default 1.
        engine: "fast" (the default), or "transformers", which leaves all to `generate()`.
    """

    _sentence_limits = decoding.NewTokenLimits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if hasattr(self.model, "unfit_weights"):
            check_loaded(self.model, self.model.unfit_weights, **self.model.loaded_from)
        if getattr(self.model, "has_dtype_of_checkpoint", False):
            in_usable_precision(self.model, self.device)
        tasks = getattr(self.model.config, "task_specific_params", None) or {}
        others = sorted(task for task in tasks if task.startswith("translation"))
        if others and self.task not in others:
            logger.warning(f"Texts have no prefix. To add it, name the task, as in pipeline({others[0]!r}).")
        # The prefix and generation settings that models such as T5 have for each task.
        settings = tasks.get(self.task, {})
        self._prefix = settings.get("prefix", "")
        # Other arguments of generate() and dictionaries could load and run code.
        fields = {name for name in vars(GenerationConfig()) if not name.startswith("_")} & settings.keys()
        self._task_settings = {name: settings[name] for name in fields if not isinstance(settings[name], dict)}
        self._takes_languages = hasattr(self.tokenizer, "_build_translation_inputs")
        self._language_codes = LanguageCodes(self.tokenizer)

    def _sanitize_parameters(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if options.get("engine") not in (None, *ENGINES):
            raise UserError(f"engine must be one of {', '.join(ENGINES)}")
        own = {name: options.pop(name) for name in ("src_lang", "documents", "tags", "keep") if name in options}
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
        text, codes = checked(text), self._language_codes
        source, target = self.languages(src_lang, tgt_lang)
        # A code takes one token.
        limit = source_limit(self.model.config, self.tokenizer) - bool(codes)

        def fits(part: str) -> bool:
            return self.tokenize(part, source=source, target=target)["input_ids"].shape[1] <= limit

        segments = [Segment("", text.strip() if codes else text, "")]
        if documents or tags or keep is not None:
            language = language_code(source) if documents is True else documents
            cut = partial(cut_text, language=language, fits=fits) if documents else None
            segments = marked_segments(text, tags, keep, cut)
        if codes:
            # The name of a task may have a language without a code.
            has_code = tgt_lang is not None or target in codes.languages
            segments = segments_with_codes(codes, segments, codes.of(target, "tgt_lang") if has_code else "")
            if not all(segment.code for segment in segments if segment.text):
                logger.warning_once(f"{codes.missing()}, or give tgt_lang={codes.languages[0]!r}.")
        elif tgt_lang is not None and not self._takes_languages:
            # There is none, so this is an error.
            codes.of(tgt_lang, "tgt_lang")
        for number, segment in enumerate(segments, 1):
            found = copied(segment.text)
            read = segment.source if found is None else segment.text[:1]
            encoding = self.encode(read, truncation, source=source, target=target)
            yield {**encoding, "segment": segment, "is_last": number == len(segments), "copied": found}

    def languages(self, source: str | None, target: str | None) -> tuple[str | None, str | None]:
        """Return both languages: those given, those in the name of the task, or the tokenizer's."""
        pair = LANGUAGE_PAIR.fullmatch(self.task or "") or {"source": None, "target": None}
        source, target = source or pair["source"], target or pair["target"]
        if self._takes_languages:
            source, target = source or self.tokenizer.src_lang, target or getattr(self.tokenizer, "tgt_lang", None)
            for name, code in (("src_lang", source), ("tgt_lang", target)):
                token = getattr(self.tokenizer, "lang_code_to_token", {}).get(code, code)
                if code is None or self.tokenizer.convert_tokens_to_ids(token) in (None, self.tokenizer.unk_token_id):
                    raise UserError(f"{name} is {code!r}, which is no language of the tokenizer.")
        return source, target

    def tokenize(self, text: str, *, source: str | None, target: str | None, **options: Any) -> BatchEncoding:
        """Tokenize a text after its prefix, without changing the tokenizer's language."""
        # A tokenizer has one language, and one way to cut, for all threads.
        with TOKENIZING:
            if not self._takes_languages:
                return super().tokenize(self._prefix + text, **options)
            own = self.tokenizer.src_lang
            try:
                languages = {"src_lang": source, "tgt_lang": target}
                return self.tokenizer._build_translation_inputs(text, return_tensors="pt", **languages, **options)
            finally:
                self.tokenizer.src_lang = own

    def generate(self, source: dict[str, torch.Tensor], options: dict[str, Any]) -> Any:
        """Generate translations, with the engine if it supports the options."""
        if (first := source.pop("forced_bos_token_id", None)) is not None:
            # In a batch each sentence has the same one.
            options = {"forced_bos_token_id": first[0] if isinstance(first, list) else first, **options}
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
        if "generation_config" not in options:
            options = {**self._task_settings, **options}
        found = {**super()._forward(model_inputs, **options), **chunk}
        segments = chunk["segment"] if isinstance(chunk["segment"], list) else [chunk["segment"]]
        if any(segment.needs_alignment for segment in segments):
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
            raise UserError("A text in several parts has one translation, as text. Give num_return_sequences=1.")
        if return_tensors:
            return super().postprocess(outputs[0], return_tensors)
        cleaning, parts = {"clean_up_tokenization_spaces": clean_up_tokenization_spaces}, []
        for output in outputs:
            segment, texts = output["segment"], []
            for number, found in enumerate(super().postprocess(output, **cleaning)):
                align = None
                if segment.needs_alignment:
                    ids, words = output["input_ids"][0].tolist(), output["output_ids"][0, number, 1:].tolist()
                    attention = output["attention"][0, number]
                    align = aligner(attention, self.tokenizer, segment.text, ids, words, **cleaning)
                texts.append(segment.around(segment.put_back(found["translation_text"], align)))
            parts.append(texts)
        return [{"translation_text": "".join(texts)} for texts in zip(*parts, strict=True)]
