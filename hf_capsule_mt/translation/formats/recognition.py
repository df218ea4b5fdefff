"""Recognise the format of a file by its name and its beginning, and refuse what would be translated wrongly."""

import codecs
from pathlib import Path

from hf_capsule_mt.data.lines import opened, without_compression
from hf_capsule_mt.errors import UserError

from .android_strings import AndroidStrings
from .base import FileFormat
from .gettext_catalogue import Catalogue
from .html_page import HtmlPage
from .java_properties import JavaProperties
from .json_messages import JsonMessages
from .markdown import Markdown
from .messages import is_named_as_messages
from .plain_text import is_plain_text
from .subtitles import Subtitles
from .xliff import Xliff

_ALL = (
    Markdown(),
    HtmlPage(),
    Subtitles("srt", "SubRip subtitles", is_vtt=False),
    Subtitles("vtt", "WebVTT subtitles", is_vtt=True),
    Catalogue(),
    Xliff(),
    JsonMessages(),
    AndroidStrings(),
    JavaProperties(),
)
FORMATS: dict[str, FileFormat] = {file_format.name: file_format for file_format in _ALL}
"""The formats by the names that `--format` takes."""
LINES = "lines"
"""The name of files that have a sentence in each line."""

HEAD_BYTES = 8192
"""How much of a file tells its format."""
# How files that are no text begin.
_BINARY_BEGINNINGS = {
    b"%PDF-": "a PDF file",
    b"PK\x03\x04": "a zip file, such as those of Word, PowerPoint, LibreOffice and EPUB",
    b"{\\rtf": "a file of Rich Text Format",
    b"%!PS": "a PostScript file",
    codecs.BOM_UTF16_LE: "text in UTF-16. Convert it to UTF-8",
    codecs.BOM_UTF16_BE: "text in UTF-16. Convert it to UTF-8",
}
_WAY_AROUND = "pandoc makes Markdown of many formats: pandoc FILE -o text.md."


def recognise(path: Path, name: str | None = None, *, tags: bool = False) -> FileFormat | None:
    """Return the format of a file, or None for lines of text.

    Args:
        path: the file, which may be compressed.
        name: the format that the user names, or [`LINES`]. By default the name and the beginning of the file tell.
        tags: whether the user says that it is text with tags of XML or HTML, so that no kind of XML is refused.

    Raises:
        UserError: if the file is no text, or of a format that is not supported.
    """
    with opened(path) as file:
        head = file.read(HEAD_BYTES)
    if not tags or name is not None:
        return recognise_contents(path, head, name)
    return _known_format(path, _beginning(path, head))


def recognise_contents(path: Path, head: bytes, name: str | None = None) -> FileFormat | None:
    """Return the format of a file by its first bytes, or None for lines of text.

    Args:
        path: tells the name of the file, which need not be on a disk.
        head: its first `HEAD_BYTES` bytes.
        name: as in [`recognise`].

    Raises:
        UserError: if the file is no text, or of a format that is not supported.
    """
    beginning = _beginning(path, head)
    if name == LINES:
        return None
    if name is not None:
        if name not in FORMATS:
            raise UserError(f"There is no format {name!r}. There are {', '.join(FORMATS)}.")
        return FORMATS[name]
    file_format = _known_format(path, beginning)
    if file_format is None and not is_plain_text(without_compression(path), beginning):
        raise UserError(
            f"{path} is of no format that is supported, so translating its lines would damage it. If it is plain text, "
            f"give --format {LINES}. There are also {', '.join(FORMATS)}. For XML give --tags. {_WAY_AROUND}"
        )
    return file_format


def _known_format(path: Path, beginning: str) -> FileFormat | None:
    """Return the format that the beginning of a file or its name tells, or None.

    Raises:
        UserError: if it may have other contents than messages.
    """
    for file_format in FORMATS.values():
        if file_format.is_begun_by(beginning):
            return file_format
    suffix = without_compression(path).suffix.lower()
    for file_format in FORMATS.values():
        if suffix in file_format.suffixes:
            if file_format.has_other_contents and not is_named_as_messages(path):
                raise UserError(
                    f"{path} may have other strings than messages. If a program shows them to its users, give "
                    f"--format {file_format.name}."
                )
            return file_format
    return None


def _beginning(path: Path, head: bytes) -> str:
    """Return the beginning of a text file.

    Raises:
        UserError: if the file is no text.
    """
    for signature, kind in _BINARY_BEGINNINGS.items():
        if head.startswith(signature):
            raise UserError(f"{path} is {kind}. Only text can be translated. {_WAY_AROUND}")
    if b"\0" in head:
        raise UserError(f"{path} is no text: it has NUL bytes. Only text in UTF-8 can be translated.")
    return head.decode(errors="replace").removeprefix("\ufeff").lstrip()
