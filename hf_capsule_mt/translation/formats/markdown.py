"""Markdown: prose is translated. Code, links, images, HTML comments and front matter stay.

markdown-it-py finds the parts with prose. Its marks, such as `**`, become tags, come back around the words that they
belong to, and become marks again. A part whose marks would not be the same afterwards stays in the source language.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.long_work import next_step
from hf_capsule_mt.translation.tags.markup import read_markup, unescaped

from .base import Document, FileFormat, Text, TextPlace, decoded, replaced
from .markdown_marks import Mark, make_parser, marks_of

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
# Paragraphs that are instructions of a program, such as the head of an admonition of MkDocs.
# Components, imports and exports are those of MDX.
_INSTRUCTION = re.compile(
    r"""(?:!!!|\?\?\?|:::|===|\{%|\{\{|</?[A-Z][\w.]*(?:\s[^<>]*\{|/?>)|import\s[^\n]*["']|export\s+(?:const|default|function)\s)"""
)
# What stands in front of a paragraph: the box of a task, the mark of a note, the number of a footnote.
_LABEL = re.compile(r"(?:\[[ xX]\][ \t]+|\[![A-Za-z]+\][ \t]*(?:\n|$)|\[\^[^\]\s]+\]:?[ \t]*)")
_KEEP = (
    r"\[\^[^\[\]\s]+\]|\$\$[^$]+\$\$|\$[^$\s](?:[^$]*[^$\s])?\$(?!\d)"
    r"|:[a-z0-9_+-]+:|(?s:\{\{(?:(?!\{\{|\}\}).)*+\}\}|\{%(?:(?!\{%|%\}).)*+%\})|\{[^{}]+\}"
)
# Text that would be the box of a task at the beginning of a paragraph.
_BOX = re.compile(r"\[[ xX]\][ \t]")
# A list in a note, right under its first line. CommonMark has no notes, and reads it as one more line of text.
_LIST_IN_NOTE = re.compile(r"\[\^[^\]\s]+\]:[^\n]*(?:\n[^\n]*)*?\n[ \t]*(?:[-+*]|\d{1,9}[.)])[ \t]")
# A tag of a mark, or text.
_PART = re.compile(
    r"""<(?P<end>/?)m(?P<element>\d+)/?>|<code\ m="(?P<kept>\d+)">[^<]*</code>|<br\ m="(?P<break>\d+)"\s>|[^<]+""",
    re.DOTALL | re.VERBOSE,
)
_BLANK_LINE = re.compile(r"\n[ \t]*(?=\n)")
_FIRST_TAG = re.compile(r"\A<[^<>]*>")
# Characters that may make a mark.
_SPECIAL = re.compile(r"([\\`*_\[\]<~#])")
# A backslash that would go, because it makes the sign behind it text.
_LOST_BACKSLASH = re.compile(r"\\(?=[!-/:-@\[-`{-~]|\Z)")
# It may begin a list, a heading, a quote and so on.
_BLOCK_START = re.compile(r"\d*(?=[-+*#>=|~`.)])")


class Markdown(FileFormat):
    """Markdown, as CommonMark with tables and strikethrough."""

    name = "markdown"
    title = "Markdown"
    suffixes = (".md", ".markdown", ".mdown", ".mkd")
    package = "markdown_it"

    def read(self, data: bytes, target_lang: str | None = None) -> "_MarkdownPage":
        """Read a page."""
        return _MarkdownPage(decoded(data))


@dataclass
class _Prose:
    """A part of a page that is translated."""

    start: int  # Its place in the page.
    end: int
    source: str  # What stands there, without the marks of quotes and lists in front of its lines.
    indent: str  # What stands in front of its second line.
    kind: str  # The block: "paragraph", "heading", "cell" or "html".
    line: int  # From 1.
    markup: str = ""  # Of a heading: "#" to "######" in front of it, or "=" or "-" for a line under it.
    has_list: bool = False  # Whether a list would become text of a note.


class _MarkdownPage(Document):
    def __init__(self, page: str) -> None:
        self._page = page
        self._parser = make_parser()
        finder = _ProseFinder(page, self._parser)
        self._references = finder.references
        self._prose = finder.prose()
        self._marks: list[list[Mark]] = []
        self.texts = []
        for prose in self._prose:
            if prose.kind == "html":
                marks = []
                text = Text(prose.source, read_markup(prose.source), _KEEP)
            else:
                marks, text = marks_of(self._parser, prose.source, self._references, _KEEP)
            self._marks.append(marks)
            self.texts.append(text._replace(place=TextPlace(prose.line)))
        self._images: list[Mark] = []
        for prose, marks in zip(self._prose, self._marks, strict=True):
            line = prose.line
            for mark in marks:
                if mark.alt:
                    self._images.append(mark)
                    self.texts.append(Text(mark.alt, keep=_KEEP, place=TextPlace(line)))
                line += mark.raw.count("\n")

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the page with its translations."""
        for image, translation in zip(self._images, translations[len(self._prose) :], strict=True):
            image.raw = image.with_alt(translation)
        parts = []
        self.left = []
        for number, (prose, marks, translation) in enumerate(zip(self._prose, self._marks, translations)):
            next_step()
            content = self._content(prose, marks, translation)
            if content is None:
                self.left.append(number)
            else:
                parts.append((prose.start, prose.end, content))
        return replaced(self._page, parts).encode()

    def _content(self, prose: _Prose, marks: Sequence[Mark], translation: str) -> str | None:
        """Return the Markdown of a translation, or None if its marks are not those of the source."""
        if prose.has_list:
            return None
        if prose.kind == "html":
            # An empty line would end the block, and a word next to its first tag may make it a paragraph.
            content = _BLANK_LINE.sub("", translation)
            with_own_line = _FIRST_TAG.sub(r"\g<0>\n", content.lstrip())
            for written in (content, with_own_line):
                if self._block_types(written) == ["html_block"]:
                    return written
            return None
        expected = self._structure(prose.source, prose)
        for content in _ways_to_write(translation, marks):
            if self._structure(content, prose) == expected:
                if prose.kind == "cell":
                    content = content.replace("|", r"\|")
                return content.replace("\n", f"\n{prose.indent}")
        return None

    def _structure(self, content: str, prose: _Prose) -> Counter | None:
        """Return how many marks of each kind and content there are. None if it would be another block, or have more."""
        if prose.kind in ("paragraph", "heading"):
            expected = [f"{prose.kind}_open", "inline", f"{prose.kind}_close"]
            for block in _as_blocks(content, prose.markup):
                tokens = self._parser.parse(block, {"references": self._references})
                if [token.type for token in tokens] != expected:
                    return None
                if tokens[1].content != content.strip():
                    return None
        [inline] = self._parser.parseInline(content, {"references": self._references})
        marks = []
        if prose.kind == "paragraph" and _BOX.match(content):
            marks.append(("box", "", ""))
        for token in inline.children:
            if token.type not in ("text", "text_special", "softbreak"):
                value = ""
                if token.type != "image":
                    value = token.content
                attributes = str(sorted(token.attrs.items()))
                marks.append((token.type, value, attributes))
        return Counter(marks)

    def _block_types(self, content: str) -> list[str]:
        return [block.type for block in self._parser.parse(content, {"references": self._references})]


class _ProseFinder:
    """Finds the prose of a page, and its place in it."""

    def __init__(self, page: str, parser: "MarkdownIt") -> None:
        self._page = page
        # Where each line starts, and where the last one ends.
        self._starts = [0, *accumulate(map(len, _LINE.findall(page)))]
        self._end = 0  # Of the last prose.
        environment: dict = {}
        # Blank lines instead of the front matter have the same numbers.
        without_front_matter = _FRONT_MATTER.sub(lambda front: "\n" * front[0].count("\n"), page)
        self._tokens = parser.parse(without_front_matter.replace("\r\n", "\n"), environment)
        # A note of one word or address looks like the target of a link.
        references = environment.get("references", {})
        self.references = {name: target for name, target in references.items() if not name.startswith("^")}

    def prose(self) -> list[_Prose]:
        """Return the prose in the order of the page."""
        found = []
        for token, before in zip(self._tokens, [None, *self._tokens]):
            next_step()
            if token.map is None or not any(map(str.isalpha, unescaped(token.content))):
                continue
            prose = None
            if token.type == "html_block":
                prose = self._html(token)
            elif token.type == "inline" and before.type in ("td_open", "th_open"):
                prose = self._lines(token, "cell")
            elif token.type == "inline" and not _INSTRUCTION.match(token.content):
                prose = self._lines(token, before.type.removesuffix("_open"))
                if prose is not None:
                    prose.markup = before.markup
            if prose is not None:
                found.append(prose)
        return found

    def _html(self, token: "Token") -> _Prose | None:
        """Return a block of HTML that is markup by itself. In a quote or a list there are marks between its lines."""
        if token.level or not _is_markup(token.content):
            return None
        first, last = token.map
        start = self._starts[first]
        end = self._starts[last]
        return _Prose(start, end, self._page[start:end], "", "html", first + 1)

    def _lines(self, token: "Token", kind: str) -> _Prose | None:
        """Return the text of a block without the marks in front of its lines. None if it is not found."""
        content = token.content
        # In a table a bar in a text has a backslash.
        written = content
        if kind == "cell":
            written = content.replace("|", r"\|")
        first = token.map[0]
        # The place of the text in each of its lines.
        places = []
        for number, text in enumerate(written.split("\n"), start=first):
            # Equal texts may stand in one line, as in cells of a table.
            earliest = max(self._end, self._starts[number])
            place = self._page.find(text, earliest, self._starts[number + 1])
            if place < 0:
                # The parser writes spaces for a tab in front of a line.
                text = text.lstrip()
                place = self._page.find(text, earliest, self._starts[number + 1])
            if place < 0:
                return None
            places.append(place)
            self._end = place + len(text)
        start = places[0]
        indent = ""
        if len(places) > 1:
            indent = self._page[self._starts[first + 1] : places[1]]
        line = first + 1
        label = None
        if kind == "paragraph":
            label = _LABEL.match(content)
        has_list = kind == "paragraph" and _LIST_IN_NOTE.match(content) is not None
        if label is not None:
            content = content[label.end() :]
            start += label.end()
            if label[0].endswith("\n"):
                start = places[1]
                line += 1
        if not content.strip():
            return None
        return _Prose(start, self._end, content, indent, kind, line, has_list=has_list)


def _is_markup(block: str) -> bool:
    """Return whether a block of HTML can be read by itself, and has words."""
    try:
        runs = read_markup(block)
    except UserError:
        return False
    return any(run.text.strip() for run in runs)


def _as_blocks(content: str, markup: str) -> list[str]:
    """Return a paragraph, or a heading with the markup of a token. A line under it may be short or long."""
    if not markup:
        return [content]
    if markup[0] == "#":
        return [f"{markup} {content}"]
    # A long line under a bar is that of a table.
    return [f"{content}\n{markup}", f"{content}\n{3 * markup}"]


def _ways_to_write(translation: str, marks: Sequence[Mark]) -> Iterator[str]:
    """Yield the Markdown of a translation, with as few backslashes as possible first.

    Without them a character of the translation may be read as a mark, or a paragraph as a list or a heading.
    """
    for escapes in (False, True):
        content = _with_marks(translation, marks, escapes)
        yield content
        block_start = _BLOCK_START.match(content)
        if block_start is not None:
            yield f"{block_start[0]}\\{content[block_start.end() :]}"


def _with_marks(translation: str, marks: Sequence[Mark], escapes: bool) -> str:
    """Return a translation with marks instead of tags.

    Args:
        translation: text with tags.
        marks: the marks by the numbers in the tags.
        escapes: whether characters that may make a mark get a backslash.
    """
    raw_of = {}
    for mark in marks:
        if mark.kind != "text":
            is_end = mark.kind == "close"
            raw_of[mark.number, is_end] = mark.raw

    def written(part: re.Match) -> str:
        number = part["element"] or part["kept"] or part["break"]
        if number is not None:
            return raw_of[int(number), bool(part["end"])]
        # A paragraph becomes one line.
        characters = unescaped(part[0]).replace("\n", " ")
        if escapes:
            return _SPECIAL.sub(r"\\\1", characters)
        return _LOST_BACKSLASH.sub(r"\\\\", characters)

    return _PART.sub(written, translation)
