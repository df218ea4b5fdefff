"""Which words of a translation each element of a sentence gets, by their alignment and by copies of kept parts.

Elements that enclose each other in the source do so in the translation. So a node gives its words to its children,
each child gives its own to the children in it, and no two children share a word.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from ..text.words import Span, Weights

PlacedNode = tuple["Node", int, int]
"""A node, with its first target word and the one after its last."""
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
    space: str = ""  # White space behind an empty tag, if white space is in front of it, too.
    is_detached: bool = False  # An empty tag between a space and a sign, such as a comma.
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
        if index == len(self._ranges):
            return False
        first, last = self._ranges[index]
        return first <= start and end <= last

    def moved_out(self, place: int, forwards: bool) -> int:
        """Return a place between two words, moved to the end or the start of the range that it is in, if any."""
        index = bisect_right(self._ranges, place, key=itemgetter(1))
        if index == len(self._ranges):
            return place
        start, end = self._ranges[index]
        if place <= start:
            return place
        if forwards:
            return end
        return start


class TagAlignment:
    """Which words of a translation belong to given source words.

    Args:
        weights: the alignment of the words of the translation.
        owners: the source word that owns each of them.
        fixed: words of the translation that no kept part replaces or stands between.
    """

    def __init__(self, weights: Weights, owners: Owners, fixed: DisjointRanges) -> None:
        self.owners = owners
        self.fixed = fixed
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


def replaceable_words(translation: str, words: Sequence[Span], fixed: DisjointRanges) -> list[bool]:
    """Return for each word of a translation whether a kept part may take its place. A comma stays, as `fixed` ones."""
    replaceable = []
    for number, (start, end) in enumerate(words):
        has_letters = any(map(str.isalnum, translation[start:end]))
        replaceable.append(has_letters and not fixed.overlap(number, number + 1))
    return replaceable


def owners_of(weights: Weights, replaceable: Sequence[bool], copies: Copies) -> list[int | None]:
    """Return the source word that owns each word of a translation. Each kept part owns one of its copies, if any."""
    owners = []
    for row, is_replaceable in zip(weights, replaceable):
        kept_parts = copies
        if is_replaceable:
            kept_parts = ()
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
            # A row without weights is empty.
            weight_of = {number: sum(weights[number][word : word + 1]) for number in candidates}
            best = max(candidates, key=weight_of.__getitem__)
            chosen[word] = best
            free.remove(best)
    return chosen


def _best_ranges_by_end(words: Sequence[int], prefer_short: bool) -> Iterator[tuple[int, int, int]]:
    """Yield, for each word of an element, the range that ends with it and has the largest gain: start, end and gain.

    The gain is how many more of its words belong to the element than to others.

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
        yield start, word + 1, gain
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

        spans = {}
        for number in sorted(range(len(inner)), key=rank):
            spans[number] = self._take(inner[number])

        def position(number: int) -> tuple[int, bool, int]:
            # What has no words stands before the element that begins there.
            start, end = spans[number]
            return start, start < end, number

        middle = [(inner[number], *spans[number]) for number in sorted(spans, key=position)]
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
        return child, start, end

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
        return child, start, end

    def _balances(self, child: Node) -> Iterator[tuple[int, int]]:
        """Yield each free word with a balance: of the words up to it, those of a child minus those of others."""
        balance = 0
        for number in range(self._low, self._high):
            balance += 1 if self._alignment.owners[number] in child.words else -1
            yield number, balance

    def _take(self, child: Node) -> Span:
        """Return the words of a child, which no other child gets, or the place between words where it stands."""
        span = None
        if child.words:
            span = self._range_of(child)

        if span is None:
            place = self._next_to(child)
            if child.is_kept:
                place = min(self._alignment.fixed.moved_out(place, forwards=True), self._high)
            place = self._taken.moved_out(place, forwards=child.follows)
            return place, place

        self._taken.add(span)
        return span

    def _range_of(self, child: Node) -> Span | None:
        """Return a free range of words for a child that has words in the source."""
        may_have_all = not (child.is_kept and self._alignment.fixed.overlap(self._low, self._high))
        if child.words == self._node.words and not self._taken and may_have_all:
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
        ranges: list[tuple[int, int, int]] = []
        for words in self._free_words(child):
            ranges += _best_ranges_by_end(words, prefer_short=child.is_kept)
        if not ranges:
            return None

        def rank(gained: tuple[int, int, int]) -> tuple[int, ...]:
            start, end, gain = gained
            return (gain, -end) if child.is_kept else (gain, -start, end)

        start, end, _ = max(ranges, key=rank)
        return start, end

    def _free_words(self, child: Node) -> list[list[int]]:
        """Return the free words that belong to a child. A new list begins behind each word that others must keep."""
        lists: list[list[int]] = []
        for word in self._alignment.owned(child.words, self._low, self._high):
            if self._taken.overlap(word, word + 1):
                continue
            if not lists or self._is_interrupted(child, lists[-1][-1], word):
                lists.append([])
            lists[-1].append(word)
        return lists

    def _is_interrupted(self, child: Node, start: int, end: int) -> bool:
        """Return whether a word from `start` to `end` must not become one of a child."""
        is_fixed = child.is_kept and self._alignment.fixed.overlap(start, end)
        return is_fixed or self._taken.overlap(start, end)

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

        word_before = range(child.first - 1, child.first)
        word_behind = range(child.last, child.last + 1)
        behind = self._alignment.owned(word_before, self._low, self._high)
        before = self._alignment.owned(word_behind, self._low, self._high)

        if behind and (child.follows or not before):
            return behind[-1] + 1
        if before:
            return before[0]

        share = (child.first - node.first) / (node.last - node.first)
        return self._low + round(share * (self._high - self._low))
