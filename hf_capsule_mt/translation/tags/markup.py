"""Read texts with tags of XML or HTML as text and tags, without losing a character of the source."""

import html
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from html.entities import html5
from itertools import groupby
from typing import NamedTuple

import regex

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.long_work import next_step

from ..text.words import has_letters


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


BLOCKS = _names(
    "address area article aside base blockquote body br button caption center col colgroup datalist dd details dialog "
    "dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html "
    "iframe legend li link main menu meta nav noscript object ol optgroup option p param pre search section select "
    "summary table tbody td template textarea tfoot th thead title tr ul video"
)
"""Elements of HTML between which texts are translated separately."""
_VOID = _names("area base br col embed frame hr img input link meta param source track wbr")
_UNTOUCHED = _names("code kbd math pre samp script style svg textarea tt var")
# These untouched elements are part of the sentence, as a noun is.
_SHOWN = _names("code kbd math samp tt var")
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
_BEGINNING = regex.compile(r"<[^<>]*>|.{1,20}", regex.DOTALL)
_TAG_NAME = regex.compile(r"</?[a-zA-Z][^\s<>/]*+(?=[\s/>])")
# What follows in a tag: everything up to the end of the next quoted value, or to the end of the tag.
_TAG_PART = regex.compile(r"""(?:[^<>=]|=(?!\s*+["']))*+(?:>|=\s*+(?:"[^"]*+"|'[^']*+'))""")
_ATTRIBUTE = regex.compile(
    r"""(?P<name>[^\s/>=]++)(?:\s*+=\s*+(?P<value>"[^"]*+"|'[^']*+'|(?!["'])(?:[^\s>/]|/(?!>))++))?+"""
)
_NAMED = regex.compile(r"&([a-zA-Z][\w.:-]*;)")
_REFERENCE = regex.compile(r"&(?:#\d+|#[xX][0-9a-fA-F]+|[a-zA-Z]\w*);?")
# More digits than any character has. Python refuses to read some thousands of them.
_LONG_NUMBER = regex.compile(r"(?<=&#)\d{20,}")


class Item(NamedTuple):
    """A tag in a text ("open", "close", or "point", such as an empty tag), or a part that is not translated ("kept").

    `raw` is how it is written. A tag stands before the character `at`, its end. A kept part goes from `at` to `end`.
    """

    kind: str
    raw: str
    at: int
    end: int
    may_lead: bool = False  # Such as a bullet: in front of a sentence it is no word of it.


class Run(NamedTuple):
    """Text between two tags of blocks: without tags and references, its items, as it is written, and its first line.

    Without a character but white space it is the tags between two texts, which stay as they are written.
    """

    text: str
    items: list[Item]
    raw: str
    line: int = 0


class Attribute(NamedTuple):
    """An attribute of a tag: its name in lower case, the characters of its value, and where that is written."""

    name: str
    value: str
    start: int
    end: int


class Part(NamedTuple):
    """A part of a page that may have words which stay: a "comment", an opening "tag", or an element that "stays"."""

    kind: str
    start: int
    raw: str


class _Token(NamedTuple):
    """A part of a source: "text", a tag that is "open", "close" or "point", or "bad", half a tag."""

    kind: str
    name: str
    start: int
    end: int


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
    is_block: bool = True
    is_navigation: bool = False  # Whether links in it are no parts of a sentence.


def read_markup(
    source: str, ignored: Container[str] = (), edit: Callable[[str], str] | None = None, is_part: bool = False
) -> list[Run]:
    """Return the runs of text of a source, and the tags between them. Joined, they are the source.

    Args:
        source: a text with tags.
        ignored: names of elements whose contents stay as they are, in lower case.
        edit: gets each opening and empty tag, and returns how it is written in the translation. Elements that stay as
            they are keep theirs.
        is_part: whether the other tag of an element may stand in another source. Then texts on both sides of a tag
            without a partner are separate.

    Raises:
        UserError: if a tag is not complete, or, except in a part, not closed, or closed out of order.
    """
    runs = []
    line = 0
    for _, group in groupby(_Reader(source, ignored, is_part).pieces(), key=lambda piece: piece.kind == "block"):
        pieces = list(group)
        num_lines = sum(piece.raw.count("\n") for piece in pieces)
        if edit is not None:
            pieces = [_edited(piece, edit) for piece in pieces]
        runs.append(_run(pieces, line))
        line += num_lines
    return runs


def attributes(tag: str) -> Iterator[Attribute]:
    """Yield the attributes of an opening or empty tag that have a value."""
    for match in _ATTRIBUTE.finditer(tag, _TOKEN.match(tag).end("name")):
        if match["value"] is not None:
            value = match["value"]
            if value[0] in "\"'":
                value = value[1:-1]
            yield Attribute(match["name"].lower(), unescaped(value), *match.span("value"))


def parts_that_stay(source: str) -> Iterator[Part]:
    """Yield the comments of a text with tags, its elements that say that they stay, and the tags of all others.

    Code, drawings, programs and styles are passed over: they are no words.

    Raises:
        UserError: if a tag, a program or a style does not end.
    """
    tokens = _tokens(source)
    for token in tokens:
        raw = source[token.start : token.end]
        if raw.startswith("<!--"):
            yield Part("comment", token.start, raw)
        elif token.kind not in ("open", "point") or not token.name or token.name in ("script", "style"):
            continue
        elif token.name in _UNTOUCHED:
            _element_end(tokens, token)
        elif is_untranslated(raw):
            yield Part("stays", token.start, source[token.start : _element_end(tokens, token)])
        else:
            yield Part("tag", token.start, raw)


def _element_end(tokens: Iterator["_Token"], opening: "_Token") -> int:
    """Return the place behind an element, and read its tokens. Without its last tag it goes on to the end."""
    end = opening.end
    if opening.kind == "point" or opening.name in _VOID:
        return end

    depth = 1
    for token in tokens:
        end = token.end
        if token.name == opening.name and token.kind == "open":
            depth += 1
        elif token.name == opening.name and token.kind == "close":
            depth -= 1
        if depth == 0:
            break
    return end


def unescaped(text: str) -> str:
    """Return a text with characters instead of references."""
    return html.unescape(_LONG_NUMBER.sub("99999999", text))


def without_tags(text: str) -> str:
    """Return the characters of a text with tags."""
    characters = []
    for token in _tokens(text):
        # A "<" that begins no tag is a character.
        if token.kind in ("text", "bad"):
            characters.append(text[token.start : token.end])
    return unescaped("".join(characters))


def is_untranslated(tag: str) -> bool:
    """Return whether an opening tag says that its element is not translated."""
    for attribute in attributes(tag):
        value = attribute.value.strip().lower()
        if attribute.name == "translate" and value == "no":
            return True
        if attribute.name == "class" and "notranslate" in value.split():
            return True
    return False


def kind_of_whole(tag: str, text: str) -> str | None:
    """Return the kind of the item that an inline element becomes as a whole, with its tags. None if it has two tags.

    Args:
        tag: its opening tag.
        text: the characters in it.
    """
    name = _TOKEN.match(tag)["name"].lower()
    is_mark = name in _RAISED and not has_letters(text)
    if name in _UNTOUCHED or is_mark or is_untranslated(tag):
        return _whole(name, tag, text).kind
    return None


def _edited(piece: _Piece, edit: Callable[[str], str]) -> _Piece:
    """Return a piece in which a function has edited the tag, if it is an opening or empty one."""
    tag = None
    if piece.kind != "text":
        tag = _TOKEN.fullmatch(piece.raw)
    is_start = tag is not None and tag["name"] and not tag["end"]
    if is_start:
        return piece._replace(raw=edit(piece.raw))
    return piece


def _run(pieces: Sequence[_Piece], line: int) -> Run:
    """Join pieces. What is no text is an item, at its place in the text."""
    texts = []
    items = []
    place = 0
    for piece in pieces:
        end = place + len(piece.text)
        texts.append(piece.text)
        if piece.kind != "text":
            items.append(Item(piece.kind, piece.raw, place, end))
        place = end

    raw = "".join(piece.raw for piece in pieces)
    return Run("".join(texts), items, raw, line)


class _Reader:
    """Reads the pieces of a source, and checks that elements enclose each other."""

    def __init__(self, source: str, ignored: Container[str] = (), is_part: bool = False) -> None:
        self._source = source
        self._ignored = ignored
        tokens = list(_tokens(source))
        # XML may close elements that have no end in HTML, such as XLIFF's <source>.
        self._void = _VOID - {token.name for token in tokens if token.kind == "close"}

        # Where tags without a partner start.
        self._unpaired: Container[int] = ()
        if is_part:
            self._unpaired = _unpaired(tokens, self._void)

        self._tokens = iter(tokens)
        self._pieces: list[_Piece] = []
        # The first one is around everything.
        self._open_elements = [_Element("")]

    def pieces(self) -> list[_Piece]:
        """Return the pieces. Joined, they are the source."""
        for token in self._tokens:
            next_step()
            raw = self._source[token.start : token.end]
            if token.kind == "bad":
                raise _error(self._source, token.start, "is a tag that does not end. Write &lt; for <.")

            if token.kind == "text":
                self._pieces += _text_pieces(raw)
            elif token.start in self._unpaired:
                self._pieces.append(_Piece("block", raw))
            elif token.kind == "point" or token.name in self._void:
                self._add("point", token.name in BLOCKS, raw)
            elif token.kind == "close":
                self._close(token, raw)
            elif token.name in _UNTOUCHED or token.name in self._ignored or is_untranslated(raw):
                self._pieces.append(self._untouched(token))
            else:
                self._open(token, raw)

        for element in self._open_elements[1:]:
            if element.name not in _END_MAY_LACK:
                raise _error(self._source, element.start, "is not closed")
        return self._pieces

    def _add(self, kind: str, is_block: bool, raw: str) -> None:
        """Add the piece of a tag. Those of block elements are all alike."""
        self._pieces.append(_Piece("block" if is_block else kind, raw))

    def _open(self, token: _Token, raw: str) -> None:
        outer = self._open_elements[-1]
        is_block = token.name in BLOCKS or (token.name == "a" and outer.is_navigation)
        is_navigation = token.name == "nav" or (outer.is_navigation and token.name != "p")

        depth = outer.depth
        # Each inline element becomes a level of recursion, and a block none.
        if not is_block:
            depth += 1
        if depth > _DEEPEST:
            raise _error(self._source, token.start, f"is within {_DEEPEST} other elements")

        element = _Element(token.name, token.start, len(self._pieces), depth, is_block, is_navigation)
        self._open_elements.append(element)
        self._add("open", is_block, raw)

    def _close(self, token: _Token, raw: str) -> None:
        elements = self._open_elements
        while elements[-1].name != token.name and elements[-1].name in _END_MAY_LACK:
            elements.pop()
        if elements[-1].name != token.name:
            problem = "closes a tag that is not open, or not the last one that was opened"
            raise _error(self._source, token.start, problem)

        element = elements.pop()
        first = element.first
        self._add("close", element.is_block, raw)

        # The model would change what has no letters, such as a number.
        if not element.is_block and _is_number(self._pieces, first):
            pieces = self._pieces[first:]
            all_raw = "".join(piece.raw for piece in pieces)
            text = "".join(piece.text for piece in pieces)
            self._pieces[first:] = [_whole(token.name, all_raw, text)]

    def _untouched(self, opening: _Token) -> _Piece:
        """Read an element whose contents stay as they are, up to its end."""
        depth = 1
        texts = []
        for token in self._tokens:
            if token.kind in ("text", "bad"):
                texts.append(self._source[token.start : token.end])
            elif token.name == opening.name and token.kind == "open":
                depth += 1
            elif token.name == opening.name and token.kind == "close":
                depth -= 1
            if depth == 0:
                raw = self._source[opening.start : token.end]
                return _whole(opening.name, raw, unescaped("".join(texts)))

        raise _error(self._source, opening.start, f"is not closed by </{opening.name}>")


def _unpaired(tokens: Sequence[_Token], void: Container[str]) -> set[int]:
    """Return where the tags start whose other tag is not among the tokens, or crosses another element."""
    unpaired = set()
    open_tags: list[_Token] = []
    num_open: Counter[str] = Counter()
    for token in tokens:
        if token.kind == "open" and token.name not in void:
            open_tags.append(token)
            num_open[token.name] += 1
        elif token.kind == "close" and not num_open[token.name]:
            unpaired.add(token.start)
        elif token.kind == "close":
            partner = None
            while partner is None or partner.name != token.name:
                if partner is not None and partner.name not in _END_MAY_LACK:
                    unpaired.add(partner.start)
                partner = open_tags.pop()
                num_open[partner.name] -= 1

    for tag in open_tags:
        if tag.name not in _END_MAY_LACK:
            unpaired.add(tag.start)
    return unpaired


def _is_number(pieces: Sequence[_Piece], first: int) -> bool:
    """Return whether the pieces of an element have numbers or symbols, but no letters and no blocks."""
    has_number = False
    for number in range(first, len(pieces)):
        piece = pieces[number]
        categories = {unicodedata.category(character)[0] for character in piece.text}
        if "L" in categories or piece.kind == "block":
            return False
        has_number = has_number or not categories.isdisjoint("NS")
    return has_number


def _tokens(source: str) -> Iterator[_Token]:
    place = 0
    dead_ends: set[int] = set()
    while place < len(source):
        next_step()
        tag = _START.search(source, place)
        start = len(source)
        if tag is not None:
            start = tag.start()

        if place < start:
            yield _Token("text", "", place, start)
        if tag is None:
            return

        token = _tag(source, start, dead_ends)
        yield token
        place = token.end


def _tag(source: str, start: int, dead_ends: set[int]) -> _Token:
    """Return the tag, comment, declaration or instruction that starts at a place."""
    is_tag = source[start + 1] not in "!?"
    if is_tag and not _ends(source, start, dead_ends):
        return _Token("bad", "", start, start + 1)

    match = _TOKEN.match(source, start)
    if match is None:
        # At once, since each of them would be searched up to the end of the source.
        raise _error(source, start, "does not end, or holds declarations")

    name = (match["name"] or "").lower()
    if not name or match[0].endswith("/>"):
        return _Token("point", name, start, match.end())
    if match["end"]:
        return _Token("close", name, start, match.end())

    if name in ("script", "style"):
        # What is in them may look like tags.
        end = regex.compile(rf"(?i)</{name}\s*>").search(source, match.end())
        if end is None:
            raise _error(source, start, f"is not closed by </{name}>")
        return _Token("point", name, start, end.end())
    return _Token("open", name, start, match.end())


def _ends(source: str, start: int, dead_ends: set[int]) -> bool:
    """Return whether the tag that starts at a place has an end.

    Args:
        source: the text.
        start: the place of its "<".
        dead_ends: the places behind quoted values from which a tag was not found to end. Those of this tag are added,
            since a value may have the beginnings of many tags, and all would be followed over the same values.
    """
    name = _TAG_NAME.match(source, start)
    if name is None:
        return False

    place = name.end()
    places = []
    while place not in dead_ends:
        part = _TAG_PART.match(source, place)
        if part is None:
            break
        place = part.end()
        if source[place - 1] == ">":
            return True
        places.append(place)

    dead_ends.update(places)
    return False


def _whole(name: str, raw: str, text: str) -> _Piece:
    """Return an element that stays as it is: kept as a word of the sentence, or between its words."""
    is_noun = name in _SHOWN or name not in _UNTOUCHED | BLOCKS | _RAISED
    if text.strip() and is_noun:
        return _Piece("kept", raw, text)
    return _Piece("block" if name in BLOCKS else "point", raw)


def _text_pieces(raw: str) -> Iterator[_Piece]:
    """Split off references to entities that HTML does not know."""
    start = 0
    for match in _NAMED.finditer(raw):
        # unescaped() would read &notice; as &not and ice;.
        if match[1] in html5:
            continue
        yield from _plain_text(raw[start : match.start()])
        yield _Piece("kept", match[0], match[0])
        start = match.end()
    yield from _plain_text(raw[start:])


def _plain_text(raw: str) -> Iterator[_Piece]:
    if raw:
        yield _Piece("text", raw, unescaped(_REFERENCE.sub(_without_break, raw)))


def _without_break(match: regex.Match) -> str:
    """Return a reference, or a space instead of a line break, so that lines stay lines."""
    character = unescaped(match[0])
    is_break = len(character) == 1 and len(f"{character}.".splitlines()) == 2
    if is_break:
        return " "
    return match[0]


def _error(source: str, start: int, problem: str) -> UserError:
    line = source.count("\n", 0, start) + 1
    column = start - source.rfind("\n", 0, start)
    tag = _BEGINNING.match(source, start)[0]
    return UserError(f"{tag:.80} (line {line}, column {column}) {problem}")
