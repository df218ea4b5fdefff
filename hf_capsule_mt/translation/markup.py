"""Read texts with tags of XML or HTML as text and tags, without losing a character of the source."""

import html
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.entities import html5
from itertools import groupby
from typing import NamedTuple

import regex


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Elements of HTML between which texts are translated separately.
_BLOCKS = _names(
    "address area article aside base blockquote body br button caption center col colgroup datalist dd details dialog "
    "dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html "
    "iframe legend li link main menu meta nav noscript object ol optgroup option p param pre search section select "
    "summary table tbody td template textarea tfoot th thead title tr ul video"
)
_VOID = _names("area base br col embed frame hr img input link meta param source track wbr")
_UNTOUCHED = _names("code kbd math pre samp script style svg textarea var")
# These untouched elements are part of the sentence, as a noun is.
_SHOWN = _names("code kbd math samp var")
# Elements behind a word, such as the number of a footnote.
_RAISED = _names("sup sub")
_END_MAY_LACK = _names("body colgroup dd dt head html li optgroup option p rp rt tbody td tfoot th thead tr")
_DEEPEST = 100

_START = regex.compile(r"<[a-zA-Z/!?]")
_TOKEN = regex.compile(
    r"""(?s)<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<![a-zA-Z][^<>\[]*+>
    |<(?P<end>/?)(?P<name>[a-zA-Z][^\s<>/]*+)(?=[\s/>])(?:=\s*+(?:"[^"]*+"|'[^']*+')|[^<>=]|=(?!\s*+["']))*+>""",
    regex.VERBOSE,
)
_TRANSLATE_NO = regex.compile(r"""(?i)\stranslate\s*=\s*["']?no["'\s/>]""")
_REFERENCE = regex.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[a-zA-Z]\w*);?")


@dataclass(frozen=True)
class Mark:
    """A tag in a text.

    Attributes:
        at: the place of the character behind it.
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
        text: without tags and references.
        items: the tags and kept parts, in order.
        raw: as it is written.
        lines: rising places of the text with their lines in the source, from 0.
    """

    text: str = ""
    items: list[Mark | Kept] = field(default_factory=list)
    raw: str = ""
    lines: list[tuple[int, int]] = field(default_factory=list)

    def line(self, place: int) -> int:
        """Return the line of the source, from 0, of a place of the text."""
        number = bisect_right(self.lines, (place, float("inf"))) - 1
        if number < 0:
            return 0
        start, line = self.lines[number]
        return line + self.text.count("\n", start, place)


class _Piece(NamedTuple):
    """A part of the source: its kind is "text", "open", "close", "point", "kept" or "block"."""

    kind: str
    raw: str
    text: str = ""


class _Token(NamedTuple):
    """A part of the source: its kind is "text", "open", "close", "point" or "bad", which is no complete tag."""

    kind: str
    name: str
    start: int
    end: int


@dataclass
class _Element:
    """An open element, with its first piece, the inline elements around it, and the characters seen in it."""

    name: str
    start: int
    first: int
    depth: int = 0
    has_letters: bool = False
    has_others: bool = False
    has_blocks: bool = False

    def see(self, text: str) -> None:
        """Note letters, and numbers or symbols."""
        kinds = {unicodedata.category(character)[0] for character in text}
        self.has_letters |= "L" in kinds
        self.has_others |= not kinds.isdisjoint("NS")


def read_markup(source: str) -> list[Run | str]:
    """Return the runs of text of a source, and everything between them as strings. Joined, they are the source.

    Raises:
        ValueError: if a tag is not complete, not closed, or closed out of order.
    """
    parts: list[Run | str] = []
    line = 0
    for is_block, pieces in groupby(_pieces(source), key=lambda piece: piece.kind == "block"):
        run = _run(pieces, line)
        line += run.raw.count("\n")
        parts.append(run if run.text.strip() and not is_block else run.raw)
    return parts


def _run(pieces: Iterable[_Piece], line: int) -> Run:
    run, texts, raws, place = Run(), [], [], 0
    for kind, raw, text in pieces:
        if text:
            run.lines.append((place, line))
        if kind == "kept":
            run.items.append(Kept(place, place + len(text), raw))
        elif kind != "text":
            run.items.append(Mark(place, kind, raw))
        texts.append(text)
        raws.append(raw)
        place += len(text)
        line += raw.count("\n")
    run.text, run.raw = "".join(texts), "".join(raws)
    return run


def _pieces(source: str) -> list[_Piece]:
    tokens = list(_tokens(source))
    # XML may close elements that have no end in HTML, such as XLIFF's <source>.
    void = _VOID - {name for kind, name, *_ in tokens if kind == "close"}
    pieces: list[_Piece] = []
    opened = [_Element("", 0, 0)]
    rest = iter(tokens)
    for kind, name, start, end in rest:
        raw, block = source[start:end], "block" if name in _BLOCKS else ""
        if block:
            opened[-1].has_blocks = True
        if kind == "bad":
            raise _error(source, start, "is a tag that does not end. Write &lt; for <.")
        if kind == "text":
            pieces += _text_pieces(raw)
            opened[-1].see(html.unescape(raw))
        elif kind == "point" or name in void:
            pieces.append(_Piece(block or "point", raw))
        elif kind == "open" and (name in _UNTOUCHED or _TRANSLATE_NO.search(raw)):
            text, end = _untouched(source, rest, name, start)
            pieces.append(_whole(name, source[start:end], text))
            opened[-1].see(text)
        elif kind == "open":
            opened.append(_Element(name, start, len(pieces), opened[-1].depth + (not block)))
            if opened[-1].depth > _DEEPEST:
                raise _error(source, start, f"is within {_DEEPEST} other elements")
            pieces.append(_Piece(block or "open", raw))
        else:
            while opened[-1].name != name and opened[-1].name in _END_MAY_LACK:
                _close(opened)
            if opened[-1].name != name:
                raise _error(source, start, "closes a tag that is not open, or not the last one that was opened")
            element = _close(opened)
            pieces.append(_Piece(block or "close", raw))
            # The model would change what has no letters, such as a number.
            if element.has_others and not (element.has_letters or element.has_blocks or block):
                inner = pieces[element.first :]
                whole = _whole(name, "".join(piece.raw for piece in inner), "".join(piece.text for piece in inner))
                pieces[element.first :] = [whole]
    for element in opened[1:]:
        if element.name not in _END_MAY_LACK:
            raise _error(source, element.start, "is not closed")
    return pieces


def _tokens(source: str) -> Iterator[_Token]:
    place = 0
    while place < len(source):
        found = _START.search(source, place)
        start = found.start() if found else len(source)
        if place < start:
            yield _Token("text", "", place, start)
        if found is None:
            return
        match = _TOKEN.match(source, start)
        place = start + 1 if match is None else match.end()
        name = ((match and match["name"]) or "").lower()
        if match is None and source[start + 1] in "!?":
            # At once, since each of them would be searched up to the end of the source.
            raise _error(source, start, "does not end, or holds declarations")
        if match is None:
            yield _Token("bad", "", start, place)
        elif not name or match[0].endswith("/>"):
            yield _Token("point", name, start, place)
        elif match["end"]:
            yield _Token("close", name, start, place)
        elif name in ("script", "style"):
            end = regex.compile(rf"(?i)</{name}\s*>").search(source, place)
            if end is None:
                raise _error(source, start, f"is not closed by </{name}>")
            place = end.end()
            yield _Token("point", name, start, place)
        else:
            yield _Token("open", name, start, place)


def _untouched(source: str, rest: Iterator[_Token], name: str, start: int) -> tuple[str, int]:
    """Return the text and the end of an element whose contents stay as they are, and pass its tokens."""
    depth, texts = 1, []
    for token in rest:
        if token.kind in ("text", "bad"):
            texts.append(source[token.start : token.end])
        elif token.name == name:
            depth += {"open": 1, "close": -1}.get(token.kind, 0)
            if not depth:
                return html.unescape("".join(texts)), token.end
    raise _error(source, start, f"is not closed by </{name}>")


def _whole(name: str, raw: str, text: str) -> _Piece:
    """Return an element that stays as it is: kept as a word of the sentence, or between its words."""
    if text.strip() and (name in _SHOWN or name not in _UNTOUCHED | _BLOCKS | _RAISED):
        return _Piece("kept", raw, text)
    return _Piece("block" if name in _BLOCKS else "point", raw)


def _close(opened: list[_Element]) -> _Element:
    element = opened.pop()
    opened[-1].has_letters |= element.has_letters
    opened[-1].has_others |= element.has_others
    opened[-1].has_blocks |= element.has_blocks
    return element


def _text_pieces(raw: str) -> Iterator[_Piece]:
    """Split off references to entities that HTML does not know."""
    start = 0
    for match in regex.finditer(r"&([a-zA-Z][\w.:-]*;)", raw):
        # html.unescape() would read &notice; as &not and ice;.
        if match[1] not in html5:
            yield from _shown(raw[start : match.start()])
            yield _Piece("kept", match[0], match[0])
            start = match.end()
    yield from _shown(raw[start:])


def _shown(raw: str) -> Iterator[_Piece]:
    """Return a piece of text. A reference to a line break becomes a space, so that lines stay lines."""
    if raw:
        yield _Piece("text", raw, html.unescape(_REFERENCE.sub(_without_break, raw)))


def _without_break(match: regex.Match) -> str:
    character = html.unescape(match[0])
    return " " if len(character) == 1 and len(f"{character}.".splitlines()) == 2 else match[0]


def _error(source: str, start: int, problem: str) -> ValueError:
    line, column = source.count("\n", 0, start) + 1, start - source.rfind("\n", 0, start)
    tag = regex.match(r"<[^<>]*>|.{1,20}", source[start:], regex.DOTALL)[0]
    return ValueError(f"{tag:.80} (line {line}, column {column}) {problem}")
