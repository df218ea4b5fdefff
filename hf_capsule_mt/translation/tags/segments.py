"""Segments with tags and kept parts, which are not translated.

An element comes back around the words of the translation that are aligned with its own words: as one element, inside
the element that it was in. A kept part takes the place of the words that are aligned with it.

Places are counted in one of three texts: the source as it is written, a run (the text between two tags of blocks,
without tags), and the sentence that the model reads (part of a run, with single spaces).
"""

import html
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain

import regex

from hf_capsule_mt.long_work import next_step

from ..text.segments import Segment
from ..text.words import Align, Span, Weights, word_spans
from .markup import Item, Run
from .placement import DisjointRanges, Node
from .writer import SentenceWriter

Cut = Callable[[str], list[str]]
"""From a text to its parts that are translated one by one. Joined, they are the text."""
Escape = Callable[[str], str]
"""Writes characters as references, such as `&amp;`, if they would look like tags."""

_WHITE_SPACE = regex.compile(r"\s*")
_BREAKABLE = regex.compile(r"[ \t\r\n]+")


@dataclass(frozen=True)
class MarkedSegment(Segment):
    """A segment of a text with tags or kept parts."""

    words: tuple[Span, ...] = ()  # Their places in the text. A kept part is one word.
    root: Node = field(default_factory=Node)
    kept: dict[int, str] = field(default_factory=dict)  # The kept parts by their words.
    escape: Escape = str

    @property
    def has_parts(self) -> bool:
        """Whether something stands in the text."""
        return bool(self.root.children)

    @property
    def kept_spans(self) -> tuple[Span, ...]:
        """Where kept parts stand in the text."""
        return tuple(self.words[word] for word in self.kept)

    @property
    def needs_alignment(self) -> bool:
        """Whether tags or kept parts stand between words."""
        return not self.root.is_around(len(self.words))

    def put_back(self, translation: str, align: Align | None = None) -> str:
        """Return a translation with the tags and kept parts. It takes `align` if `needs_alignment`."""
        copies = self._copies(translation)
        spans_of_copies = set(chain.from_iterable(copies.values()))
        words = word_spans(translation, sorted(spans_of_copies))
        number_of = {span: number for number, span in enumerate(words)}
        words_of_copies = {}
        for kept_word, spans in copies.items():
            words_of_copies[kept_word] = [number_of[span] for span in spans]
        # Without an alignment the rows are empty. Full ones would be as large as a long sentence squared.
        weights: Weights = [()] * len(words)
        if align is not None and self.needs_alignment:
            weights = align(self.words, words)
        writer = SentenceWriter(translation, words, weights, words_of_copies, self._with_twins(), self.escape)
        return writer.write(self.root)

    def _with_twins(self) -> set[int]:
        """Return the words of kept parts whose text also stands elsewhere in the sentence, where it is translated.

        `:` is one in "Write <code>:</code> at the end: it is needed."
        """
        twins = self._copies(self.text, outside_of=self.kept_spans)
        return {word for word, spans in twins.items() if spans}

    def _copies(self, text: str, outside_of: Sequence[Span] = ()) -> dict[int, list[Span]]:
        """Return the places of copies of kept parts in a text, by their words in the source.

        Copies do not overlap. A copy is part of a longer word only if the kept part is, too. Kept parts with the same
        text share their copies.
        """

        def rank(word: int) -> tuple[int, bool]:
            # The longest first: one may be part of another. Equal texts: first those that must be words of their own.
            return -len(self.kept[word]), any(self._is_joined(word))

        taken = DisjointRanges(outside_of)
        kept = DisjointRanges(self.kept_spans)
        shared: dict[tuple[str, bool, bool], list[Span]] = {}
        copies: dict[int, list[Span]] = {}
        for word in sorted(self.kept, key=rank):
            key = (self.kept[word], *self._is_joined(word))
            if key not in shared:
                shared[key] = _free_copies(text, *key, taken)
                if self._is_across(self.kept[word], kept):
                    shared[key] = self._most_similar(text, shared[key], word)
                for span in shared[key]:
                    taken.add(span)
            copies[word] = shared[key]
        return copies

    def _is_across(self, text: str, kept: DisjointRanges) -> bool:
        """Return whether the text of a kept part also stands partly in another one, and partly outside of it.

        `--` does in "Use <code>--</code> for <code>-</code>-prefixed flags."
        """
        for match in regex.finditer(regex.escape(text), self.text):
            if kept.overlap(*match.span()) and not kept.contain(*match.span()):
                return True
        return False

    def _most_similar(self, text: str, copies: Sequence[Span], word: int) -> list[Span]:
        """Return as many copies of a kept part as the source has, first those with letters on the same sides.

        The others may be a shorter kept part with text next to it, which must not get lost.
        """
        sides = _letters_next_to(self.text, self.words[word])
        ranked = sorted(copies, key=lambda span: _letters_next_to(text, span) != sides)
        number = list(self.kept.values()).count(self.kept[word])
        return sorted(ranked[:number])

    def _is_joined(self, word: int) -> tuple[bool, bool]:
        """Return whether a kept part is joined to a letter or digit before it, and to one after it."""
        start, end = self.words[word]
        return _is_in_word(self.text, start), _is_in_word(self.text, end)


def marked_segments(
    source: str, markup: Sequence[Run] | None, keep: regex.Pattern | None, cut: Cut | None
) -> list[Segment]:
    """Return the segments of a source, at least one.

    Args:
        source: a text, with its tags.
        markup: what [`read_markup`] makes of it. None: its tags are text.
        keep: finds kept parts, each between two tags.
        cut: returns the parts of a run that are translated one by one. None: each run is one part.

    Returns:
        Segments in the order of the source. One without words has all of its text as white space.
    """
    escape = str if markup is None else _escaped
    runs = [Run(source, [], source)] if markup is None else markup
    segments: list[Segment] = []
    # What stands between two segments with words belongs to the second one.
    waiting = ""
    for run in runs:
        if not run.text.strip():
            waiting += run.raw
            continue
        for segment in _run_segments(run, keep, cut, escape):
            next_step()
            if segment.text:
                segments.append(replace(segment, before=waiting + segment.before))
                waiting = ""
            else:
                waiting += segment.before
    if not segments:
        return [Segment(waiting, "", "")]
    segments[-1] = replace(segments[-1], after=segments[-1].after + waiting)
    return segments


def _run_segments(run: Run, keep: regex.Pattern | None, cut: Cut | None, escape: Escape) -> Iterator[Segment]:
    items = run.items if keep is None else list(_with_kept(run, keep, escape))
    start = first = 0
    line = run.line
    for end in _ends(run.text, items, cut):
        last = len(items) if end == len(run.text) else _divide(items, first, end)
        yield _Stretch(run.text, start, end, items[first:last], line, escape).segment()
        line += run.text.count("\n", start, end)
        start = end
        first = last


def _with_kept(run: Run, keep: regex.Pattern, escape: Escape) -> Iterator[Item]:
    """Yield the items of a run, and what an expression finds between two of them."""
    start = 0
    for item in [*run.items, None]:
        end = len(run.text) if item is None else item.at
        for match in keep.finditer(run.text[start:end]):
            words = match[0].strip()
            if words:
                at = start + match.start() + match[0].index(words)
                # A bullet or a number with the space after it is no word of the sentence.
                may_lead = match[0][-1].isspace() or not any(map(str.isalnum, words))
                yield Item("kept", escape(words), at, at + len(words), may_lead)
        if item is not None:
            yield item
            start = item.end


def _ends(text: str, items: Sequence[Item], cut: Cut | None) -> list[int]:
    """Return the ends of segments. A kept part across an end is a segment of its own, which is not translated."""
    if cut is None:
        return [len(text)]
    ends = list(accumulate(map(len, cut(text))))
    chosen = set(ends)
    for item in items:
        inside = ends[bisect_right(ends, item.at) : bisect_left(ends, item.end)]
        if inside:
            chosen.difference_update(inside)
            chosen.update({item.at, item.end})
    return sorted(chosen)


def _divide(items: Sequence[Item], first: int, end: int) -> int:
    """Return the index that splits `items` at `end`: tags that close there go left, tags that open there go right."""
    last = bisect_left(items, end, lo=first, key=lambda item: item.at)
    depth = 0
    for index in range(last, len(items)):
        item = items[index]
        if item.at != end:
            break
        if item.kind == "open":
            depth += 1
        elif item.kind == "close" and depth:
            depth -= 1
        elif item.kind == "close":
            last = index + 1
    return last


@dataclass
class _Stretch:
    """A part of a run from `start` to `end`, with its items, and the line of the source on which it begins."""

    run_text: str
    start: int
    end: int
    items: list[Item]
    line: int
    escape: Escape

    def segment(self) -> Segment:
        """Return the segment of this stretch. Without letters to translate, all of it is white space."""
        if not self._has_letters():
            return Segment(self._written(self.end, self.items, self.escape), "", "")
        ahead, origin, begin = self._ahead()
        behind = self._behind(len(ahead))
        items = self.items[len(ahead) : len(self.items) - len(behind)]
        part = self.run_text[origin : self.end]
        sentence = " ".join(part.split())
        spans = _sentence_spans(part, [(item.at - origin, item.end - origin) for item in items])
        kept_spans = [span for item, span in zip(items, spans) if item.kind == "kept"]
        words = word_spans(sentence, kept_spans)
        number_of = {span: number for number, span in enumerate(words)}
        kept = {}
        for start, end in kept_spans:
            kept[number_of[start, end]] = sentence[start:end]
        return MarkedSegment(
            before=self._written(begin, ahead, self.escape),
            text=sentence,
            after=self._written(self.end, behind, self.escape, origin + len(part.rstrip())),
            line=self.line + self.run_text.count("\n", self.start, begin),
            words=tuple(words),
            root=_tree(self.run_text, items, [place for place, _ in spans], words),
            kept=kept,
            escape=self.escape,
        )

    def _has_letters(self) -> bool:
        """Return whether there are letters outside of tags and kept parts."""
        without_items = [item._replace(raw="") for item in self.items]
        return any(map(str.isalpha, self._written(self.end, without_items, str)))

    def _ahead(self) -> tuple[list[Item], int, int]:
        """Return the items in front of the sentence, the place after the last of them, and where words begin.

        These are kept parts that lead a line, and points in white space, which stay there.
        """
        ahead: list[Item] = []
        origin = self.start
        begin = self._first_word(origin)
        for item in self.items:
            if item.may_lead and item.at == begin:
                origin = item.end
                begin = self._first_word(origin)
            elif item.kind != "point" or item.at >= begin:
                break
            ahead.append(item)
        return ahead, origin, begin

    def _behind(self, first: int) -> list[Item]:
        """Return the points in the white space behind the sentence, which stay there. Items before `first` stay."""
        end = self.start + len(self.run_text[self.start : self.end].rstrip())
        start = len(self.items)
        while start > first:
            item = self.items[start - 1]
            if item.kind != "point" or item.at <= end:
                break
            start -= 1
        return self.items[start:]

    def _first_word(self, place: int) -> int:
        """Return the place of the next character that is no white space."""
        while place < self.end and self.run_text[place].isspace():
            place += 1
        return place

    def _written(self, until: int, items: Sequence[Item], escape: Escape, begin: int | None = None) -> str:
        """Return the text up to a place with these items. It begins with the stretch, or at another place."""
        written = []
        place = self.start if begin is None else begin
        for item in items:
            written.append(escape(self.run_text[place : item.at]))
            written.append(item.raw)
            place = item.end
        written.append(escape(self.run_text[place:until]))
        return "".join(written)


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


def _sentence_spans(part: str, spans: Sequence[Span]) -> list[Span]:
    """Return spans of a text, without white space at their ends, after white space has become single spaces.

    A span without a character of a word is the place where it stands. After a space it is the next word's place.
    """
    # For each place of the text, the length of the sentence before it, without a space at its end.
    lengths = [0]
    was_space = False
    for character in part:
        length = lengths[-1]
        is_space = character.isspace()
        if not is_space:
            length += 2 if was_space and length else 1
        lengths.append(length)
        was_space = is_space
    sentence_spans = []
    for start, end in spans:
        while start < end and part[start].isspace():
            start += 1
        place = lengths[start]
        begins_word = start < len(part) and not part[start].isspace()
        if place and begins_word and part[start - 1].isspace():
            place += 1
        sentence_spans.append((place, max(place, lengths[end])))
    return sentence_spans


def _tree(run_text: str, items: Sequence[Item], places: Sequence[int], words: Sequence[Span]) -> Node:
    """Return the tree of the items of a sentence. Places and words are those of the sentence."""
    root = Node(last=len(words))
    stack = [root]
    starts = [start for start, _ in words]
    ends = [end for _, end in words]
    space_ends = _space_ends(run_text, items)
    for item, following, space_end, place in zip(items, [*items[1:], None], space_ends, places):
        # An element that begins or ends inside a word has all of the word.
        first = bisect_right(ends, place)
        last = bisect_left(starts, place)
        siblings = stack[-1].children
        if item.kind == "kept":
            siblings.append(Node(item.raw, first=first, last=first + 1, is_kept=True))
        elif item.kind == "open":
            # Until its end is found, it ends in a later sentence.
            node = Node(item.raw, first=first, last=len(words), closed_after=True)
            siblings.append(node)
            stack.append(node)
        elif item.kind == "close" and len(stack) > 1:
            node = stack.pop()
            node.close = item.raw
            node.last = last
            node.closed_after = False
        elif item.kind == "close":
            root.children = [Node("", item.raw, last=last, opened_before=True, children=siblings)]
        else:
            siblings.append(_point(run_text, item, following, space_end, first))
    return root


def _space_ends(run_text: str, items: Sequence[Item]) -> list[int]:
    """Return up to where the space behind each item goes at most: to the next item that stands elsewhere."""
    ends: list[int] = []
    end = place = len(run_text)
    for item in reversed(items):
        if item.at < place:
            end, place = place, item.at
        ends.append(end)
    return ends[::-1]


def _point(run_text: str, item: Item, following: Item | None, space_end: int, first: int) -> Node:
    """Return the node of an empty tag, in front of the word number `first` and of another item, if there is one."""
    is_behind_word = bool(run_text[max(item.at - 1, 0) : item.at].strip())
    ends_word = item.at == len(run_text) or run_text[item.at].isspace()
    # Between two tags without a space, the space belongs to the second one.
    is_joined = following is not None and following.kind == "point" and following.at == item.at
    space = ""
    if not (is_behind_word or is_joined):
        # A space that must not break a line stays one.
        space = _BREAKABLE.sub(" ", _WHITE_SPACE.match(run_text, item.at, space_end)[0])
    return Node(item.raw, first=first, last=first, follows=is_behind_word and ends_word, space=space)


def _letters_next_to(text: str, span: Span) -> tuple[bool, bool]:
    """Return whether a letter or digit stands before a place, and behind it."""
    start, end = span
    return text[max(start - 1, 0) : start].isalnum(), text[end : end + 1].isalnum()


def _is_in_word(text: str, place: int) -> bool:
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)
