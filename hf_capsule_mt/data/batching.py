"""From pairs of text to token ids, and to batches that hold a budget of tokens instead of a number of sentences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.errors import UserError

from .encoding import LETTERS_PER_TOKEN, shortened

if TYPE_CHECKING:
    from datasets import Dataset

_CHUNK = 10_000


def tokenize_batch(
    batch: Mapping[str, list[str]],
    tokenizer: PreTrainedTokenizerBase,
    limits: tuple[int | None, int | None],
) -> dict[str, list[list[int]]]:
    """Return input_ids and labels of those pairs of columns source and target that are within the limits.

    Args:
        batch: texts, by the names of their columns.
        tokenizer: makes the token ids.
        limits: most tokens of a source and of a target, special tokens included. None for no limit.
    """
    source_limit, target_limit = limits
    sources = _beginnings(tokenizer, batch["source"], source_limit, side="text")
    targets = _beginnings(tokenizer, batch["target"], target_limit, side="text_target")
    encoded = tokenizer(sources, text_target=targets, return_attention_mask=False, verbose=False)

    kept_ids = []
    kept_labels = []
    for ids, labels in zip(encoded["input_ids"], encoded["labels"]):
        if _is_within(ids, source_limit) and _is_within(labels, target_limit):
            kept_ids.append(ids)
            kept_labels.append(labels)
    return {"input_ids": kept_ids, "labels": kept_labels}


def _is_within(token_ids: Sequence[int], limit: int | None) -> bool:
    return limit is None or len(token_ids) <= limit


def _beginnings(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], limit: int | None, *, side: str
) -> Sequence[str]:
    """Return the texts, but only the beginning of one so long that its token ids would fill the memory."""
    if limit is None or max(map(len, texts), default=0) <= LETTERS_PER_TOKEN * limit:
        return texts
    return [shortened(tokenizer, text, limit, side=side) for text in texts]


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
        if longest.ndim == 2:
            longest = longest.max(axis=1)
        self.longest = longest

        self.max_tokens = max_tokens
        self.num_replicas = num_replicas
        self.seed = seed
        self.shuffle = shuffle
        self.epoch = 0

        index = int(self.longest.argmax())
        if self.longest[index] > max_tokens:
            raise UserError(
                f"max_tokens is {max_tokens}, but pair {index} has {self.longest[index]} tokens. Raise max_tokens, or "
                "leave out pairs that long."
            )

        sizes = _batch_sizes(self.longest, max_tokens)
        sizes = _split_to_multiple(sizes, num_replicas)
        # Batch b has the pairs from the end of batch b - 1 to its own, in the order of length.
        self._ends = np.cumsum(sizes)

    def check_deal(self, processes: int) -> None:
        """Raise a UserError if the batches cannot be dealt evenly to this number of processes."""
        if len(self) % processes:
            raise UserError(
                f"The {len(self)} batches of an epoch were cut for {self.num_replicas} processes, and cannot be dealt "
                f"to {processes}. Start {self.num_replicas} processes or a divisor of it."
            )

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
        shorter_by = self.longest.max() - self.longest
        order = np.argsort(shorter_by, kind="stable").astype(np.int32)
        batches = np.arange(len(self))
        if self.shuffle:
            generator = np.random.default_rng([self.seed, self.epoch])
            self._shuffle_equally_long(order, generator)
            generator.shuffle(batches)
        return self._batches(order, batches)

    def _shuffle_equally_long(self, order: np.ndarray, generator: np.random.Generator) -> None:
        """Shuffle, in place, the pairs of each length in `order`, which begins with the longest."""
        pairs_by_length = np.bincount(self.longest)[::-1]
        ends = np.cumsum(pairs_by_length)
        # The parts are views, so that shuffling one changes `order`.
        for equally_long in np.split(order, ends[:-1]):
            generator.shuffle(equally_long)

    def _batches(self, order: np.ndarray, batches: np.ndarray) -> Iterator[list[int]]:
        for batch in batches:
            begin = self._ends[batch - 1] if batch else 0
            indices = order[begin : self._ends[batch]]
            yield indices.tolist()


def _batch_sizes(longest: np.ndarray, max_tokens: int) -> np.ndarray:
    """Return the number of pairs of each batch, from the longest pairs to the shortest."""
    sorted_lengths = np.sort(longest)[::-1]
    sizes = []
    start = 0
    while start < len(sorted_lengths):
        # A pair of two empty sides still takes a place in its batch.
        length = max(int(sorted_lengths[start]), 1)
        pairs_left = len(sorted_lengths) - start
        size = min(max_tokens // length, pairs_left)
        sizes.append(size)
        start += size
    return np.array(sizes)


def _split_to_multiple(sizes: np.ndarray, num_replicas: int) -> np.ndarray:
    """Halve the largest of `sizes`, again and again, until their number is a multiple of `num_replicas`."""
    missing = -len(sizes) % num_replicas
    pairs = sizes.sum()
    if len(sizes) + missing > pairs:
        raise UserError(
            f"{pairs} pairs in {len(sizes)} batches cannot be dealt evenly to {num_replicas} processes "
            "without dropping or repeating one. Use fewer processes or more pairs."
        )

    for _ in range(missing):
        largest = int(sizes.argmax())
        half = sizes[largest] // 2
        sizes = np.insert(sizes, largest, half)
        # The batch that was halved is now behind its first half.
        sizes[largest + 1] -= half
    return sizes


def budget_loader(
    pairs: "Dataset | Sequence[dict[str, Any]]",
    max_tokens: int,
    collate: Callable,
    *,
    columns: set[str] | None,
    num_replicas: int,
    processes: int,
    seed: int,
    **options: Any,
) -> DataLoader:
    """Return the loader of pairs in memory, whose batches are those of a [`TokenBudgetBatchSampler`].

    Args:
        pairs: rows with `input_ids` and `labels`. If they have a method `lengths`, batches are cut for what it returns.
        max_tokens: the budget of a batch.
        collate: makes a batch of rows.
        columns: the columns that it gets. None for all.
        num_replicas: the number of processes that an epoch is cut for.
        processes: the number of processes of now, which share these batches.
        seed: decides the order.
        **options: those of `DataLoader`.

    Raises:
        UserError: as the sampler does, or if these processes cannot share the batches evenly.
    """
    lengths = pairs.lengths() if hasattr(pairs, "lengths") else longest_sides(pairs)
    sampler = TokenBudgetBatchSampler(lengths, max_tokens, num_replicas=num_replicas, seed=seed)
    sampler.check_deal(processes)
    if columns is not None:
        collate = CollatorOfColumns(collate, columns)
    # With its own generator: starting workers draws a seed, in a resumed run at other times.
    generator = torch.Generator()
    return DataLoader(pairs, batch_sampler=sampler, collate_fn=collate, generator=generator, **options)


class CollatorOfColumns:
    """Makes a batch of the columns of rows that a model takes, as Transformers' Trainer does."""

    def __init__(self, collate: Callable, columns: set[str]) -> None:
        self.collate = collate
        self.columns = columns

    def __call__(self, rows: list[dict[str, Any]]) -> Any:
        """Return a batch."""
        rows_of_model = []
        for row in rows:
            columns = {name: value for name, value in row.items() if name in self.columns}
            rows_of_model.append(columns)
        return self.collate(rows_of_model)


def longest_sides(pairs: "Dataset | Sequence[dict[str, Any]]") -> np.ndarray:
    """Return the number of tokens of the longer side of each pair, `[N]`, uint16, or int32 if that is too small.

    From a `datasets.Dataset` with columns input_ids and labels only the bounds of its lists are read.
    """
    if hasattr(pairs, "with_format") and len(pairs):
        lengths = _longest_sides_in_arrow(pairs)
    else:
        longest = [max(len(pair["input_ids"]), len(pair["labels"])) for pair in pairs]
        lengths = np.array(longest, np.int32)
    # Corpora have many millions of pairs.
    fits_uint16 = lengths.max(initial=0) < 2**16
    return lengths.astype(np.uint16 if fits_uint16 else np.int32)


def _longest_sides_in_arrow(dataset: "Dataset") -> np.ndarray:
    import pyarrow.compute as pc

    parts = []
    tables = dataset.select_columns(["input_ids", "labels"]).with_format("arrow")
    for table in tables.iter(_CHUNK):
        source_lengths = pc.list_value_length(table["input_ids"]).to_numpy()
        target_lengths = pc.list_value_length(table["labels"]).to_numpy()
        parts.append(np.maximum(source_lengths, target_lengths))
    return np.concatenate(parts)


def batch_by_tokens(lengths: Sequence[int], max_tokens: int, numbers: Sequence[int] | None = None) -> list[list[int]]:
    """Return indices in batches of similar length, the longest first. Lines of length 0 are left out.

    A batch of B lines costs B times its longest line, and that is at most `max_tokens`.

    Args:
        lengths: the tokens of each line.
        max_tokens: the budget of a batch.
        numbers: the number of each line, which an error message names (default: counted from 1).

    Raises:
        UserError: if a line is longer than the budget.
    """
    filled = np.flatnonzero(lengths)
    if not len(filled):
        return []

    longest = int(np.argmax(lengths))
    if lengths[longest] > max_tokens:
        number = longest + 1 if numbers is None else numbers[longest]
        raise UserError(f"Line {number} has {lengths[longest]} tokens. Raise max_tokens_per_batch ({max_tokens}).")

    # The sampler counts only the filled lines.
    filled_lengths = np.asarray(lengths)[filled]
    batches = TokenBudgetBatchSampler(filled_lengths, max_tokens, shuffle=False)
    return [filled[batch].tolist() for batch in batches]
