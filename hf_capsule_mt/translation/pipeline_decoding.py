"""How the pipeline decodes: in which precision, and with the engine if it can, with `generate()` otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessorList, PreTrainedModel

from hf_capsule_mt import decoding
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.loading import in_usable_precision

from .decoding_options import engine_computes_in, is_of_engine, name_of
from .evaluation_mode import evaluating
from .generate_settings import engine_takes, settings_of, warn_of_dtype, with_tokenizer
from .pipeline_translation import length_limits
from .text_reader import Sentence
from .texts import TextTranslator, check_glossary_count, with_language
from .token_rows import Written, with_scores, words_before_end
from .translator import decode_within_memory, model_source


def dtype_of_engine(model: PreTrainedModel, device: torch.device, dtype: str, engine: str | None) -> str:
    """Return the engine's precision for the one that the user asked for.

    Weights that were loaded for the pipeline are converted, if they must have it. A model of the user stays.

    Args:
        model: the pipeline's model. It has `asked_dtype` if it was loaded for the pipeline.
        device: where it is.
        dtype: the precision that the user asked for, or "auto".
        engine: "fast", "transformers", or None for the default.

    Raises:
        UserError: if int8 is asked of a model or a device that it is not for.
    """
    was_loaded = hasattr(model, "asked_dtype")
    if dtype == "auto" and was_loaded:
        in_usable_precision(model, device)
    if not is_of_engine(dtype):
        return "float32"
    if engine != "transformers" and engine_computes_in(dtype, model, device):
        return dtype
    if dtype == "int8":
        raise UserError(
            "dtype int8 is for models that the decoder engine knows, on a CPU and with engine 'fast'. This is "
            f"a {type(model).__name__} on {device}. Use float32 or bfloat16."
        )
    if was_loaded:
        model.to(getattr(torch, dtype))
    return "float32"


@dataclass(frozen=True)
class DecodedSentence:
    """The translations of one sentence."""

    sequences: Tensor  # Token ids with the start token, `[translations, length]`. A copy has none.
    attention: list[Tensor | None]  # Of each translation, `[length - 1, source]`, where words are aligned.
    scores: list[float | None]  # Of each translation, if they were asked for.


class SentenceDecoder:
    """Decodes sentences that share a batch, with options of `generate()`.

    Args:
        texts: the model, its tokenizer, and what aligns words and writes terms.
        device: where the model is.
        dtype: the precision of the engine, unless the options have another.
    """

    def __init__(self, texts: TextTranslator, device: torch.device, dtype: str) -> None:
        self._texts = texts
        self._model = texts.model
        self._device = device
        self._dtype = dtype

    def decode(
        self, sentences: Sequence[Sentence], options: dict[str, Any], *, scores: bool, alignments: bool
    ) -> list[DecodedSentence]:
        """Decode sentences with token ids and one target language, in one batch, or in halves if memory runs out.

        Args:
            sentences: the sentences.
            options: of `generate()`, and "engine" and "dtype".
            scores: whether translations have scores.
            alignments: whether all words are aligned. Otherwise only those of sentences with tags or kept parts.
        """
        decode = partial(self._decode, options=options, scores=scores, alignments=alignments)
        decoded: list[DecodedSentence] = []
        for part in decode_within_memory(decode, sentences):
            decoded += part
        return decoded

    def _decode(
        self, sentences: Sequence[Sentence], options: dict[str, Any], scores: bool, alignments: bool
    ) -> list[DecodedSentence]:
        """Decode sentences in one batch."""
        with_limits = self._with_limits(sentences, options)
        sequences, sequences_scores = self._generate(sentences, with_limits, scores)
        count = len(sequences) // len(sentences)
        if any(sentence.terms for sentence in sentences):
            check_glossary_count(count)
            sequences = self._with_terms(sentences, sequences, options)
            # These were the scores of the translations without the terms.
            sequences_scores = None
        repeated = [sentence for sentence in sentences for _ in range(count)]
        scores_of_rows: list[float | None] = [None] * len(repeated)
        with evaluating(self._model):
            if scores:
                written = with_scores(self._written(sequences, len(sentences), with_limits), sequences_scores)
                scored = self._texts.scored(sentences, written, settings_of(self._model, with_limits))
                scores_of_rows = [row.score for row in scored]
            attention = self._texts.attention(repeated, sequences, self._device, everywhere=alignments)
        decoded = []
        for start in range(0, len(repeated), count):
            rows = slice(start, start + count)
            decoded.append(DecodedSentence(sequences[rows].cpu(), attention[rows], scores_of_rows[rows]))
        return decoded

    def _with_limits(self, sentences: Sequence[Sentence], options: dict[str, Any]) -> dict[str, Any]:
        """Return the options with limits to the length of each sentence, and with the language of the batch."""
        lengths = torch.tensor([len(sentence.token_ids) for sentence in sentences], device=self._device)
        limits = length_limits(self._model, lengths, options, decoding.NewTokenLimits)
        return with_language(sentences, {**options, **limits})

    def _generate(
        self, sentences: Sequence[Sentence], options: dict[str, Any], return_scores: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return what `generate()` writes, with the engine if it can, and the scores of the search if it has any.

        They are `[sentences * translations, length]` and `[sentences * translations]`.
        """
        token_ids = [sentence.token_ids for sentence in sentences]
        options = dict(options)
        engine = options.pop("engine", "fast")
        dtype = name_of(options.pop("dtype", self._dtype))
        options = with_tokenizer(self._model, self._texts.tokenizer, options)
        checks = []
        is_fast = engine == "fast" and engine_takes(self._model, options)
        if is_fast:
            options["custom_generate"] = partial(decoding.generate, dtype=dtype, return_scores=return_scores)
        elif options.get("custom_generate") is None:
            warn_of_dtype(dtype)
            # The engine looks at the scores by itself.
            checks = [decoding.FiniteScores(self._model)]
            options["logits_processor"] = LogitsProcessorList([*checks, *(options.get("logits_processor") or ())])
        with evaluating(self._model):
            source = model_source(self._model, token_ids, dtype if is_fast else None)
            generated = self._model.generate(**source, **options)
        for check in checks:
            check.check()
        return getattr(generated, "sequences", generated), getattr(generated, "sequences_scores", None)

    def _with_terms(self, sentences: Sequence[Sentence], sequences: Tensor, options: dict[str, Any]) -> Tensor:
        """Return translations `[sentences, length]` with the terms of a glossary."""
        options = with_language(sentences, {"dtype": self._dtype, **options})
        limits = [sequences.shape[1] - 1] * len(sentences)
        written = words_before_end(sequences, settings_of(self._model, options), limits)
        with evaluating(self._model):
            completed, _, _ = self._texts.with_terms(sentences, sequences, written, options)
        return completed

    def _written(self, sequences: Tensor, num_sentences: int, options: dict[str, Any]) -> list[Written]:
        """Return what was written in token ids `[sentences * translations, length]`."""
        limits = [sequences.shape[1] - 1] * num_sentences
        for criterion in options.get("stopping_criteria") or ():
            if isinstance(criterion, decoding.NewTokenLimits):
                limits = criterion.of(num_sentences)
        count = len(sequences) // num_sentences
        limits_of_rows = [limit for limit in limits for _ in range(count)]
        return words_before_end(sequences, settings_of(self._model, options), limits_of_rows)
