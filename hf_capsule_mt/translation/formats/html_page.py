"""Pages of HTML: their text, and the words in attributes. Tags come back around the words that they belong to."""

import html
import re
from collections.abc import Sequence

from hf_capsule_mt.translation.tags.markup import attributes, is_untranslated, read_markup
from hf_capsule_mt.translation.text.words import has_letters

from .base import Document, FileFormat, Text, TextPlace, decoded, replaced
from .html_kept import kept_in_page

# Attributes that a reader sees or hears.
_WORDS = ("alt", "title", "placeholder", "aria-label")
_SHOWN_META = (
    "description",
    *("og:title", "og:description", "og:image:alt"),
    *("twitter:title", "twitter:description", "twitter:image:alt"),
)
"""Names of `<meta>` whose contents search engines and messengers show: of HTML, of Open Graph and of X's cards."""
_LANGUAGE = ("lang", "xml:lang")
_MARK = re.compile("\0(\\d+)\0")
"""Stands in a tag for words in an attribute. The tags are read only once, and come back wherever their words are."""
_ROOT = re.compile(r"<html[\s/>]", re.IGNORECASE)
_META = re.compile(r"<meta[\s/]", re.IGNORECASE)


class HtmlPage(FileFormat):
    """Pages of HTML."""

    name = "html"
    title = "HTML"
    suffixes = (".html", ".htm", ".xhtml")
    has_tags = True

    def is_begun_by(self, beginning: str) -> bool:
        """Return whether it has the document type or the first tag of a page."""
        return beginning[:14].lower() == "<!doctype html" or beginning[:5].lower() == "<html"

    def read(self, data: bytes, target_lang: str | None = None) -> "_Page":
        """Read a page."""
        return _Page(decoded(data), target_lang)


class _Page(Document):
    def __init__(self, page: str, target_lang: str | None) -> None:
        self._target_lang = target_lang
        self._page = page

        # Up to where tags were read, and the line there.
        self._place = 0
        self._line = 1
        # The words in attributes with their numbers, and where each stands first.
        self._numbers: dict[str, int] = {}
        self._places: list[TextPlace] = []

        markup = read_markup(page, edit=self._edited)
        self.texts = [Text(page, markup)]
        self.kept = list(kept_in_page(page, _names_not_counted))
        for words, place in zip(self._numbers, self._places, strict=True):
            self.texts.append(Text(words, place=place))

    def _edited(self, tag: str) -> str:
        """Return a tag with the language of the translation if it is known, and with marks instead of words."""
        place = self._page.index(tag, self._place)
        line = self._line + self._page.count("\n", self._place, place)
        self._line = line + tag.count("\n")
        self._place = place + len(tag)

        names_language = self._target_lang is not None and _ROOT.match(tag) is not None
        words = ()
        if not is_untranslated(tag):
            words = _names_of_words(tag)

        parts = []
        for attribute in attributes(tag):
            if names_language and attribute.name in _LANGUAGE:
                value = html.escape(self._target_lang)
            elif attribute.name in words and has_letters(attribute.value):
                if attribute.value not in self._numbers:
                    self._numbers[attribute.value] = len(self._numbers)
                    self._places.append(TextPlace(line, attribute.name))
                number = self._numbers[attribute.value]
                value = f"\0{number}\0"
            else:
                continue
            parts.append((attribute.start, attribute.end, f'"{value}"'))
        return replaced(tag, parts)

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the page with its translations. Those of words in attributes take the places of their marks."""
        page, *values = translations
        return _MARK.sub(lambda mark: html.escape(values[int(mark[1])]), page).encode()


def _names_not_counted(tag: str) -> Sequence[str]:
    """Return the names of attributes that are translated in a tag, or that have no words of a reader there."""
    if _META.match(tag) is None:
        return _WORDS
    for attribute in attributes(tag):
        if attribute.name == "name" and attribute.value.strip().lower() == "keywords":
            return ()
    return ("content",)


def _names_of_words(tag: str) -> Sequence[str]:
    """Return the names of the attributes that have words for a reader in a tag."""
    if _META.match(tag) is None:
        return _WORDS
    for attribute in attributes(tag):
        # Open Graph has "property", and pages mix both up.
        if attribute.name in ("name", "property") and attribute.value.strip().lower() in _SHOWN_META:
            return ("content",)
    return ()
