"""Which words of a translation each element of a sentence gets.

Elements that enclose each other in the source do so in the translation. So a node gives its words to its children,
each child gives its own to the children in it, and no two children share a word.
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from .owners import Span, TagAlignment


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
    space: str = ""  # White space behind an empty tag, if white space is in front of it, too.
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
            elif child.words != range(num_words) or not child.is_around(num_words):
                return False
        return True


class DisjointRanges:
    """Ranges that are taken already, such as words of an element. No two of them overlap."""

    def __init__(self, ranges: Iterable[Span] = ()) -> None:
        self._ranges = sorted(ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, span: Span) -> None:
        """Add a range that overlaps no other."""
        insort(self._ranges, span)

    def overlap(self, start: int, end: int) -> bool:
        """Return whether anything from `start` to `end` is taken."""
        index = bisect_right(self._ranges, start, key=itemgetter(1))
        return index < len(self._ranges) and self._ranges[index][0] < end

    def contain(self, start: int, end: int) -> bool:
        """Return whether one range has everything from `start` to `end`."""
        index = bisect_right(self._ranges, start, key=itemgetter(1))
        return index < len(self._ranges) and self._ranges[index][0] <= start and end <= self._ranges[index][1]

    def moved_out(self, place: int, forwards: bool) -> int:
        """Return a place between two words, moved to the end or the start of the range that it is in, if any."""
        index = bisect_right(self._ranges, place, key=itemgetter(1))
        if index == len(self._ranges):
            return place
        start, end = self._ranges[index]
        if place <= start:
            return place
        return end if forwards else start


class PlacedNode(NamedTuple):
    """A child, with its first target word and the one after its last."""

    child: Node
    start: int
    end: int


class _GainedRange(NamedTuple):
    """Words from `start` up to `end`, and how many more of them belong to an element than to others."""

    start: int
    end: int
    gain: int


def _best_ranges_by_end(words: Sequence[int], prefer_short: bool) -> Iterator[_GainedRange]:
    """Yield, for each word of an element, the range that ends with it and has the largest gain.

    Args:
        words: the words that belong to the element, in order. All words between them belong to others.
        prefer_short: whether the shortest of several such ranges is yielded. Otherwise it is the longest.
    """
    start = words[0]
    gain = 0
    previous = start - 1
    for word in words:
        others_between = word - previous - 1
        gain -= others_between
        # What is before this word is a loss, so the range begins anew.
        if gain < 0 or (gain == 0 and prefer_short):
            start = word
            gain = 0
        gain += 1
        yield _GainedRange(start, word + 1, gain)
        previous = word


class ChildRanges:
    """Gives the target words of a node, from `low` to `high`, to its children."""

    def __init__(self, node: Node, low: int, high: int, alignment: TagAlignment) -> None:
        self._node = node
        self._low = low
        self._high = high
        self._alignment = alignment
        self._taken = DisjointRanges()

    def arranged(self) -> list[PlacedNode]:
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

        middle = [PlacedNode(inner[number], *spans[number]) for number in sorted(spans, key=position)]
        return [*first, *middle, *last]

    def _take_beginning(self, child: Node) -> PlacedNode:
        """Return a child that an earlier sentence opened, with the first words.

        They end where its own words outnumber those of others most.
        """
        start = self._low
        end = start
        if child.words == self._node.words:
            end = self._high
        else:
            best = 0
            for number, balance in self._balances(child):
                if balance >= best:
                    best = balance
                    end = number + 1
        self._low = end
        return PlacedNode(child, start, end)

    def _take_end(self, child: Node) -> PlacedNode:
        """Return a child that a later sentence closes, with the last words.

        They begin where the words of others, up to there, outnumber its own most.
        """
        start = self._low
        end = self._high
        if child.words != self._node.words:
            worst = 0
            for number, balance in self._balances(child):
                if balance < worst:
                    worst = balance
                    start = number + 1
        self._high = start
        return PlacedNode(child, start, end)

    def _balances(self, child: Node) -> Iterator[tuple[int, int]]:
        """Yield each free word with a balance: of the words up to it, those of a child minus those of others."""
        balance = 0
        for number in range(self._low, self._high):
            balance += 1 if self._alignment.owners[number] in child.words else -1
            yield number, balance

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

        Of several, an element gets the one that begins first, and of these the longest. A kept part, which replaces
        words, gets the one that ends first, and of these the shortest.
        """
        ranges: list[_GainedRange] = []
        for words in self._free_words(child):
            ranges += _best_ranges_by_end(words, prefer_short=child.is_kept)
        if not ranges:
            return None

        def rank(gained: _GainedRange) -> tuple[int, ...]:
            if child.is_kept:
                return gained.gain, -gained.end
            return gained.gain, -gained.start, gained.end

        best = max(ranges, key=rank)
        return best.start, best.end

    def _free_words(self, child: Node) -> list[list[int]]:
        """Return the free words that belong to a child. A new list begins behind each word that is taken."""
        lists: list[list[int]] = []
        for word in self._alignment.owned(child.words, self._low, self._high):
            if self._taken.overlap(word, word + 1):
                continue
            if not lists or self._taken.overlap(lists[-1][-1], word):
                lists.append([])
            lists[-1].append(word)
        return lists

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
