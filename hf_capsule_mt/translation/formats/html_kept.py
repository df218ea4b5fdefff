"""The words of HTML that are not translated, in pages and in Markdown, with the reasons."""

import re
from collections.abc import Callable, Container, Iterator

from hf_capsule_mt.translation.tags.markup import parts_that_stay, without_tags
from hf_capsule_mt.translation.text.words import has_letters

from .base import Kept, Reason

_ATTRIBUTE = re.compile(r"""(?<![\w:-])(?P<name>[\w:-]*+)=\{?(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)')""")
_OF_READERS = ("alt", "aria-label", "caption", "description", "label", "placeholder", "summary", "title", "tooltip")
_OF_PROGRAMS = ("class", "classname", "d", "rel", "sizes", "srcset", "style", "transform", "viewbox")
_TWO_WORDS = re.compile(r"[^\W\d_]{2} ++[^\W\d_]")


def has_words(attributes: str, translated: Container[str] = ()) -> bool:
    """Return whether there are words for a reader in the attributes of a tag or of a block.

    Args:
        attributes: the tag, or the attributes.
        translated: names of attributes that do not stay.
    """
    for attribute in _ATTRIBUTE.finditer(attributes):
        name = attribute["name"].lower()
        if name in translated:
            continue
        value = attribute["double"] or attribute["single"] or ""
        if name in _OF_READERS and has_letters(value):
            return True
        if name not in _OF_PROGRAMS and _TWO_WORDS.search(value):
            return True
    return False


def kept_in_page(page: str, names_not_counted: Callable[[str], Container[str]]) -> Iterator[Kept]:
    """Yield the words of a page that are not translated.

    Args:
        page: all of its text.
        names_not_counted: returns the names of attributes that are translated in a tag, or that have no words.
    """
    line = 1
    counted = 0
    for part in parts_that_stay(page):
        line += page.count("\n", counted, part.start)
        counted = part.start
        if part.kind == "comment" and has_letters(part.raw):
            yield Kept(Reason.COMMENTS, line, part.raw)
        elif part.kind == "stays" and _has_words_inside(part.raw):
            yield Kept(Reason.TO_STAY, line, part.raw)
        elif part.kind == "tag" and has_words(part.raw, names_not_counted(part.raw)):
            yield Kept(Reason.ATTRIBUTES, line, part.raw)


def kept_by_authors(content: str, line: int) -> Iterator[Kept]:
    """Yield the elements of a part of a page that say that they stay.

    Args:
        content: text with tags of HTML.
        line: that it begins in, from 1.
    """
    if "translate" not in content:
        return
    for part in parts_that_stay(content):
        if part.kind == "stays" and _has_words_inside(part.raw):
            yield Kept(Reason.TO_STAY, line + content.count("\n", 0, part.start), part.raw)


def _has_words_inside(element: str) -> bool:
    """Return whether an element has text, or attributes with words."""
    return has_letters(without_tags(element)) or has_words(element)
