"""Strings of Android (`strings.xml`): strings, plurals and arrays are translated, and all else stays."""

import re
from collections.abc import Iterator

from lxml import etree

from hf_capsule_mt.errors import UserError

from .base import Document, FileFormat, decoded
from .messages import Message
from .placed_messages import PlacedMessage, PlacedMessages
from .placeholders import PLACEHOLDERS, is_code

_PART = re.compile(
    r"""<!--.*?-->|<!\[CDATA\[.*?\]\]>
    |<(?P<name>string-array|string|plurals|item)(?=[\s/>])(?P<attributes>(?:"[^"]*"|'[^']*'|[^"'>])*)>
    |</(?P<end>string-array|plurals)\s*>""",
    re.DOTALL | re.VERBOSE,
)
_CDATA = re.compile(r"(\s*<!\[CDATA\[)(.*)(\]\]>\s*)", re.DOTALL)
_TAG = re.compile(r"(<!--.*?-->|<!\[CDATA\[.*?\]\]>|<[^<>]+>)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_DECODED = {"n": "\n", "'": "'", '"': '"', "@": "@", "?": "?"}
# Tags that stand in a string as characters, and escapes that are not decoded.
_KEEP = rf"</?[a-zA-Z][^<>]*>|\\.|{PLACEHOLDERS}"
_STAYS = ' translate="no"'


class AndroidStrings(FileFormat):
    """Resources of Android."""

    name = "android"
    title = "strings of Android"
    suffixes = ()

    def is_begun_by(self, beginning: str) -> bool:
        """Return whether the first element has resources."""
        return re.match(r"(?:<\?.*?\?>|<!--.*?-->|\s)*<resources[\s>]", beginning, re.DOTALL) is not None

    def read(self, data: bytes, target_lang: str | None = None) -> Document:
        """Read a file."""
        content = decoded(data)
        try:
            # An entity could read other files.
            root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
        except etree.XMLSyntaxError as error:
            raise UserError(f"The XML is damaged: {error}") from error
        if root.tag != "resources":
            raise UserError("The first element is not <resources>.")
        return PlacedMessages(content, list(_messages(content)))


def _messages(content: str) -> Iterator[PlacedMessage]:
    group_is_translated = False
    for part in _PART.finditer(content):
        attributes = part["attributes"] or ""
        is_translated = re.search(r"""translatable\s*=\s*["']false""", attributes) is None
        is_group = part["name"] in ("string-array", "plurals")
        if part["end"] or is_group:
            group_is_translated = is_group and is_translated
        is_message = part["name"] == "string" or (part["name"] == "item" and group_is_translated)
        if is_message and is_translated and not attributes.endswith("/"):
            end = content.index(f"</{part['name']}", part.end())
            yield from _message(content, part.end(), end)


def _message(content: str, start: int, end: int) -> Iterator[PlacedMessage]:
    """Yield the message between two places, if it is one. A space at an end means nothing in XML, and stays."""
    cdata = _CDATA.fullmatch(content, start, end)
    if cdata is not None:
        start, end = cdata.span(2)
    raw = content[start:end].strip()
    start = content.index(raw, start)
    is_quoted = len(raw) > 1 and raw[0] == raw[-1] == '"' and raw[-2] != "\\"
    if is_quoted:
        raw = raw[1:-1]
        start += 1
    parts = _TAG.split(raw if is_quoted else re.sub(r"\s+", " ", raw))
    decoded_parts = [part if part.startswith("<") else _decoded(part) for part in parts]
    # A quote without a backslash begins or ends a part whose spaces count.
    if None in decoded_parts or is_code(_TAG.sub("", raw)):
        return
    message = "".join(decoded_parts).replace("<xliff:g", f"<xliff:g{_STAYS}")
    yield PlacedMessage(start, start + len(raw), Message(message, _KEEP, tags=cdata is None), _written)


def _decoded(text: str) -> str | None:
    """Return a text between two tags without escapes, or None if it has a quote that is not escaped."""
    if re.search(r'(?<!\\)(?:\\\\)*"', text):
        return None

    def character(match: re.Match) -> str:
        if match[1] and chr(int(match[1], 16)).isprintable() and match[1] not in ("0026", "003c", "003C"):
            return chr(int(match[1], 16))
        return _DECODED.get(match[2], match[0])

    return _ESCAPE.sub(character, text)


def _written(message: str) -> str:
    """Return the message as it stands in the file."""
    parts = []
    for part in _TAG.split(message.replace(_STAYS, "")):
        if not part.startswith("<"):
            part = re.sub(r"""(?<!\\)(["'])""", r"\\\1", part).replace("\n", "\\n")
        parts.append(part)
    written = "".join(parts)
    return f"\\{written}" if written.startswith(("@", "?")) else written
