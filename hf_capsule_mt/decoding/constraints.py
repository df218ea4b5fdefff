"""Limits to the new tokens, and Transformers' own logits processors, which run only where they act."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria
from transformers.generation import logits_process as hf

from .fingerprint import UnsupportedError

_ALWAYS_ACTING = (
    hf.RepetitionPenaltyLogitsProcessor,
    hf.NoRepeatNGramLogitsProcessor,
    hf.NoBadWordsLogitsProcessor,
    hf.SequenceBiasLogitsProcessor,
    hf.ExponentialDecayLengthPenalty,
    hf.InfNanRemoveLogitsProcessor,
    hf.LogitNormalization,
)
# At which lengths, the start token included, tokens are forced.
_FORCING: dict[type, Callable[[LogitsProcessor, int], bool]] = {
    hf.ForcedBOSTokenLogitsProcessor: lambda processor, length: length == 1,
    hf.ForcedEOSTokenLogitsProcessor: lambda processor, length: length == processor.max_length - 1,
}
# Which tokens get -inf, and at which lengths.
_SUPPRESSING: dict[type, tuple[str, Callable[[LogitsProcessor, int], bool]]] = {
    hf.SuppressTokensLogitsProcessor: ("suppress_tokens", lambda processor, length: True),
    hf.SuppressTokensAtBeginLogitsProcessor: (
        "begin_suppress_tokens",
        lambda processor, length: length == processor.begin_index,
    ),
    hf.MinLengthLogitsProcessor: ("eos_token_id", lambda processor, length: length < processor.min_length),
    hf.MinNewTokensLengthLogitsProcessor: (
        "eos_token_id",
        lambda processor, length: length - processor.prompt_length_to_skip < processor.min_new_tokens,
    ),
}


class NewTokenLimits(StoppingCriteria):
    """A limit to the new tokens of every sentence, `[sentences]`, or `[1]` for all, for `generate()` and the engine.

    `prefix_length` is that of the `decoder_input_ids` that `generate()` is given.
    """

    def __init__(self, limits: Tensor, prefix_length: int = 1) -> None:
        self.limits, self.prefix_length = limits, prefix_length

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        """Return which candidates `[sentences * n, length]`, prefix included, are at the limit."""
        limits = self.limits.to(input_ids.device)
        return input_ids.shape[1] - self.prefix_length >= limits.repeat_interleave(len(input_ids) // len(limits))

    def of(self, sentences: int) -> list[int]:
        """Return the limit of each of so many sentences, counted from its start token."""
        return (self.limits + self.prefix_length - 1).expand(sentences).tolist()


class Constraints:
    """The logits processors of `generate()`. Those that only suppress tokens need not see all scores.

    Raises:
        UnsupportedError: if one is not known here, or would make a device wait at every token.
    """

    def __init__(self, processors: Sequence[LogitsProcessor], vocabulary: int, device: torch.device) -> None:
        self._vocabulary, self._device = vocabulary, device
        self._all = LogitsProcessorList(processors)
        self._suppressing: list[tuple[Tensor, Callable[[int], bool]]] = []
        self._acting: list[Callable[[int], bool]] = []
        self.renormalizes = bool(processors) and type(processors[-1]) is hf.LogitNormalization
        """Whether the probabilities of tokens that are not suppressed are made to sum to 1."""
        for processor in processors[:-1] if self.renormalizes else processors:
            self._sort(processor)
        self._suppressed: dict[tuple[bool, ...], Tensor | None] = {}

    def need_all_scores(self, length: int) -> bool:
        """Whether more than suppressing happens to the token after `length` others, the start included."""
        return any(acts(length) for acts in self._acting)

    def suppressed(self, length: int) -> Tensor | None:
        """Return the tokens that cannot follow `length` others, or None if there are none."""
        now = tuple(acts(length) for _, acts in self._suppressing)
        if now not in self._suppressed:
            tokens = [tokens for (tokens, _), acts in zip(self._suppressing, now) if acts]
            known = torch.cat(tokens).unique() if tokens else torch.empty(0, dtype=torch.long)
            known = known[(known >= 0) & (known < self._vocabulary)]
            self._suppressed[now] = known.to(self._device) if len(known) else None
        return self._suppressed[now]

    def __call__(self, prefixes: Tensor, scores: Tensor) -> Tensor:
        """Run every processor on scores `[rows, vocabulary]` of what follows `prefixes` `[rows, length]`."""
        return self._all(prefixes, scores)

    def _sort(self, processor: LogitsProcessor) -> None:
        kind = type(processor)
        if kind in _SUPPRESSING:
            name, acts = _SUPPRESSING[kind]
            tokens = torch.as_tensor(getattr(processor, name)).flatten().cpu()
            self._suppressing.append((tokens, lambda length: acts(processor, length)))
        elif kind in _FORCING:
            self._acting.append(lambda length: _FORCING[kind](processor, length))
        elif kind is hf.NoBadWordsLogitsProcessor and all(
            len(tokens) == 1 and type(tokens[0]) is int and tokens[0] < self._vocabulary
            for tokens in processor.sequence_bias
        ):
            tokens = torch.tensor([token for (token,) in processor.sequence_bias], dtype=torch.long)
            self._suppressing.append((tokens, lambda length: True))
        elif (
            kind not in _ALWAYS_ACTING
            or isinstance(getattr(processor, "prompt_ignore_length", None), Tensor)
            # It reads the tokens so far in Python.
            or (kind is hf.NoRepeatNGramLogitsProcessor and self._device.type != "cpu")
        ):
            raise UnsupportedError(f"the engine does not know the logits processor {kind.__name__} on {self._device}")
        else:
            self._acting.append(lambda length: True)
