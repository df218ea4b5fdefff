"""Segments with tags and kept parts, which are not translated.

An element comes back around the words of the translation that are aligned with its own words: as one element, inside
the element that it was in. A kept part takes the place of the words that are aligned with it.
"""

import html
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, takewhile

import regex

from hf_capsule_mt.errors import UserError

from .documents import Segment
from .markup import Item, Run, read_markup
from .putting_back import Node, SentenceWriter, Span, Weights

Align = Callable[[Sequence[Span], Sequence[Span]], Weights]  # It takes the words of a source and of its translation.
Cut, Escape = Callable[[str], list[str]], Callable[[str], str]

# Scripts that put no spaces between words.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_IN_WORD = rf"(?:(?![{_UNSPACED}])[\p{{L}}\p{{N}}\p{{M}}_])"
_WORD = regex.compile(rf"[{_UNSPACED}]\p{{M}}*|{_IN_WORD}+(?:['’.\-]{_IN_WORD}+)*|\S\p{{M}}*")


@dataclass(frozen=True)
class MarkedSegment(Segment):
    """A segment of a text with tags or kept parts."""

    words: tuple[Span, ...] = ()  # Their places in the text. A kept part is one word.
    root: Node = field(default_factory=Node)
    kept: dict[int, str] = field(default_factory=dict)  # The kept parts by their words.
    escape: Escape = str  # Writes characters as references, such as &amp;.

    @property
    def has_parts(self) -> bool:
        """Whether something stands in the text."""
        return bool(self.root.children)

    @property
    def needs_alignment(self) -> bool:
        """Whether tags or kept parts stand between words."""
        return not self.root.is_around(len(self.words))

    def put_back(self, translation: str, align: Align | None = None) -> str:
        """Return a translation with the tags and kept parts."""
        copies = self._copies(translation)
        words = _words(translation, sorted({copy for places in copies.values() for copy in places}))
        weights = align(self.words, words) if align is not None else [[0.0] * len(self.words) for _ in words]
        found = {word: [words.index(place) for place in places] for word, places in copies.items()}
        return SentenceWriter(translation, words, weights, found, self.escape).write(self.root)

    def _copies(self, translation: str) -> dict[int, list[Span]]:
        """Return the places of copies of kept parts in a translation, by the word of the source.

        Copies do not overlap. A copy is part of a longer word only if the kept part is, too.
        """
        taken: list[Span] = []
        found: dict[int, list[Span]] = {}
        sides = {word: tuple(_is_in_word(self.text, place) for place in self.words[word]) for word in self.kept}
        # The longest first: one may be part of another. Equal texts: first those that must be words of their own.
        for word, text in sorted(self.kept.items(), key=lambda item: (-len(item[1]), any(sides[item[0]]))):
            same = [other for other in found if (self.kept[other], sides[other]) == (text, sides[word])]
            found[word] = found[same[0]] if same else []
            for match in regex.finditer(regex.escape(text), "" if same else translation):
                span = match.span()
                if any(_is_in_word(translation, place) and not side for place, side in zip(span, sides[word])):
                    continue
                if all(span[1] <= other[0] or other[1] <= span[0] for other in taken):
                    taken.append(span)
                    found[word].append(span)
        return found


def keep_pattern(keep: str) -> regex.Pattern:
    """Compile a regular expression for kept parts."""
    try:
        return regex.compile(keep)
    except regex.error as error:
        raise UserError(f"keep is {keep!r}, which is not a regular expression: {error}") from error


def marked_segments(source: str, tags: bool, keep: regex.Pattern | None, cut: Cut | None) -> list[Segment]:
    """Return the segments of a source, at least one. A segment without words has everything as white space.

    Without `tags`, tags are text. `keep` finds kept parts between two tags. `cut` returns the parts of a text that are
    translated one by one.

    Raises:
        UserError: if a tag is wrong.
    """
    segments, waiting, escape = [], "", _escaped if tags else str
    for part in read_markup(source) if tags else [Run(source, [], source)]:
        for segment in [Segment(part, "", "")] if isinstance(part, str) else _run_segments(part, keep, cut, escape):
            if segment.text:
                segments.append(replace(segment, before=waiting + segment.before))
                waiting = ""
            else:
                waiting += segment.before
    if segments:
        segments[-1] = replace(segments[-1], after=segments[-1].after + waiting)
    return segments or [Segment(waiting, "", "")]


def _run_segments(run: Run, keep: regex.Pattern | None, cut: Cut | None, escape: Escape) -> Iterator[Segment]:
    items = run.items if keep is None else list(_with_kept(run, keep, escape))
    start, first, line = 0, 0, run.line
    for end in _ends(run.text, items, cut):
        last = len(items) if end == len(run.text) else _divide(items, first, end)
        yield _segment(run.text, start, end, items[first:last], line, escape)
        line += run.text.count("\n", start, end)
        start, first = end, last


def _with_kept(run: Run, keep: regex.Pattern, escape: Escape) -> Iterator[Item]:
    """Yield the items of a run, and what an expression finds between two of them."""
    place = 0
    for item in [*run.items, None]:
        for match in keep.finditer(run.text[place : item.at if item else None]):
            if words := match[0].strip():
                at = place + match.start() + match[0].index(words)
                yield Item("kept", escape(words), at, at + len(words))
        if item:
            yield item
            place = item.end


def _ends(text: str, items: Sequence[Item], cut: Cut | None) -> list[int]:
    """Return the ends of segments. A kept part across an end is a segment of its own, which is not translated."""
    ends = list(accumulate(map(len, cut(text)))) if cut is not None else [len(text)]
    found = set(ends)
    for item in items:
        if inside := ends[bisect_right(ends, item.at) : bisect_left(ends, item.end)]:
            found = found.difference(inside) | {item.at, item.end} - {0}
    return sorted(found)


def _divide(items: Sequence[Item], first: int, end: int) -> int:
    """Return the index that splits `items` at `end`: tags that close there go left, tags that open there go right."""
    last = bisect_left(items, end, lo=first, key=lambda item: item.at)
    opened = 0
    for place in range(last, len(items)):
        item = items[place]
        if item.at != end or item.kind == "kept":
            break
        if item.kind == "close" and not opened:
            last = place + 1
        opened += (item.kind == "open") - (item.kind == "close" and opened > 0)
    return last


def _segment(text: str, start: int, end: int, items: list[Item], line: int, escape: Escape) -> Segment:
    part = text[start:end]
    if not any(map(str.isalpha, _written(text, start, end, [item._replace(raw="") for item in items]))):
        return Segment(_written(text, start, end, items, escape), "", "")
    sentence, begin = " ".join(part.split()), end - len(part.lstrip())
    # Points in the white space in front stay there.
    ahead = list(takewhile(lambda item: item.kind == "point" and item.at < begin, items))
    nodes = [(item, *_span(part, item.at - start, item.end - start)) for item in items[len(ahead) :]]
    kept = [(first, last) for item, first, last in nodes if item.kind == "kept"]
    words = _words(sentence, kept)
    return MarkedSegment(
        _written(text, start, begin, ahead, escape),
        sentence,
        escape(part[len(part.rstrip()) :]),
        line + text.count("\n", start, begin),
        words=tuple(words),
        root=_tree(text, nodes, words),
        kept={words.index(span): sentence[slice(*span)] for span in kept},
        escape=escape,
    )


def _written(text: str, start: int, end: int, items: Sequence[Item], escape: Escape = str) -> str:
    """Return a part of a text with its items."""
    written, place = "", start
    for item in items:
        written += escape(text[place : item.at]) + item.raw
        place = item.end
    return written + escape(text[place:end])


def _span(part: str, first: int, last: int) -> Span:
    """Return the place of an item, without white space at its ends, after white space has become single spaces."""
    inner = part[first:last].strip()
    first = part.index(inner, first)
    place = len(" ".join(part[:first].split()))
    if place and part[first - 1].isspace() and part[first : first + 1].strip():
        place += 1
    return place, place + len(" ".join(inner.split()))


def _words(text: str, whole: Sequence[Span]) -> list[Span]:
    """Return the places of the words of a text. Each span of `whole` is one word."""
    words, place = [], 0
    for start, end in [*whole, (len(text), len(text))]:
        # With `pos` instead, the span before would be part of the word.
        words += [(place + match.start(), place + match.end()) for match in _WORD.finditer(text[place:start])]
        words += [(start, end)] if start < end else []
        place = end
    return words


def _tree(text: str, items: Sequence[tuple[Item, int, int]], words: Sequence[Span]) -> Node:
    """Return the tree of the items of a sentence, which come with their places in it. `text` is the whole run's."""
    stack = [root := Node(last=len(words))]
    starts, ends = [start for start, _ in words], [end for _, end in words]
    for item, place, _ in items:
        # The words that end up to here, and those that start before.
        ended, begun = bisect_right(ends, place), bisect_left(starts, place)
        inside = stack[-1].children
        if item.kind == "kept":
            inside.append(Node(item.raw, first=ended, last=ended + 1, is_kept=True))
        elif item.kind == "open":
            inside.append(Node(item.raw, first=ended, last=len(words), closed_after=True))
            stack.append(inside[-1])
        elif item.kind == "close" and len(stack) > 1:
            node = stack.pop()
            node.close, node.last, node.closed_after = item.raw, max(node.first, begun), False
        elif item.kind == "close":
            root.children = [Node("", item.raw, last=begun, opened_before=True, children=inside)]
        else:
            behind_word = bool(text[max(item.at - 1, 0) : item.at].strip())
            ends_word = not text[item.at : item.at + 1].strip()
            sides = {"follows": behind_word and ends_word, "spaced": ends_word and not behind_word}
            inside.append(Node(item.raw, first=ended, last=ended, **sides))
    return root


def _is_in_word(text: str, place: int) -> bool:
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)
