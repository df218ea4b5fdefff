"""Batches that hold a budget of tokens instead of a number of sentences."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Sampler

from hf_capsule_mt.errors import UserError

if TYPE_CHECKING:
    from datasets import Dataset

_CHUNK = 10_000


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """Yields lists of pair indices whose padded size stays within `max_tokens`, similar lengths together.

    A batch of B pairs costs B * max(longest source, longest target) tokens, padding included: fairseq's
    `--max-tokens`. Pairs are sorted by the longer of their two sides, cut greedily, and the batches shuffled.
    Pairs of equal length are shuffled before the cut, so batches differ between epochs. The cut only depends on the
    sorted lengths, so `len()` is the same in every epoch, as the Trainer needs.

    The order is global: every process builds the same one and accelerate's `BatchSamplerShard` deals it out.
    The largest batches are halved until there is a multiple of `num_replicas` of them, so every process gets
    the same number, and no pair is dropped or repeated. An epoch's order follows only from `seed` and `epoch`, so
    `accelerate.skip_first_batches` resumes in the middle of one. With several processes call the dataloader's
    `set_epoch` before that, because it does not reach through the wrapper.

    Args:
        lengths: (source, target) lengths of each pair in tokens, special tokens included, `[N, 2]`, or the longer of
            the two, `[N]`.
        max_tokens: the budget of one batch on one process.
        num_replicas: number of processes among which the batches will be dealt. Another number may cut and order them
            otherwise, so a run that continues with fewer processes keeps the number of its beginning.
        seed: with the epoch, decides the order.
        shuffle: False gives the same order in every epoch, the longest pairs first, for evaluation.

    Raises:
        UserError: no pairs, a pair longer than the budget, or too few pairs for the processes.
    """

    def __init__(
        self,
        lengths: Sequence[tuple[int, int]] | np.ndarray,
        max_tokens: int,
        *,
        num_replicas: int = 1,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        longest = np.asarray(lengths)
        self.longest = longest.max(axis=1) if longest.ndim == 2 else longest
        self.max_tokens = max_tokens
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0
        index = int(self.longest.argmax())
        if self.longest[index] > max_tokens:
            raise UserError(
                f"max_tokens is {max_tokens}, but pair {index} has {self.longest[index]} tokens. Raise max_tokens, or "
                "leave out pairs that long."
            )
        sizes = _split_to_multiple(_batch_sizes(self.longest, max_tokens), num_replicas)
        self._ends = np.cumsum(sizes)
        self._starts = self._ends - sizes

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next `iter()` runs through."""
        self.epoch = epoch

    @property
    def sampler(self) -> "TokenBudgetBatchSampler":
        """Itself: accelerate's dataloaders send `set_epoch` to their wrapped batch sampler's `.sampler`."""
        return self

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[list[int]]:
        # The longest first, and where that is equal as they come.
        order = np.argsort(self.longest.max() - self.longest, kind="stable").astype(np.int32)
        batches = np.arange(len(self))
        if self.shuffle:
            generator = np.random.default_rng([self.seed, self.epoch])
            self._shuffle_equal_lengths(order, generator)
            generator.shuffle(batches)
        for batch in batches:
            yield order[self._starts[batch] : self._ends[batch]].tolist()

    def _shuffle_equal_lengths(self, order: np.ndarray, generator: np.random.Generator) -> None:
        """Shuffle each run of pairs of equal length, in place. `order` has the longest first."""
        counts = np.bincount(self.longest)[::-1]
        ends = np.cumsum(counts)
        for equally_long in np.split(order, ends[:-1]):
            generator.shuffle(equally_long)


def _batch_sizes(longest: np.ndarray, max_tokens: int) -> np.ndarray:
    """Return the number of pairs of each batch, the longest pairs first."""
    sorted_lengths = np.sort(longest)[::-1]
    sizes = []
    start = 0
    while start < len(sorted_lengths):
        # A pair of two empty sides still takes a place in its batch.
        length = max(int(sorted_lengths[start]), 1)
        size = min(max_tokens // length, len(sorted_lengths) - start)
        sizes.append(size)
        start += size
    return np.array(sizes)


def _split_to_multiple(sizes: np.ndarray, num_replicas: int) -> np.ndarray:
    """Halve the largest of `sizes`, again and again, until their number is a multiple of `num_replicas`."""
    missing = -len(sizes) % num_replicas
    if len(sizes) + missing > sizes.sum():
        raise UserError(
            f"{sizes.sum()} pairs in {len(sizes)} batches cannot be dealt evenly to {num_replicas} processes "
            "without dropping or repeating one. Use fewer processes or more pairs."
        )
    for _ in range(missing):
        largest = int(sizes.argmax())
        sizes = np.insert(sizes, largest, sizes[largest] // 2)
        sizes[largest + 1] -= sizes[largest]
    return sizes


def longest_sides(pairs: "Dataset | Sequence[dict[str, Any]]") -> np.ndarray:
    """Return the number of tokens of the longer side of each pair, `[N]`, uint16, or int32 if that is too small.

    From a `datasets.Dataset` with columns input_ids and labels only the bounds of its lists are read.
    """
    if hasattr(pairs, "with_format") and len(pairs):
        lengths = _lengths_in_arrow(pairs)
    else:
        lengths = np.array([max(len(pair["input_ids"]), len(pair["labels"])) for pair in pairs], np.int32)
    return lengths.astype(np.uint16 if lengths.max(initial=0) < 2**16 else np.int32)


def _lengths_in_arrow(pairs: "Dataset") -> np.ndarray:
    import pyarrow.compute as pc

    chunks = []
    for table in pairs.select_columns(["input_ids", "labels"]).with_format("arrow").iter(_CHUNK):
        source_lengths = pc.list_value_length(table["input_ids"]).to_numpy()
        target_lengths = pc.list_value_length(table["labels"]).to_numpy()
        chunks.append(np.maximum(source_lengths, target_lengths))
    return np.concatenate(chunks)


def batch_by_tokens(lengths: Sequence[int], max_tokens: int, numbers: Sequence[int] | None = None) -> list[list[int]]:
    """Return indices in batches of similar length, the longest first. Lines of length 0 are left out.

    A batch of B lines costs B times its longest line, and that is at most `max_tokens`.

    Raises:
        UserError: if a line is longer. It names the line by its number in `numbers`, by default from 1.
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
