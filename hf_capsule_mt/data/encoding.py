"""Lines of text as token ids, and in batches of similar length."""

import logging
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.translation.language_codes import LanguageCodes
from hf_capsule_mt.translation.source_limits import TOKENIZING, check_text

logger = logging.getLogger(__name__)

_TOKENIZED_TOGETHER = 2_000
"""Lines of one call of a tokenizer, which holds much more of each than its tokens."""


def encode_lines(
    tokenizer: PreTrainedTokenizerBase, lines: Sequence[str], max_length: int, numbers: Sequence[int] | None = None
) -> list[list[int]]:
    """The source tokens of every line, none for a blank one; longer ones are cut to `max_length`, with a warning that
    tells the first of their `numbers`, by default from 1.
    """
    encoded = tokenize_lines(tokenizer, lines)
    cut_lines(tokenizer, lines, encoded, max_length, numbers)
    return encoded


def cut_lines(
    tokenizer: PreTrainedTokenizerBase,
    lines: Sequence[str],
    encoded: list[list[int]],
    max_length: int,
    numbers: Sequence[int] | None = None,
    *,
    side: str = "text",
) -> set[int]:
    """Cut those of the `encoded` lines that are longer as [`encode_lines`] does; return their indices."""
    too_long = [index for index, ids in enumerate(encoded) if len(ids) > max_length]
    for index in too_long:
        encoded[index] = _cut(side, tokenizer, lines[index], encoded[index], max_length)
    if too_long:
        logger.warning(
            "%d %s have more than %d tokens, the model's limit, and were cut (the first is line %d)",
            len(too_long),
            "lines" if side == "text" else "given translations",
            max_length,
            too_long[0] + 1 if numbers is None else numbers[too_long[0]],
        )
    return {*too_long}


def tokenize_lines(tokenizer: PreTrainedTokenizerBase, lines: Sequence[str]) -> list[list[int]]:
    """Return the source tokens of every line, however many, and none for a blank one."""
    return _tokenize("text", tokenizer, lines)


def tokenize_targets(tokenizer: PreTrainedTokenizerBase, lines: Sequence[str], max_length: int) -> list[list[int]]:
    """Return the target tokens of every line, and none for a blank one; they are cut as by [`encode_lines`]."""
    encoded = _tokenize("text_target", tokenizer, lines)
    cut_lines(tokenizer, lines, encoded, max_length, side="text_target")
    return encoded


def encode_text(tokenizer: PreTrainedTokenizerBase, text: str, max_length: int, *, side: str = "text") -> list[int]:
    """Return the tokens of a text, which may be blank, cut to `max_length` with a warning; `side` is "text" or
    "text_target".

    Raises:
        ValueError: if it holds half a character.
    """
    check_text(text)
    ids = _ids(side, tokenizer, text)
    if len(ids) > max_length:
        logger.warning("a text has %d tokens, and was cut to %d, the model's limit", len(ids), max_length)
    return _cut(side, tokenizer, text, ids, max_length)


def _cut(side: str, tokenizer: PreTrainedTokenizerBase, text: str, ids: list[int], max_length: int) -> list[int]:
    """Return the tokens `ids` of a text, or fewer, with the end of a text, if they are more than `max_length`."""
    # A tokenizer without a limit says 1e30, which is no number to the one that cuts.
    if len(ids) <= max_length:
        return ids
    return _ids(side, tokenizer, text, truncation=True, max_length=max_length)


def _ids(side: str, tokenizer: PreTrainedTokenizerBase, texts: str | Sequence[str], **options: Any) -> Any:
    """Return the tokens of a text, or of each of several."""
    # verbose=False: the library's own warning of long texts names neither their number nor the lines.
    with TOKENIZING:
        return tokenizer(**{side: texts}, **options, verbose=False)["input_ids"]


def special_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the ids of tokens that stand for nothing in a text: codes of languages, and the special ones but that of
    unknown words.
    """
    return _special(tokenizer) | frozenset(LanguageCodes(tokenizer).ids.values())


def _special(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    return frozenset(tokenizer.all_special_ids) - {tokenizer.unk_token_id}


def _tokenize(side: str, tokenizer: PreTrainedTokenizerBase, lines: Sequence[str]) -> list[list[int]]:
    filled = [index for index, line in enumerate(lines) if line.strip()]
    encoded = [[] for _ in lines]
    # To look for codes in a vocabulary takes as long as some lines.
    have_codes = any(line.startswith(">>") for line in lines)
    empty = special_ids(tokenizer) if have_codes else _special(tokenizer)
    for start in range(0, len(filled), _TOKENIZED_TOGETHER):
        part = filled[start : start + _TOKENIZED_TOGETHER]
        for index in part:
            check_text(lines[index])
        for index, ids in zip(part, _ids(side, tokenizer, [lines[index] for index in part]), strict=True):
            # Of characters that nobody sees a tokenizer may leave nothing.
            encoded[index] = ids if set(ids) - empty else []
    return encoded


def batch_by_tokens(lengths: Sequence[int], max_tokens: int, numbers: Sequence[int] | None = None) -> list[list[int]]:
    """Indices in batches of similar length, the longest first; those of length 0 are in none.

    A batch of B lines costs B times its longest line, and that is at most `max_tokens`.

    Raises:
        ValueError: if a single line is longer than `max_tokens`; the message tells which of the `numbers` it has, by
            default from 1.
    """
    order = sorted((index for index, length in enumerate(lengths) if length), key=lambda index: -lengths[index])
    if order and lengths[order[0]] > max_tokens:
        number = order[0] + 1 if numbers is None else numbers[order[0]]
        raise ValueError(
            f"max_tokens_per_batch is {max_tokens}, but line {number} has {lengths[order[0]]} tokens; raise it"
        )
    batches = []
    start = 0
    while start < len(order):
        size = max_tokens // lengths[order[start]]
        batches.append(order[start : start + size])
        start += size
    return batches
