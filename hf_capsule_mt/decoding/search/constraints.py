"""Limits to the new tokens, and Transformers' own logits processors, which run only where they act."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria
from transformers.generation import logits_process as hf

from hf_capsule_mt.long_work import next_step

from ..fingerprint import UnsupportedError
from ..products.shortlist import ShortlistLogitsProcessor

Acts = Callable[[int], bool]
"""Whether a processor acts on the token after so many others, the start token included."""

_ALWAYS_ACTING = (
    hf.RepetitionPenaltyLogitsProcessor,
    hf.NoRepeatNGramLogitsProcessor,
    hf.NoBadWordsLogitsProcessor,
    hf.SequenceBiasLogitsProcessor,
    hf.ExponentialDecayLengthPenalty,
    hf.InfNanRemoveLogitsProcessor,
    hf.LogitNormalization,
)
"""Processors that need all scores of every token, and that may run on any device."""

_SUPPRESSING = (
    hf.SuppressTokensLogitsProcessor,
    hf.SuppressTokensAtBeginLogitsProcessor,
    hf.MinLengthLogitsProcessor,
    hf.MinNewTokensLengthLogitsProcessor,
)
"""Processors that only suppress tokens."""


class NewTokenLimits(StoppingCriteria):
    """A limit to the new tokens of every sentence, for `generate()` and the engine.

    Args:
        limits: `[sentences]`, or `[1]` for all.
        prefix_length: that of the `decoder_input_ids` that `generate()` is given. The default is a start token.
    """

    def __init__(self, limits: Tensor, prefix_length: int = 1) -> None:
        self.limits = limits
        self.prefix_length = prefix_length

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        """Return which candidates `[sentences * n, length]`, prefix included, are at the limit, `[sentences * n]`."""
        next_step()
        limits = self.limits.to(input_ids.device)
        of_candidates = limits.repeat_interleave(len(input_ids) // len(limits))
        return input_ids.shape[1] - self.prefix_length >= of_candidates

    def of(self, sentences: int) -> list[int]:
        """Return the limit of each of so many sentences, counted from its start token."""
        return (self.limits + self.prefix_length - 1).expand(sentences).tolist()


class Constraints:
    """The logits processors of `generate()`. Those that only suppress tokens need not see all scores.

    Args:
        processors: in the order in which they run.
        vocabulary: the number of tokens.
        device: that of the scores.

    Raises:
        UnsupportedError: if one is not known here, or would make a device wait at every token.
    """

    def __init__(self, processors: Sequence[LogitsProcessor], vocabulary: int, device: torch.device) -> None:
        self._vocabulary = vocabulary
        self._device = device
        self._all = LogitsProcessorList(processors)
        # Tokens that get -inf, and when.
        self._suppressing: list[tuple[Tensor, Acts]] = []
        # When a processor needs all scores.
        self._acting: list[Acts] = []
        # The token that follows the start token, if there is only one.
        self._first_token: int | None = None
        # Tokens that are suppressed together, by which of `_suppressing` act.
        self._suppressed: dict[tuple[bool, ...], Tensor | None] = {}
        # What [`at`] returns, by the length. Every sentence asks again.
        self._at: dict[int, tuple[int | None, bool, Tensor | None]] = {}
        self.renormalizes = bool(processors) and type(processors[-1]) is hf.LogitNormalization
        """Whether the probabilities of tokens that are not suppressed are made to sum to 1."""
        if self.renormalizes:
            processors = processors[:-1]
        self.shortlist: ShortlistLogitsProcessor | None = None
        """The only tokens that can be written, of which the probabilities sum to 1. None: all."""
        if processors and type(processors[-1]) is ShortlistLogitsProcessor:
            self.shortlist = processors[-1]
            self.shortlist.check_within(vocabulary)
            self.renormalizes = True
            processors = processors[:-1]
        for processor in processors:
            self._add(processor)
        self._find_first_token(processors)
        if self.shortlist is not None:
            self.shortlist.check_begins_with(self._first_token)

    def at(self, length: int) -> tuple[int | None, bool, Tensor | None]:
        """Return what happens to the token after `length` others, the start included.

        Returns:
            The only token that can follow, whatever the scores, or None if it is not known. Its log-probability counts
            as 0. Then whether more than suppressing happens, which needs all scores. Last the tokens that cannot
            follow, `[tokens]`, or None if there are none: the same tensor whenever the same processors act.
        """
        if length not in self._at:
            forced = self._first_token if length == 1 else None
            needs_all_scores = any(acts(length) for acts in self._acting)
            acting = tuple(acts(length) for _, acts in self._suppressing)
            if acting not in self._suppressed:
                self._suppressed[acting] = self._joined(acting)
            self._at[length] = (forced, needs_all_scores, self._suppressed[acting])
        return self._at[length]

    def __call__(self, prefixes: Tensor, scores: Tensor) -> Tensor:
        """Run every processor on scores `[rows, vocabulary]` of what follows `prefixes` `[rows, length]`."""
        return self._all(prefixes, scores)

    def _find_first_token(self, processors: Sequence[LogitsProcessor]) -> None:
        """Find the token that is forced, if no processor after that changes its score."""
        for processor in processors:
            kind = type(processor)
            if kind is hf.ForcedBOSTokenLogitsProcessor:
                self._first_token = int(processor.bos_token_id)
            elif kind is hf.ForcedEOSTokenLogitsProcessor and processor.max_length > 2:
                # It acts later.
                continue
            elif kind not in _SUPPRESSING:
                # It may change the score that the forced token has got.
                self._first_token = None

    def _joined(self, acting: Sequence[bool]) -> Tensor | None:
        """Return the tokens that the acting ones of `_suppressing` suppress, each once."""
        tokens = [tokens for (tokens, _), acts in zip(self._suppressing, acting) if acts]
        if not tokens:
            return None
        joined = torch.cat(tokens).unique()
        # Such as -1, for none. As an index it would be the last token.
        joined = joined[(joined >= 0) & (joined < self._vocabulary)]
        return joined.to(self._device) if len(joined) else None

    def _suppress(self, tokens: Any, acts: Acts) -> None:
        token_ids = torch.as_tensor(tokens, dtype=torch.long)
        self._suppressing.append((token_ids.flatten().cpu(), acts))

    def _add(self, processor: LogitsProcessor) -> None:
        """Sort a processor into those that suppress tokens, and those that need all scores."""
        kind = type(processor)
        if kind is hf.SuppressTokensLogitsProcessor:
            self._suppress(processor.suppress_tokens, _always)
        elif kind is hf.SuppressTokensAtBeginLogitsProcessor:
            self._suppress(processor.begin_suppress_tokens, lambda length: length == processor.begin_index)
        elif kind is hf.MinLengthLogitsProcessor:
            self._suppress(processor.eos_token_id, lambda length: length < processor.min_length)
        elif kind is hf.MinNewTokensLengthLogitsProcessor:
            shortest = processor.prompt_length_to_skip + processor.min_new_tokens
            self._suppress(processor.eos_token_id, lambda length: length < shortest)
        elif kind is hf.ForcedBOSTokenLogitsProcessor:
            self._acting.append(lambda length: length == 1)
        elif kind is hf.ForcedEOSTokenLogitsProcessor:
            self._acting.append(lambda length: length == processor.max_length - 1)
        elif kind is hf.NoBadWordsLogitsProcessor and self._are_known_tokens(processor.sequence_bias):
            self._suppress([token for (token,) in processor.sequence_bias], _always)
        elif kind in _ALWAYS_ACTING and not self._makes_wait(processor):
            self._acting.append(_always)
        else:
            raise UnsupportedError(f"the engine does not know the logits processor {kind.__name__} on {self._device}")

    def _are_known_tokens(self, sequences: Sequence[tuple[int, ...]]) -> bool:
        """Whether all sequences are single tokens of the vocabulary."""
        for tokens in sequences:
            if len(tokens) != 1 or type(tokens[0]) is not int or tokens[0] >= self._vocabulary:
                return False
        return True

    def _makes_wait(self, processor: LogitsProcessor) -> bool:
        """Whether a processor reads the tokens so far in Python, or ignores another prompt in each row."""
        if isinstance(getattr(processor, "prompt_ignore_length", None), Tensor):
            return True
        return type(processor) is hf.NoRepeatNGramLogitsProcessor and self._device.type != "cpu"


def _always(length: int) -> bool:
    return True
