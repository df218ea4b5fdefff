"""Decodes batches of token ids with one set of options: with the engine where it can, otherwise with `generate()`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import logging

from hf_capsule_mt.data.encoding import positions
from hf_capsule_mt.decoding import FiniteScores, NewTokenLimits, UnsupportedError, UnsupportedModelError
from hf_capsule_mt.decoding.engine import Engine, engine_of, known_engine
from hf_capsule_mt.decoding.generation import search_settings
from hf_capsule_mt.decoding.products.int8 import Int8Choice
from hf_capsule_mt.decoding.search.search import Settings
from hf_capsule_mt.decoding.search.term_banks import TermBanks
from hf_capsule_mt.errors import UserError

from .settings import (
    ENGINES,
    as_arguments,
    engine_takes,
    has_limit,
    most_new_tokens,
    settings_of,
)

logger = logging.get_logger(__name__)

_ALWAYS = {
    # Each batch says how many it wants.
    "num_return_sequences": 1,
    "return_dict_in_generate": False,
}
_MANY = 1 << 20
"""More tokens than a translation has."""


@dataclass(frozen=True)
class Decoded:
    """A translation of one sentence as the model wrote it, without the tags and kept parts of its source."""

    token_ids: list[int]
    """Without the start token and the end."""
    end: int | None = None
    """The token that ended it, or None at the limit of its length."""
    score: float | None = None
    """As `sequences_scores` of `generate()`. The engine's beam search knows it, others only if they were asked for."""
    text: str = ""
    """The same as text, in one line."""
    terms: tuple[Any, ...] = ()
    """What became of the terms of a glossary, one [`PlacedTerm`] each."""
    forced: Any = None
    """What a forced pass of the model says of it, a [`ForcedTarget`], if somebody needs it."""

    @property
    def ids(self) -> list[int]:
        """The token ids with their end, if they have one."""
        if self.end is None:
            return self.token_ids
        return [*self.token_ids, self.end]


class Decoder:
    """Decodes sentences, all with the same options.

    What Transformers makes of the options is asked once, and kept while the weights are the same. The settings of the
    model are those of the time when the decoder was made.

    Args:
        model: any encoder-decoder that has `generate()`. It is in evaluation mode while it decodes.
        tokenizer: its tokenizer, for `stop_strings`.
        engine: "fast" is [`hf_capsule_mt.decoding`], where it can do what is asked, with the same tokens.
            "transformers" is `generate()`.
        dtype: "float32", "bfloat16" or "int8": the precision of the engine "fast", for weights in float32. Where
            `generate()` decodes, it has the precision of the weights.
        int8_choice: how the engine computes products in int8. None: as they are fastest here.
        forces_end: whether `forced_eos_token_id` acts at a limit, as in `generate()`. Otherwise a translation that
            reaches its limit has no end. Then a limit among the options is the only one.
        **options: of `generate()`. The generation config has the others, but for the number of translations. Without
            `max_new_tokens`, a translation has at most twice as many tokens as its source and 20 more, within the
            model's positions and its generation config.

    Raises:
        UserError: if there is no such engine, it has no such `dtype`, or `max_new_tokens` does not fit the model's
            positions.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        engine: str = "fast",
        dtype: str = "float32",
        int8_choice: Int8Choice | None = None,
        forces_end: bool = False,
        **options: Any,
    ) -> None:
        if engine not in ENGINES or (engine != "fast" and dtype != "float32"):
            raise UserError(f"engine is {engine!r:.80}, with dtype {dtype}. Only engine fast has dtypes of its own.")

        max_new_tokens = options.get("max_new_tokens")
        # Transformers refuses to look up tokens for several sentences. Settings of a checkpoint may ask for it.
        options = {"prompt_lookup_num_tokens": None, **as_arguments(options)}
        self.count = settings_of(model, options).num_return_sequences or 1
        """How many translations of a sentence the options and the model's settings ask for."""
        options |= _ALWAYS

        self.model = model
        self._dtype = dtype
        self._int8_choice = int8_choice
        self._forces_end = forces_end
        self._is_limit_asked_for = max_new_tokens is not None and not forces_end

        self._most: int | float | None = None
        """The most new tokens of any translation. None leaves it to `generate()`."""
        if not forces_end:
            self._most = most_new_tokens(model, options, max_new_tokens)
            # Each batch has its own.
            options["max_new_tokens"] = None
        elif not has_limit(options):
            self._most = most_new_tokens(model, options)
        elif max_new_tokens is not None:
            # With both, Transformers would warn at each batch.
            options.setdefault("max_length", None)
        elif options.get("max_length") is not None:
            # Transformers would take the limit of the model's settings.
            options.setdefault("max_new_tokens", None)

        self.settings = settings_of(model, options)
        """Those of `generate()`."""
        if self.settings.stop_strings is not None:
            # Without strings to stop at, generate() refuses a tokenizer.
            options.setdefault("tokenizer", tokenizer)

        self._options = options
        self._is_fast = engine == "fast" and engine_takes(self.settings, self._options)
        self._vocabulary_size = model.get_input_embeddings().weight.shape[0]
        self._searches: dict[int | None, tuple[Engine, Settings]] = {}
        """The engine and what Transformers has made of the options, by the first token of the translations."""

    def decode(
        self,
        sources: Sequence[Sequence[int]],
        count: int = 1,
        *,
        first_token: int | None = None,
        terms: TermBanks | None = None,
    ) -> list[list[Decoded]]:
        """Decode sentences in one batch. If memory runs out, it is decoded in halves.

        Args:
            sources: token ids of each sentence, at least one.
            count: how many translations each has, at most as many as there are beams. With terms there may be fewer,
                or more than beams.
            first_token: what all translations begin with, for models that write a language. By default that of the
                model's settings.
            terms: what the translations must have. Needs the engine "fast".

        Returns:
            The translations of each sentence, best first.

        Raises:
            UserError: if a token id is not in the model's vocabulary, scores are not finite, there are more
                translations than beams, or the engine cannot write the terms.
        """
        try:
            return self._decode_together(sources, count, first_token, terms)
        except torch.OutOfMemoryError:
            if len(sources) == 1:
                raise
            logger.warning_once(
                "The memory is full, so batches are halved. Lower max_tokens_per_batch, or batch_size of a pipeline."
            )

        decoded = []
        middle = len(sources) // 2
        for start, end in ((0, middle), (middle, len(sources))):
            part_of_terms = terms and replace(terms, automata=terms.automata[start:end])
            decoded += self.decode(sources[start:end], count, first_token=first_token, terms=part_of_terms)
        return decoded

    def _decode_together(
        self,
        sources: Sequence[Sequence[int]],
        count: int,
        first_token: int | None,
        terms: TermBanks | None,
    ) -> list[list[Decoded]]:
        """Decode sentences in one batch, as [`decode`] does."""
        self._check_vocabulary(sources)
        input_ids, mask = pad_rows(sources, self.model.config.pad_token_id, self.model.device)
        source = {"input_ids": input_ids, "attention_mask": mask.long()}

        engine = None
        if self._is_fast:
            engine = known_engine(self.model, self._dtype, self._int8_choice)

        # A model with an engine is in evaluation mode. To ask all of its parts takes a while.
        with evaluating(self.model) if engine is None else nullcontext():
            try:
                engine, settings = self._search(engine, first_token, source)
                limits = self._limits(sources, engine, settings)
            except UnsupportedError as reason:
                if terms is not None and not self._is_fast:
                    raise UserError("A glossary needs engine 'fast', with greedy search or beam search.") from None
                if terms is not None:
                    raise UserError(f"Only the engine writes terms, and it cannot decode here: {reason}.") from reason
                self._tell(reason)
                return self._generate(source, sources, count, first_token)

            if terms is None:
                self._check_count(count)
            return self._translate(engine, settings, source, limits, count, terms)

    def _search(
        self, engine: Engine | None, first_token: int | None, source: Mapping[str, Tensor]
    ) -> tuple[Engine, Settings]:
        """Return the engine and the settings of its search.

        Args:
            engine: that of the model, if there is one already.
            first_token: what the translations begin with.
            source: token ids and mask of the batch.

        Raises:
            UnsupportedError: if the engine cannot do exactly what is asked for.
        """
        if not self._is_fast:
            raise UnsupportedError("the options are for generate()")
        if torch.is_autocast_enabled(self.model.device.type):
            raise UnsupportedError("autocast is on")
        known = self._searches.get(first_token)
        if known is not None and engine is None:
            engine = engine_of(self.model, self._dtype, self._int8_choice)
        if known is None or known[0] is not engine:
            known = self._ask_transformers(first_token, source)
            self._searches[first_token] = known
        return known

    def _ask_transformers(self, first_token: int | None, source: Mapping[str, Tensor]) -> tuple[Engine, Settings]:
        """Return what Transformers makes of the options. `generate()` gets one sentence, and does not decode it."""
        one = {name: tensor[:1] for name, tensor in source.items()}
        # Nobody looks at the states, so the encoder need not run.
        one["encoder_outputs"] = BaseModelOutput(last_hidden_state=torch.zeros(1, 1, 1, device=self.model.device))
        options = {**self._of_language(first_token), **self._longest(self._most)}
        ask = partial(search_settings, dtype=self._dtype, int8_choice=self._int8_choice)
        return self.model.generate(**one, **options, custom_generate=ask)

    def _translate(
        self,
        engine: Engine,
        settings: Settings,
        source: Mapping[str, Tensor],
        limits: Sequence[int],
        count: int,
        terms: TermBanks | None,
    ) -> list[list[Decoded]]:
        """Decode a batch with the engine."""
        settings = replace(settings, num_return_sequences=count)
        if not self._forces_end:
            settings = replace(settings, max_length=_max_length(max(limits)))
        if terms is not None and settings.constraints.shortlist is not None:
            raise UserError("A shortlist may lack the words of a term. Leave out vocabulary, or glossary.")

        encoded = engine.encode(**source)
        translations = engine.translate(encoded, source["attention_mask"], settings, limits, terms)

        decoded = []
        for translation, limit in zip(translations, limits, strict=True):
            rows = translation.sequences.tolist()[:count]
            scores = [None] * len(rows)
            if translation.scores is not None:
                scores = translation.scores.tolist()
            decoded.append([before_end(row, self.settings, limit, score) for row, score in zip(rows, scores)])
        return decoded

    def _generate(
        self,
        source: Mapping[str, Tensor],
        sources: Sequence[Sequence[int]],
        count: int,
        first_token: int | None,
    ) -> list[list[Decoded]]:
        """Decode a batch with `generate()`."""
        options = self._of_language(first_token)
        options["num_return_sequences"] = count
        self._check_count(count)

        limits = self._new_tokens(sources, _MANY)
        if self._most is not None:
            criterion = NewTokenLimits(torch.tensor(limits, device=self.model.device))
            options["stopping_criteria"] = [criterion, *(options.get("stopping_criteria") or ())]
            options |= self._longest(max(limits))

        scores = FiniteScores(self.model)
        if options.get("custom_generate") is None:
            # Before what changes scores, so that it sees the model's own.
            processors = [scores, *(options.get("logits_processor") or ())]
            options["logits_processor"] = LogitsProcessorList(processors)

        generated = self.model.generate(**source, **options)
        scores.check()
        rows = getattr(generated, "sequences", generated).tolist()

        decoded = []
        for number, limit in enumerate(limits):
            ranked = rows[number * count : (number + 1) * count]
            decoded.append([before_end(row, self.settings, limit) for row in ranked])
        return decoded

    def _longest(self, limit: int | float | None) -> dict[str, Any]:
        """Return the option of `generate()` for translations of so many new tokens, unless it has a limit itself."""
        if limit is None:
            return {}
        if not self._forces_end:
            return {"max_length": _max_length(int(min(limit, _MANY)))}
        config = self.model.generation_config
        if config.max_length is not None or config.max_new_tokens is not None:
            return {}
        return {"max_length": min(_max_length(int(min(limit, _MANY))), positions(self.model.config) or _MANY)}

    def _of_language(self, first_token: int | None) -> dict[str, Any]:
        """Return the options of `generate()` for translations that begin with a token."""
        if first_token is None:
            return dict(self._options)
        return {"forced_bos_token_id": first_token, **self._options}

    def _limits(self, sources: Sequence[Sequence[int]], engine: Engine, settings: Settings) -> list[int]:
        """Return the most new tokens of each translation.

        Raises:
            UnsupportedError: if the engine has fewer positions.
        """
        limits = self._new_tokens(sources, settings.max_length - 1)
        if not 1 <= min(limits) <= max(limits) <= engine.positions:
            raise UnsupportedError(f"translations may have {min(limits)} to {max(limits)} tokens")
        return limits

    def _new_tokens(self, sources: Sequence[Sequence[int]], of_options: int) -> list[int]:
        """Return the most new tokens of each translation: twice the tokens of its source and 20 more.

        Args:
            sources: token ids.
            of_options: the most where the options of `generate()` have a limit themselves.
        """
        if self._most is None:
            return [of_options] * len(sources)
        if self._is_limit_asked_for:
            return [int(self._most)] * len(sources)
        return [int(min(2 * len(source) + 20, self._most)) for source in sources]

    def _check_count(self, count: int) -> None:
        """Raise a UserError if a search is asked for more translations of a sentence than it has beams."""
        beams = self.settings.num_beams or 1
        if count > beams and not self.settings.do_sample:
            raise UserError(
                f"{count} translations of a sentence need as many beams, and num_beams is {beams}. Give more."
            )

    def _tell(self, reason: UnsupportedError) -> None:
        """Say why Transformers decodes: as a warning if somebody asked for what only the engine has."""
        if self._dtype != "float32":
            logger.warning_once(
                f"dtype {self._dtype} is only for engine fast. Transformers decodes, in the weights' dtype: {reason}"
            )
        elif self._is_fast:
            log = logger.info_once
            if isinstance(reason, UnsupportedModelError):
                log = logger.warning_once
            log(f"Transformers decodes, not the engine: {reason}")

    def _check_vocabulary(self, sources: Sequence[Sequence[int]]) -> None:
        largest = max(max(source) for source in sources)
        if largest >= self._vocabulary_size:
            # PyTorch's own error names no token, and on a GPU it ends the process.
            raise UserError(
                f"The tokenizer has token id {largest}, but {self.model.name_or_path} has only "
                f"{self._vocabulary_size} embeddings. The tokenizer is another model's. Put the right one next to the "
                "weights."
            )


def _max_length(limit: int) -> int:
    """Return the `max_length` of a search in which no translation may have more than so many new tokens."""
    # The start token, and one to spare, or `forced_eos_token_id` would act on the longest sentences.
    return limit + 2


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """Switch dropout off until the end of the block. Parts that were in evaluation mode before stay in it.

    A model in training mode is for one thread: the end of its block would switch dropout on for the others.
    """
    trained = [module for module in model.modules() if module.training]
    if trained:
        model.eval()
    try:
        yield
    finally:
        for module in trained:
            module.training = True


def pad_rows(rows: Sequence[Sequence[int]], padding: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return token ids padded on the right, `[batch, length]`, and their mask, False for padding."""
    longest = max(map(len, rows))
    padded = []
    mask = []
    for row in rows:
        missing = longest - len(row)
        padded.append([*row, *[padding or 0] * missing])
        mask.append([True] * len(row) + [False] * missing)

    # All rows may be empty, which have no dtype.
    return (
        torch.tensor(padded, dtype=torch.long, device=device),
        torch.tensor(mask, dtype=torch.bool, device=device),
    )


def before_end(row: Sequence[int], settings: GenerationConfig, limit: int, score: float | None = None) -> Decoded:
    """Return what was written in a row of `generate()`: the tokens before the end, the limit, or the padding.

    Args:
        row: token ids with the start token.
        settings: those of the search.
        limit: the most new tokens of the translation.
        score: that of the search, if it has any.
    """
    ends = settings.eos_token_id
    if not isinstance(ends, list):
        ends = [ends]

    # The first token is the start. After its limit a row is filled with ends or padding.
    token_ids = [*row[1 : limit + 1]]
    for length, token_id in enumerate(token_ids):
        if token_id in ends:
            return Decoded(token_ids[:length], token_id, score)

    length = len(token_ids)
    # Transformers fills up with -1 where it knows no end.
    while length and token_ids[length - 1] in (settings.pad_token_id, -1):
        length -= 1
    return Decoded(token_ids[:length], None, score)
