"""Put the elements of a sentence around the words of its translation that are aligned with theirs.

Time grows with the number of elements times its logarithm, and with the size of the alignment, which is the number of
target words times that of source words.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

Span = tuple[int, int]
Weights = Sequence[Sequence[float]]
"""How much each word of a translation belongs to each word of the source: `[target words][source words]`."""
Owners = Sequence[int | None]
"""The source word that each word of a translation belongs to most, if any."""
Copies = Mapping[int, Sequence[int]]
"""For the source word of each kept part, the words of the translation that are copies of it, in rising order."""


@dataclass
class Node:
    """An element of a sentence, an empty tag, or a kept part. The root has no tags.

    `first` is the first source word in it, `last` is the word after the last one. An empty tag stands before `first`.
    """

    open: str = ""  # The opening tag, the empty tag or the kept part, as it is written.
    close: str = ""
    first: int = 0
    last: int = 0
    opened_before: bool = False  # In an earlier sentence.
    closed_after: bool = False  # In a later sentence.
    is_kept: bool = False  # It takes the place of the words that are aligned with it.
    follows: bool = False  # An empty tag right after a word.
    spaced: bool = False  # An empty tag between spaces.
    children: "list[Node]" = field(default_factory=list)

    @property
    def words(self) -> range:
        """The source words in it."""
        return range(self.first, self.last)

    def is_around(self, num_words: int) -> bool:
        """Return whether all nodes in it stand around all words of the sentence, or before or after them."""
        for child in self.children:
            if not child.words:
                if child.first not in (0, num_words):
                    return False
            elif child.is_kept or child.words != range(num_words) or not child.is_around(num_words):
                return False
        return True


class SentenceWriter:
    """Writes the translation of a sentence with its tags and kept parts.

    Args:
        translation: the text that the model wrote.
        words: the places of its words, in rising order.
        weights: the alignment of these words with those of the source.
        copies: the words of the translation that the model copied from kept parts.
        escape: writes characters as references if they would look like tags.
    """

    def __init__(
        self,
        translation: str,
        words: Sequence[Span],
        weights: Weights,
        copies: Copies,
        escape: Callable[[str], str] = str,
    ) -> None:
        self._translation = translation
        self._words = words
        self._escape = escape
        owners = _owners(weights, _replaceable_words(translation, words, copies), copies)
        self._alignment = _Alignment(weights, owners)
        # A copy of a kept part that is written elsewhere is left out.
        self._dropped = {number for numbers in copies.values() for number in numbers if owners[number] is None}
        self._written: list[str] = []
        self._last_character = ""
        self._needs_space = False
        self._next_word = 0
        self._position = 0  # The first character that is not written yet.

    def write(self, root: Node) -> str:
        """Return the translation with every node of the sentence once, inside the node that it was in."""
        self._write_children(root, 0, len(self._words))
        self._write_words(len(self._words))
        self._write_gap()
        return "".join(self._written)

    def _write_children(self, node: Node, low: int, high: int) -> None:
        """Write the children of a node, with the words from `low` to `high` that belong to them."""
        for child, start, end in _ChildRanges(node, low, high, self._alignment).arranged():
            self._write_words(start)
            if child.is_kept:
                self._write_kept(child.open, end)
                continue
            if not (child.opened_before or child.follows):
                self._write_gap()
            self._written.append(child.open)
            self._needs_space |= child.spaced
            self._write_children(child, start, end)
            self._write_words(end)
            self._written.append(child.close)

    def _write_words(self, until: int) -> None:
        """Write the words before `until`, and everything between them."""
        for number in range(self._next_word, until):
            start, end = self._words[number]
            if number not in self._dropped:
                self._write_gap()
                if self._needs_space and self._translation[start].isalnum():
                    self._write(" ")
                self._write(self._translation[start:end])
            self._next_word = number + 1
            self._position = end

    def _write_gap(self) -> None:
        """Write the characters before the next word."""
        is_last = self._next_word >= len(self._words)
        end = len(self._translation) if is_last else self._words[self._next_word][0]
        gap = self._translation[self._position : end]
        if gap:
            self._write(gap)
        self._position = max(self._position, end)

    def _write_kept(self, raw: str, until: int) -> None:
        """Write a kept part instead of the words before `until`, or between spaces if it replaces none."""
        self._write_gap()
        replaces_words = self._next_word < until
        if not replaces_words and self._last_character and not self._last_character.isspace():
            self._write(" ")
        self._written.append(raw)
        self._last_character = raw[-1:]
        self._needs_space = not replaces_words
        if replaces_words:
            self._next_word = until
            self._position = self._words[until - 1][1]

    def _write(self, text: str) -> None:
        self._written.append(self._escape(text))
        self._last_character = text[-1:]
        self._needs_space = False


def _replaceable_words(translation: str, words: Sequence[Span], copies: Copies) -> list[bool]:
    """Return for each word of a translation whether any kept part may take its place.

    A kept part replaces neither a comma nor a second copy of a kept part.
    """
    copied = {number for numbers in copies.values() for number in numbers}
    replaceable = []
    for number, (start, end) in enumerate(words):
        has_letters = any(map(str.isalnum, translation[start:end]))
        replaceable.append(has_letters or number in copied)
    return replaceable


def _owners(weights: Weights, replaceable: Sequence[bool], copies: Copies) -> list[int | None]:
    """Return the source word that owns each word of a translation. Each kept part owns one of its copies, if any."""
    owners = [_best_owner(row, () if may_be else copies) for row, may_be in zip(weights, replaceable)]
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
            chosen[word] = max(candidates, key=lambda number: weights[number][word])
            free.remove(chosen[word])
    return chosen


class _Alignment:
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


class DisjointRanges:
    """Ranges that are taken already, such as words of an element. No two of them overlap."""

    def __init__(self) -> None:
        self._ranges: list[Span] = []

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, span: Span) -> None:
        """Add a range that overlaps no other."""
        insort(self._ranges, span)

    def overlap(self, start: int, end: int) -> bool:
        """Return whether anything from `start` to `end` is taken."""
        index = bisect_right(self._ranges, start, key=itemgetter(1))
        return start < end and index < len(self._ranges) and self._ranges[index][0] < end

    def moved_out(self, place: int, forwards: bool) -> int:
        """Return a place between two words, moved to the end or the start of the range that it is in, if any."""
        index = bisect_right(self._ranges, place, key=itemgetter(1))
        if index == len(self._ranges):
            return place
        start, end = self._ranges[index]
        if place <= start:
            return place
        return end if forwards else start


class _Placed(NamedTuple):
    """A child, with its first target word and the one after its last."""

    child: Node
    start: int
    end: int


class _ChildRanges:
    """Gives the target words of a node, from `low` to `high`, to its children."""

    def __init__(self, node: Node, low: int, high: int, alignment: _Alignment) -> None:
        self._node = node
        self._low = low
        self._high = high
        self._alignment = alignment
        self._taken = DisjointRanges()

    def arranged(self) -> list[_Placed]:
        """Return the children in the order of the translation, each with its words.

        Elements of earlier sentences come first, and elements that stay open come last.
        """
        children = self._node.children
        first = [self._take_beginning(child) for child in children if child.opened_before]
        last = [self._take_end(child) for child in children if child.closed_after]
        inner = [child for child in children if not (child.opened_before or child.closed_after)]

        def rank(number: int) -> tuple[bool, bool, int]:
            # Kept parts first, then short elements, and at last those without words.
            child = inner[number]
            return not child.words, not child.is_kept, len(child.words)

        spans = {number: self._take(inner[number]) for number in sorted(range(len(inner)), key=rank)}

        def position(number: int) -> tuple[int, bool, int]:
            # What has no words stands before the element that begins there.
            start, end = spans[number]
            return start, start < end, number

        middle = [_Placed(inner[number], *spans[number]) for number in sorted(spans, key=position)]
        return [*first, *middle, *last]

    def _take_beginning(self, child: Node) -> _Placed:
        """Return a child that an earlier sentence opened, with the first words."""
        start = self._low
        end = start
        if child.words == self._node.words:
            end = self._high
        else:
            balance = best = 0
            for number in range(self._low, self._high):
                balance += 1 if self._alignment.owners[number] in child.words else -1
                if balance >= best:
                    best = balance
                    end = number + 1
        self._low = end
        return _Placed(child, start, end)

    def _take_end(self, child: Node) -> _Placed:
        """Return a child that a later sentence closes, with the last words."""
        start = self._low
        end = self._high
        if child.words != self._node.words:
            balance = worst = 0
            for number in range(self._low, self._high):
                balance += 1 if self._alignment.owners[number] in child.words else -1
                if balance < worst:
                    worst = balance
                    start = number + 1
        self._high = start
        return _Placed(child, start, end)

    def _take(self, child: Node) -> Span:
        """Return the words of a child, which no other child gets, or the place between words where it stands."""
        span = self._range_of(child) if child.words else None
        if span is None:
            place = self._taken.moved_out(self._next_to(child), forwards=child.follows)
            return place, place
        self._taken.add(span)
        return span

    def _range_of(self, child: Node) -> Span | None:
        """Return a free range of words for a child that has words in the source."""
        if child.words == self._node.words and not self._taken:
            return self._low, self._high
        best = self._best_range(child)
        if best is not None or child.is_kept:
            return best
        nearest = self._alignment.nearest(child.words, self._low, self._high)
        if nearest is None or self._taken.overlap(nearest, nearest + 1):
            return None
        return nearest, nearest + 1

    def _best_range(self, child: Node) -> Span | None:
        """Return the free range with the largest gain: the number of words that belong to a child, minus the others.

        Of several, it is the first. Where it may begin at several words, an element begins at the first of them, and a
        kept part, which replaces words, at the last.
        """
        best = None
        best_gain = gain = start = 0
        previous = None
        for number in self._alignment.owned(child.words, self._low, self._high):
            if self._taken.overlap(number, number + 1):
                continue
            if previous is None or self._taken.overlap(previous + 1, number):
                gain = 0
                start = number
            else:
                # The words between belong to others.
                gain -= number - previous - 1
                if gain < 0 or (gain == 0 and child.is_kept):
                    gain = 0
                    start = number
            gain += 1
            is_longer = best is not None and start == best[0] and gain == best_gain and not child.is_kept
            if gain > best_gain or is_longer:
                best = (start, number + 1)
                best_gain = gain
            previous = number
        return best

    def _next_to(self, child: Node) -> int:
        """Return the place of a child without words: next to the words that it stands next to in the source."""
        node = self._node
        if child.words:
            nearest = self._alignment.nearest(child.words, self._low, self._high)
            if nearest is not None:
                return nearest + 1
        elif child.first <= node.first:
            return self._low
        if child.first >= node.last:
            return self._high
        behind = self._alignment.owned(range(child.first - 1, child.first), self._low, self._high)
        before = self._alignment.owned(range(child.last, child.last + 1), self._low, self._high)
        if behind and (child.follows or not before):
            return behind[-1] + 1
        if before:
            return before[0]
        share = (child.first - node.first) / (node.last - node.first)
        return self._low + round(share * (self._high - self._low))
