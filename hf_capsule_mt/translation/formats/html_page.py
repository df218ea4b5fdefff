"""Pages of HTML: their text, and the words in attributes. Tags come back around the words that they belong to."""

import html
import re
from collections.abc import Sequence

from hf_capsule_mt.translation.tags.markup import Attribute, attributes, edit_tags, is_untranslated

from .base import Document, FileFormat, Text, decoded, replaced

# Attributes that a reader sees or hears.
_WORDS = ("alt", "title", "placeholder", "aria-label")
_LANGUAGE = ("lang", "xml:lang")
_ROOT = re.compile(r"<html[\s/>]", re.IGNORECASE)


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
        # As the keys of a dictionary, which is not searched from the start for each of them.
        self._values: dict[str, None] = {}
        edit_tags(page, self._collect)
        self.texts = [Text(page, tags=True), *(Text(value) for value in self._values)]

    def _collect(self, tag: str) -> str:
        """Note the words in the attributes of a tag."""
        for attribute in _attributes_with_words(tag):
            self._values.setdefault(attribute.value)
        return tag

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the page with its translations, and with the language of the translation if it is known."""
        page, *values = translations
        translation_of = dict(zip(self._values, values, strict=True))

        def edited(tag: str) -> str:
            parts = []
            for attribute in _attributes_with_words(tag):
                parts.append(_with_value(attribute, translation_of[attribute.value]))
            tag = replaced(tag, parts)
            if self._target_lang is None or _ROOT.match(tag) is None:
                return tag
            languages = [attribute for attribute in attributes(tag) if attribute.name in _LANGUAGE]
            return replaced(tag, [_with_value(language, self._target_lang) for language in languages])

        return edit_tags(page, edited).encode()


def _attributes_with_words(tag: str) -> list[Attribute]:
    """Return the attributes of a tag that are translated."""
    if is_untranslated(tag):
        return []
    return [each for each in attributes(tag) if each.name in _WORDS and any(map(str.isalpha, each.value))]


def _with_value(attribute: Attribute, value: str) -> tuple[int, int, str]:
    """Return the place of the value of an attribute, and how another one is written."""
    return attribute.start, attribute.end, f'"{html.escape(value)}"'
