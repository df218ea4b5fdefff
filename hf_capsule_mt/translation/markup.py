"""Texts with tags of XML or HTML: read as text and as what stands in it, and nothing of the source is lost."""

import html
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.entities import html5
from html.parser import HTMLParser
from itertools import accumulate, groupby
from typing import Any, NamedTuple


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Elements of HTML that begin and end a piece of text, or stand between two.
_BLOCKS = _names(
    "address area article aside base blockquote body br button caption center col colgroup datalist dd details dialog "
    "dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html "
    "iframe legend li link main menu meta nav noscript object ol optgroup option p param pre search section select "
    "summary table tbody td template textarea tfoot th thead title tr ul video"
)
_VOID = _names("area base br col embed frame hr img input link meta param source track wbr")
_UNTOUCHED = _names("code kbd math pre samp script style svg textarea var")
# What of them is a part of the sentence, as a noun is.
_SHOWN = _names("code kbd math samp var")
# Elements that stand behind a word, such as the number of a footnote.
_RAISED = _names("sup sub")
_PUNCTUATION = frozenset(" .,;:!?…'\"«»“”„‘’()-–—")
_DEEPEST = 100
"""Elements within each other, between two tags of blocks."""
_MOST_OPEN = 1_000
_END_MAY_LACK = _names("body colgroup dd dt head html li optgroup option p rp rt tbody td tfoot th thead tr")
_NO_TAG = re.compile(r"<[a-zA-Z/!?]")
# What begins so ends so.
_ENDS = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"), ("", ">"))
_REFERENCE = re.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[a-zA-Z]\w*);?")
# What may hold tags that are none.
_NO_ELEMENTS = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<script", "</script"), ("<style", "</style"))
# Which the parser takes for the beginning of a character's number.
_NO_NUMBER = re.compile(r"&(?=#(?!\d|[xX][0-9a-fA-F]))")


@dataclass(frozen=True)
class Mark:
    """What stands in a text at a place, and is no part of it.

    Attributes:
        at: the place: that of the character after it.
        kind: "open" and "close" of an element, or "point", such as an empty tag or a comment.
        raw: as it is written.
    """

    at: int
    kind: str
    raw: str


@dataclass(frozen=True)
class Kept:
    """A part of a text that is not translated.

    Attributes:
        at: where it begins.
        end: where it ends.
        raw: as it is written.
    """

    at: int
    end: int
    raw: str


@dataclass
class Run:
    """Text between two tags of blocks.

    Attributes:
        text: characters, of which none stands for another.
        items: what stands in it, in order.
        raw: as it is written.
        lines: places of the text, rising, with the lines of the source that they are on, from 0.
    """

    text: str = ""
    items: list[Mark | Kept] = field(default_factory=list)
    raw: str = ""
    lines: list[tuple[int, int]] = field(default_factory=list)

    def line(self, place: int) -> int:
        """Return the line of the source, from 0, that a place of the text is on."""
        number = bisect_right(self.lines, (place, float("inf"))) - 1
        if number < 0:
            return 0
        start, line = self.lines[number]
        return line + self.text.count("\n", start, place)


class _Event(NamedTuple):
    kind: str
    name: str
    start: int
    untouched: bool = False


def read_markup(source: str) -> list[Run | str]:
    """Return the runs of text of a source, and as strings the tags of blocks, and all else that is not translated.

    What is written as it stands there, joined, is the source.

    Raises:
        ValueError: if a tag is not well-formed, or not closed, or closes another than was opened last.
    """
    parts: list[Run | str] = []
    for is_block, pieces in groupby(_pieces(source), key=lambda piece: piece.kind == "block"):
        if is_block:
            parts.append("".join(piece.raw for piece in pieces))
        else:
            run = _run(list(pieces))
            parts.append(run if run.text.strip() else run.raw)
    return parts


@dataclass(frozen=True)
class _Piece:
    """A part of the source.

    Attributes:
        kind: "text", "open", "close", "point", "kept" or "block".
        raw: as it is written.
        line: where it begins, from 0.
        text: that is shown.
    """

    kind: str
    raw: str
    line: int
    text: str = ""


def _run(pieces: list[_Piece]) -> Run:
    run = Run(raw="".join(piece.raw for piece in pieces))
    texts: list[str] = []
    place = 0
    for piece in pieces:
        end = place + len(piece.text)
        if piece.text:
            run.lines.append((place, piece.line))
        if piece.kind == "kept":
            run.items.append(Kept(place, end, piece.raw))
        elif piece.kind != "text":
            run.items.append(Mark(place, piece.kind, piece.raw))
        texts.append(piece.text)
        place = end
    run.text = "".join(texts)
    return run


def _pieces(source: str) -> Iterator[_Piece]:
    reader = _Reader(source)
    ends = [event.start for event in reader.events[1:]] + [len(source)]
    waiting: list[tuple[_Event, str]] = []
    last = -1
    for number, (event, end) in enumerate(zip(reader.events, ends)):
        # An element that is left alone is one piece, and one without letters.
        waiting.append((event, source[event.start : end]))
        if number > last and len(waiting) == 1:
            last = reader.without_letters.get(number, -1)
        if number < last:
            continue
        if number == last or event.kind == "untouched end" or not waiting[0][0].untouched:
            yield from _piece(waiting, reader.line(waiting[0][0].start))
            waiting = []


def _piece(events: list[tuple[_Event, str]], line: int) -> Iterator[_Piece]:
    event, raw = events[0][0], "".join(raw for _, raw in events)
    if event.untouched or len(events) > 1:
        shown = html.unescape("".join(raw for event, raw in events if event.kind == "text"))
        is_shown = shown.strip() and (event.name in _SHOWN or event.name not in _UNTOUCHED | _BLOCKS | _RAISED)
        kind = "kept" if is_shown else "block" if event.name in _BLOCKS else "point"
        yield _Piece(kind, raw, line, shown if kind == "kept" else "")
    elif event.kind == "text":
        yield from _text_pieces(raw, line)
    else:
        yield _Piece("block" if event.name in _BLOCKS else event.kind, raw, line)


def _text_pieces(raw: str, line: int) -> Iterator[_Piece]:
    """Split off references to entities that only the source's own declarations know."""
    start = 0
    for match in re.finditer(r"&[a-zA-Z][\w.:-]*;", raw):
        # Not by what html.unescape() leaves: it reads &notice; as &not and ice;.
        if match[0][1:] not in html5:
            yield _Piece("text", raw[start : match.start()], line, _shown(raw[start : match.start()]))
            line += raw.count("\n", start, match.start())
            yield _Piece("kept", match[0], line, match[0])
            start = match.end()
    yield _Piece("text", raw[start:], line, _shown(raw[start:]))


def _shown(raw: str) -> str:
    """Return the characters of a text; of references to line breaks, which would make lines of one, spaces."""
    return html.unescape(
        _REFERENCE.sub(lambda match: " " if _is_line_break(html.unescape(match[0])) else match[0], raw)
    )


def _is_line_break(text: str) -> bool:
    return len(text) == 1 and len(f"{text}.".splitlines()) == 2


def _closed(source: str) -> set[str]:
    """Return the names of the tags that a source closes."""
    for start, end in _NO_ELEMENTS:
        # Only up to the last end: from each start behind it, all the rest would be searched.
        last = source.lower().rfind(end) + len(end)
        pattern = f"(?is){re.escape(start)}.*?{re.escape(end)}"
        source = re.sub(pattern, "", source[:last]) + source[last:] if last >= len(end) else source
    return {name.lower() for name in re.findall(r"</([a-zA-Z][^\s/>]*)", source)}


class _Open(NamedTuple):
    name: str
    start: int
    number: int = 0
    seen: tuple[int, int, int] = (0, 0, 0)


class _Reader(HTMLParser):
    """Reads a source into events, each of which lasts to the next, and checks its tags."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=False)
        # Sections of CDATA may hold any character, in XML.
        getattr(self, "_support_cdata", lambda _: None)(True)
        self.source = source
        self.events: list[_Event] = []
        self._starts = [0, *accumulate(len(line) for line in source.split("\n"))]
        self._starts = [start + number for number, start in enumerate(self._starts)]
        # Names of XML's own, such as XLIFF's source.
        self._void = _VOID - _closed(source)
        self.without_letters: dict[int, int] = {}
        """The elements without letters, by the number of their first event: that of their last."""
        # Letters, characters that are neither letters nor punctuation, and tags of blocks, so far.
        self._seen, self._nested = (0, 0, 0), 0
        self._opened: list[_Open] = []
        # The element whose contents are left alone, and how many of its name are open in it.
        self._untouched, self._depth = "", 0
        # The parser would read on to the end of the source from each of them.
        if max(part.count("<") for part in source.split(">")) > _MOST_OPEN:
            raise ValueError(f"more than {_MOST_OPEN} tags follow each other that do not end")
        # It tells places alone, so that another character of the same length will do.
        self.feed(_NO_NUMBER.sub("+", source))
        left = -1
        while self.rawdata and len(self.rawdata) != left:
            # It stops at what might be the beginning of a character's number.
            left = len(self.rawdata)
            self.feed("")
        self.close()
        if self.source and (not self.events or self.events[0].start > 0):
            # The parser says nothing of </>.
            self.events.insert(0, _Event("text", "", 0))
        self._check_end()

    def set_cdata_mode(self, elem: str, **options: Any) -> None:
        """Leave the contents of a script alone; not those of titles and text areas, which newer Pythons do."""
        if elem in ("script", "style"):
            super().set_cdata_mode(elem, **options)

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        """Read what begins with <![, as the parser does, which knows some names alone."""
        try:
            return super().parse_marked_section(i, report)
        except AssertionError:
            raise self._no_end(len(self.source) - len(self.rawdata) + i) from None

    def line(self, start: int) -> int:
        """Return the line, from 0, of a place of the source."""
        return bisect_right(self._starts, start) - 1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Read the beginning of an element, or an element of HTML that has no end."""
        if tag in self._void:
            self._add("point", tag)
            return
        if self._untouched:
            self._depth += tag == self._untouched
            self._add("open", tag)
            return
        self._check_name(tag)
        if tag in _UNTOUCHED or ("translate", "no") in attrs:
            self._untouched, self._depth = tag, 1
        self._nested += tag not in _BLOCKS
        if self._nested > _DEEPEST:
            raise ValueError(f"<{tag}> ({self._where(self._place())}) is within {_DEEPEST} other elements")
        self._opened.append(_Open(tag, self._place(), len(self.events), self._seen))
        self._add("open", tag, bool(self._untouched))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Read an element without contents."""
        if not self._untouched:
            self._check_name(tag)
        self._add("point", tag)

    def handle_endtag(self, tag: str) -> None:
        """Read the end of an element, that which was opened last."""
        if self._untouched:
            self._depth -= tag == self._untouched
            if self._depth:
                self._add("close", tag)
                return
            self._untouched = ""
            self._nested -= self._opened.pop().name not in _BLOCKS
            self._add("untouched end", tag)
            return
        while self._opened and self._opened[-1].name != tag and self._opened[-1].name in _END_MAY_LACK:
            self._nested -= self._opened.pop().name not in _BLOCKS
        if not self._opened:
            raise ValueError(f"</{tag}> ({self._where(self._place())}) closes a tag that is not open; mend the markup")
        last = self._opened.pop()
        if last.name != tag:
            raise ValueError(
                f"</{tag}> ({self._where(self._place())}) stands where <{last.name}> ({self._where(last.start)}) is "
                "still open; tags must be closed in the order in which they enclose each other"
            )
        self._nested -= tag not in _BLOCKS
        letters, others, blocks = (now - before for now, before in zip(self._seen, last.seen))
        if others and not letters and not blocks and tag not in _BLOCKS:
            self.without_letters[last.number] = len(self.events)
        self._add("close", tag)

    def handle_data(self, data: str) -> None:
        """Read text."""
        self._add("text")
        self._see(data)

    def handle_charref(self, name: str) -> None:
        """Read a character by its number."""
        self._add("text")
        self._see(html.unescape(f"&#{name};"))

    def handle_entityref(self, name: str) -> None:
        """Read a character, or something else, by its name."""
        self._add("text")
        self._see(html.unescape(f"&{name};"))

    def _see(self, text: str) -> None:
        letters, others, blocks = self._seen
        letters += any(map(str.isalpha, text))
        others += not _PUNCTUATION.issuperset(text.replace("\n", " "))
        self._seen = letters, others, blocks

    def handle_comment(self, data: str) -> None:
        """Read a comment, or what HTML's parser takes for one."""
        if self.source.startswith("</", self._place()) and not self._untouched:
            start = self._place()
            raise ValueError(
                f"{self.source[start : start + 20]!r} ({self._where(start)}) is the end of no tag, whose names begin "
                "with letters; mend it, or write &lt; for <"
            )
        self._add("point")

    def handle_decl(self, decl: str) -> None:
        """Read a declaration, such as that of the type of the document."""
        if "[" in decl:
            raise ValueError(
                f"<!{decl[:20]} ({self._where(self._place())}) holds declarations, which are not read; take them out"
            )
        self._add("point")

    def unknown_decl(self, data: str) -> None:
        """Read a section of CDATA."""
        self._add("point")

    def handle_pi(self, data: str) -> None:
        """Read an instruction."""
        self._add("point")

    def _add(self, kind: str, name: str = "", untouched: bool = False) -> None:
        if name in _BLOCKS:
            self._seen = (*self._seen[:2], self._seen[2] + 1)
        # An event lasts to the next, and text goes on.
        if kind != "text" or not self.events or self.events[-1].kind != "text":
            self.events.append(_Event(kind, name, self._place(), untouched))

    def _place(self) -> int:
        line, column = self.getpos()
        return self._starts[line - 1] + column

    def _where(self, start: int) -> str:
        line = self.line(start)
        return f"line {line + 1}, column {start - self._starts[line] + 1}"

    def _check_name(self, tag: str) -> None:
        if "<" in tag or "&" in tag or '"' in tag:
            raise ValueError(f"<{tag}> ({self._where(self._place())}) is no tag; a > is missing, or < stands for &lt;")

    def _check_end(self) -> None:
        """Raise a ValueError for a tag that is not closed, or not finished."""
        if self._untouched:
            raise ValueError(
                f"<{self._untouched}> ({self._where(self._opened[-1].start)}) is left alone up to its end tag, and has "
                f"none; write </{self._untouched}>"
            )
        left = [element for element in self._opened if element.name not in _END_MAY_LACK]
        if left:
            raise ValueError(f"<{left[-1].name}> ({self._where(left[-1].start)}) is not closed; mend the markup")
        ends = [event.start for event in self.events[1:]] + [len(self.source)]
        inside = False
        for event, end in zip(self.events, ends):
            inside = (inside or event.untouched) and event.kind != "untouched end"
            raw = self.source[event.start : end]
            found = _NO_TAG.search(raw) if event.kind == "text" else None
            is_whole = event.kind == "text" or raw.endswith(next(end for start, end in _ENDS if raw.startswith(start)))
            if not inside and (found or not is_whole):
                raise self._no_end(event.start + (found.start() if found else 0))

    def _no_end(self, start: int) -> ValueError:
        return ValueError(
            f"{self.source[start : start + 20]!r} ({self._where(start)}) is a tag that does not end; mend it, or write "
            "&lt; for <"
        )
