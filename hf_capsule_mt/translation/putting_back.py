"""Put the elements of a sentence around the words of its translation that are aligned with theirs."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

Span = tuple[int, int]
Weights = Sequence[Sequence[float]]
"""How much each word of a translation belongs to each word of the source: `[target words][source words]`."""


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

    def is_around(self, words: int) -> bool:
        """Return whether all nodes in it stand around all `words` of the sentence, or before or after them."""
        return all(
            child.first in (0, words)
            if child.first == child.last
            else not child.is_kept and (child.first, child.last) == (0, words) and child.is_around(words)
            for child in self.children
        )


def _owners(
    weights: Weights, translation: str, words: Sequence[Span], copies: Mapping[int, Sequence[int]]
) -> list[int | None]:
    """Return the source word that owns each word of a translation. Each kept part owns one of its copies, if any."""

    def best(number: int, without: Container[int] = ()) -> int | None:
        row = [0.0 if other in without else weight for other, weight in enumerate(weights[number])]
        return max(range(len(row)), key=row.__getitem__) if any(row) else None

    left = {number for numbers in copies.values() for number in numbers}
    # A kept part replaces neither a comma nor a second copy.
    owners = [
        best(number, () if number in left or any(map(str.isalnum, translation[start:end])) else copies)
        for number, (start, end) in enumerate(words)
    ]
    for word in sorted(copies):
        if free := sorted(left.intersection(copies[word])):
            own = max(free, key=lambda number: weights[number][word])
            left.remove(own)
            for number in [number for number, owner in enumerate(owners) if owner == word]:
                owners[number] = best(number, copies)
            owners[own] = word
    for number in left:
        owners[number] = None
    return owners


class SentenceWriter:
    """Writes the translation of a sentence with its tags and kept parts.

    For the source word of each kept part, `copies` has the words of the translation that are copies of it. `escape`
    writes characters as references if they would look like tags.
    """

    def __init__(
        self,
        translation: str,
        words: Sequence[Span],
        weights: Weights,
        copies: Mapping[int, Sequence[int]],
        escape: Callable[[str], str] = str,
    ) -> None:
        self._translation, self._words, self._weights, self._escape = translation, words, weights, escape
        self._owners = _owners(weights, translation, words, copies)
        # A copy of a kept part that is written elsewhere is left out.
        self._dropped = {number for numbers in copies.values() for number in numbers if self._owners[number] is None}
        self._written: list[str] = []
        self._next = self._place = 0
        self._last, self._needs_space = "", False

    def write(self, root: Node) -> str:
        """Return the translation with every node of the sentence once, inside the node that it was in."""
        self._write_children(root, 0, len(self._words))
        self._write_words(len(self._words))
        self._write_gap()
        return "".join(self._written)

    def _write_children(self, node: Node, low: int, high: int) -> None:
        """Write the children of a node, with the words from `low` to `high` that belong to them."""
        for child, start, end in _Places(node, low, high, self._weights, self._owners).arranged():
            self._write_words(start)
            if child.is_kept:
                self._write_instead(child.open, end)
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
        for number in range(self._next, until):
            start, end = self._words[number]
            if number not in self._dropped:
                self._write_gap()
                if self._needs_space and self._translation[start].isalnum():
                    self._write(" ")
                self._write(self._translation[start:end])
            self._next, self._place = number + 1, end

    def _write_gap(self) -> None:
        """Write the characters before the next word."""
        start = self._words[self._next][0] if self._next < len(self._words) else len(self._translation)
        if gap := self._translation[self._place : start]:
            self._write(gap)
        self._place = max(self._place, start)

    def _write_instead(self, raw: str, until: int) -> None:
        """Write a kept part instead of the words before `until`, or between spaces if it replaces none."""
        self._write_gap()
        inserted = self._next == until
        if inserted and self._last and not self._last.isspace():
            self._write(" ")
        self._written.append(raw)
        self._last, self._needs_space = raw[-1:], inserted
        if not inserted:
            self._next, self._place = until, self._words[until - 1][1]

    def _write(self, text: str) -> None:
        self._written.append(self._escape(text))
        self._last, self._needs_space = text[-1:], False


class _Places:
    """Gives the words of a node of the translation, from `low` to `high`, to its children."""

    def __init__(self, node: Node, low: int, high: int, weights: Weights, owners: Sequence[int | None]) -> None:
        self._node, self._low, self._high, self._weights, self._owners = node, low, high, weights, owners
        self._taken: list[Span] = []

    def arranged(self) -> list[tuple[Node, int, int]]:
        """Return the children in the order of the translation, each with its words.

        Elements of earlier sentences come first, and elements that stay open come last.
        """
        children = self._node.children
        first = [(child, *self._take_side(child)) for child in children if child.opened_before]
        last = [(child, *self._take_side(child)) for child in children if child.closed_after]
        inner = [child for child in children if not (child.opened_before or child.closed_after)]
        # Kept parts first, then short elements, and at last those without words.
        ranks = [(not child.words, not child.is_kept, len(child.words), number) for number, child in enumerate(inner)]
        spans = {number: self._take(inner[number]) for *_, number in sorted(ranks)}
        order = sorted(spans, key=lambda number: (spans[number][0], spans[number][0] < spans[number][1], number))
        return [*first, *((inner[number], *spans[number]) for number in order), *last]

    def _take_side(self, child: Node) -> Span:
        """Return the words of a child that is opened before the sentence or closed after it."""
        low, high = self._low, self._high
        sums = [0, *accumulate(1 if self._owners[number] in child.words else -1 for number in range(low, high))]
        if child.words == self._node.words:
            span = low, high
        elif child.opened_before:
            span = low, low + max(reversed(range(len(sums))), key=sums.__getitem__)
        else:
            span = low + min(range(len(sums)), key=sums.__getitem__), high
        self._low, self._high = (span[1], high) if child.opened_before else (low, span[0])
        return span

    def _take(self, child: Node) -> Span:
        """Return the words of a child: the free range in which most words belong to it."""
        span = None
        if child.first < child.last:
            span = (self._low, self._high) if child.words == self._node.words and not self._taken else self._best(child)
            nearest = None if span or child.is_kept else self._nearest(child)
            if nearest is not None and not self._is_taken(nearest):
                span = nearest, nearest + 1
        if span is not None:
            self._taken.append(span)
            return span
        place = self._next_to(child)
        for start, end in self._taken:
            if start < place < end:
                place = end if child.follows else start
        return place, place

    def _best(self, child: Node) -> Span | None:
        best, best_gain, longest = None, 0, not child.is_kept
        start, gain = self._low, 0
        for number in range(self._low, self._high):
            if self._is_taken(number):
                start, gain = number + 1, 0
                continue
            if gain < 0 or (gain == 0 and not longest):
                start, gain = number, 0
            gain += 1 if self._owners[number] in child.words else -1
            if gain > best_gain or (best is not None and gain == best_gain and longest and start == best[0]):
                best, best_gain = (start, number + 1), gain
        return best

    def _next_to(self, child: Node) -> int:
        """Return the place of a child without words: next to the words that it stands next to in the source."""
        node, low, high = self._node, self._low, self._high
        if child.first < child.last:
            if (nearest := self._nearest(child)) is not None:
                return nearest + 1
        elif child.first <= node.first:
            return low
        if child.first >= node.last:
            return high
        behind, before = Node(first=child.first - 1, last=child.first), Node(first=child.last, last=child.last + 1)
        for other in (behind, before) if child.follows else (before, behind):
            if own := [number for number in range(low, high) if self._owners[number] in other.words]:
                return own[-1] + 1 if other is behind else own[0]
        return low + round((child.first - node.first) / (node.last - node.first) * (high - low))

    def _nearest(self, child: Node) -> int | None:
        mass = {number: sum(self._weights[number][child.first : child.last]) for number in range(self._low, self._high)}
        return max(mass, key=mass.__getitem__) if any(mass.values()) else None

    def _is_taken(self, number: int) -> bool:
        return any(start <= number < end for start, end in self._taken)
