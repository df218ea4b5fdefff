"""Strings of Android (`strings.xml`): strings, plurals and arrays are translated, and all else stays."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape

from hf_capsule_mt.errors import UserError

from .base import Document, FileFormat, Reason
from .messages import Message, PlacedMessages
from .placeholders import PLACEHOLDERS, is_code
from .xml_elements import Element, first_element_is, read_elements

_CDATA = re.compile(
    rb"""(\s*<!\[CDATA\[)
    ((?:(?!\]\]>).)*+ (?:\]\]>\s*<!\[CDATA\[ (?:(?!\]\]>).)*+)*+)
    (\]\]>\s*)""",
    re.DOTALL | re.VERBOSE,
)
"""A string of nothing but sections of characters."""
_BETWEEN_SECTIONS = re.compile(r"\]\]>(\s*)<!\[CDATA\[")
_SECTION = re.compile(r"<!\[CDATA\[((?:(?!\]\]>|<!\[CDATA\[).)*+)\]\]>", re.DOTALL)
_QUOTED = re.compile(r'"(?:.*[^\\])?"', re.DOTALL)
"""A string between quotes, of which the last one is no character itself."""
# What looks like another beginning ends a comment and a part of CDATA, so that none is searched to the end many times.
_TAG = re.compile(r"(<!--(?:(?!-->|<!--).)*+-->|<!\[CDATA\[(?:(?!\]\]>|<!\[CDATA\[).)*+\]\]>|<[^<>]+>)", re.DOTALL)
_SPACES = re.compile(r"\s+")
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|(?P<one>.))", re.DOTALL)
_OPEN_QUOTE = re.compile(r'(?<!\\)(?:\\\\)*"')
"""A quote in front of which no backslash stands, or only backslashes that are characters themselves."""
_PLAIN_QUOTE = re.compile(r"""(?<!\\)(["'])""")
_MARKUP = ("&", "<")
"""Characters that would be read as XML, so their escapes stay."""
_DECODED = {"n": "\n", "'": "'", '"': '"', "@": "@", "?": "?"}
# Tags that stand in a string as characters, and escapes that are not decoded.
_KEEP = rf"</?[a-zA-Z][^<>]*>|\\u[0-9a-fA-F]{{4}}|\\.|{PLACEHOLDERS}"
_IGNORED_TAGS = ("xliff:g",)


class AndroidStrings(FileFormat):
    """Resources of Android."""

    name = "android"
    title = "strings of Android"
    suffixes = ()

    def is_begun_by(self, beginning: str) -> bool:
        """Return whether the first element has resources."""
        return first_element_is("resources", beginning)

    def read(self, data: bytes, target_lang: str | None = None) -> Document:
        """Read a file."""
        elements = read_elements(data)
        root = elements[0]
        if root.name != "resources":
            raise UserError("The first element is not <resources>.")
        if "xmlns" in root.attributes:
            raise UserError(
                "<resources> has the attribute xmlns, which Android does not read. Remove it if these are its strings."
            )

        document = PlacedMessages(data)
        names = _names(elements)
        for element in _strings(elements):
            _add_message(document, data, element, names[element.start])
        return document


def _strings(elements: Iterable[Element]) -> Iterator[Element]:
    """Yield the elements that have a message."""
    string_end = 0
    for element in elements:
        is_item = element.name == "item" and element.parent.name in ("string-array", "plurals")
        if not (is_item or element.name == "string"):
            continue
        # A string in a string is part of its message.
        if element.start < string_end:
            continue
        string_end = element.end
        yield element


def _names(elements: Iterable[Element]) -> dict[int, str]:
    """Return the names of strings by their places: "title", "files[one]" of plurals, "planets[0]" of an array."""
    names = {}
    # Of each array, by its place.
    num_items: Counter[int] = Counter()

    for element in elements:
        name = element.attributes.get("name", "")
        if element.name == "item" and element.parent is not None:
            around = element.parent
            form = element.attributes.get("quantity", num_items[around.start])
            name = f"{around.attributes.get('name', '')}[{form}]"
            num_items[around.start] += 1
        names[element.start] = name
    return names


def _add_message(document: PlacedMessages, data: bytes, element: Element, name: str) -> None:
    """Add the message in an element, if it is one. A space at an end means nothing in XML, and stays."""
    start = element.inner_start
    end = element.inner_end
    cdata = _CDATA.fullmatch(data, start, end)
    if cdata is not None:
        start, end = cdata.span(2)

    inner = data[start:end].strip()
    start = data.index(inner, start)
    end = start + len(inner)

    raw = inner.decode()
    if cdata is not None:
        raw = _BETWEEN_SECTIONS.sub(r"\1", raw)
    else:
        # References mean the same, and can stand next to tags.
        raw = _SECTION.sub(lambda section: escape(section[1], quote=False), raw)

    is_quoted = _QUOTED.fullmatch(raw) is not None
    if is_quoted:
        raw = raw[1:-1]
        start += 1
        end -= 1

    if is_code(_TAG.sub("", raw)):
        return
    if element.stays:
        document.keep(Reason.TO_STAY, start, raw)
        return

    # Only in quotes the spaces count.
    spaced = raw
    if not is_quoted:
        spaced = _SPACES.sub(" ", raw)
    characters = _without_escapes(spaced)
    if characters is None:
        document.keep(Reason.QUOTES, start, raw)
        return

    message = Message(characters, _KEEP, tags=cdata is None, signs="\\", ignored_tags=_IGNORED_TAGS)
    write = _written if cdata is None else _written_in_cdata
    document.add(start, end, message, write, unit=name)


def _without_escapes(raw: str) -> str | None:
    """Return a string with characters instead of escapes, or None if only some of its spaces count.

    A quote begins or ends a part whose spaces count, and no translation would keep it.
    """
    parts = []
    for part in _TAG.split(raw):
        if not part.startswith("<"):
            if _OPEN_QUOTE.search(part):
                return None
            part = _ESCAPE.sub(_character, part)
        parts.append(part)
    return "".join(parts)


def _character(escape: re.Match) -> str:
    """Return the character of an escape, or the escape itself if it must stay."""
    if escape["code"]:
        character = chr(int(escape["code"], 16))
        if character.isprintable() and character not in _MARKUP:
            return character
        return escape[0]
    return _DECODED.get(escape["one"], escape[0])


def _written(message: str) -> str:
    """Return the message as it stands in the file."""
    parts = []
    for part in _TAG.split(message):
        if not part.startswith("<"):
            part = _PLAIN_QUOTE.sub(r"\\\1", part).replace("\n", "\\n")
        parts.append(part)
    written = "".join(parts)
    # Android would read it as the name of another resource, or of a style.
    if written.startswith(("@", "?")):
        return f"\\{written}"
    return written


def _written_in_cdata(message: str) -> str:
    """Return the message as it stands in a section of characters, which `]]>` would end."""
    return _written(message).replace("]]>", "]]]]><![CDATA[>")
