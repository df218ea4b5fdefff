"""Plain text with paragraphs. Its sentences are translated, and the white space around them stays."""

import re
from collections.abc import Sequence
from itertools import groupby

from hf_capsule_mt.translation.text.words import has_letters

from .base import Document, FileFormat, Text, TextPlace, decoded, replaced

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class RunningText(FileFormat):
    """Plain text, whose paragraphs end with an empty line. Names do not tell it, so it is not among `FORMATS`."""

    name = "text"
    title = "plain text"
    suffixes = ()

    def read(self, data: bytes, target_lang: str | None = None) -> "_Paragraphs":
        """Read a text."""
        return _Paragraphs(decoded(data))


class _Paragraphs(Document):
    def __init__(self, content: str) -> None:
        self._content = content
        self._places: list[tuple[int, int]] = []
        self.texts = []

        start = 0
        line_number = 1
        for is_blank, group in groupby(_LINE.findall(content), key=str.isspace):
            lines = list(group)
            paragraph = "".join(lines)
            end = start + len(paragraph)
            if not is_blank and has_letters(paragraph):
                self._places.append((start, end))
                self.texts.append(Text(paragraph, place=TextPlace(line_number)))
            start = end
            line_number += len(lines)

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the text with its translations."""
        parts = []
        for (start, end), translation in zip(self._places, translations, strict=True):
            parts.append((start, end, translation))
        return replaced(self._content, parts).encode()
