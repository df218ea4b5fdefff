"""Recognise the format of a file by its name and its beginning, and refuse what would be translated wrongly.

A file without a format must have lines of text, which are translated one by one. A program or a table would be damaged.
"""

import codecs
import re
from pathlib import Path

from hf_capsule_mt.data.lines import opened, without_compression
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.language_tags import is_language, language_of

from .android_strings import AndroidStrings
from .base import FileFormat
from .gettext_catalogue import Catalogue
from .html_page import HtmlPage
from .java_properties import JavaProperties
from .json_messages import JsonMessages
from .markdown import Markdown
from .messages import is_named_as_messages
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

_ENDINGS = (
    "txt text lines sentences in input out output src source tgt trg target ref reference hyp mt pe tok detok clean "
    "train valid val dev test"
)
"""Endings of the names of texts, as people and programs of machine translation choose them."""
_NOT_LANGUAGES = ("asm", "mol", "run")
"""Endings of programs and molecules, although Assamese, Moldavian and Rundi are called so."""
_ALSO_PROGRAMS = "am as cr cs cu el gd gv in ko ks la lo mk ml ms pl ps sc st sv te tr ts tt"
"""Endings of texts that programs and settings have too, such as Polish and Perl."""
_LANGUAGE = re.compile(r"\.([a-z]{2,3})(?:[-_](?:(?P<script>[A-Z][a-z]{3})|[A-Za-z]{2,4}))?")
"""An ending such as ".de", ".deu", ".pt_BR" or ".ace_Latn"."""
_CODE = re.compile(
    r"""\s*+(?:
    (?P<statement>.*[;{\\]$)                    # Of its first line, too, and of a line that goes on.
    |(?P<block>.*(?:[\s)]\}|^\})$)
    |(?P<comment>\#|//|/\*|\*/|%|\.\\"|'\\")    # Also of TeX or of a page of a manual.
    |(?P<command>\.[A-Za-z]{1,3}\b|[\\@$;]|&&)  # Also of a page of a manual, a decorator, a variable.
    |(?P<section>\[[^\]]*\]$)
    |(?P<setting>[\w.-]+\s*(?:=|:=|:$)          # One, or the beginning of several.
        |[\w.-]+:\s.*[^.?!…"'”’»)。？！]$)        # A sentence would have an end.
    |(?P<element><.*>$|\{\w*\}$)
    |(?P<name>(?=[^\s/_=]*[/_=])\S++$)
    |(?P<row>\S.*\t|[^\s:]*:[^\s:]*:)
    )""",
    re.VERBOSE,
)
"""Begins like a line of a program, of settings, of a table or of a page of a manual."""
_KINDS_OF_CODE = {
    "statement": "the end of a statement",
    "block": "the end of a block",
    "comment": "a comment",
    "command": "a command",
    "section": "the name of a section",
    "setting": "a setting",
    "element": "an element of XML",
    "name": "a path, or a name of programmers",
    "row": "a row of a table",
    "signs": "a line of signs",
}
"""What lines of code look like, by the groups of the expression. The last one is for all other lines."""
_ALSO_IN_TEXTS = ("comment", "section")
"""Kinds of lines that texts have too, such as "#MeToo", "% of people" and "[Applause]"."""
_PLACEHOLDER = re.compile(r">>[\w.-]+<<|<2\w+>|</?[a-zA-Z][^<>]*>|\{\w*\}")
"""Signs that texts have too. The first two are codes of languages that multilingual models read."""
_SIGN = re.compile(r"[{}\[\]()<>=\\|/_*#~^$+]")
_MOST_SIGNS = 0.08
"""The largest share of signs in the characters of a line of text."""
_MOST_CODE = 0.3
"""The largest share of lines of code in a text whose name has no ending."""
_MOST_CODE_OF_TEXTS = 0.5
"""The same for a text whose name says that it is one. Messages of programs have many signs."""
_MOST_LINES = 100
"""Lines that are looked at."""
_CODE_BEGINNINGS = ("#", "//", "/*", "{", "[", ";", "<", '"""', "%", "-----BEGIN ", '.\\"', "'\\\"")
"""How files begin with a comment, with data or with a key."""
_DATA = re.compile(r'[{\[]\s*(?:$|["{\[])|<[?!]')
"""How JSON and XML begin. A text may begin with "[Applause]"."""


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
    if file_format is None:
        reason = _why_no_text(without_compression(path), beginning)
        if reason is not None:
            raise UserError(
                f"{path} is of no format that is supported, so translating its lines would damage it. {reason} If it "
                f"is plain text, give --format {LINES}. There are also {', '.join(FORMATS)}. For XML give --tags. "
                f"{_WAY_AROUND}"
            )
    return file_format


def _known_format(path: Path, beginning: str) -> FileFormat | None:
    """Return the format that the beginning of a file or its name tells, or None.

    Raises:
        UserError: if it may have other contents than messages.
    """
    beginning = beginning.lstrip()
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
    return head.decode(errors="replace").removeprefix("\ufeff")


def _why_no_text(path: Path, beginning: str) -> str | None:
    """Return a sentence that says why a file has no lines of text, or None if it has.

    Args:
        path: its name without an ending of compression.
        beginning: its beginning.
    """
    if not _has_name_of_text(path):
        return f"Names that end in {path.suffix} are not those of texts."
    lines = _first_lines(beginning)
    if not lines:
        return None

    number, first_line = lines[0]
    first_line = _PLACEHOLDER.sub("", first_line)
    most_code = _MOST_CODE
    if path.suffix:
        most_code = _MOST_CODE_OF_TEXTS

    allowed: tuple[str, ...] = ()
    if _is_certainly_of_text(path):
        allowed = _ALSO_IN_TEXTS
        is_begun = _DATA.match(first_line) is not None
    else:
        is_begun = first_line.startswith(_CODE_BEGINNINGS)
    if is_begun:
        return f"Line {number} looks like the beginning of a program, of data or of a key: {lines[0][1][:60]!r}."

    code = []
    for number, line in lines:
        kind = _kind_of_code(line)
        if kind is not None and kind not in allowed:
            code.append((number, kind, line))
    if len(code) <= most_code * len(lines):
        return None

    number, kind, line = code[0]
    count = f"{len(code)} of its first {len(lines)} lines look like code."
    return f"{count} Line {number} looks like {_KINDS_OF_CODE[kind]}: {line[:60]!r}."


def _first_lines(beginning: str) -> list[tuple[int, str]]:
    """Return the first lines that are not blank, with their numbers from 1."""
    lines = []
    for number, line in enumerate(beginning.split("\n"), 1):
        if line.strip():
            lines.append((number, line.rstrip()))
    return lines[:_MOST_LINES]


def _has_name_of_text(path: Path) -> bool:
    """Return whether the name has no ending, or one of text, such as "test.de.2016"."""
    return not path.suffix or any(map(_is_ending_of_text, path.suffixes))


def _is_certainly_of_text(path: Path) -> bool:
    """Return whether only texts have such names."""
    is_also_of_programs = path.suffix.removeprefix(".") in _ALSO_PROGRAMS.split()
    return bool(path.suffix) and not is_also_of_programs


def _is_ending_of_text(suffix: str) -> bool:
    if suffix.lower().removeprefix(".") in _ENDINGS.split():
        return True
    match = _LANGUAGE.fullmatch(suffix)
    if match is None:
        return False

    letters = match[1]
    if match["script"]:
        # No program has such an ending.
        return language_of(letters) is not None
    if len(letters) == 2:
        return is_language(letters)
    # "log" and "css" are languages, too. Only those that also have two letters end the names of texts.
    return letters not in _NOT_LANGUAGES and is_language(language_of(letters) or "")


def _kind_of_code(line: str) -> str | None:
    """Return what kind of code a line looks like, a key of `_KINDS_OF_CODE`, or None."""
    code = _CODE.match(line)
    if code is not None:
        return code.lastgroup
    words = _PLACEHOLDER.sub("", line)
    signs = len(_SIGN.findall(words))
    if signs > _MOST_SIGNS * len(words):
        return "signs"
    return None
