"""Translate lines of text in batches of similar length."""

import copy
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock, get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)
from transformers.generation import GenerationMode
from transformers.utils import logging

from hf_capsule_mt.data.batching import batch_by_tokens
from hf_capsule_mt.data.encoding import cut_lines, positions, source_limit, tokenize_lines
from hf_capsule_mt.data.lines import unbroken
from hf_capsule_mt.decoding import FiniteScores, NewTokenLimits, UnsupportedModelError, engine_of, generate
from hf_capsule_mt.decoding.term_automaton import Forms, WordBoundaries
from hf_capsule_mt.errors import UserError

from .pipeline_translation import copied

logger = logging.get_logger(__name__)

ENGINES = ("fast", "transformers")
# Arguments that generate() only gives to its own loops.
_OF_TRANSFORMERS = ("custom_generate", "streamer", "tokenizer", "assistant_model", "assistant_tokenizer", "synced_gpus")
_EVERY_LINE = {
    # Whatever the settings of the checkpoint say.
    "return_dict_in_generate": False,
    # Transformers refuses it for several sentences, and it changes only the speed.
    "prompt_lookup_num_tokens": None,
}


@dataclass(frozen=True)
class Written:
    """Token ids that a model wrote, and the token that ended them, or None."""

    words: list[int]
    end: int | None
    score: float | None = None  # As `sequences_scores` of `generate()`. Only the engine's beam search gives it.

    @property
    def ids(self) -> list[int]:
        """The token ids with their end, if they have one."""
        return self.words if self.end is None else [*self.words, self.end]


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
    """How many translations of each line are returned, at most as many as there are beams."""


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


def with_tokenizer(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return options of `generate()` with the tokenizer, if something stops at strings. Others must not have it."""
    options = dict(options)
    if settings_of(model, options).stop_strings is not None:
        options.setdefault("tokenizer", tokenizer)
    return options


def words_before_end(generated: Tensor, settings: GenerationConfig, limits: Sequence[int]) -> list[Written]:
    """Return what was written in token ids `[batch, length]`: the tokens before the end, the limit, or the padding."""
    ends = settings.eos_token_id
    if not isinstance(ends, list):
        ends = [ends]
    # Transformers fills up with -1 where it knows no end.
    padding = (settings.pad_token_id, -1)
    rows = []
    for row, limit in zip(generated.tolist(), limits, strict=True):
        # The first token is the start. After its limit a row is filled with ends or padding.
        rows.append(_before_end(row[1 : limit + 1], ends, padding))
    return rows


def with_scores(written: Sequence[Written], scores: Tensor | None) -> list[Written]:
    """Return what was written with the scores of the search, `[rows]`, if it has any."""
    if scores is None:
        return list(written)
    return [replace(row, score=score) for row, score in zip(written, scores.tolist(), strict=True)]


def _before_end(token_ids: list[int], ends: Sequence[int | None], padding: Sequence[int | None]) -> Written:
    for length, token_id in enumerate(token_ids):
        if token_id in ends:
            return Written(token_ids[:length], token_id)
    length = len(token_ids)
    while length and token_ids[length - 1] in padding:
        length -= 1
    return Written(token_ids[:length], None)


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
    if forced_terms is not None:
        num_return_sequences = forced_terms.translations
    options["num_return_sequences"] = num_return_sequences
    decoder = _BatchDecoder(model, encoded, max_new_tokens, engine, dtype, options, forced_terms, return_scores)
    with evaluating(model):
        for batch in batches:
            waiting = [batch]
            while waiting:
                part = waiting.pop(0)
                try:
                    decoded = decoder.decode(part)
                except torch.OutOfMemoryError:
                    if len(part) == 1:
                        raise
                    logger.warning_once("The memory is full, so batches are halved. Lower max_tokens_per_batch.")
                    middle = len(part) // 2
                    waiting = [part[:middle], part[middle:], *waiting]
                else:
                    yield decoded


class _BatchDecoder:
    """Decodes batches of lines with the same options."""

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
        self._model = model
        self._forced_terms = forced_terms
        self._encoded = encoded
        options = {**options, **_EVERY_LINE}
        max_length = options.pop("max_length", None)
        if max_new_tokens is None and max_length is not None:
            # It counts the start token.
            max_new_tokens = max_length - 1
        self._limit = _new_tokens_limit(model, max_new_tokens, options.get("generation_config"))
        self._max_new_tokens = max_new_tokens
        self._criteria = options.pop("stopping_criteria", None) or ()
        self._settings = settings_of(model, options)
        _check_beams(self._settings)
        self._vocabulary_size = model.get_input_embeddings().weight.shape[0]
        self._dtype = dtype
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
        self._check_vocabulary(sources)
        limits = [self._max_new_tokens or min(2 * len(source) + 20, self._limit) for source in sources]
        criteria = [NewTokenLimits(torch.tensor(limits, device=self._model.device)), *self._criteria]
        # The engine looks at the scores by itself.
        checks = [] if "custom_generate" in self._options else [FiniteScores(self._model)]
        given = self._options.get("logits_processor") or ()
        options = {**self._options, "logits_processor": LogitsProcessorList([*checks, *given])}
        if self._forced_terms is not None:
            options |= self._options_for_terms(batch, self._forced_terms)
        generated = self._model.generate(
            **self._source(sources),
            stopping_criteria=StoppingCriteriaList(criteria),
            # The start token, and one to spare, or `forced_eos_token_id` would only act on the longest sentences.
            max_length=max(limits) + 2,
            max_new_tokens=None,
            **options,
        )
        for check in checks:
            check.check()
        limits = [limit for limit in limits for _ in range(options["num_return_sequences"])]
        sequences = getattr(generated, "sequences", generated)
        written = words_before_end(sequences, self._settings, limits)
        return batch, sequences, with_scores(written, getattr(generated, "sequences_scores", None))

    def _options_for_terms(self, batch: Sequence[int], forced: ForcedTerms) -> dict[str, Any]:
        if not self._is_fast:
            raise UserError("A glossary needs engine 'fast', with greedy search or beam search.")
        terms = [forced.forms[index] for index in batch]
        search = {"terms": terms, "boundaries": forced.boundaries, "bank_width": forced.width}
        return {"custom_generate": partial(self._engine, **search)}

    def _check_vocabulary(self, sources: Sequence[Sequence[int]]) -> None:
        largest = max(max(source) for source in sources)
        if largest >= self._vocabulary_size:
            # PyTorch's own error names no token, and on a GPU it ends the process.
            raise UserError(
                f"The tokenizer has token id {largest}, but {self._model.name_or_path} has only "
                f"{self._vocabulary_size} embeddings. The tokenizer is another model's. Put the right one next to the "
                "weights."
            )

    def _source(self, sources: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Return what the model reads, with the encoder's states if the engine can make them."""
        input_ids, mask = pad_rows(sources, self._model.config.pad_token_id, self._model.device)
        source: dict[str, Any] = {"input_ids": input_ids, "attention_mask": mask.long()}
        if self._is_fast and not torch.is_autocast_enabled(self._model.device.type):
            with suppress(UnsupportedModelError):
                source["encoder_outputs"] = engine_of(self._model, self._dtype).encode(**source)
        return source


def _check_beams(settings: GenerationConfig) -> None:
    """Raise a UserError if a search is asked for more translations than it has beams."""
    count = settings.num_return_sequences or 1
    beams = settings.num_beams or 1
    if count > beams and not settings.do_sample:
        raise UserError(f"{count} translations of a sentence need as many beams, and num_beams is {beams}. Give more.")


def warn_of_dtype(dtype: str) -> None:
    """Warn if the engine was asked for a precision, and Transformers decodes."""
    if dtype != "float32":
        logger.warning_once(f"dtype {dtype} is only for engine fast. Transformers decodes, in the weights' dtype.")


class _Modes:
    """Which models are in evaluation mode, and for whom."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users: dict[nn.Module, list[int]] = {}
        """The threads that use a model, one entry for each use."""
        self._trained: dict[nn.Module, list[nn.Module]] = {}
        """The modules of a model that were in training mode."""

    def begin(self, model: nn.Module, thread: int) -> None:
        """Put a model in evaluation mode for a thread."""
        with self._lock:
            self._users.setdefault(model, []).append(thread)
            trained = [module for module in model.modules() if module.training]
            self._trained.setdefault(model, []).extend(trained)
            model.eval()

    def end(self, model: nn.Module, thread: int) -> None:
        """Put a model back as it was, if nobody else uses it."""
        with self._lock:
            self._users[model].remove(thread)
            if not self._users[model]:
                self._put_back(model)

    def forget_other_threads(self) -> None:
        """Forget the threads that do not exist in a forked process, and their lock, which nobody would release."""
        self._lock = Lock()
        thread = get_ident()
        for model, threads in [*self._users.items()]:
            self._users[model] = [thread] * threads.count(thread)
            if not self._users[model]:
                self._put_back(model)

    def _put_back(self, model: nn.Module) -> None:
        del self._users[model]
        for module in self._trained.pop(model):
            module.training = True


_modes = _Modes()
os.register_at_fork(after_in_child=_modes.forget_other_threads)


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Switch dropout off until the end of the block. The last of several threads switches it on again."""
    thread = get_ident()
    _modes.begin(model, thread)
    try:
        yield
    finally:
        _modes.end(model, thread)


def pad_rows(rows: Sequence[Sequence[int]], padding: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return token ids padded on the right, `[batch, length]`, and their mask, False for padding."""
    lengths = torch.tensor([len(row) for row in rows])
    tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
    padded = pad_sequence(tensors, batch_first=True, padding_value=padding or 0)
    mask = torch.arange(padded.shape[1]) < lengths[:, None]
    return padded.to(device), mask.to(device)


def behind_start(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Return token ids `[batch, target]` after the start token of `generate()`, `[batch, 1 + target]`."""
    # A model without its head has no generation config.
    settings = getattr(model, "generation_config", None)
    starts = [
        getattr(settings, "decoder_start_token_id", None),
        model.config.decoder_start_token_id,
        # generate() begins with it where there is no start.
        getattr(settings, "bos_token_id", None),
    ]
    # 0 is a token too.
    start = next(token_id for token_id in starts if token_id is not None)
    return torch.cat([ids.new_full((len(ids), 1), start), ids], dim=1)


def _new_tokens_limit(
    model: PreTrainedModel, max_new_tokens: int | None, given: GenerationConfig | None
) -> int | float:
    """Return the most new tokens of a translation.

    Raises:
        UserError: if `max_new_tokens` does not fit the model, or the generation config allows no token.
    """
    # The start token takes a position too.
    most = (positions(model.config) or float("inf")) - 1
    if max_new_tokens is not None:
        if not 1 <= max_new_tokens <= most:
            raise UserError(f"max_new_tokens is {max_new_tokens}. It must be from 1 to {most}.")
        return max_new_tokens
    config = model.generation_config
    if given is not None and (given.max_length is not None or given.max_new_tokens is not None):
        config = given
    if config.max_length:
        most = min(most, config.max_length - 1)
    if config.max_new_tokens:
        most = min(most, config.max_new_tokens)
    if most < 1:
        # All translations would be empty.
        raise UserError(f"The generation config allows no token: max_length is {config.max_length}. Raise it.")
    return most


def engine_takes(model: PreTrainedModel, options: Mapping[str, Any]) -> bool:
    """Return whether `generate()` would search greedily or by beams, and give the engine all of its arguments."""
    if any(options.get(name) is not None for name in _OF_TRANSFORMERS):
        return False
    mode = settings_of(model, options).get_generation_mode()
    return mode in (GenerationMode.GREEDY_SEARCH, GenerationMode.BEAM_SEARCH)


def settings_of(model: PreTrainedModel, options: Mapping[str, Any]) -> GenerationConfig:
    """Return the settings of `generate()` with these options. None is a value too."""
    config = copy.copy(model.generation_config)
    given = options.get("generation_config")
    fields: dict[str, Any] = {}
    if given is not None:
        fields = {name: value for name, value in vars(given).items() if value is not None}
    for name, value in {**fields, **options}.items():
        if hasattr(config, name):
            setattr(config, name, value)
    return config
