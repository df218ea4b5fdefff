"""Which word of the source each word of a translation belongs to, by their alignment and by copies of kept parts."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence

from ..text.words import Span, Weights

Owners = Sequence[int | None]
"""The source word that each word of a translation belongs to most, if any."""
Copies = Mapping[int, Sequence[int]]
"""For the source word of each kept part, the words of the translation that are copies of it, in rising order."""


class TagAlignment:
    """Which words of a translation belong to given source words."""

    def __init__(self, weights: Weights, owners: Owners) -> None:
        self.owners = owners
        self._weights = weights
        self._owned: defaultdict[int, list[int]] = defaultdict(list)
        for number, owner in enumerate(owners):
            if owner is not None:
                self._owned[owner].append(number)

    def owned(self, source_words: range, low: int, high: int) -> list[int]:
        """Return the target words from `low` to `high` that belong to some source words, in rising order."""
        owned: list[int] = []
        for word in source_words:
            numbers = self._owned.get(word, [])
            owned += numbers[bisect_left(numbers, low) : bisect_left(numbers, high)]
        return sorted(owned)

    def nearest(self, source_words: range, low: int, high: int) -> int | None:
        """Return the target word from `low` to `high` with the largest weight for some source words, if any has one."""
        nearest = None
        largest = 0.0
        for number in range(low, high):
            weight = sum(self._weights[number][source_words.start : source_words.stop])
            if weight > largest:
                nearest = number
                largest = weight
        return nearest


def replaceable_words(translation: str, words: Sequence[Span]) -> list[bool]:
    """Return for each word of a translation whether a kept part may take its place. A comma stays."""
    replaceable = []
    for start, end in words:
        replaceable.append(any(map(str.isalnum, translation[start:end])))
    return replaceable


def owners_of(weights: Weights, replaceable: Sequence[bool], copies: Copies) -> list[int | None]:
    """Return the source word that owns each word of a translation. Each kept part owns one of its copies, if any."""
    owners = []
    for row, is_replaceable in zip(weights, replaceable):
        kept_parts = () if is_replaceable else copies
        owners.append(_best_owner(row, excluded=kept_parts))
    kept_copies = _copy_of_each_kept_part(weights, copies)
    # The copy is the kept part's word, so the other words next to it belong to something else.
    for number, owner in enumerate(owners):
        if owner in kept_copies:
            owners[number] = _best_owner(weights[number], copies)
    # A copy that no kept part took belongs to nothing.
    for numbers in copies.values():
        for number in numbers:
            owners[number] = None
    for word, number in kept_copies.items():
        owners[number] = word
    return owners


def _best_owner(row: Sequence[float], excluded: Container[int]) -> int | None:
    """Return the first source word with the largest weight in a row, or None if all weights are 0."""
    best = None
    best_weight = 0.0
    for word, weight in enumerate(row):
        if weight > best_weight and word not in excluded:
            best = word
            best_weight = weight
    return best


def _copy_of_each_kept_part(weights: Weights, copies: Copies) -> dict[int, int]:
    """Return the copy that each kept part has: of those that no earlier part has, the one that is aligned best."""
    chosen: dict[int, int] = {}
    free = {number for numbers in copies.values() for number in numbers}
    for word in sorted(copies):
        candidates = [number for number in copies[word] if number in free]
        if candidates:
            chosen[word] = max(candidates, key=lambda number: sum(weights[number][word : word + 1]))
            free.remove(chosen[word])
    return chosen
