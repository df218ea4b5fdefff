"""Batches that hold a budget of tokens instead of a number of sentences."""

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import Sampler

# Pairs that are sorted together.
_BLOCK = 1_000_000


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """Yields lists of pair indices whose padded size stays within `max_tokens`, similar lengths together.

    A batch of B pairs costs B * max(longest source, longest target) tokens, padding included: fairseq's
    `--max-tokens`. Pairs are sorted by the longer of their two sides, cut greedily, and the batches shuffled.
    Pairs of equal length are shuffled before the cut, so batches differ between epochs; the cut itself
    depends on the sorted lengths alone, so `len()` is the same in every epoch, as Trainer needs.

    The order is global: every process builds the same one and accelerate's `BatchSamplerShard` deals it out.
    The largest batches are halved until there is a multiple of `num_replicas` of them, so every process gets
    the same number, and no pair is dropped or repeated. An epoch's order follows from `seed` + `epoch` alone,
    so `accelerate.skip_first_batches` resumes in the middle of one. With several processes call the
    dataloader's `set_epoch` before that: it does not reach through the two wrappers that lie here then.

    Args:
        lengths: (source, target) lengths of each pair in tokens, special tokens included, `[N, 2]`; or the longer of
            the two, `[N]`.
        max_tokens: the budget of one batch on one process.
        num_replicas: number of processes among which the batches will be dealt.
        seed: with the epoch, decides the order.
        shuffle: False gives the same order in every epoch, the longest pairs first, for evaluation.

    Raises:
        ValueError: no pairs, a pair longer than the budget, or too few pairs for the processes.
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
        if len(lengths) == 0:
            raise ValueError("lengths is empty: there are no pairs to batch.")
        if num_replicas < 1:
            raise ValueError(f"num_replicas is {num_replicas}; it must be at least 1.")
        longest = np.asarray(lengths)
        if longest.ndim == 2:
            longest = longest.max(axis=1)
        # A pair of two empty sides still takes a place in its batch.
        self.longest = np.maximum(longest, 1, dtype=np.int32)
        self.max_tokens = max_tokens
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0
        self._check_budget()
        # How many pairs there are of each length, from the longest to 0.
        self._counts = sum(
            np.bincount(self.longest[block], minlength=self.longest.max() + 1) for block in self._blocks()
        )
        self._counts = self._counts[::-1]
        self._ends = np.cumsum(self._batch_sizes(num_replicas))

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
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        if self.shuffle:
            order = torch.randperm(len(self.longest), generator=generator, dtype=torch.int32).numpy()
            order = self._longest_first(order)
            batches = torch.randperm(len(self), generator=generator).numpy()
        else:
            order = self._longest_first(np.arange(len(self.longest), dtype=np.int32))
            batches = range(len(self))
        return (order[self._ends[batch - 1] if batch else 0 : self._ends[batch]].tolist() for batch in batches)

    def _longest_first(self, order: np.ndarray) -> np.ndarray:
        """Return the order sorted by length, and where that is equal as it was.

        `argsort` would do it, with two arrays of eight bytes a pair.
        """
        result = np.empty_like(order)
        # Places of the next pair of each length.
        places = np.concatenate([[0], np.cumsum(self._counts)[:-1]])
        for block in self._blocks():
            pairs = order[block]
            kinds = len(self._counts) - 1 - self.longest[pairs]
            by_kind = np.argsort(kinds, kind="stable")
            counts = np.bincount(kinds, minlength=len(places))
            firsts = np.cumsum(counts) - counts
            sorted_kinds = kinds[by_kind]
            result[places[sorted_kinds] + np.arange(len(pairs)) - firsts[sorted_kinds]] = pairs[by_kind]
            places += counts
        return result

    def _blocks(self) -> list[slice]:
        return [slice(start, start + _BLOCK) for start in range(0, len(self.longest), _BLOCK)]

    def _check_budget(self) -> None:
        index = int(self.longest.argmax())
        if self.longest[index] > self.max_tokens:
            raise ValueError(
                f"max_tokens is {self.max_tokens}, but the longer side of pair {index} alone has {self.longest[index]} "
                "tokens. Raise max_tokens, or leave out pairs that long."
            )

    def _batch_sizes(self, num_replicas: int) -> list[int]:
        """Numbers of pairs in the batches, from that of the longest pairs to that of the shortest."""
        ends, total = np.cumsum(self._counts), len(self.longest)
        sizes = []
        start = 0
        while start < total:
            longest = len(ends) - 1 - int(np.searchsorted(ends, start, side="right"))
            sizes.append(min(self.max_tokens // longest, total - start))
            start += sizes[-1]
        return _split_to_multiple(sizes, num_replicas)


def _split_to_multiple(sizes: list[int], num_replicas: int) -> list[int]:
    """Halve the largest of `sizes`, again and again, until their number is a multiple of `num_replicas`."""
    missing = -len(sizes) % num_replicas
    if len(sizes) + missing > sum(sizes):
        raise ValueError(
            f"{sum(sizes)} pairs in {len(sizes)} batches cannot be dealt evenly to {num_replicas} processes "
            "without dropping or repeating one. Use fewer processes or more pairs."
        )
    # heapq pops the smallest; sorting by position in the end puts both halves where the whole was.
    parts = [(-size, position) for position, size in enumerate(sizes)]
    heapq.heapify(parts)
    for _ in range(missing):
        size, position = heapq.heappop(parts)
        heapq.heappush(parts, (size // 2, position))
        heapq.heappush(parts, (size - size // 2, position))
    return [-size for size, _ in sorted(parts, key=lambda part: part[1])]
