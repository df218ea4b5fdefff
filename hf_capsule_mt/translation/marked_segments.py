"""Segments with tags and kept parts, which are not translated.

An element comes back around the words of the translation that are aligned with its own words: as one element, inside
the element that it was in. A kept part takes the place of the words that are aligned with it.
"""

import html
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, takewhile
from operator import attrgetter

import regex

from .documents import Segment, whole_segment
from .markup import Kept, Mark, Run, read_markup
from .putting_back import Node, Span, Weights, put_back

Align = Callable[[Sequence[Span], Sequence[Span]], Weights]
"""From the places of source words and target words, how much each target word belongs to each source word."""

# Scripts that put no spaces between words.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_IN_WORD = rf"(?:(?![{_UNSPACED}])[\p{{L}}\p{{N}}\p{{M}}_])"
_WORD = regex.compile(rf"[{_UNSPACED}]\p{{M}}*|{_IN_WORD}+(?:['’.\-]{_IN_WORD}+)*|\S\p{{M}}*")
_SECONDS = 5
"""The longest time that an expression may search a text."""


@dataclass(frozen=True)
class MarkedSegment(Segment):
    """A segment of a text with tags or kept parts.

    Attributes:
        words: the places of the words of the text; a kept part is one word.
        root: the tree of tags and kept parts.
        kept: the kept parts, as the model sees them, by their words.
        is_markup: whether characters are written as references, such as &amp;.
    """

    words: tuple[Span, ...] = ()
    root: Node = field(default_factory=Node)
    kept: dict[int, str] = field(default_factory=dict)
    is_markup: bool = False

    @property
    def has_parts(self) -> bool:
        """Whether something stands in the text."""
        return bool(self.root.children)

    @property
    def needs_alignment(self) -> bool:
        """Whether it matters which words of the translation belong to which of the source."""
        return not self.root.is_around(len(self.words))

    def put_back(self, translation: str, align: Align | None = None) -> str:
        """Return a translation with the tags and kept parts of the source.

        Args:
            translation: of the text.
            align: needed if `needs_alignment`.
        """
        copies = _copies(translation, self.text, {word: (self.words[word], text) for word, text in self.kept.items()})
        words = _words(translation, sorted({copy for places in copies.values() for copy in places}))
        weights = align(self.words, words) if align is not None else [[0.0] * len(self.words) for _ in words]
        numbers = {place: number for number, place in enumerate(words)}
        found = {word: [numbers[place] for place in places] for word, places in copies.items()}
        escape = _escaped if self.is_markup else str
        return put_back(self.root, weights, translation, words, found, escape)


def keep_pattern(keep: str) -> regex.Pattern:
    """Compile a regular expression for kept parts; raise a ValueError if it is none."""
    try:
        return regex.compile(keep)
    except regex.error as error:
        raise ValueError(f"keep is {keep!r}, which is no regular expression: {error}") from error


def marked_segments(
    source: str, tags: bool, keep: regex.Pattern | None, cut: Callable[[str], list[str]] | None
) -> list[Segment]:
    """Return the segments of a source, at least one. A segment without words has everything as white space.

    Args:
        source: any text.
        tags: whether tags of XML or HTML are read; otherwise they are text.
        keep: finds kept parts in the text between two tags.
        cut: returns the parts of a text that are translated one by one.

    Raises:
        ValueError: if a tag is wrong, or `keep` searches for too long.
    """
    segments: list[Segment] = []
    waiting = ""
    for part in read_markup(source) if tags else [_plain_run(source)]:
        if isinstance(part, str):
            waiting += part
            continue
        for segment in _run_segments(part, tags, keep, cut):
            if not segment.text:
                waiting += segment.before
                continue
            segments.append(replace(segment, before=waiting + segment.before))
            waiting = ""
    if not segments:
        return [Segment(waiting, "", "")]
    segments[-1] = replace(segments[-1], after=segments[-1].after + waiting)
    return segments


def _plain_run(source: str) -> Run:
    """Return a text without tags, with where its lines begin."""
    starts = [0, *accumulate(len(line) + 1 for line in source.split("\n")[:-1])]
    return Run(source, raw=source, lines=[(start, number) for number, start in enumerate(starts)])


def _run_segments(
    run: Run, tags: bool, keep: regex.Pattern | None, cut: Callable[[str], list[str]] | None
) -> Iterator[Segment]:
    items = _with_kept(run, keep, _escaped if tags else str)
    ends = list(accumulate(map(len, cut(run.text)))) if cut is not None else [len(run.text)]
    start = first = 0
    for end in _ends(ends, items):
        last = len(items) if end == len(run.text) else _divide(items, first, end)
        yield _segment(run, start, end, items[first:last], tags)
        start, first = end, last


def _with_kept(run: Run, keep: regex.Pattern | None, escape: Callable[[str], str]) -> list[Mark | Kept]:
    """Return the items of a run, and what an expression finds between two of them."""
    if keep is None:
        return run.items
    starts = [0, *(item.end if isinstance(item, Kept) else item.at for item in run.items)]
    items: list[Mark | Kept] = []
    for start, item in zip(starts, [*run.items, None]):
        end = len(run.text) if item is None else item.at
        items += _found(keep, run.text, start, end, escape)
        items += [] if item is None else [item]
    return items


def _found(keep: regex.Pattern, text: str, start: int, end: int, escape: Callable[[str], str]) -> Iterator[Kept]:
    part = text[start:end]
    try:
        for match in keep.finditer(part, timeout=_SECONDS):
            words = match[0].strip()
            if words:
                at = start + match.start() + match[0].index(words)
                yield Kept(at, at + len(words), escape(words))
    except TimeoutError:
        raise ValueError(
            f"keep is {keep.pattern!r}, which takes more than {_SECONDS} seconds. Avoid repetitions in repetitions."
        ) from None


def _ends(ends: list[int], items: Sequence[Mark | Kept]) -> list[int]:
    """Return the ends of segments. A kept part across an end is a segment of its own, which is not translated."""
    found = set(ends)
    for item in items:
        if isinstance(item, Kept):
            inside = ends[bisect_right(ends, item.at) : bisect_left(ends, item.end)]
            if inside:
                found.difference_update(inside)
                found.update({item.at, item.end} - {0})
    return sorted(found)


def _divide(items: Sequence[Mark | Kept], first: int, end: int) -> int:
    """Return the index that splits `items` at `end`: tags that close there go left, tags that open there go right."""
    last = bisect_left(items, end, lo=first, key=attrgetter("at"))
    opened = 0
    for place in range(last, len(items)):
        item = items[place]
        if item.at != end or isinstance(item, Kept):
            break
        if item.kind == "close" and not opened:
            last = place + 1
        opened += (item.kind == "open") - (item.kind == "close" and opened > 0)
    return last


def _segment(run: Run, start: int, end: int, items: list[Mark | Kept], tags: bool) -> Segment:
    part, escape = run.text[start:end], _escaped if tags else str
    plain = whole_segment(part)
    line = run.line(start + len(plain.before))
    if not _has_words(run.text, start, end, items):
        return Segment(_written(run.text, start, end, items, escape), "", "", line)
    # Points in the white space in front stay there.
    begin = start + len(plain.before)
    ahead = list(takewhile(lambda item: isinstance(item, Mark) and item.kind == "point" and item.at < begin, items))
    items = items[len(ahead) :]
    spans = _spans(part, start, items)
    kept = {item: span for item, span in zip(items, spans) if isinstance(item, Kept)}
    words = _words(plain.text, list(kept.values()))
    return MarkedSegment(
        _written(run.text, start, begin, ahead, escape),
        plain.text,
        escape(plain.after),
        line,
        words=tuple(words),
        root=_tree([(item, span[0], *_sides(run.text, item)) for item, span in zip(items, spans)], words),
        kept={words.index(span): plain.text[slice(*span)] for span in kept.values()},
        is_markup=tags,
    )


def _has_words(text: str, start: int, end: int, items: Sequence[Mark | Kept]) -> bool:
    """Return whether a part has letters outside of kept parts."""
    kept = [(item.at, item.end) for item in items if isinstance(item, Kept)]
    gaps = zip([start, *(last for _, last in kept)], [*(first for first, _ in kept), end])
    return any(character.isalpha() for first, last in gaps for character in text[first:last])


def _spans(part: str, start: int, items: Sequence[Mark | Kept]) -> list[Span]:
    """Return the places of the items of a part from `start` on, after white space has become single spaces."""
    places = _places(part)
    spans = []
    for item in items:
        first = last = item.at - start
        if isinstance(item, Kept):
            inner = part[first : item.end - start]
            first, last = last + len(inner) - len(inner.lstrip()), last + len(inner.rstrip())
        spans.append((places[first], places[last - 1] + 1 if last > first else places[last]))
    return spans


def _written(text: str, start: int, end: int, items: Sequence[Mark | Kept], escape: Callable[[str], str]) -> str:
    """Return a part of a text with its items."""
    written, place = "", start
    for item in items:
        written += escape(text[place : item.at]) + item.raw
        place = item.end if isinstance(item, Kept) else item.at
    return written + escape(text[place:end])


def _places(part: str) -> list[int]:
    """Return the new places of all characters, and of the end, after white space has become single spaces."""
    places, length, gap = [], 0, False
    for character in part:
        space = character.isspace()
        if not space:
            length += 1 + (gap and length > 0)
        gap = space
        places.append(length if space else length - 1)
    return [*places, length]


def _words(text: str, whole: Sequence[Span]) -> list[Span]:
    """Return the places of the words of a text. Each span of `whole` is one word."""
    words, place = [], 0
    for start, end in [*whole, (len(text), len(text))]:
        # With `pos` instead, the span before would be part of the word.
        words += [(place + match.start(), place + match.end()) for match in _WORD.finditer(text[place:start])]
        words += [(start, end)] if start < end else []
        place = end
    return words


def _sides(text: str, item: Mark | Kept) -> tuple[bool, bool]:
    """Return whether an item stands right behind a word, as a footnote does, and whether it stands between spaces."""
    behind_word = text[max(item.at - 1, 0) : item.at].strip() != ""
    before_word = text[item.at : item.at + 1].strip() != ""
    return behind_word and not before_word, not behind_word and not before_word


def _tree(items: Sequence[tuple[Mark | Kept, int, bool, bool]], words: Sequence[Span]) -> Node:
    """Return the tree of the items of a sentence, which come with their places and sides."""
    root = Node(last=len(words))
    stack = [root]
    starts, ends = [start for start, _ in words], [end for _, end in words]
    for item, place, follows, spaced in items:
        # The words that end up to here, and those that start before.
        ended, begun = bisect_right(ends, place), bisect_left(starts, place)
        inside = stack[-1].children
        if isinstance(item, Kept):
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
            inside.append(Node(item.raw, first=ended, last=ended, follows=follows, spaced=spaced))
    return root


def _copies(translation: str, source: str, kept: dict[int, tuple[Span, str]]) -> dict[int, list[Span]]:
    """Return the places of copies of kept parts in a translation, by the word of the source.

    Copies do not overlap. A copy is part of a longer word only if the kept part is, too.
    """
    taken: list[Span] = []
    found: dict[int, list[Span]] = {}
    sides = {word: (_is_in_word(source, start), _is_in_word(source, end)) for word, ((start, end), _) in kept.items()}
    # The longest first: one may be part of another. Equal texts: first those that must be words of their own.
    for word, (_, text) in sorted(kept.items(), key=lambda item: (-len(item[1][1]), any(sides[item[0]]))):
        before, behind = sides[word]
        same = [other for other in found if kept[other][1] == text and sides[other] == sides[word]]
        found[word] = found[same[0]] if same else []
        for match in regex.finditer(regex.escape(text), "" if same else translation):
            first, last = match.span()
            in_word = (_is_in_word(translation, first) and not before) or (
                _is_in_word(translation, last) and not behind
            )
            if not in_word and all(last <= other[0] or other[1] <= first for other in taken):
                taken.append((first, last))
                found[word].append((first, last))
    return found


def _is_in_word(text: str, place: int) -> bool:
    return 0 < place < len(text) and text[place - 1].isalnum() and text[place].isalnum()


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)
