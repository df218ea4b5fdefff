"""BPE-dropout (Provilkov et al. 2020): other segmentations of the same text, drawn anew whenever it is read.

The `tokenizers` library has it, but draws from a generator that nobody can seed, and a resumed run must see what an
uninterrupted one sees.
"""

import json
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

import numpy as np
from torch.utils.data import Dataset as TorchDataset
from transformers import PreTrainedTokenizerBase
from transformers.convert_slow_tokenizer import bytes_to_unicode

from .batching import TokenBudgetBatchSampler
from .rows import longest_sides

if TYPE_CHECKING:
    from datasets import Dataset

# Words whose segmentation without dropout is remembered.
_REMEMBERED = 100_000


class BPEDropout:
    """Replaces the token ids of a text by those of another segmentation, in which merges are left out at random.

    At every step of a word's segmentation each merge that is possible is left out with `probability`, and the first in
    the order of merges among the others is done: Algorithm 1 of the paper. A pair keeps its own ids if the new ones of
    one side would be over its limit.

    Args:
        tokenizer: a byte-level BPE tokenizer, as `train_tokenizer` makes.
        probability: of leaving out a merge.
        seed: with the numbers given for a pair, decides the segmentation.

    Raises:
        ValueError: if the tokenizer is another, or the probability not in (0, 1).
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, probability: float, seed: int = 0) -> None:
        if not 0 < probability < 1:
            raise ValueError(f"bpe_dropout is {probability}; it must be in (0, 1)")
        backend = getattr(tokenizer, "backend_tokenizer", None)
        settings = json.loads(backend.to_str()) if backend is not None else {"model": {}}
        model = settings["model"]
        if model.get("type") != "BPE" or "ByteLevel" not in json.dumps(settings["pre_tokenizer"]):
            raise ValueError("bpe_dropout needs a byte-level BPE tokenizer, as hf-capsule-mt train_tokenizer makes")
        self.probability = probability
        self.seed = seed
        self._ids: dict[str, int] = model["vocab"]
        # What begins no word of the text is left as it is: special tokens and language codes.
        added = {token["id"] for token in settings["added_tokens"]}
        self._tokens = {index: token for token, index in self._ids.items() if index not in added}
        merges = [tuple(merge.split(" ")) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
        self._ranks = {merge: rank for rank, merge in enumerate(merges)}
        self._pre_tokenizer = backend.pre_tokenizer
        self._bytes = {symbol: number for number, symbol in bytes_to_unicode().items()}
        self._without_dropout = lru_cache(_REMEMBERED)(self._segment_without_dropout)

    def __call__(
        self, input_ids: Sequence[int], labels: Sequence[int], limits: tuple[int, int], draw: tuple[int, ...]
    ) -> tuple[list[int], list[int]]:
        """Return other ids for a pair: the same for the same numbers `draw`."""
        generator = random.Random(repr((self.seed, draw)))
        sides = [self.segment(ids, generator) for ids in (input_ids, labels)]
        if any(len(side) > limit for side, limit in zip(sides, limits)):
            return list(input_ids), list(labels)
        return sides[0], sides[1]

    def segment(self, ids: Sequence[int], generator: random.Random) -> list[int]:
        """Return other ids of the same text."""
        segmented = []
        for word in self._words(ids):
            segmented += word if isinstance(word, list) else self._segment_word(word, generator)
        return segmented

    def _words(self, ids: Sequence[int]) -> Iterator[str | list[int]]:
        """Yield the words of a text in the alphabet of bytes, and the ids between them that are no text."""
        for is_text, group in groupby(ids, self._tokens.__contains__):
            run = list(group)
            yield from self._words_of_text(run) if is_text else [run]

    def _words_of_text(self, ids: list[int]) -> Iterable[str | list[int]]:
        symbols = "".join(self._tokens[index] for index in ids)
        try:
            text = bytes(self._bytes[symbol] for symbol in symbols).decode()
        except UnicodeDecodeError:
            return [ids]
        return [word for word, _ in self._pre_tokenizer.pre_tokenize_str(text)]

    def _segment_word(self, word: str, generator: random.Random) -> list[int]:
        ids, places = self._without_dropout(word)
        # The first merge that is left out, if each of those that would be done is with the same probability.
        first = int(math.log(1 - generator.random()) / math.log(1 - self.probability))
        if first >= len(places):
            return ids
        pieces = list(word)
        for place in places[:first]:
            pieces = _merge(pieces, place)
        next_place = self._next_merge(pieces, generator, skipped=1)
        while next_place is not None:
            pieces = _merge(pieces, next_place)
            next_place = self._next_merge(pieces, generator)
        return [self._ids[piece] for piece in pieces]

    def _segment_without_dropout(self, word: str) -> tuple[list[int], list[int]]:
        """Return the ids of a word, and the places of the merges that lead to them from its letters."""
        pieces, places = list(word), []
        while (place := self._next_merge(pieces, None)) is not None:
            pieces = _merge(pieces, place)
            places.append(place)
        return [self._ids[piece] for piece in pieces], places

    def _next_merge(self, pieces: list[str], generator: random.Random | None, skipped: int = 0) -> int | None:
        """Return the place of the first merge that is not left out, after those skipped for certain."""
        ranks = self._ranks
        possible = sorted((ranks[pair], place) for place, pair in enumerate(pairwise(pieces)) if pair in ranks)
        for _, place in possible[skipped:]:
            if generator is None or generator.random() >= self.probability:
                return place
        return None


class ResegmentedPairs:
    """A data set of token ids that has other ids of the same text in every epoch, within the same budget of tokens.

    How long they will be is not known when batches are cut, so these are cut for lengths that few pairs exceed; a pair
    that does, about one in twenty, keeps its own ids.

    Args:
        dataset: a `datasets.Dataset` with columns input_ids and labels.
        dropout: makes the other ids.
        limits: most tokens of a source and of a target.
    """

    _SAMPLE, _SHARE_WITHIN = 1000, 0.95

    def __init__(self, dataset: "Dataset", dropout: BPEDropout, limits: tuple[int, int]) -> None:
        self.dataset = dataset
        self.dropout = dropout
        self.limits = limits

    def __len__(self) -> int:
        return len(self.dataset)

    def lengths(self, max_tokens: int) -> np.ndarray:
        """Return the lengths to cut batches of `max_tokens` for, `[N]`."""
        lengths = longest_sides(self.dataset)
        # A pair that fits alone must still do so.
        return np.maximum(lengths, np.minimum(np.ceil(lengths * self._growth()), max_tokens).astype(np.int32))

    def rows(self, max_tokens: int) -> "ResegmentedRows":
        """Return the rows of batches that hold `max_tokens`."""
        return ResegmentedRows(self, max_tokens)

    def _growth(self) -> float:
        """Return the factor by which nearly all pairs of a sample grow at most."""
        size = min(self._SAMPLE, len(self))
        sample = np.random.default_rng(self.dropout.seed).choice(len(self), size, replace=False)
        pairs = [(row["input_ids"], row["labels"]) for row in self.dataset.__getitems__(sample.tolist())]
        drawn = [self.dropout(*pair, self.limits, (-1, number)) for number, pair in enumerate(pairs)]
        ratios = [max(map(len, new)) / max(map(len, old)) for new, old in zip(drawn, pairs)]
        return float(np.quantile(ratios, self._SHARE_WITHIN))


class ResegmentedRows(TorchDataset):
    """Rows of [`ResegmentedPairs`], a batch at a time, by epoch and index."""

    def __init__(self, pairs: ResegmentedPairs, max_tokens: int) -> None:
        self._rows = pairs.dataset
        self._pairs = pairs
        self._max_tokens = max_tokens

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, key: tuple[int, int]) -> dict[str, list[int]]:
        return self.__getitems__([key])[0]

    def __getitems__(self, keys: list[tuple[int, int]]) -> list[dict[str, list[int]]]:
        """Return the rows of a batch; a `DataLoader` looks for this method."""
        longest = self._max_tokens // len(keys)
        limits = min(longest, self._pairs.limits[0]), min(longest, self._pairs.limits[1])
        rows = self._rows.__getitems__([index for _, index in keys])
        pairs = (self._pairs.dropout(row["input_ids"], row["labels"], limits, key) for row, key in zip(rows, keys))
        return [{"input_ids": ids, "labels": labels} for ids, labels in pairs]


class EpochIndexSampler(TokenBudgetBatchSampler):
    """A [`TokenBudgetBatchSampler`] that yields (epoch, index) for each pair."""

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        epoch = self.epoch
        return ([(epoch, index) for index in batch] for batch in super().__iter__())


def _merge(pieces: list[str], place: int) -> list[str]:
    return [*pieces[:place], pieces[place] + pieces[place + 1], *pieces[place + 2 :]]
