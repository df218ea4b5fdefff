"""BPE-dropout: another segmentation of the same text in every epoch."""

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from tokenizers.models import BPE
from torch.utils.data import Dataset as TorchDataset
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.errors import UserError

from .batching import longest_sides

if TYPE_CHECKING:
    from datasets import Dataset


class BPEDropout:
    """Replaces token ids by those of another segmentation of the same text, drawn again every time.

    BPE-dropout (Provilkov et al. 2020) skips each merge with `probability`. Nobody can seed the generator of the
    library `tokenizers`. So a resumed run has the same pairs in the same batches as an uninterrupted one, but other
    segmentations. Batches stay the same because they are cut for lengths that depend on no draw.

    Args:
        tokenizer: of byte-level BPE, as `train_tokenizer` makes. It stays without dropout.
        probability: of leaving out a merge, between 0 and 1.
        limits: the most tokens of a source and of a target.

    Raises:
        UserError: if the tokenizer is of another kind, or the probability not in (0, 1).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, probability: float, limits: tuple[int, int]) -> None:
        if not 0 < probability < 1:
            raise UserError(f"bpe_dropout is {probability}. It must be between 0 and 1.")
        if not _is_byte_level_bpe(tokenizer):
            raise UserError("bpe_dropout needs a byte-level BPE tokenizer, as hf-capsule-mt train_tokenizer makes")
        self.probability = probability
        self.limits = limits
        self._tokenizer = copy.deepcopy(tokenizer)
        self._tokenizer.backend_tokenizer.model.dropout = probability

    def lengths(self, longest: np.ndarray, max_tokens: int) -> np.ndarray:
        """Return lengths `[N]` to cut batches for, from those without dropout. About one pair in 20 grows longer."""
        factor = 1 + 4 * self.probability
        grown = np.ceil(longest * factor)
        # A pair that fits by itself must still do so.
        grown = np.minimum(grown, max_tokens).astype(np.int32)
        return np.maximum(longest, grown)

    def __call__(self, rows: Sequence[dict[str, list[int]]], max_tokens: int) -> list[dict[str, list[int]]]:
        """Return the rows of a batch of `max_tokens` with other ids. A pair that grew too long keeps its own."""
        max_source_length, max_target_length = self.limits
        # Each row has the same part of the budget.
        room = max_tokens // len(rows)
        max_source_length = min(room, max_source_length)
        max_target_length = min(room, max_target_length)

        all_ids = self._segment([row["input_ids"] for row in rows])
        all_labels = self._segment([row["labels"] for row in rows])

        new_rows = []
        for row, ids, labels in zip(rows, all_ids, all_labels):
            if len(ids) <= max_source_length and len(labels) <= max_target_length:
                row = {"input_ids": ids, "labels": labels}
            new_rows.append(row)
        return new_rows

    def _segment(self, texts: list[list[int]]) -> list[list[int]]:
        """Return other token ids for the same texts."""
        decoded = self._tokenizer.batch_decode(texts, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        encoded = self._tokenizer(decoded, return_attention_mask=False, verbose=False)
        return encoded["input_ids"]


def _is_byte_level_bpe(tokenizer: PreTrainedTokenizerBase) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    return isinstance(backend.model, BPE) and "ByteLevel" in repr(backend.pre_tokenizer)


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
        rows = self.dataset.__getitems__(indices)
        return self.dropout(rows, self.max_tokens)

    def lengths(self) -> np.ndarray:
        """Return the lengths to cut batches for, `[N]`."""
        longest = longest_sides(self.dataset)
        return self.dropout.lengths(longest, self.max_tokens)
