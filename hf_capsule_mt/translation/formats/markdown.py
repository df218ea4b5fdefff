"""Markdown: prose is translated. Code, links, images and HTML comments stay. Words that stay are counted.

markdown-it-py finds the parts with prose. Its marks, such as `**`, become tags, come back around the words that they
belong to, and become marks again. A part whose marks would not be the same afterwards stays in the source language.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.long_work import next_step
from hf_capsule_mt.translation.tags.markup import Run, read_markup, unescaped
from hf_capsule_mt.translation.text.words import has_letters

from .base import Document, FileFormat, Kept, Reason, Text, TextPlace, decoded, replaced
from .front_matter import fields_of, find_front_matter, kept_words
from .markdown_kept import kept_in, kept_in_references
from .markdown_marks import Mark, make_parser, marks_of

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
# What stands in front of a paragraph: the box of a task, the kind of an alert, the number of a footnote.
_LABEL = re.compile(r"(?:\[[ xX]\][ \t]+|\[![A-Za-z]+\][+-]?[ \t]*(?:\n|$)|\[\^[^\]\s]+\][ \t]*)")
_KEEP = (
    r"\[\^[^\[\]\s]+\]|\$\$[^$]+\$\$|\$[^$\s](?:[^$]*[^$\s])?\$(?!\d)"
    r"|:[a-z0-9_+-]+:|\+\+(?:[\w-]+|\"[^\"\n]+\")(?:\+(?:[\w-]+|\"[^\"\n]+\"))*\+\+"
    r"|(?s:\{\{(?:(?!\{\{|\}\}).)*+\}\}|\{%(?:(?!\{%|%\}).)*+%\})|\{[^{}]+\}"
)
# Plug-ins read Markdown in HTML. Targets of its links are no words.
_KEEP_IN_HTML = rf"{_KEEP}|\]\((?:[^()\s]|\([^()\s]*\))*\)"
# Text that would be the box of a task at the beginning of a paragraph.
_BOX = re.compile(r"\[[ xX]\][ \t]")
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
# Text that would be read as a reference to a character.
_REFERENCE = re.compile(r"&\#?\w+;")
# It may begin a list, a heading, a quote and so on.
_BLOCK_START = re.compile(r"\d*(?=[-+*#>=|~`.)!?:/${])")


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
    kind: str  # The block: "paragraph", "heading", "title", "cell" or "html".
    line: int  # From 1.
    markup: str = ""  # Of a heading: "#" to "######" in front of it, or "=" or "-" for a line under it.


class _MarkdownPage(Document):
    def __init__(self, page: str) -> None:
        self._page = page
        self._parser = make_parser()
        finder = _ProseFinder(page, self._parser)
        self._references = finder.references
        self._prose = finder.prose()

        self._marks: list[list[Mark]] = []
        self.texts = []
        self.kept = finder.kept
        for prose in self._prose:
            if prose.kind == "html":
                marks = []
                text = Text(prose.source, read_markup(prose.source, is_part=True), _KEEP_IN_HTML)
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

        self._fields = fields_of(find_front_matter(page))
        for field in self._fields:
            self.texts.append(Text(field.text, keep=_KEEP, place=TextPlace(field.line)))

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the page with its translations."""
        num_before_fields = len(self.texts) - len(self._fields)
        of_images = translations[len(self._prose) : num_before_fields]
        for image, translation in zip(self._images, of_images, strict=True):
            image.raw = image.with_alt(translation)

        parts = []
        self.left = []
        for number, field in enumerate(self._fields, num_before_fields):
            value = field.written(translations[number])
            if value is None:
                self.left.append(number)
            else:
                parts.append((field.start, field.end, value))
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
        if prose.kind == "html":
            # An empty line would end the block, and a word next to its first tag may make it a paragraph.
            content = _BLANK_LINE.sub("", translation)
            with_own_line = _FIRST_TAG.sub(r"\g<0>\n", content.lstrip())
            for written in (content, with_own_line):
                if self._block_types(written) == ["html_block"]:
                    return written.replace("\n", f"\n{prose.indent}")
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
    """Finds the prose of a page, and its place in it.

    `kept` are the words that stay.
    """

    def __init__(self, page: str, parser: "MarkdownIt") -> None:
        self._page = page
        # Where each line starts, and where the last one ends.
        self._starts = [0, *accumulate(map(len, _LINE.findall(page)))]
        self._end = 0  # Of the last prose.
        self.kept: list[Kept] = []
        environment: dict = {}

        front_matter = find_front_matter(page)
        words = kept_words(front_matter)
        if words:
            self.kept.append(Kept(Reason.FRONT_MATTER, 1, words))

        # Blank lines instead of the front matter have the same numbers.
        without_front_matter = "\n" * front_matter.count("\n") + page[len(front_matter) :]
        source = without_front_matter.replace("\r\n", "\n")
        self._tokens = parser.parse(source, environment)
        if environment.get("is_mdx"):
            # MDX has no code by indentation.
            parser.disable("code")
            self._tokens = parser.parse(source, environment)
        self.references = environment.get("references", {})

    def prose(self) -> list[_Prose]:
        """Return the prose in the order of the page."""
        found = []
        for number, token in enumerate(self._tokens):
            next_step()
            if token.map is None:
                continue
            self.kept += kept_in(token)
            if not has_letters(unescaped(token.content)):
                continue

            parts = self._parts(token, number)
            if parts is None:
                reason = Reason.RAW_HTML if token.type == "html_block" else Reason.PLACES
                self.kept.append(Kept(reason, token.map[0] + 1, token.content))
            else:
                found += parts

        self.kept += kept_in_references(self.references)
        self.kept.sort(key=attrgetter("line"))
        return found

    def _parts(self, token: "Token", number: int) -> list[_Prose] | None:
        """Return the prose in a token, or None if it cannot be read or found."""
        if token.type == "html_block":
            return self._html(token)
        if token.type != "inline":
            return []

        before = self._tokens[number - 1]
        kind = before.type.removesuffix("_open")
        if kind in ("td", "th"):
            kind = "cell"
        is_last = number + 2 == len(self._tokens)
        is_term = kind == "paragraph" and not is_last and self._tokens[number + 2].type == "definition_open"
        if is_term:
            return self._terms(token)

        prose = self._lines(token, kind)
        if prose is None:
            return None
        prose.markup = before.markup
        return [prose] if prose.source.strip() else []

    def _terms(self, token: "Token") -> list[_Prose] | None:
        """Return the terms of a definition. Each stands in a line."""
        terms = []
        for number, line in enumerate(token.content.split("\n")):
            term = replace(token, content=line, map=[token.map[0] + number, token.map[0] + number + 1])
            prose = self._lines(term, "title")
            if prose is None:
                return None
            if has_letters(prose.source):
                terms.append(prose)
        return terms

    def _html(self, token: "Token") -> list[_Prose] | None:
        """Return a block of HTML, or nothing if it has no words. None if it cannot be read."""
        runs = _markup_of(token.content)
        if runs is None:
            return None
        if not has_letters("".join(run.text for run in runs)):
            return []

        if token.level:
            prose = self._lines(replace(token, content=token.content.rstrip("\n")), "html")
            return None if prose is None else [prose]

        first, last = token.map
        start = self._starts[first]
        end = self._starts[last]
        return [_Prose(start, end, self._page[start:end], "", "html", first + 1)]

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
        # In front of it a label may have the same words.
        self._end = max(self._end, self._starts[first] + token.meta.get("column", 0))

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
        if label is not None:
            content = content[label.end() :]
            start += label.end()
            if label[0].endswith("\n"):
                start = places[1]
                line += 1

        return _Prose(start, self._end, content, indent, kind, line)


def _markup_of(block: str) -> list[Run] | None:
    """Return the texts and tags of a block of HTML, or None if it cannot be read."""
    try:
        return read_markup(block, is_part=True)
    except UserError:
        return None


def _as_blocks(content: str, markup: str) -> list[str]:
    """Return a paragraph, or a heading with the markup of a token. A line under it may be short or long."""
    if not markup:
        return [content]
    if markup[0] == "#":
        return [f"{markup} {content}"]
    # A long line under a bar is that of a table.
    return [f"{content}\n{markup}", f"{content}\n{3 * markup}"]


def _as_text(reference: re.Match) -> str:
    """Return a reference with a backslash in front of it, if there is a character of this name."""
    is_known = html.unescape(reference[0]) != reference[0]
    return f"\\{reference[0]}" if is_known else reference[0]


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
        first, *others = unescaped(part[0]).split("\n")
        characters = " ".join([first, *(other.lstrip() for other in others)])
        special = _SPECIAL if escapes else _LOST_BACKSLASH
        escaped = special.sub(r"\\\g<0>", characters)
        return _REFERENCE.sub(_as_text, escaped)

    return _PART.sub(written, translation)
