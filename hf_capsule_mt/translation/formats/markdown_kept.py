"""The words of a page of Markdown that are not translated, with the reasons."""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.text.words import has_letters

from .base import Kept, Reason
from .html_kept import has_words, kept_by_authors
from .markdown_marks import MARKS_IN_ALT

if TYPE_CHECKING:
    from markdown_it.token import Token

# Without its end a comment goes on to the end of the text.
_COMMENT = re.compile(r"<!--(?:.*?-->|.*)|\{/\*(?:.*?\*/\}|.*)", re.DOTALL)
_DIAGRAM = re.compile(r"\s*(?:mermaid|plantuml|puml|graphviz|dot)\b")
# Those of Sphinx with text in them. Other words in braces are languages of code.
_DIRECTIVE = re.compile(
    r"\s*\{(?:admonition|attention|card|caution|danger|dropdown|error|figure|glossary|grid|hint|important|list-table|note"
    r"|seealso|sidebar|tab-item|tab-set|table|tip|topic|version\w+|warning)"
)
_BRACES = re.compile(r"\{[^{}\n]+\}")


def kept_in(token: "Token") -> Iterator[Kept]:
    """Yield the words of a block of a page that are not translated."""
    line = token.map[0] + 1
    if token.type == "kept":
        yield Kept(token.meta["reason"], line, token.content)
    elif token.type == "fence":
        yield from _in_fence(token, line)
    elif token.type == "html_block":
        yield from _in_html(token.content, line)
        yield from _by_authors(token.content, line)
    elif token.type == "inline":
        yield from _by_authors(_html_of(token.children), line)
        link_titles = []
        for child in token.children:
            if child.type == "link_open":
                link_titles.append(child.attrs.get("title", ""))
            elif child.type == "link_close":
                yield from _in_target(child, link_titles.pop(), line)
            else:
                yield from _in_part(child, line)


def kept_in_references(references: Mapping[str, Mapping[str, Any]]) -> Iterator[Kept]:
    """Yield the titles of the targets of links that a page defines."""
    for reference in references.values():
        if has_letters(reference["title"]):
            yield Kept(Reason.LINK_TITLES, reference["map"][0] + 1, reference["title"])


def _in_fence(token: "Token", line: int) -> Iterator[Kept]:
    if has_words(token.info):
        yield Kept(Reason.ATTRIBUTES, line, token.info)
    if _DIAGRAM.match(token.info):
        yield Kept(Reason.DIAGRAMS, line, token.content)
    if _DIRECTIVE.match(token.info):
        yield Kept(Reason.DIRECTIVES, line, f"{token.info}\n{token.content}")


def _in_html(content: str, line: int) -> Iterator[Kept]:
    """Yield the comments and the words in attributes of HTML."""
    for comment in _COMMENT.finditer(content):
        if has_letters(comment[0]):
            yield Kept(Reason.COMMENTS, line + content.count("\n", 0, comment.start()), comment[0])
    without_comments = _COMMENT.sub("", content)
    if has_words(without_comments):
        yield Kept(Reason.ATTRIBUTES, line, without_comments)


def _by_authors(content: str, line: int) -> Iterator[Kept]:
    """Yield the elements of HTML that say that they stay. Tags that cannot be read are counted elsewhere."""
    try:
        yield from kept_by_authors(content, line)
    except UserError:
        return


def _html_of(parts: Sequence["Token"]) -> str:
    """Return the tags of HTML in a paragraph, with the text between them."""
    written = []
    for part in parts:
        if part.type == "html_inline":
            written.append(part.content)
        elif part.type in ("softbreak", "hardbreak"):
            written.append("\n")
        else:
            written.append(html.escape(part.content))
    return "".join(written)


def _in_target(part: "Token", title: str, line: int) -> Iterator[Kept]:
    """Yield the title of a link or image. Titles of targets that the page defines are counted there."""
    if has_letters(title) and part.meta.get("raw", "").endswith(")"):
        yield Kept(Reason.LINK_TITLES, line, title)


def _in_part(part: "Token", line: int) -> Iterator[Kept]:
    """Yield the words of a part of a paragraph that are not translated."""
    if part.type == "image":
        yield from _in_target(part, part.attrs.get("title", ""), line)
        if has_letters(part.content) and MARKS_IN_ALT.search(part.content):
            yield Kept(Reason.IMAGE_TEXTS, line, part.content)
    elif part.type == "html_inline" and part.content.startswith("{"):
        yield Kept(Reason.EDITS, line, part.content)
    elif part.type == "html_inline":
        yield from _in_html(part.content, line)
    elif part.type == "kept_part" and part.content.startswith("{") and has_letters(part.content):
        yield Kept(Reason.COMMENTS, line, part.content)
    elif part.type == "text":
        for braces in _BRACES.finditer(part.content):
            if _COMMENT.match(braces[0]):
                yield Kept(Reason.COMMENTS, line, braces[0])
            elif has_words(braces[0]):
                yield Kept(Reason.ATTRIBUTES, line, braces[0])
