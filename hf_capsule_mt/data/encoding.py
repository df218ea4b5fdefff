"""Lines of text as token ids, in batches of similar length, and with BPE-dropout."""

import copy
import logging
import os
from collections.abc import Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers.models import BPE
from torch.utils.data import Dataset as TorchDataset
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hf_capsule_mt.translation.language_codes import LanguageCodes

from .batching import TokenBudgetBatchSampler, longest_sides

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

TOKENIZING = RLock()
"""Held while a tokenizer is called: all threads share its language and its way to cut."""
# The thread that holds the lock does not exist in a forked process.
os.register_at_fork(after_in_child=TOKENIZING._at_fork_reinit)

_TOKENIZED_TOGETHER = 2_000
"""Lines of one call of a tokenizer, which holds much more of each than its tokens."""
_LETTERS = 32
"""Letters for each token of a limit that a text may have before it is looked at where it can be cut."""


def positions(config: PreTrainedConfig) -> int | None:
    """Return the most tokens that a model has positions for; None if it needs none."""
    return getattr(config, "max_position_embeddings", None)


def source_limit(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the length of the longest source, in tokens, that model and tokenizer take."""
    return min(tokenizer.model_max_length, positions(config) or tokenizer.model_max_length)


def _check_text(text: str) -> None:
    """Raise a ValueError if `text` holds a surrogate, half a character, which no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the text {text!r:.80} holds half a character. Decode it again, as UTF-8.") from error


def encode_lines(
    tokenizer: PreTrainedTokenizerBase, lines: Sequence[str], max_length: int, numbers: Sequence[int] | None = None
) -> list[list[int]]:
    """Return the source tokens of every line, none for a blank one.

    Longer ones are cut to `max_length`, with a warning that tells the first of their `numbers`, by default from 1.
    """
    encoded = tokenize_lines(tokenizer, lines, max_length)
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
    """Cut the `encoded` lines that are longer as [`encode_lines`] does; return their indices."""
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


def tokenize_lines(
    tokenizer: PreTrainedTokenizerBase, lines: Sequence[str], max_length: int | None = None
) -> list[list[int]]:
    """Return the source tokens of every line, and none for a blank one.

    Longer lines than `max_length` are not cut to it, but of very long ones only the beginning is read.
    """
    return _tokenize("text", tokenizer, lines, max_length)


def tokenize_targets(tokenizer: PreTrainedTokenizerBase, lines: Sequence[str], max_length: int) -> list[list[int]]:
    """Return the target tokens of every line, and none for a blank one; they are cut as by [`encode_lines`]."""
    encoded = _tokenize("text_target", tokenizer, lines, max_length)
    cut_lines(tokenizer, lines, encoded, max_length, side="text_target")
    return encoded


def encode_text(tokenizer: PreTrainedTokenizerBase, text: str, max_length: int, *, side: str = "text") -> list[int]:
    """Return the tokens of a text, which may be blank, cut to `max_length` with a warning.

    `side` is "text" or "text_target".
    """
    _check_text(text)
    ids = _ids(side, tokenizer, shortened(tokenizer, text, max_length, side=side))
    if len(ids) > max_length:
        logger.warning("a text has more than %d tokens, the model's limit, and was cut", max_length)
    return _cut(side, tokenizer, text, ids, max_length)


def shortened(tokenizer: PreTrainedTokenizerBase, text: str, max_length: int | None, *, side: str = "text") -> str:
    """Return a beginning of a very long text that has more than `max_length` tokens, or all of a shorter text.

    A tokenizer takes hundreds of bytes for a letter, and of most of them only the first tokens are used.
    """
    size = _LETTERS * (len(text) if max_length is None else max_length)
    while size < len(text):
        # At a space no word is cut in two.
        begin = text[: max(text.rfind(" ", 0, size), size // 2)]
        if len(_ids(side, tokenizer, begin)) > max_length + _LETTERS:
            return begin
        size *= 4
    return text


def _cut(side: str, tokenizer: PreTrainedTokenizerBase, text: str, ids: list[int], max_length: int) -> list[int]:
    """Return the tokens `ids` of a text, or fewer, with the end of a text, if they are more than `max_length`."""
    # A tokenizer without a limit says 1e30, which is no number to the one that cuts.
    if len(ids) <= max_length:
        return ids
    text = shortened(tokenizer, text, max_length, side=side)
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


def _tokenize(
    side: str, tokenizer: PreTrainedTokenizerBase, lines: Sequence[str], max_length: int | None
) -> list[list[int]]:
    filled = [index for index, line in enumerate(lines) if line.strip()]
    encoded = [[] for _ in lines]
    # To look for codes in a vocabulary takes as long as some lines.
    have_codes = any(line.startswith(">>") for line in lines)
    empty = special_ids(tokenizer) if have_codes else _special(tokenizer)
    for start in range(0, len(filled), _TOKENIZED_TOGETHER):
        part = filled[start : start + _TOKENIZED_TOGETHER]
        for index in part:
            _check_text(lines[index])
        texts = [shortened(tokenizer, lines[index], max_length, side=side) for index in part]
        for index, ids in zip(part, _ids(side, tokenizer, texts), strict=True):
            # A tokenizer may make nothing of characters that nobody sees.
            encoded[index] = ids if set(ids) - empty else []
    return encoded


def batch_by_tokens(lengths: Sequence[int], max_tokens: int, numbers: Sequence[int] | None = None) -> list[list[int]]:
    """Return indices in batches of similar length, the longest first; those of length 0 are in none.

    A batch of B lines costs B times its longest line, and that is at most `max_tokens`.

    Raises:
        ValueError: if a line is longer than `max_tokens`; the message tells which of the `numbers` it has, by default
            from 1.
    """
    filled = np.flatnonzero(lengths)
    if not len(filled):
        return []
    longest = int(np.argmax(lengths))
    if lengths[longest] > max_tokens:
        number = longest + 1 if numbers is None else numbers[longest]
        raise ValueError(
            f"max_tokens_per_batch is {max_tokens}, but line {number} has {lengths[longest]} tokens; raise it"
        )
    batches = TokenBudgetBatchSampler(np.asarray(lengths)[filled], max_tokens, shuffle=False)
    return [filled[batch].tolist() for batch in batches]


class BPEDropout:
    """Replaces token ids by those of another segmentation of the same text, drawn anew every time.

    BPE-dropout (Provilkov et al. 2020) leaves out each merge with `probability`. The library `tokenizers` does it, and
    draws from a generator that nobody can seed. So a resumed run has the same pairs in the same batches as an
    uninterrupted one, but draws other segmentations. Batches stay the same because they are cut for
    lengths that depend on no draw. The tokenizer itself stays without dropout.

    Args:
        tokenizer: a byte-level BPE tokenizer, as `train_tokenizer` makes.
        probability: of leaving out a merge.
        limits: most tokens of a source and of a target.

    Raises:
        ValueError: if the tokenizer is another, or the probability not in (0, 1).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, probability: float, limits: tuple[int, int]) -> None:
        if not 0 < probability < 1:
            raise ValueError(f"bpe_dropout is {probability}; it must be in (0, 1)")
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None or not isinstance(backend.model, BPE) or "ByteLevel" not in repr(backend.pre_tokenizer):
            raise ValueError("bpe_dropout needs a byte-level BPE tokenizer, as hf-capsule-mt train_tokenizer makes")
        self.probability = probability
        self.limits = limits
        self._tokenizer = copy.deepcopy(tokenizer)
        self._tokenizer.backend_tokenizer.model.dropout = probability

    def lengths(self, longest: np.ndarray, max_tokens: int) -> np.ndarray:
        """Return lengths to cut batches of `max_tokens` for, `[N]`, given those of the pairs without dropout.

        About one pair in twenty grows longer.
        """
        grown = np.ceil(longest * (1 + 4 * self.probability))
        # A pair that fits by itself must still do so.
        return np.maximum(longest, np.minimum(grown, max_tokens).astype(np.int32))

    def __call__(self, rows: Sequence[dict[str, list[int]]], max_tokens: int) -> list[dict[str, list[int]]]:
        """Return the rows of a batch of `max_tokens` with other ids; a pair that grew too long keeps its own."""
        most = [min(max_tokens // len(rows), limit) for limit in self.limits]
        sides = [self._segment([row[name] for row in rows]) for name in ("input_ids", "labels")]
        return [
            {"input_ids": ids, "labels": labels} if len(ids) <= most[0] and len(labels) <= most[1] else row
            for row, ids, labels in zip(rows, *sides)
        ]

    def _segment(self, texts: list[list[int]]) -> list[list[int]]:
        decoded = self._tokenizer.batch_decode(texts, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return self._tokenizer(decoded, return_attention_mask=False, verbose=False)["input_ids"]


class ResegmentedPairs(TorchDataset):
    """A data set of token ids that has other ids of the same text in every epoch, within the same budget of tokens.

    Args:
        dataset: a `datasets.Dataset` with columns input_ids and labels.
        dropout: makes the other ids.
        max_tokens: the budget of a batch.
    """

    def __init__(self, dataset: "Dataset", dropout: BPEDropout, max_tokens: int) -> None:
        self.dataset = dataset
        self.dropout = dropout
        self.max_tokens = max_tokens

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[dict[str, list[int]]]:
        """Return the rows of a batch; a `DataLoader` looks for this method."""
        return self.dropout(self.dataset.__getitems__(indices), self.max_tokens)

    def lengths(self) -> np.ndarray:
        """Return the lengths to cut batches for, `[N]`."""
        return self.dropout.lengths(longest_sides(self.dataset), self.max_tokens)
