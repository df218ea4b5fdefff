"""Properties of Java: values are translated, and keys, comments and all else stay."""

import re
from functools import partial

from .accelerators import Accelerators
from .base import Document, FileFormat
from .messages import Message, PlacedMessages, without_halves
from .placeholders import PLACEHOLDERS, is_code

_ENTRY = re.compile(
    rb"""(?:\A|(?<=[\r\n]))[ \t\f]*+(?![#!\r\n])
    (?P<key>(?:\\(?:\r\n|[\r\n])[ \t\f]*+|\\.|[^\\\s:=])*+)
    # A backslash in front of a line end continues the line, also between key and value.
    (?:[ \t\f]|\\(?:\r\n|[\r\n]))*+(?:[:=](?:[ \t\f]|\\(?:\r\n|[\r\n]))*+)?
    (?P<value>(?:\\(?:\r\n|.)|[^\\\r\n])*+)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|(?P<end>(?:\r\n|[\r\n])[ \t\f]*)|(?P<one>.))", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNIT = re.compile(r"[^\x00-\x7f]")
# java.text.MessageFormat reads ' as the start of a quote, except in messages without arguments.
_ARGUMENT = re.compile(r"\{\d+[,}]")
_KEEP = rf"'[{{}}]+'|{PLACEHOLDERS}"
_QUOTED = re.compile(r"('\{[^']*'|'[{}]+')|'+")


class JavaProperties(FileFormat):
    """Properties of Java with messages."""

    name = "properties"
    title = "properties of Java"
    suffixes = (".properties",)
    has_other_contents = True

    def read(self, data: bytes, target_lang: str | None = None) -> Document:
        """Read a file, in Latin-1 if it is not UTF-8, as both are allowed."""
        encoding = "utf-8"
        try:
            data.decode()
        except UnicodeDecodeError:
            encoding = "latin-1"
        document = PlacedMessages(data, encoding)
        _add_messages(document, data, encoding)
        return document


def _add_messages(document: PlacedMessages, data: bytes, encoding: str) -> None:
    # In a file that shows its encoding other characters can stand. References mean the same in both.
    is_ascii = encoding == "latin-1" or data.isascii()
    entries = list(_ENTRY.finditer(data))
    values = [_unescaped(match["value"].decode(encoding)) for match in entries]
    # Of SWT, NetBeans and others.
    accelerators = Accelerators(values, "&")

    for match, value in zip(entries, values):
        if is_code(value):
            continue
        has_arguments = _ARGUMENT.search(value) is not None
        if has_arguments:
            value = value.replace("''", "'")
        write = partial(_written, is_ascii=is_ascii, has_arguments=has_arguments)
        key = _unescaped(match["key"].decode(encoding))
        document.add(
            match.start("value"), match.end("value"), Message(value, _KEEP, accelerators=accelerators), write, unit=key
        )


def _unescaped(written: str) -> str:
    """Return a key or value without escapes. Characters above U+FFFF are two references."""
    return without_halves(_ESCAPE.sub(_character, written))


def _character(match: re.Match) -> str:
    """Return the character of an escape, and nothing for a line break that only continues the line."""
    if match["code"]:
        return chr(int(match["code"], 16))
    if match["end"] is not None:
        return ""
    return _ESCAPED.get(match["one"], match["one"])


def _written(message: str, is_ascii: bool, has_arguments: bool) -> str:
    """Return the value of an entry."""
    if has_arguments:
        # Nobody takes this one for a quote, whether the program reads them or not.
        message = _QUOTED.sub(lambda match: match[1] or "’", message)

    value = message.replace("\\", "\\\\")
    for letter, character in _ESCAPED.items():
        value = value.replace(character, f"\\{letter}")
    if value.startswith((" ", "=", ":")):
        value = f"\\{value}"

    if is_ascii:
        return _UNIT.sub(_references, value)
    return value


def _references(match: re.Match) -> str:
    """Return a character as a reference, or as two if it is above U+FFFF."""
    digits = match[0].encode("utf-16-be").hex()
    references = []
    for start in range(0, len(digits), 4):
        references.append(f"\\u{digits[start : start + 4]}")
    return "".join(references)
