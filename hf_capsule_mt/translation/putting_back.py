"""Put the elements of a sentence around the words of its translation that are aligned with theirs."""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

Span = tuple[int, int]
Weights = Sequence[Sequence[float]]
"""How much each word of a translation belongs to each word of the source: `[target words][source words]`."""


@dataclass
class Node:
    """An element of a sentence, an empty tag, or a kept part. The root has no tags.

    Attributes:
        open: the opening tag, the empty tag or the kept part, as it is written.
        close: the closing tag.
        first: the first source word in it; an empty tag stands before this word.
        last: the word behind the last one in it.
        opened_before: whether it is opened in an earlier sentence.
        closed_after: whether it is closed in a later sentence.
        is_kept: whether it takes the place of the words that are aligned with it.
        follows: whether an empty tag stands right behind a word.
        spaced: whether it stands between spaces.
        children: the nodes in it.
    """

    open: str = ""
    close: str = ""
    first: int = 0
    last: int = 0
    opened_before: bool = False
    closed_after: bool = False
    is_kept: bool = False
    follows: bool = False
    spaced: bool = False
    children: "list[Node]" = field(default_factory=list)

    def is_around(self, words: int) -> bool:
        """Return whether all nodes in it stand around all `words` of the sentence, or beside them."""
        return all(
            child.first in (0, words)
            if child.first == child.last
            else not child.is_kept and (child.first, child.last) == (0, words) and child.is_around(words)
            for child in self.children
        )

    def each_kept(self) -> "list[Node]":
        """Return the kept parts in it, in order."""
        return [kept for child in self.children for kept in ([child] if child.is_kept else child.each_kept())]


def put_back(
    root: Node,
    weights: Weights,
    translation: str,
    words: Sequence[Span],
    copies: Mapping[int, Sequence[int]],
    escape: Callable[[str], str] = str,
) -> str:
    """Return a translation with every node of a sentence once, inside the node that it was in.

    Args:
        root: the tree of the sentence.
        weights: at least 0.
        translation: its text.
        words: the places of its words.
        copies: words of the translation that are copies of a kept part, by the source word of that part.
        escape: writes characters as references, where they would look like tags.
    """
    marks = {number for number, (start, end) in enumerate(words) if not any(map(str.isalnum, translation[start:end]))}
    alignment = _Alignment(weights, {node.first for node in root.each_kept()}, copies, marks)
    writer = _Writer(translation, words, alignment.doubled, escape)
    _write_children(root, 0, len(words), alignment, writer)
    writer.write_words(len(words))
    writer.write_gap()
    return "".join(writer.written)


class _Alignment:
    """The source word that owns each word of a translation, or None."""

    def __init__(self, weights: Weights, kept: set[int], copies: Mapping[int, Sequence[int]], marks: set[int]) -> None:
        self.weights, self.kept = weights, kept
        self.owners = [_best(row, range(len(row))) for row in weights]
        self.copies = {number for numbers in copies.values() for number in numbers}
        self.punctuation = marks - self.copies
        self._give_copies(copies)

    def _give_copies(self, copies: Mapping[int, Sequence[int]]) -> None:
        """Let each kept part own one of its copies, and nothing else."""
        left = set(self.copies)
        others = [word for word in range(len(self.weights[0]) if self.weights else 0) if word not in self.kept]
        for word in sorted(copies):
            free = [number for number in copies[word] if number in left]
            if not free:
                continue
            own = max(free, key=lambda number: self.weights[number][word])
            left.remove(own)
            for number, owner in enumerate(self.owners):
                if owner == word:
                    self.owners[number] = None if number in self.copies else _best(self.weights[number], others)
            self.owners[own] = word

    def gains(self, node: Node) -> list[int]:
        """Return 1 for each word that belongs to a node, and -1 for the others."""
        own = [owner is not None and node.first <= owner < node.last for owner in self.owners]
        if node.is_kept:
            # A kept part does not replace a comma.
            own = [belongs and number not in self.punctuation for number, belongs in enumerate(own)]
        return [1 if belongs else -1 for belongs in own]

    def nearest(self, node: Node, low: int, high: int) -> int | None:
        """Return the word from `low` to `high` that belongs most to a node, or None."""
        mass = {number: sum(self.weights[number][node.first : node.last]) for number in range(low, high)}
        return max(mass, key=mass.__getitem__) if any(mass.values()) else None

    @property
    def doubled(self) -> set[int]:
        """The copies of kept parts that are left out, because the part is written elsewhere."""
        return {number for number in self.copies if self.owners[number] is None}


def _best(row: Sequence[float], words: Sequence[int]) -> int | None:
    word = max(words, key=lambda word: row[word], default=None)
    return None if word is None or not row[word] else word


class _Writer:
    """Writes the words of a translation from the first to the last, with tags between them."""

    def __init__(
        self, translation: str, words: Sequence[Span], dropped: Container[int], escape: Callable[[str], str]
    ) -> None:
        self.written: list[str] = []
        self._translation, self._words, self._dropped, self._escape = translation, words, dropped, escape
        self._next = self._place = 0
        self._last = ""
        self._needs_space = False

    def write_words(self, until: int) -> None:
        """Write the words before `until`, and everything between them."""
        for number in range(self._next, until):
            start, end = self._words[number]
            if number not in self._dropped:
                self.write_gap()
                if self._needs_space and self._translation[start].isalnum():
                    self._write(" ")
                self._write(self._translation[start:end])
            self._next, self._place = number + 1, end

    def write_gap(self) -> None:
        """Write the characters before the next word."""
        start = self._words[self._next][0] if self._next < len(self._words) else len(self._translation)
        gap = self._translation[self._place : start]
        if gap:
            self._write(gap)
        self._place = max(self._place, start)

    def write_tag(self, raw: str, spaced: bool = False) -> None:
        """Write a tag behind the last word, and a space if it is `spaced`."""
        self.written.append(raw)
        self._needs_space |= spaced

    def write_instead(self, raw: str, until: int) -> None:
        """Write a kept part instead of the words before `until`, or between spaces if it replaces none."""
        self.write_gap()
        inserted = self._next == until
        if inserted and self._last and not self._last.isspace():
            self._write(" ")
        self.written.append(raw)
        self._last, self._needs_space = raw[-1:], inserted
        if not inserted:
            self._next, self._place = until, self._words[until - 1][1]

    def _write(self, text: str) -> None:
        self.written.append(self._escape(text))
        self._last, self._needs_space = text[-1:], False


def _write_children(node: Node, low: int, high: int, alignment: _Alignment, writer: _Writer) -> None:
    for child, start, end in _arranged(node, low, high, alignment):
        writer.write_words(start)
        if child.is_kept:
            writer.write_instead(child.open, end)
            continue
        if not (child.opened_before or child.follows):
            writer.write_gap()
        writer.write_tag(child.open, child.spaced)
        _write_children(child, start, end, alignment, writer)
        writer.write_words(end)
        writer.write_tag(child.close)


def _arranged(node: Node, low: int, high: int, alignment: _Alignment) -> list[tuple[Node, int, int]]:
    """Return the children of a node in the order of the translation, each with its words from `low` to `high`.

    Elements of earlier sentences come first, and elements that stay open come last.
    """
    places = _Places(low, high)
    first = [child for child in node.children if child.opened_before]
    last = [child for child in node.children if child.closed_after]
    inner = [child for child in node.children if not (child.opened_before or child.closed_after)]
    found: dict[int, Span] = {}
    for child in (*first, *last):
        found[id(child)] = places.take_side(child, node, alignment)
    for child in sorted(inner, key=lambda child: (not child.is_kept, child.last - child.first)):
        if child.first < child.last:
            found[id(child)] = places.take(child, node, alignment)
    for child in inner:
        if child.first == child.last:
            found[id(child)] = places.between(child, node, alignment)
    order = {id(child): number for number, child in enumerate(node.children)}
    inner.sort(key=lambda child: (found[id(child)][0], found[id(child)][0] < found[id(child)][1], order[id(child)]))
    return [(child, *found[id(child)]) for child in (*first, *inner, *last)]


class _Places:
    """Gives the words of an element of the translation to its children."""

    def __init__(self, low: int, high: int) -> None:
        self._low, self._high = low, high
        self._taken: list[Span] = []

    def take_side(self, child: Node, parent: Node, alignment: _Alignment) -> Span:
        """Return the words of a child that is opened before the sentence or closed after it."""
        gains = alignment.gains(child)
        sides = range(self._low, self._high + 1)
        if _is_all(child, parent):
            span = self._low, self._high
        elif child.opened_before:
            span = self._low, max(reversed(sides), key=lambda end: sum(gains[self._low : end]))
        else:
            span = max(sides, key=lambda start: sum(gains[start : self._high])), self._high
        if child.opened_before:
            self._low = span[1]
        else:
            self._high = span[0]
        return span

    def take(self, child: Node, parent: Node, alignment: _Alignment) -> Span:
        """Return the words of a child: the free range in which most words belong to it."""
        if _is_all(child, parent) and not self._taken:
            span = self._low, self._high
        else:
            span = self._best(alignment.gains(child), longest=not child.is_kept)
        if span is None and not child.is_kept:
            span = self._nearest(child, alignment)
        if span is None:
            return self.between(child, parent, alignment)
        self._taken.append(span)
        return span

    def _best(self, gains: Sequence[int], longest: bool) -> Span | None:
        best, best_gain = None, 0
        start, gain = self._low, 0
        for number in range(self._low, self._high):
            if self._is_taken(number):
                start, gain = number + 1, 0
                continue
            if gain < 0 or (gain == 0 and not longest):
                start, gain = number, 0
            gain += gains[number]
            if gain > best_gain or (best is not None and gain == best_gain and longest and start == best[0]):
                best, best_gain = (start, number + 1), gain
        return best

    def _nearest(self, child: Node, alignment: _Alignment) -> Span | None:
        number = alignment.nearest(child, self._low, self._high)
        return None if number is None or self._is_taken(number) else (number, number + 1)

    def _is_taken(self, number: int) -> bool:
        return any(start <= number < end for start, end in self._taken)

    def between(self, child: Node, parent: Node, alignment: _Alignment) -> Span:
        """Return the place of a child without words: next to the words that it stands next to in the source."""
        place = self._beside(child, parent, alignment)
        for start, end in self._taken:
            if start < place < end:
                place = end if child.follows else start
        return place, place

    def _beside(self, child: Node, parent: Node, alignment: _Alignment) -> int:
        if child.first <= parent.first and child.first == child.last:
            return self._low
        if child.first >= parent.last:
            return self._high
        behind, before = Node(first=child.first - 1, last=child.first), Node(first=child.last, last=child.last + 1)
        neighbours = [(behind, 1), (before, 0)] if child.follows else [(before, 0), (behind, 1)]
        if child.first < child.last:
            nearest = alignment.nearest(child, self._low, self._high)
            if nearest is not None:
                return nearest + 1
        for node, offset in neighbours:
            gains = alignment.gains(node)
            own = [number for number in range(self._low, self._high) if gains[number] > 0]
            if own:
                return own[-1] + 1 if offset else own[0]
        share = (child.first - parent.first) / (parent.last - parent.first)
        return self._low + round(share * (self._high - self._low))


def _is_all(child: Node, parent: Node) -> bool:
    return (child.first, child.last) == (parent.first, parent.last)
