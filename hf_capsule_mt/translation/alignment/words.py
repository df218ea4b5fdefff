"""Align the words of a translation with the words of its source, by the attention of the model."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data.languages import TOKENIZING

from ..text.words import Span
from .forced import Head, aligning_attention

Decode = Callable[[list[list[int]]], list[str]]
"""Returns the texts of several lists of token ids."""


def attended_positions(
    cross_attentions: Sequence[Tensor], source_mask: Tensor, heads: Sequence[Head] | None = None
) -> Tensor:
    """Return the source position that each target position attends to most, `[batch, target]`. It is never padding.

    Attentions are `[batch, heads, target, source]` of each layer. The mask `[batch, source]` is False for padding. The
    weights are those of [`aligning_attention`].
    """
    weights = aligning_attention([layer.double() for layer in cross_attentions], heads)
    return weights.masked_fill(~source_mask[:, None], -1.0).argmax(-1)


def word_weights(
    attention: Tensor,
    source: Sequence[Span | None],
    target: Sequence[Span | None],
    source_words: Sequence[Span],
    target_words: Sequence[Span],
) -> list[list[float]]:
    """Return how much each word of a translation belongs to each word of its source.

    It is the share of the target word in the attention of all target words to the source word. So an article that looks
    at its noun belongs to the article.

    Args:
        attention: `[target tokens, source tokens]`, at the step that writes the token.
        source: the place of each source token in the source, None for special tokens.
        target: the place of each target token in the translation.
        source_words: the places of the words of the source.
        target_words: the places of the words of the translation.

    Returns:
        Weights `[target words][source words]`, computed in float64.
    """
    return word_shares(attention, source, target, source_words, target_words).tolist()


def word_shares(
    attention: Tensor,
    source: Sequence[Span | None],
    target: Sequence[Span | None],
    source_words: Sequence[Span],
    target_words: Sequence[Span],
) -> Tensor:
    """Return [`word_weights`] of one or several attentions, `[..., target words, source words]`.

    Args:
        attention: `[..., target tokens, source tokens]`, at the step that writes the token.
        source: the place of each source token in the source, None for special tokens.
        target: the place of each target token in the translation.
        source_words: the places of the words of the source.
        target_words: the places of the words of the translation.
    """
    columns = _membership(source, source_words)
    rows = _membership(target, target_words)
    of_tokens = attention[..., : len(target), : len(source)].double()
    sums = rows.T @ of_tokens @ columns
    # The mean over the tokens of a target word. A word without a token has no weight.
    num_tokens = rows.sum(0).clamp(min=1)
    means = sums / num_tokens.unsqueeze(-1)
    totals = means.sum(-2, keepdim=True)
    return means / totals.clamp(min=torch.finfo(means.dtype).tiny)


def aligner(
    attention: Tensor,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    source_ids: Sequence[int],
    target_ids: Sequence[int],
    clean_up_tokenization_spaces: bool | None = None,
) -> Callable[[Sequence[Span], Sequence[Span]], list[list[float]]]:
    """Return [`word_weights`] for a text and its translation, as a function of the words of both.

    Args:
        attention: `[target tokens, source tokens]`, at the step that writes the token.
        tokenizer: the model's.
        text: the source.
        source_ids: the token ids that the model reads.
        target_ids: the token ids of the translation, without the start token.
        clean_up_tokenization_spaces: as the translation was decoded.
    """

    def decode(ids: list[list[int]]) -> list[str]:
        return tokenizer.batch_decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=clean_up_tokenization_spaces
        )

    return partial(word_weights, attention, source_spans(tokenizer, text, source_ids), target_spans(target_ids, decode))


def attended_span(
    attention: Tensor,
    tokenizer: PreTrainedTokenizerBase,
    source: tuple[str, Sequence[int]],
    target_ids: Sequence[int],
    place: Span,
) -> Span | None:
    """Return the place of the source token that the words at a place of a translation attend to most.

    The end of the source and other tokens without text do not count. None if no token stands at that place.

    Args:
        attention: `[target tokens, source tokens]`, at the step that writes the token.
        tokenizer: the model's.
        source: the text, and the token ids that the model reads.
        target_ids: the token ids of the translation, without the start token.
        place: first character of the words, and the character behind them.
    """
    decode = partial(tokenizer.batch_decode, skip_special_tokens=True)
    rows = _membership(target_spans(target_ids, decode), [place])[:, 0]
    if not rows.any():
        return None

    received = rows @ attention[: len(rows)].double()
    spans = source_spans(tokenizer, *source)
    columns = [column for column, span in enumerate(spans) if span is not None]
    if not columns:
        return None
    best = max(columns, key=received.__getitem__)
    return spans[best]


def _membership(tokens: Sequence[Span | None], words: Sequence[Span]) -> Tensor:
    """Return `[tokens, words]`, 1 where a token is in a word. A token may be in several."""
    membership = torch.zeros(len(tokens), len(words), dtype=torch.double)
    starts = [start for start, _ in words]
    ends = [end for _, end in words]
    for number, token in enumerate(tokens):
        if token is not None:
            first = bisect_right(ends, token[0])
            last = bisect_right(starts, token[1] - 1)
            membership[number, first:last] = 1
    return membership


def source_spans(tokenizer: PreTrainedTokenizerBase, text: str, ids: Sequence[int]) -> list[Span | None]:
    """Return the place in a text of each token that a model reads, or None for special tokens and a prefix."""
    text_ids, spans = _tokens_of(tokenizer, text)

    # A code of the language or a prefix may stand in front of the text, and its end may have been cut off. So the text
    # begins where most of its tokens follow, at the last such place.
    start = length = 0
    for place in range(len(ids)):
        shared = _shared_beginning(text_ids, ids[place:])
        if shared >= length:
            start = place
            length = shared

    before = [None] * start
    behind = [None] * (len(ids) - start - length)
    return [*before, *spans[:length], *behind]


def _tokens_of(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[Span | None]]:
    """Return the token ids of a text without special tokens, and their places in it."""
    is_fast = getattr(tokenizer, "is_fast", False)
    # A slow tokenizer refuses this option.
    options = {}
    if is_fast:
        options = {"return_offsets_mapping": True}

    with TOKENIZING:
        encoding = tokenizer(text, add_special_tokens=False, verbose=False, **options)
        pieces = []
        if not is_fast:
            pieces = tokenizer.tokenize(text)

    if is_fast:
        spans = [_stripped(text, start, end) for start, end in encoding["offset_mapping"]]
    else:
        spans = _walked(text, pieces)
    return list(encoding["input_ids"]), spans


def target_spans(ids: Sequence[int], decode: Decode) -> list[Span | None]:
    """Return the place in a translation of each token, or None for those without a character."""
    if not ids:
        return []

    # The text of the first token, of the first two, and so on.
    ids_of_beginnings = [list(ids[:end]) for end in range(1, len(ids) + 1)]
    beginnings = decode(ids_of_beginnings)
    text = beginnings[-1]

    spans = []
    start = 0
    for beginning in beginnings:
        # Half a character is shown as U+FFFD. A token may also make the text shorter.
        length = len(beginning.rstrip("\ufffd"))
        end = max(start, min(length, len(text)))
        spans.append(_stripped(text, start, end))
        start = end
    return spans


def _shared_beginning(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the beginning that both share."""
    length = 0
    for token, other in zip(first, second):
        if token != other:
            break
        length += 1
    return length


def _stripped(text: str, start: int, end: int) -> Span | None:
    """Return a place without white space at its ends, or None for white space."""
    inner = text[start:end].strip()
    if not inner:
        return None
    start = text.index(inner, start)
    return start, start + len(inner)


def _walked(text: str, pieces: Sequence[str]) -> list[Span | None]:
    """Return the places of the pieces of a slow tokenizer, which has no offsets."""
    spans: list[Span | None] = []
    place = 0
    for piece in pieces:
        form = piece.replace("▁", " ").strip()
        start = text.find(form, place, place + len(form) + 20)
        if start < 0:
            # The tokenizer writes it in another way than the text, so it is taken to start where the last one ends.
            start = min(place, len(text))
        span = _stripped(text, start, min(start + len(form), len(text)))
        if span is not None:
            place = start + len(form)
        spans.append(span)
    return spans
