"""What a forced pass of the model, and the words themselves, say about whether a translation can be trusted.

None of these numbers needs a reference. `evaluate --quality` measures which errors each one finds.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import regex
import torch
from transformers import PreTrainedTokenizerBase

from ..alignment.forced import ForcedTarget
from ..alignment.words import source_spans, target_spans
from ..tags.placement import DisjointRanges
from ..text.segments import Place
from ..text.words import Span
from .surface import WORD, compare_numbers, copied_share, wrong_script

_LEAST_ATTENTION = 1e-6
"""A smaller sum counts as this one, so that its logarithm is finite."""
UNCOVERED = 0.2
"""A word of the source is uncovered if all tokens of the translation together attend to it less than to this part of a
token."""


@dataclass(frozen=True)
class Signals:
    """What may tell a good translation from a bad one. None is what cannot be known."""

    lowest: float | None = None  # The log-probability of the least likely token.
    lowest_word: str | None = None  # The word with this token, or an empty string for the end.
    end: float | None = None  # The log-probability of the end of the translation.
    coverage: float | None = None  # Geometric mean over source tokens of their attention, at most 1 each.
    uncovered: list[dict[str, Any]] | None = None  # Source words with almost no attention, and their places.
    entropy: float | None = None  # The mean entropy of the attention, in nats.
    copied: float | None = None  # The share of its words that stand in the source.
    new_numbers: list[str] | None = None  # Numbers that the source does not have.
    missing_numbers: list[str] | None = None  # Numbers of the source that it does not have.
    script: str | None = None  # Its script, only if the language is not written in it.


def read_signals(
    forced: ForcedTarget,
    tokenizer: PreTrainedTokenizerBase,
    source: tuple[str, Sequence[int]],
    target: tuple[str, Sequence[int]],
    *,
    has_end: bool,
    language: str | None = None,
    kept: Sequence[Span] = (),
    are_scored: Sequence[bool] | None = None,
    places: Sequence[Place] | None = None,
) -> Signals:
    """Return the signals of one translation.

    Args:
        forced: of the translation, by [`forced_pass`]: the scores of its tokens that are scored, and the attention of
            those that are written.
        tokenizer: the model's.
        source: the text, and the token ids that the model read.
        target: the translation, and its token ids without the end.
        has_end: whether the model wrote an end.
        language: the language to write, such as "de" or "deu_Latn". Without it no script is wrong.
        kept: places of parts of the source that are not translated. Their words count as no copies, and are covered.
        are_scored: whether each token of the translation has a score. By default all have one.
        places: where the words of the model stand in the translation. By default all stand there.
    """
    source_text, source_ids = source
    target_text, target_ids = target
    kept_parts = [source_text[start:end] for start, end in kept]
    new_numbers, missing_numbers = compare_numbers(source_text, target_text)
    signals = Signals(
        copied=_rounded(copied_share(source_text, target_text, kept_parts)),
        new_numbers=new_numbers,
        missing_numbers=missing_numbers,
        script=wrong_script(source_text, target_text, language),
    )

    scores = forced.log_probabilities
    if not scores:
        return signals
    lowest = min(scores)
    scored = list(range(len(target_ids) + has_end))
    if are_scored is not None:
        scored = [index for index in scored if index == len(target_ids) or are_scored[index]]
    written_text = None if places is None else (target_text, places)

    # A code of the language is not among the scores.
    left_out = len(scored) - len(scores)
    index = scored[scores.index(lowest) + left_out]
    signals = replace(
        signals,
        lowest=_rounded(lowest),
        lowest_word=_word_of(tokenizer, target_ids, index, written_text),
        end=_rounded(scores[-1]) if has_end else None,
    )

    if forced.mean_attention is None:
        return signals
    # The step that writes the end looks for what is left, and would hide what is missing.
    writing = forced.mean_attention
    if has_end:
        writing = forced.mean_attention[:-1]
    received = writing.sum(0).tolist()
    spans = _outside_of(kept, source_spans(tokenizer, source_text, source_ids))

    return replace(
        signals,
        coverage=_rounded(_coverage(received, spans)),
        uncovered=_uncovered_words(received, spans, source_text),
        entropy=_rounded(torch.special.entr(forced.mean_attention).sum(-1).mean().item()),
    )


def _rounded(number: float | None) -> float | None:
    if number is None:
        return None
    return round(number, 4)


def written_tokens(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], text: str, places: Sequence[Place] | None
) -> list[bool]:
    """Return whether each token that a model wrote still stands in the translation.

    Args:
        tokenizer: the model's.
        ids: of the translation, without the end.
        text: what the model wrote.
        places: where its words stand in the translation, as in [`Restored`].
    """
    if places is None or sum(end - start for start, end, _ in places) == len(text):
        return [True] * len(ids)

    written = DisjointRanges((start, end) for start, end, _ in places)
    decode = partial(tokenizer.batch_decode, skip_special_tokens=True)
    are_written = []
    is_written = True
    for span in reversed(target_spans(ids, decode)):
        # A space, or the first part of a letter, belongs to what follows it.
        if span is not None:
            is_written = written.contain(*span)
        are_written.append(is_written)
    return are_written[::-1]


def forced_tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], parts: Sequence[Span]) -> list[bool]:
    """Return whether each token of a translation is of a part that the search had to write.

    Args:
        tokenizer: the model's.
        ids: of the translation, without the end.
        parts: their places in what the model wrote.
    """
    if not parts:
        return [False] * len(ids)

    forced = DisjointRanges(parts)
    decode = partial(tokenizer.batch_decode, skip_special_tokens=True)
    are_forced = []
    is_forced = False
    for span in reversed(target_spans(ids, decode)):
        # A space, or the first part of a letter, belongs to what follows it.
        if span is not None:
            is_forced = forced.overlap(*span)
        are_forced.append(is_forced)
    return are_forced[::-1]


def _outside_of(kept: Sequence[Span], spans: Sequence[Span | None]) -> list[Span | None]:
    """Return the places of tokens, None for those of kept parts, which are in every translation."""
    parts = DisjointRanges(kept)
    return [None if span is None or parts.overlap(*span) else span for span in spans]


def _word_of(
    tokenizer: PreTrainedTokenizerBase,
    ids: Sequence[int],
    index: int,
    written: tuple[str, Sequence[Place]] | None = None,
) -> str:
    """Return the word that a token is part of, or an empty string for the end.

    Args:
        tokenizer: the model's.
        ids: of the translation, without the end.
        index: of the token, which is written.
        written: the translation with its kept parts, and where the words of the model stand in it, if it has any.
    """
    if index >= len(ids):
        return ""

    beginnings = [ids, ids[:index], ids[: index + 1]]
    text, before, with_token = tokenizer.batch_decode(beginnings, skip_special_tokens=True)
    # A token without a letter of its own belongs to the next word.
    place = max(len(with_token.rstrip()) - 1, len(before.rstrip()))
    while text[place : place + 1].isspace():
        place += 1

    if written is not None:
        text, places = written
        place = _moved(place, places)

    for word in regex.finditer(r"\S+", text):
        if word.start() <= place < word.end():
            return word[0]
    return ""


def _moved(place: int, places: Sequence[Place]) -> int:
    """Return where a character that a model wrote stands in the translation."""
    for start, end, written in places:
        if start <= place < end:
            return written + place - start
    return place


def _coverage(received: Sequence[float], spans: Sequence[tuple[int, int] | None]) -> float | None:
    """Return the geometric mean of the attention that each token of the text receives, at most 1 each."""
    logarithms = []
    for amount, span in zip(received, spans, strict=True):
        if span is not None:
            amount = min(max(amount, _LEAST_ATTENTION), 1.0)
            logarithms.append(math.log(amount))
    if not logarithms:
        return None
    mean = sum(logarithms) / len(logarithms)
    return math.exp(mean)


def _uncovered_words(
    received: Sequence[float], spans: Sequence[tuple[int, int] | None], text: str
) -> list[dict[str, Any]]:
    """Return the words of a text that receive almost no attention, with their places."""
    words = list(WORD.finditer(text))
    ends = [word.end() for word in words]
    totals = [0.0] * len(words)
    is_read = [False] * len(words)

    for amount, span in zip(received, spans, strict=True):
        if span is None:
            continue
        index = bisect_right(ends, span[0])
        if index < len(words) and words[index].start() < span[1]:
            totals[index] += amount
            is_read[index] = True

    uncovered = []
    for index, word in enumerate(words):
        # The model did not read the end of a source that was cut.
        if is_read[index] and totals[index] < UNCOVERED:
            uncovered.append({"word": word[0], "start": word.start(), "end": word.end()})
    return uncovered
