"""Put the elements of a sentence around the words of its translation that are aligned with theirs.

Time grows with the number of elements times its logarithm, and with the size of the alignment, which is the number of
target words times that of source words.
"""

from collections.abc import Callable, Container, Sequence

from ..text.words import Span, Weights
from .placement import ChildRanges, Copies, Node, TagAlignment, owners_of, replaceable_words


class SentenceWriter:
    """Writes the translation of a sentence with its tags and kept parts.

    Args:
        translation: the text that the model wrote.
        words: the places of its words, in rising order.
        weights: the alignment of these words with those of the source.
        copies: the words of the translation that the model copied from kept parts.
        with_twins: the kept parts, by their words, whose text also stands elsewhere in the sentence.
        escape: writes characters as references if they would look like tags.
    """

    def __init__(
        self,
        translation: str,
        words: Sequence[Span],
        weights: Weights,
        copies: Copies,
        with_twins: Container[int] = (),
        escape: Callable[[str], str] = str,
    ) -> None:
        self._translation = translation
        self._words = words
        self._escape = escape
        owners = owners_of(weights, replaceable_words(translation, words), copies)
        self._alignment = TagAlignment(weights, owners)
        # A copy of a kept part that is written elsewhere is left out. If the part has a twin, it may be the twin's.
        self._dropped: set[int] = set()
        for kept_word, numbers in copies.items():
            if kept_word not in with_twins:
                self._dropped.update(number for number in numbers if owners[number] is None)
        self._written: list[str] = []
        self._last_character = ""
        self._space = ""  # Stands in front of the next word or tag, unless the translation has one there.
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
        for child, start, end in ChildRanges(node, low, high, self._alignment).arranged():
            self._write_words(start)
            if child.is_kept:
                self._write_kept(child.open, end)
                continue
            if not (child.opened_before or child.follows):
                self._write_gap()
                self._write(self._space)
            self._written.append(child.open)
            self._space = child.space or self._space
            self._write_children(child, start, end)
            self._write_words(end)
            self._written.append(child.close)

    def _write_words(self, until: int) -> None:
        """Write the words before `until`, and everything between them."""
        for number in range(self._next_word, until):
            start, end = self._words[number]
            if number not in self._dropped:
                self._write_gap()
                if self._translation[start].isalnum():
                    self._write(self._space)
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
        self._position = end

    def _write_kept(self, raw: str, until: int) -> None:
        """Write a kept part instead of the words before `until`, or between spaces if it replaces none."""
        self._write_gap()
        replaces_words = self._next_word < until
        if not replaces_words and self._last_character and not self._last_character.isspace():
            self._space = self._space or " "
        self._write(self._space)
        self._written.append(raw)
        self._last_character = raw[-1:]
        self._space = "" if replaces_words else " "
        if replaces_words:
            self._next_word = until
            self._position = self._words[until - 1][1]

    def _write(self, text: str) -> None:
        if text:
            self._written.append(self._escape(text))
            self._last_character = text[-1:]
        self._space = ""
