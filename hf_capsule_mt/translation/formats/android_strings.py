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
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|(?P<one>.))", re.DOTALL)
_OPEN_QUOTE = re.compile(r'(?<!\\)(?:\\\\)*"')
"""A quote in front of which no backslash stands, or only backslashes that are characters themselves."""
_PLAIN_QUOTE = re.compile(r"""(?<!\\)(["'])""")
_MARKUP = ("&", "<")
"""Characters that would be read as XML, so their escapes stay."""
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
    # Only in quotes the spaces count.
    spaced = raw if is_quoted else re.sub(r"\s+", " ", raw)
    decoded_parts = []
    for part in _TAG.split(spaced):
        if part.startswith("<"):
            decoded_parts.append(part)
        elif _OPEN_QUOTE.search(part):
            # It begins or ends a part whose spaces count, which no translation would keep.
            return
        else:
            decoded_parts.append(_ESCAPE.sub(_character, part))
    if is_code(_TAG.sub("", raw)):
        return
    message = "".join(decoded_parts).replace("<xliff:g", f"<xliff:g{_STAYS}")
    yield PlacedMessage(start, start + len(raw), Message(message, _KEEP, tags=cdata is None), _written)


def _character(escape: re.Match) -> str:
    """Return the character of an escape, or the escape itself if it must stay."""
    if escape["code"]:
        character = chr(int(escape["code"], 16))
        return character if character.isprintable() and character not in _MARKUP else escape[0]
    return _DECODED.get(escape["one"], escape[0])


def _written(message: str) -> str:
    """Return the message as it stands in the file."""
    parts = []
    for part in _TAG.split(message.replace(_STAYS, "")):
        if not part.startswith("<"):
            part = _PLAIN_QUOTE.sub(r"\\\1", part).replace("\n", "\\n")
        parts.append(part)
    written = "".join(parts)
    # Android would read it as the name of another resource, or of a style.
    return f"\\{written}" if written.startswith(("@", "?")) else written
