"""Segments with tags and kept parts, which are not translated.

An element comes back around the words of the translation that are aligned with its own words: as one element, inside
the element that it was in. A kept part takes the place of the words that are aligned with it.

Places are counted in one of three texts: the source as it is written, a run (the text between two tags of blocks,
without tags), and the sentence that the model reads (part of a run, with single spaces).
"""

import html
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain

import regex

from hf_capsule_mt.long_work import next_step

from ..terms.glossary import Term, placed_forms, places_of_terms
from ..text.segments import Restored, Segment
from ..text.words import Align, Span, Weights, has_letters, word_spans
from .markup import Item, Run, without_tags
from .placement import Node
from .writer import KeptParts, SentenceWriter

Cut = Callable[[str], list[str]]
"""From a text to its parts that are translated one by one. Joined, they are the text."""
Escape = Callable[[str], str]
"""Writes characters as references, such as `&amp;`, if they would look like tags."""

_escaped = partial(html.escape, quote=False)
_WHITE_SPACE = regex.compile(r"\s*")
_BREAKABLE = regex.compile(r"[ \t\r\n]+")
_HIDDEN = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Stands for a letter of a kept part in which no term is looked for."""
_JOINT = regex.compile(r"[!-/:-@\[-`{-~\p{Sm}·–—]{1,3}+| (?:[+/|>=]|\p{Sm}) ")
"""Stands between parts that are one, such as keys that are pressed together."""
_STOP = regex.compile(r"[.!?…。！？][\p{Pe}\p{Pf}\"']*+$")
"""The end of a sentence."""
_MOST_SIGNS = 4
"""Characters in which a full stop is looked for, with the brackets and quotes behind it."""


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

    def restored(self, translation: str, align: Align | None = None, terms: Sequence[Term] = ()) -> Restored:
        """Return a translation with the tags and kept parts, as [`Segment.restored`] does."""
        kept = KeptParts(self.text, self.words, self.kept)
        copies = kept.copies_in(translation)
        spans_of_terms: list[Span] = []
        if terms and self.kept:
            spans_of_terms = self._spans_of_terms(translation, copies, terms)
            copies = kept.copies_in(translation, outside_of=spans_of_terms)

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

        writer = SentenceWriter(
            translation,
            words,
            weights,
            words_of_copies,
            with_twins=kept.with_twins(),
            fixed=spans_of_terms,
            escape=self.escape,
            without_tags=self.without_tags,
        )
        text = writer.write(self.root)
        return Restored(text, tuple(writer.places))

    def _spans_of_terms(
        self, translation: str, copies: Mapping[int, Sequence[Span]], terms: Sequence[Term]
    ) -> list[Span]:
        """Return where terms stand in a translation.

        A copy of a kept part may have the word of a term in it, as `{server}` has. It is no term.
        """
        visible = translation
        for kept_word, spans in copies.items():
            if any(placed_forms(self.kept[kept_word], terms)):
                for start, end in spans:
                    visible = visible[:start] + _HIDDEN * (end - start) + visible[end:]
        places = places_of_terms(visible, terms)
        return [place[:2] for place in places if place is not None]

    def without_tags(self, translation: str) -> str:
        """Return a translation that `put_back` has returned without its tags, with characters for references."""
        if self.escape is str:
            return translation
        return without_tags(translation)

    def copied_parts(self, translation: str) -> list[tuple[Span, bool]]:
        """Return where kept parts stand in the text, and whether the model has copied each into its translation."""
        copies = KeptParts(self.text, self.words, self.kept).copies_in(translation)
        return [(self.words[word], bool(copies[word])) for word in self.kept]


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
    escape = _escaped
    runs = markup
    if markup is None:
        escape = str
        runs = [Run(source, [], source)]

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
    items = run.items
    if keep is not None:
        items = list(_with_kept(run, keep, escape))
    items = _with_joined(run.text, items, escape)

    start = first = 0
    line = run.line
    for end in _ends(run.text, items, cut):
        last = len(items)
        if end < len(run.text):
            last = _divide(items, first, end)
        yield _segment(run.text, start, end, items[first:last], line, escape)
        line += run.text.count("\n", start, end)
        start = end
        first = last


def _with_kept(run: Run, keep: regex.Pattern, escape: Escape) -> Iterator[Item]:
    """Yield the items of a run, and what an expression finds between two of them."""
    start = 0
    for item in [*run.items, None]:
        end = len(run.text)
        if item is not None:
            end = item.at

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


def _with_joined(text: str, items: Sequence[Item], escape: Escape) -> list[Item]:
    """Return items in which kept parts with only signs between them are one, such as Ctrl+S of two keys."""
    joined: list[Item] = []
    for item in items:
        if joined and joined[-1].kind == item.kind == "kept":
            before = joined[-1]
            between = text[before.end : item.at]
            if _JOINT.fullmatch(between):
                raw = f"{before.raw}{escape(between)}{item.raw}"
                may_lead = before.may_lead and item.may_lead
                joined[-1] = Item("kept", raw, before.at, item.end, may_lead)
                continue
        joined.append(item)
    return joined


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


def _segment(text: str, start: int, end: int, items: Sequence[Item], line: int, escape: Escape) -> Segment:
    """Return the segment of a part of a run. Without letters to translate, all of it is white space.

    Args:
        text: of the run.
        start: where the part begins in it.
        end: the place behind the part.
        items: of the part.
        line: of the source, on which the part begins.
        escape: writes characters as references.
    """
    without_items = [item._replace(raw="") for item in items]
    if not has_letters(_written(text, start, end, without_items, str)):
        return Segment(_written(text, start, end, items, escape), "", "")

    num_ahead, origin = _ahead(text, start, end, items)
    begin = _first_word(text, origin, end)
    first_behind, stop = _behind(text, begin, end, items, num_ahead)
    ahead = items[:num_ahead]
    inside = items[num_ahead:first_behind]
    behind = items[first_behind:]

    part = text[origin:stop]
    sentence = " ".join(part.split())
    places_in_part = [(item.at - origin, item.end - origin) for item in inside]
    spans = _sentence_spans(part, places_in_part)
    kept_spans = [span for item, span in zip(inside, spans) if item.kind == "kept"]

    words = word_spans(sentence, kept_spans)
    number_of = {span: number for number, span in enumerate(words)}
    kept = {}
    for first, behind_last in kept_spans:
        kept[number_of[first, behind_last]] = sentence[first:behind_last]

    return MarkedSegment(
        before=_written(text, start, begin, ahead, escape),
        text=sentence,
        after=_written(text, origin + len(part.rstrip()), end, behind, escape),
        line=line + text.count("\n", start, begin),
        words=tuple(words),
        root=_tree(text, inside, [place for place, _ in spans], words),
        kept=kept,
        escape=escape,
    )


def _ahead(text: str, start: int, end: int, items: Sequence[Item]) -> tuple[int, int]:
    """Return how many items stay in front of the sentence of a part, and the place behind the last kept one.

    These are kept parts that lead a line, and points in white space.
    """
    origin = start
    begin = _first_word(text, origin, end)
    for number, item in enumerate(items):
        if item.may_lead and item.at == begin:
            origin = item.end
            begin = _first_word(text, origin, end)
        elif item.kind != "point" or item.at >= begin:
            return number, origin
    return len(items), origin


def _behind(text: str, begin: int, end: int, items: Sequence[Item], first: int) -> tuple[int, int]:
    """Return the index of the first item that stays behind the sentence of a part, and the place where that ends.

    These are points in the last white space, and kept parts right behind the full stop, such as the number of a note.

    Args:
        text: of the run.
        begin: where the sentence begins in it.
        end: the place behind the part.
        items: of the part.
        first: the index of the first item that is not in front of the sentence.
    """
    stop = end
    while stop > begin and text[stop - 1].isspace():
        stop -= 1
    first_behind = len(items)
    while first_behind > first and items[first_behind - 1].kind == "point" and items[first_behind - 1].at > stop:
        first_behind -= 1

    first_note = first_behind
    while first_note > first and items[first_note - 1].kind == "kept" and items[first_note - 1].end == stop:
        first_note -= 1
        stop = items[first_note].at

    is_behind_stop = _STOP.search(text, max(begin, stop - _MOST_SIGNS), stop) is not None
    if first_note < first_behind and is_behind_stop:
        return first_note, stop
    return first_behind, end


def _first_word(text: str, place: int, end: int) -> int:
    """Return the place of the next character that is no white space."""
    while place < end and text[place].isspace():
        place += 1
    return place


def _written(text: str, start: int, end: int, items: Sequence[Item], escape: Escape) -> str:
    """Return a text from one place to another, with its items."""
    written = []
    place = start
    for item in items:
        written.append(escape(text[place : item.at]))
        written.append(item.raw)
        place = item.end
    written.append(escape(text[place:end]))
    return "".join(written)


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
    end = len(run_text)
    place = end
    for item in reversed(items):
        if item.at < place:
            end = place
            place = item.at
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

    is_behind_space = item.at > 0 and not is_behind_word
    is_detached = is_behind_space and not ends_word and not run_text[item.at].isalnum()
    follows = is_behind_word and ends_word
    return Node(item.raw, first=first, last=first, follows=follows, space=space, is_detached=is_detached)
