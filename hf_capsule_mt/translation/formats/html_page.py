"""Pages of HTML: their text, and the words in attributes. Tags come back around the words that they belong to."""

import html
import re
from collections.abc import Sequence

from hf_capsule_mt.translation.markup import edit_tags, is_untranslated

from .base import Document, FileFormat, Text, decoded

# A reader sees or hears them.
_ATTRIBUTE = re.compile(
    r"""(?P<before>\s(?:alt|title|placeholder|aria-label)\s*=\s*)(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)')""",
    re.IGNORECASE,
)
_LANGUAGE = re.compile(r"""(?P<before><html\b[^>]*?\slang\s*=\s*)(?:"[^"]*"|'[^']*'|[^\s>]+)""", re.IGNORECASE)


class HtmlPage(FileFormat):
    """Pages of HTML."""

    name = "html"
    title = "HTML"
    suffixes = (".html", ".htm", ".xhtml")

    def is_begun_by(self, beginning: str) -> bool:
        """Return whether it has the document type or the first tag of a page."""
        return beginning[:14].lower() == "<!doctype html" or beginning[:5].lower() == "<html"

    def read(self, data: bytes, target_lang: str | None = None) -> "_Page":
        """Read a page."""
        return _Page(decoded(data), target_lang)


class _Page(Document):
    def __init__(self, page: str, target_lang: str | None) -> None:
        self._target_lang = target_lang
        self._values: list[str] = []
        edit_tags(page, self._collect)
        self.texts = [Text(page, tags=True), *(Text(value) for value in self._values)]

    def _collect(self, tag: str) -> str:
        """Note the words in the attributes of a tag."""
        if is_untranslated(tag):
            return tag
        for match in _ATTRIBUTE.finditer(tag):
            value = _value(match)
            if any(map(str.isalpha, value)) and value not in self._values:
                self._values.append(value)
        return tag

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the page with its translations, and with the language of the translation if it is known."""
        page, *values = translations
        translation_of = dict(zip(self._values, values, strict=True))

        def translated(match: re.Match) -> str:
            value = _value(match)
            if value not in translation_of:
                return match[0]
            return f'{match["before"]}"{html.escape(translation_of[value])}"'

        def edited(tag: str) -> str:
            if not is_untranslated(tag):
                tag = _ATTRIBUTE.sub(translated, tag)
            if self._target_lang is not None:
                tag = _LANGUAGE.sub(rf'\g<before>"{self._target_lang}"', tag)
            return tag

        return edit_tags(page, edited).encode()


def _value(match: re.Match) -> str:
    """Return the characters of an attribute's value."""
    raw = match["single"] if match["double"] is None else match["double"]
    return html.unescape(raw)
