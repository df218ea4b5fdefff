"""Translate lines of text in batches of similar length."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase, StoppingCriteriaList
from transformers.utils import logging

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import cut_lines, source_limit, tokenize_lines
from hf_capsule_mt.data.lines import unbroken
from hf_capsule_mt.decoding import FiniteScores, NewTokenLimits, UnsupportedModelError, engine_of, generate
from hf_capsule_mt.decoding.term_automaton import Forms, WordBoundaries
from hf_capsule_mt.errors import UserError

from .evaluation_mode import evaluating
from .generate_settings import (
    ENGINES,
    check_beams,
    engine_takes,
    new_tokens_limit,
    settings_of,
    warn_of_dtype,
    with_tokenizer,
)
from .pipeline_translation import copied
from .token_rows import Written, pad_rows, with_scores, words_before_end

logger = logging.get_logger(__name__)

Item = TypeVar("Item")
Decoded = TypeVar("Decoded")

_EVERY_LINE = {
    # Whatever the settings of the checkpoint say.
    "return_dict_in_generate": False,
    # Transformers refuses it for several sentences, and it changes only the speed.
    "prompt_lookup_num_tokens": None,
}


@dataclass(frozen=True)
class ForcedTerms:
    """Terms that translations must have."""

    forms: Sequence[Sequence[Forms]]
    """For each line its terms, for each term its forms, for each form its token ids."""
    boundaries: WordBoundaries
    """Which tokens may stand in one word."""
    width: int
    """How many hypotheses the search has for each number of terms that are written."""
    translations: int
    """How many translations of each line are returned. There may be more than beams."""


def translate_lines(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    lines: Sequence[str],
    *,
    max_tokens_per_batch: int = 4096,
    **options: Any,
) -> list[str]:
    """Translate every line, and return the translations without line breaks. A line without letters is copied.

    Which lines share a batch changes only the rounding. But with `early_stopping="never"` and a `length_penalty` over
    0, the result depends on the longest limit of a batch.

    Args:
        model: any encoder-decoder that has `generate()`.
        tokenizer: its tokenizer.
        lines: the sources.
        max_tokens_per_batch: the most source tokens of a batch, padding included.
        **options: of [`generate_batches`], and so of `generate()`, such as `num_beams=5`.

    Raises:
        UserError: if a line has more tokens than a batch may, and as [`generate_batches`] does.
    """
    if isinstance(lines, str):
        raise TypeError(f"lines is one text, {lines!r:.80}. Give a list of lines.")
    limit = source_limit(model.config, tokenizer)
    encoded = tokenize_lines(tokenizer, lines, limit)
    translations = leave_out_copies(lines, encoded)
    cut_lines(tokenizer, lines, encoded, limit)
    batches = batch_by_tokens([len(ids) for ids in encoded], max_tokens_per_batch)
    for batch in translate_batches(model, tokenizer, encoded, batches, **options):
        translations.update(batch)
    # The tokenizer makes nothing of some lines.
    texts = [translations.get(index, "") for index in range(len(lines))]
    return unbroken(texts, "translations")


def leave_out_copies(lines: Sequence[str], encoded: list[list[int]]) -> dict[int, str]:
    """Empty the tokens of lines without letters, and return these lines by index.

    A model would invent a translation.
    """
    copies = {}
    for index, line in enumerate(lines):
        copy_of_line = copied(line)
        if copy_of_line is not None:
            copies[index] = copy_of_line
            encoded[index] = []
    return copies


def translate_batches(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: Sequence[Sequence[int]],
    batches: Iterable[Sequence[int]],
    **options: Any,
) -> Iterator[dict[int, str]]:
    """Translate encoded lines. Yield after each batch its translations by index.

    Args:
        model: any encoder-decoder that has `generate()`.
        tokenizer: decodes the translations, without special tokens, and reads `stop_strings`.
        encoded: source tokens of every line.
        batches: indices into `encoded`.
        **options: of [`generate_batches`], which also says what is refused.
    """
    options = with_tokenizer(model, tokenizer, options)
    # A line has one translation.
    options["num_return_sequences"] = 1
    for batch, _, written in generate_batches(model, encoded, batches, **options):
        texts = tokenizer.batch_decode([row.words for row in written], skip_special_tokens=True)
        yield dict(zip(batch, texts, strict=True))


def generate_batches(
    model: PreTrainedModel,
    encoded: Sequence[Sequence[int]],
    batches: Iterable[Sequence[int]],
    *,
    max_new_tokens: int | None = None,
    engine: str = "fast",
    dtype: str = "float32",
    forced_terms: ForcedTerms | None = None,
    num_return_sequences: int = 1,
    return_scores: bool = False,
    **options: Any,
) -> Iterator[tuple[Sequence[int], Tensor, list[Written]]]:
    """Decode encoded lines. Yield each batch with its token ids `[batch, length]`, and what was written.

    If memory runs out, a batch is decoded in halves.

    Args:
        model: any encoder-decoder that has `generate()`. It is in evaluation mode while this runs.
        encoded: source tokens of every line.
        batches: indices into `encoded`.
        max_new_tokens: limit to the length of a translation. The default is twice the source tokens plus 20, within the
            model's positions and its generation config.
        engine: "fast" is [`hf_capsule_mt.decoding`], where it can do what is asked, with the same tokens.
            "transformers" is `generate()`.
        dtype: "float32", "bfloat16" or "int8": the precision of the engine "fast", for weights in float32. The engine
            "transformers" has the precision of the weights.
        forced_terms: what the translations of each line must have. Needs the engine "fast". It says how many
            translations a line has.
        num_return_sequences: how many translations a line has, at most as many as there are beams. They stand one after
            the other, in the token ids and in what was written.
        return_scores: whether what was written has the scores of the engine's beam search.
        **options: of `generate()`. The generation config has the others, but for the number of translations.
            `max_length` counts the start token too, and `max_new_tokens` comes before it.

    Raises:
        UserError: if `max_new_tokens` does not fit the model's positions, the engine has no such `dtype`, a token id
            is not in the model's vocabulary, or scores are not finite.
    """
    if engine not in ENGINES or (engine != "fast" and dtype != "float32"):
        raise UserError(f"engine is {engine!r:.80}, with dtype {dtype}. Only engine fast has dtypes of its own.")
    options["num_return_sequences"] = num_return_sequences
    decoder = _BatchDecoder(model, encoded, max_new_tokens, engine, dtype, options, forced_terms, return_scores)
    with evaluating(model):
        for batch in batches:
            yield from decode_within_memory(decoder.decode, batch)


def decode_within_memory(decode: Callable[[Sequence[Item]], Decoded], batch: Sequence[Item]) -> Iterator[Decoded]:
    """Yield what is decoded of a batch as a whole, or of parts in order that are small enough for the memory.

    Args:
        decode: decodes a batch. It may raise a `torch.OutOfMemoryError`.
        batch: the sentences, or their indices.

    Raises:
        torch.OutOfMemoryError: if there is no memory for a single sentence.
    """
    waiting = [batch]
    while waiting:
        part = waiting.pop(0)
        try:
            decoded = decode(part)
        except torch.OutOfMemoryError:
            if len(part) == 1:
                raise
            logger.warning_once(
                "The memory is full, so batches are halved. Lower max_tokens_per_batch, or batch_size of a pipeline."
            )
            middle = len(part) // 2
            waiting = [part[:middle], part[middle:], *waiting]
        else:
            yield decoded


class _BatchDecoder:
    """Decodes batches of lines with the same options, those of [`generate_batches`]."""

    def __init__(
        self,
        model: PreTrainedModel,
        encoded: Sequence[Sequence[int]],
        max_new_tokens: int | None,
        engine: str,
        dtype: str,
        options: dict[str, Any],
        forced_terms: ForcedTerms | None,
        return_scores: bool,
    ) -> None:
        options = {**options, **_EVERY_LINE}
        max_length = options.pop("max_length", None)
        if max_new_tokens is None and max_length is not None:
            # It counts the start token.
            max_new_tokens = max_length - 1
        self._model = model
        self._encoded = encoded
        self._forced_terms = forced_terms
        self._num_translations = options["num_return_sequences"]
        if forced_terms is not None:
            self._num_translations = forced_terms.translations
        self._dtype = dtype
        self._max_new_tokens = max_new_tokens
        self._limit = new_tokens_limit(model, max_new_tokens, options.get("generation_config"))
        self._criteria = options.pop("stopping_criteria", None) or ()
        self._processors = options.pop("logits_processor", None) or ()
        self._settings = settings_of(model, options)
        check_beams(self._settings)
        self._is_fast = engine == "fast" and engine_takes(model, options)
        if self._is_fast:
            self._engine = partial(generate, dtype=dtype, return_scores=return_scores)
            options["custom_generate"] = self._engine
        else:
            warn_of_dtype(dtype)
        self._options = options

    def decode(self, batch: Sequence[int]) -> tuple[Sequence[int], Tensor, list[Written]]:
        """Return a batch, its token ids `[batch, length]`, and what was written."""
        sources = [self._encoded[index] for index in batch]
        limits = self._limits(sources)
        criteria = [NewTokenLimits(torch.tensor(limits, device=self._model.device)), *self._criteria]
        options = self._options
        if self._forced_terms is not None:
            options = {**options, "custom_generate": self._engine_with_terms(batch, self._forced_terms)}
        # The engine looks at the scores by itself.
        checks = [] if "custom_generate" in options else [FiniteScores(self._model)]
        generated = self._model.generate(
            **model_source(self._model, sources, self._dtype if self._is_fast else None),
            stopping_criteria=StoppingCriteriaList(criteria),
            logits_processor=LogitsProcessorList([*checks, *self._processors]),
            # The start token, and one to spare, or `forced_eos_token_id` would only act on the longest sentences.
            max_length=max(limits) + 2,
            max_new_tokens=None,
            **options,
        )
        for check in checks:
            check.check()
        sequences = getattr(generated, "sequences", generated)
        scores = getattr(generated, "sequences_scores", None)
        limits_of_rows: list[int] = []
        for limit in limits:
            limits_of_rows += [limit] * self._num_translations
        written = words_before_end(sequences, self._settings, limits_of_rows)
        return batch, sequences, with_scores(written, scores)

    def _limits(self, sources: Sequence[Sequence[int]]) -> list[int]:
        """Return the most new tokens of the translation of each source."""
        if self._max_new_tokens is not None:
            return [self._max_new_tokens] * len(sources)
        return [min(2 * len(source) + 20, self._limit) for source in sources]

    def _engine_with_terms(self, batch: Sequence[int], forced: ForcedTerms) -> partial:
        """Return the engine's search with the terms of the lines of a batch."""
        if not self._is_fast:
            raise UserError("A glossary needs engine 'fast', with greedy search or beam search.")
        terms = [forced.forms[index] for index in batch]
        return partial(
            self._engine,
            terms=terms,
            boundaries=forced.boundaries,
            bank_width=forced.width,
            num_translations=forced.translations,
        )


def model_source(model: PreTrainedModel, sources: Sequence[Sequence[int]], dtype: str | None) -> dict[str, Any]:
    """Return the arguments of `generate()` for sources, with the encoder's output if the engine can make it.

    Args:
        model: the model, in evaluation mode.
        sources: token ids of each sentence.
        dtype: the precision of the engine, or None if Transformers decodes.

    Raises:
        UserError: if a token id is not in the model's vocabulary, or the engine has no such `dtype`.
    """
    largest = max(max(source) for source in sources)
    vocabulary_size = model.get_input_embeddings().weight.shape[0]
    if largest >= vocabulary_size:
        # PyTorch's own error names no token, and on a GPU it ends the process.
        raise UserError(
            f"The tokenizer has token id {largest}, but {model.name_or_path} has only {vocabulary_size} embeddings. "
            "The tokenizer is another model's. Put the right one next to the weights."
        )
    input_ids, mask = pad_rows(sources, model.config.pad_token_id, model.device)
    arguments: dict[str, Any] = {"input_ids": input_ids, "attention_mask": mask.long()}
    if dtype is not None and not torch.is_autocast_enabled(model.device.type):
        with suppress(UnsupportedModelError):
            arguments["encoder_outputs"] = engine_of(model, dtype).encode(**arguments)
    return arguments
