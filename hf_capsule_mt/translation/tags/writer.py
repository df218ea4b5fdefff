"""Put the elements of a sentence around the words of its translation that are aligned with theirs.

Time grows with the number of elements times its logarithm, and with the size of the alignment, which is the number of
target words times that of source words.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Mapping, Sequence

import regex

from ..text.segments import Place
from ..text.words import Span, Weights
from .placement import ChildRanges, Copies, DisjointRanges, Node, TagAlignment, owners_of, replaceable_words


class SentenceWriter:
    """Writes the translation of a sentence with its tags and kept parts.

    Args:
        translation: the text that the model wrote.
        words: the places of its words, in rising order.
        weights: the alignment of these words with those of the source.
        copies: the words of the translation that the model copied from kept parts.
        with_twins: the kept parts, by their words, whose text also stands elsewhere in the sentence.
        fixed: places in the translation that stay as they are, such as terms of a glossary.
        escape: writes characters as references if they would look like tags.
        without_tags: returns the characters of a tag or a kept part.
    """

    def __init__(
        self,
        translation: str,
        words: Sequence[Span],
        weights: Weights,
        copies: Copies,
        with_twins: Container[int] = (),
        fixed: Sequence[Span] = (),
        escape: Callable[[str], str] = str,
        without_tags: Callable[[str], str] = str,
    ) -> None:
        self._translation = translation
        self._words = words
        self._escape = escape
        self._without_tags = without_tags

        fixed_words = _ranges_of_words(fixed, words)
        owners = owners_of(weights, replaceable_words(translation, words, fixed_words), copies)
        self._alignment = TagAlignment(weights, owners, fixed_words)

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
        self.places: list[Place] = []
        """Where the model's words stand in what is written."""
        self._length = 0  # Characters that are written, without tags.

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
            if child.is_detached and self._last_character and not self._last_character.isspace():
                # The model joins the sign behind the tag to the word in front of it.
                self._write(" ")

            self._write_item(child.open)
            self._space = child.space or self._space
            self._write_children(child, start, end)
            self._write_words(end)
            self._write_item(child.close)

    def _write_words(self, until: int) -> None:
        """Write the words before `until`, and everything between them."""
        for number in range(self._next_word, until):
            start, end = self._words[number]
            if number not in self._dropped:
                self._write_gap()
                if self._translation[start].isalnum():
                    self._write(self._space)
                self._write(self._translation[start:end], start)
            self._next_word = number + 1
            self._position = end

    def _write_gap(self) -> None:
        """Write the characters before the next word."""
        end = len(self._translation)
        if self._next_word < len(self._words):
            end = self._words[self._next_word][0]
        gap = self._translation[self._position : end]
        if gap:
            self._write(gap, self._position)
        self._position = end

    def _write_kept(self, raw: str, until: int) -> None:
        """Write a kept part instead of the words before `until`, or between spaces if it replaces none."""
        self._write_gap()
        replaces_words = self._next_word < until
        if not replaces_words and self._last_character and not self._last_character.isspace():
            self._space = self._space or " "
        self._write(self._space)

        self._space = " "
        if replaces_words:
            self._space = ""
            start = self._position
            self._next_word = until
            self._position = self._words[until - 1][1]
            if self._translation[start : self._position] == self._without_tags(raw):
                self._add_place(start, self._position)

        self._write_item(raw)
        self._last_character = raw[-1:]

    def _write_item(self, raw: str) -> None:
        """Write a tag or a kept part as it is. Some tags have characters, as `<code> </code>` has."""
        self._written.append(raw)
        self._length += len(self._without_tags(raw))

    def _write(self, text: str, start: int | None = None) -> None:
        """Write a text. `start` is its place in the translation, if it stands there."""
        if text:
            self._written.append(self._escape(text))
            self._last_character = text[-1:]
            if start is not None:
                self._add_place(start, start + len(text))
            self._length += len(text)
        self._space = ""

    def _add_place(self, start: int, end: int) -> None:
        """Note that these characters of the translation are written now."""
        place = start, end, self._length
        if self.places:
            first, behind, written = self.places[-1]
            is_next = behind == start and written + behind - first == self._length
            if is_next:
                place = first, end, written
                self.places.pop()
        self.places.append(place)


def _ranges_of_words(spans: Sequence[Span], words: Sequence[Span]) -> DisjointRanges:
    """Return the numbers of the words that stand in each of several places of a text, at least in part."""
    starts = [start for start, _ in words]
    ends = [end for _, end in words]
    ranges = []
    behind = 0
    for start, end in sorted(spans):
        # Two of them may be in one word.
        first = max(bisect_right(ends, start), behind)
        behind = max(bisect_left(starts, end), first)
        if first < behind:
            ranges.append((first, behind))
    return DisjointRanges(ranges)


class KeptParts:
    """The kept parts of a sentence, and their copies in a translation.

    Args:
        text: the sentence.
        words: the places of its words. A kept part is one word.
        kept: the kept parts by the numbers of their words.
    """

    def __init__(self, text: str, words: Sequence[Span], kept: Mapping[int, str]) -> None:
        self._text = text
        self._words = words
        self._kept = kept
        self._spans = [words[word] for word in kept]

    def with_twins(self) -> set[int]:
        """Return the words of kept parts whose text also stands elsewhere in the sentence, where it is translated.

        `:` is one in "Write <code>:</code> at the end: it is needed."
        """
        twins = self.copies_in(self._text, outside_of=self._spans)
        return {word for word, spans in twins.items() if spans}

    def copies_in(self, text: str, outside_of: Sequence[Span] = ()) -> dict[int, list[Span]]:
        """Return the places of copies of kept parts in a text, by their words in the source.

        Copies do not overlap. A copy is part of a longer word only if the kept part is, too. Kept parts with the same
        text share their copies.
        """

        def rank(word: int) -> tuple[int, bool]:
            # The longest first: one may be part of another. Equal texts: first those that must be words of their own.
            return -len(self._kept[word]), any(self._is_joined(word))

        taken = DisjointRanges(outside_of)
        kept = DisjointRanges(self._spans)
        shared: dict[tuple[str, bool, bool], list[Span]] = {}
        copies: dict[int, list[Span]] = {}

        for word in sorted(self._kept, key=rank):
            key = (self._kept[word], *self._is_joined(word))
            if key not in shared:
                shared[key] = _free_copies(text, *key, taken)
                if self._is_across(self._kept[word], kept):
                    shared[key] = self._most_similar(text, shared[key], word)
                for span in shared[key]:
                    taken.add(span)
            copies[word] = shared[key]
        return copies

    def _is_across(self, text: str, kept: DisjointRanges) -> bool:
        """Return whether the text of a kept part also stands partly in another one, and partly outside of it.

        `--` does in "Use <code>--</code> for <code>-</code>-prefixed flags."
        """
        for match in regex.finditer(regex.escape(text), self._text):
            if kept.overlap(*match.span()) and not kept.contain(*match.span()):
                return True
        return False

    def _most_similar(self, text: str, copies: Sequence[Span], word: int) -> list[Span]:
        """Return as many copies of a kept part as the source has, first those with letters on the same sides.

        The others may be a shorter kept part with text next to it, which must not get lost.
        """
        sides = _letters_next_to(self._text, self._words[word])
        ranked = sorted(copies, key=lambda span: _letters_next_to(text, span) != sides)
        number = list(self._kept.values()).count(self._kept[word])
        return sorted(ranked[:number])

    def _is_joined(self, word: int) -> tuple[bool, bool]:
        """Return whether a kept part is joined to a letter or digit before it, and to one after it."""
        start, end = self._words[word]
        return _is_in_word(self._text, start), _is_in_word(self._text, end)


def _free_copies(
    translation: str, text: str, joined_before: bool, joined_after: bool, taken: DisjointRanges
) -> list[Span]:
    """Return the places of a text in a translation that no other copy has.

    A copy stands inside a word only on the sides where the kept part does.
    """
    copies = []
    for match in regex.finditer(regex.escape(text), translation):
        start, end = match.span()
        if _is_in_word(translation, start) and not joined_before:
            continue
        if _is_in_word(translation, end) and not joined_after:
            continue
        if not taken.overlap(start, end):
            copies.append((start, end))
    return copies


def _letters_next_to(text: str, span: Span) -> tuple[bool, bool]:
    """Return whether a letter or digit stands before a place, and behind it."""
    start, end = span
    before = text[max(start - 1, 0) : start]
    behind = text[end : end + 1]
    return before.isalnum(), behind.isalnum()


def _is_in_word(text: str, place: int) -> bool:
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()
