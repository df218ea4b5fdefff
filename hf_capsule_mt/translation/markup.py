"""Read texts with tags of XML or HTML as text and tags, without losing a character of the source."""

import html
import unicodedata
from collections.abc import Iterator
from html.entities import html5
from itertools import accumulate, groupby
from typing import NamedTuple

import regex

from hf_capsule_mt.errors import UserError


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
# Elements after a word, such as the number of a footnote.
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


class Item(NamedTuple):
    """A tag in a text ("open", "close", or "point", such as an empty tag), or a part that is not translated ("kept").

    `raw` is how it is written. A tag stands before the character `at`, its end. A kept part goes from `at` to `end`.
    """

    kind: str
    raw: str
    at: int
    end: int


class Run(NamedTuple):
    """Text between two tags of blocks: without tags and references, its items, as it is written, and its first line."""

    text: str
    items: list[Item]
    raw: str
    line: int = 0


class _Piece(NamedTuple):
    kind: str  # The kind of an item, "text" or "block".
    raw: str
    text: str = ""


class _Element(NamedTuple):
    """An open element, with its first piece and the number of inline elements around it."""

    name: str
    start: int = 0
    first: int = 0
    depth: int = 0


def read_markup(source: str) -> list[Run | str]:
    """Return the runs of text of a source, and everything between them as strings. Joined, they are the source.

    Raises:
        UserError: if a tag is not complete, not closed, or closed out of order.
    """
    parts: list[Run | str] = []
    line = 0
    for is_block, pieces in groupby(_pieces(source), key=lambda piece: piece.kind == "block"):
        kinds, raws, texts = zip(*pieces)
        ends = list(accumulate(map(len, texts)))
        found = zip(kinds, raws, [0, *ends], ends)
        run = Run("".join(texts), [Item(*item) for item in found if item[0] != "text"], "".join(raws), line)
        parts.append(run if run.text.strip() and not is_block else run.raw)
        line += run.raw.count("\n")
    return parts


def _pieces(source: str) -> list[_Piece]:
    tokens = list(_tokens(source))
    # XML may close elements that have no end in HTML, such as XLIFF's <source>.
    void = _VOID - {name for kind, name, *_ in tokens if kind == "close"}
    pieces: list[_Piece] = []
    opened = [_Element("")]
    rest = iter(tokens)
    for kind, name, start, end in rest:
        raw, block = source[start:end], "block" if name in _BLOCKS else ""
        if kind == "bad":
            raise _error(source, start, "is a tag that does not end. Write &lt; for <.")
        if kind == "text":
            pieces += _text_pieces(raw)
        elif kind == "point" or name in void:
            pieces.append(_Piece(block or "point", raw))
        elif kind == "open" and (name in _UNTOUCHED or _TRANSLATE_NO.search(raw)):
            text, end = _untouched(source, rest, name, start)
            pieces.append(_whole(name, source[start:end], text))
        elif kind == "open":
            opened.append(_Element(name, start, len(pieces), opened[-1].depth + (not block)))
            if opened[-1].depth > _DEEPEST:
                raise _error(source, start, f"is within {_DEEPEST} other elements")
            pieces.append(_Piece(block or "open", raw))
        else:
            while opened[-1].name != name and opened[-1].name in _END_MAY_LACK:
                opened.pop()
            if opened[-1].name != name:
                raise _error(source, start, "closes a tag that is not open, or not the last one that was opened")
            first = opened.pop().first
            pieces.append(_Piece(block or "close", raw))
            # The model would change what has no letters, such as a number.
            if not block and _is_number(pieces, first):
                inner = pieces[first:]
                whole = _whole(name, "".join(piece.raw for piece in inner), "".join(piece.text for piece in inner))
                pieces[first:] = [whole]
    for element in opened[1:]:
        if element.name not in _END_MAY_LACK:
            raise _error(source, element.start, "is not closed")
    return pieces


def _is_number(pieces: list[_Piece], first: int) -> bool:
    """Return whether the pieces of an element have numbers or symbols, but no letters and no blocks."""
    found = False
    for number in range(first, len(pieces)):
        kinds = {unicodedata.category(character)[0] for character in pieces[number].text}
        if "L" in kinds or pieces[number].kind == "block":
            return False
        found = found or not kinds.isdisjoint("NS")
    return found


def _tokens(source: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield the kind, name, start and end of each part: "text", "open", "close", "point", or "bad", half a tag."""
    place = 0
    while place < len(source):
        found = _START.search(source, place)
        start = found.start() if found else len(source)
        if place < start:
            yield "text", "", place, start
        if found is None:
            return
        match = _TOKEN.match(source, start)
        place = start + 1 if match is None else match.end()
        name = ((match and match["name"]) or "").lower()
        if match is None:
            if source[start + 1] in "!?":
                # At once, since each of them would be searched up to the end of the source.
                raise _error(source, start, "does not end, or holds declarations")
            yield "bad", "", start, place
        elif not name or match[0].endswith("/>"):
            yield "point", name, start, place
        elif match["end"]:
            yield "close", name, start, place
        elif name in ("script", "style"):
            end = regex.compile(rf"(?i)</{name}\s*>").search(source, place)
            if end is None:
                raise _error(source, start, f"is not closed by </{name}>")
            place = end.end()
            yield "point", name, start, place
        else:
            yield "open", name, start, place


def _untouched(source: str, rest: Iterator[tuple[str, str, int, int]], name: str, start: int) -> tuple[str, int]:
    """Return the text and the end of an element whose contents stay as they are, and pass its tokens."""
    depth, texts = 1, []
    for kind, other, first, end in rest:
        if kind in ("text", "bad"):
            texts.append(source[first:end])
        elif other == name:
            depth += {"open": 1, "close": -1}.get(kind, 0)
            if not depth:
                return html.unescape("".join(texts)), end
    raise _error(source, start, f"is not closed by </{name}>")


def _whole(name: str, raw: str, text: str) -> _Piece:
    """Return an element that stays as it is: kept as a word of the sentence, or between its words."""
    if text.strip() and (name in _SHOWN or name not in _UNTOUCHED | _BLOCKS | _RAISED):
        return _Piece("kept", raw, text)
    return _Piece("block" if name in _BLOCKS else "point", raw)


def _text_pieces(raw: str) -> Iterator[_Piece]:
    """Split off references to entities that HTML does not know."""
    start = 0
    # html.unescape() would read &notice; as &not and ice;.
    unknown = [match for match in regex.finditer(r"&([a-zA-Z][\w.:-]*;)", raw) if match[1] not in html5]
    for match in [*unknown, None]:
        if part := raw[start : match.start() if match else None]:
            yield _Piece("text", part, html.unescape(_REFERENCE.sub(_without_break, part)))
        if match:
            yield _Piece("kept", match[0], match[0])
            start = match.end()


def _without_break(match: regex.Match) -> str:
    """Return a reference, or a space instead of a line break, so that lines stay lines."""
    character = html.unescape(match[0])
    return " " if len(character) == 1 and len(f"{character}.".splitlines()) == 2 else match[0]


def _error(source: str, start: int, problem: str) -> UserError:
    line, column = source.count("\n", 0, start) + 1, start - source.rfind("\n", 0, start)
    tag = regex.match(r"<[^<>]*>|.{1,20}", source[start:], regex.DOTALL)[0]
    return UserError(f"{tag:.80} (line {line}, column {column}) {problem}")
