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
from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

from hf_capsule_mt.data.language_codes import LanguageCodes
from hf_capsule_mt.errors import UserError

from .batching import TokenBudgetBatchSampler, longest_sides

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

TOKENIZING = RLock()
"""Held while a tokenizer is called, because its calls change its language and its truncation."""
# The thread that holds the lock does not exist in a forked process.
os.register_at_fork(after_in_child=TOKENIZING._at_fork_reinit)

_TOKENIZED_TOGETHER = 2_000
"""Lines of one call of a tokenizer, which needs much memory for each."""
_LETTERS = 32
"""Letters for each token of a limit. A text with more is shortened before it is tokenised."""


def positions(config: PreTrainedConfig) -> int | None:
    """Return the most tokens that a model has positions for, or None."""
    return getattr(config, "max_position_embeddings", None)


def source_limit(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int:
    """Return the length of the longest source, in tokens, that model and tokenizer take."""
    # 0 is no limit, as null is.
    longest = tokenizer.model_max_length or VERY_LARGE_INTEGER
    return min(longest, positions(config) or longest)


def encode_lines(
    tokenizer: PreTrainedTokenizerBase,
    lines: Sequence[str],
    max_length: int,
    numbers: Sequence[int] | None = None,
    *,
    side: str = "text",
) -> list[list[int]]:
    """Return the tokens of every line, none for a blank one. `side` is "text", or "text_target" for translations.

    Longer ones are cut to `max_length`, with a warning that names the first of their `numbers`, by default from 1.
    """
    encoded = tokenize_lines(tokenizer, lines, max_length, side=side)
    cut_lines(tokenizer, lines, encoded, max_length, numbers, side=side)
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
    """Cut the `encoded` lines that are longer as [`encode_lines`] does, and return their indices."""
    too_long = [index for index, ids in enumerate(encoded) if len(ids) > max_length]
    for index in too_long:
        text = shortened(tokenizer, lines[index], max_length, side=side)
        encoded[index] = _ids(side, tokenizer, text, truncation=True, max_length=max_length)
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
    tokenizer: PreTrainedTokenizerBase, lines: Sequence[str], max_length: int | None = None, *, side: str = "text"
) -> list[list[int]]:
    """Return the tokens of every line, and none for a blank one.

    Longer lines than `max_length` are not cut to it, but only the beginning of a very long one is read.
    """
    filled = [index for index, line in enumerate(lines) if line.strip()]
    encoded = [[] for _ in lines]
    empty = frozenset(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    # Looking for codes in a vocabulary takes as long as some lines.
    if any(line.startswith(">>") for line in lines):
        empty = special_ids(tokenizer)
    for start in range(0, len(filled), _TOKENIZED_TOGETHER):
        part = filled[start : start + _TOKENIZED_TOGETHER]
        texts = [shortened(tokenizer, lines[index], max_length, side=side) for index in part]
        for index, ids in zip(part, _ids(side, tokenizer, texts), strict=True):
            # Invisible characters may have no tokens.
            encoded[index] = ids if set(ids) - empty else []
    return encoded


def shortened(tokenizer: PreTrainedTokenizerBase, text: str, max_length: int | None, *, side: str = "text") -> str:
    """Return a beginning of a very long text that has more than `max_length` tokens, or all of a shorter text.

    A tokenizer takes hundreds of bytes for a letter, and usually only the first tokens are used.
    """
    size = _LETTERS * (len(text) if max_length is None else max_length)
    while size < len(text):
        # At a space no word is cut in two.
        begin = text[: max(text.rfind(" ", 0, size), size // 2)]
        if len(_ids(side, tokenizer, begin)) > max_length + _LETTERS:
            return begin
        size *= 4
    return text


def _ids(side: str, tokenizer: PreTrainedTokenizerBase, texts: str | Sequence[str], **options: Any) -> Any:
    # verbose=False: the library's own warning of long texts names no lines.
    with TOKENIZING:
        return tokenizer(**{side: texts}, **options, verbose=False)["input_ids"]


def special_ids(tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the ids that stand for no text: codes of languages, and special tokens except the unknown token."""
    return frozenset(tokenizer.all_special_ids) - {tokenizer.unk_token_id} | {*LanguageCodes(tokenizer).ids.values()}


def batch_by_tokens(lengths: Sequence[int], max_tokens: int, numbers: Sequence[int] | None = None) -> list[list[int]]:
    """Return indices in batches of similar length, the longest first. Lines of length 0 are left out.

    A batch of B lines costs B times its longest line, and that is at most `max_tokens`. A UserError names the first of
    the `numbers`, by default from 1, of a line that is longer.
    """
    filled = np.flatnonzero(lengths)
    if not len(filled):
        return []
    longest = int(np.argmax(lengths))
    if lengths[longest] > max_tokens:
        number = longest + 1 if numbers is None else numbers[longest]
        raise UserError(f"Line {number} has {lengths[longest]} tokens. Raise max_tokens_per_batch ({max_tokens}).")
    batches = TokenBudgetBatchSampler(np.asarray(lengths)[filled], max_tokens, shuffle=False)
    return [filled[batch].tolist() for batch in batches]


class BPEDropout:
    """Replaces token ids by those of another segmentation of the same text, drawn again every time.

    BPE-dropout (Provilkov et al. 2020) skips each merge with `probability`. Nobody can seed the generator of the
    library `tokenizers`. So a resumed run has the same pairs in the same batches as an uninterrupted one, but other
    segmentations. Batches stay the same because they are cut for lengths that depend on no draw.

    The tokenizer is byte-level BPE, as `train_tokenizer` makes, and stays without dropout. `limits` are the most tokens
    of a source and of a target.

    Raises:
        UserError: if the tokenizer is of another kind, or the probability not in (0, 1).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, probability: float, limits: tuple[int, int]) -> None:
        if not 0 < probability < 1:
            raise UserError(f"bpe_dropout is {probability}. It must be between 0 and 1.")
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None or not isinstance(backend.model, BPE) or "ByteLevel" not in repr(backend.pre_tokenizer):
            raise UserError("bpe_dropout needs a byte-level BPE tokenizer, as hf-capsule-mt train_tokenizer makes")
        self.probability = probability
        self.limits = limits
        self._tokenizer = copy.deepcopy(tokenizer)
        self._tokenizer.backend_tokenizer.model.dropout = probability

    def lengths(self, longest: np.ndarray, max_tokens: int) -> np.ndarray:
        """Return lengths `[N]` to cut batches for, from those without dropout. About one pair in 20 grows longer."""
        grown = np.ceil(longest * (1 + 4 * self.probability))
        # A pair that fits by itself must still do so.
        return np.maximum(longest, np.minimum(grown, max_tokens).astype(np.int32))

    def __call__(self, rows: Sequence[dict[str, list[int]]], max_tokens: int) -> list[dict[str, list[int]]]:
        """Return the rows of a batch of `max_tokens` with other ids. A pair that grew too long keeps its own."""
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
    """A data set that has other token ids of the same text in every epoch, within the budget of a batch.

    `dropout` makes them of a `datasets.Dataset` with columns input_ids and labels.
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
        """Return the rows of a batch. A `DataLoader` looks for this method."""
        return self.dropout(self.dataset.__getitems__(indices), self.max_tokens)

    def lengths(self) -> np.ndarray:
        """Return the lengths to cut batches for, `[N]`."""
        return self.dropout.lengths(longest_sides(self.dataset), self.max_tokens)
