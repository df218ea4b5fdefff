"""Messages of programs: their lines and columns stay, and are translated by themselves."""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hf_capsule_mt.data.lines import without_compression
from hf_capsule_mt.language_tags import is_language
from hf_capsule_mt.long_work import next_step

from .base import Text, cut_in_proportion, text_with_tags, without_new_references, xml_text
from .placeholders import PLACEHOLDER, PLACEHOLDERS, has_words, with_placeholders_of

logger = logging.getLogger(__name__)

# The end of a line, or the space between columns.
_GAP = re.compile(r"([ \t]*\r?\n\s*|[ \t]{2,}|\t)")
_SENTENCE_END = re.compile(r"[.?!:;]['\")]*$")
_WRAPPED = 40
"""Characters of a line from which on a line that begins with a small letter continues it."""
_NAMED = re.compile(
    r"(?:\w*(?:messages?|strings|resources|labels|bundle|translations?)(?:[-_.](?:[a-z]{2}(?:[-_]\w+)?|default))?)",
    re.IGNORECASE,
)
_LANGUAGE = re.compile(r"([a-z]{2})(?:[-_][A-Za-z]{2,4})?")
_FOLDERS = {"locales", "locale", "i18n", "l10n", "lang", "langs", "translations"}


def warn_of_untranslated(lines: Sequence[int], count: int) -> None:
    """Warn of messages whose translations programs could not use.

    Args:
        lines: where they stand in the file.
        count: the number of messages that were to be translated.
    """
    if lines:
        logger.warning(
            "%d of %d messages stay untranslated, because a placeholder such as %%s or {name} would get lost or be "
            "another one. See line %d.",
            len(lines),
            count,
            lines[0],
        )


def is_named_as_messages(path: Path) -> bool:
    """Return whether the name of a file says that it has messages.

    Such names are "en.json", "messages_de.properties" and "locales/en/common.json".
    """
    stem = without_compression(path).stem
    language = _LANGUAGE.fullmatch(stem)
    if language is not None and is_language(language[1]):
        return True
    folders = path.resolve().parts[-3:-1]
    return _NAMED.fullmatch(stem) is not None or not _FOLDERS.isdisjoint(folders)


def without_halves(string: str) -> str:
    """Return a string in which two halves of a character above U+FFFF are one. A half by itself becomes U+FFFD."""
    return string.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass
class _Part:
    """A part of a message between two gaps, with the lengths of its lines if it has several."""

    source: str
    gap: str  # What stands behind it.
    line_lengths: list[int]
    text: Text | None = None  # If it is translated.


class Message:
    """A message, whose parts are the texts that are translated."""

    def __init__(
        self,
        message: str,
        keep: str = PLACEHOLDERS,
        tags: bool = False,
        lines: bool = True,
        is_format: bool = False,
        signs: str = "",
        ignored_tags: Sequence[str] = (),
    ) -> None:
        """Read a message.

        Args:
            message: its characters.
            keep: a regular expression for parts that are not translated.
            tags: whether it is XML, where `&` and `<` are always written as references.
            lines: whether its lines and columns stay.
            is_format: whether the program reads every `%` in it as the sign of a placeholder.
            signs: more characters that the program reads.
            ignored_tags: names of elements that are not translated, in lower case.
        """
        next_step()
        self._message = message
        self._is_format = is_format
        self._signs = signs
        self._parts = [_Part(message, "", [])]
        has_lines_in_placeholder = any(_GAP.search(found[0]) for found in PLACEHOLDER.finditer(message))
        if lines and has_words(message) and not has_lines_in_placeholder:
            self._parts = _parts(message)
        self._is_xml = tags
        self.texts: list[Text] = []
        read = xml_text if tags else text_with_tags
        for part in self._parts:
            if has_words(part.source):
                part.text = read(part.source, keep, ignored_tags)
            if part.text is not None:
                self.texts.append(part.text)

    def written(self, translations: Iterator[str]) -> str | None:
        """Return the message in which its texts have the next translations.

        None is returned if a program could not use it, because it has not the placeholders of the source.
        """
        next_step()
        written = []
        for part in self._parts:
            content = part.source
            if part.text is not None:
                content = next(translations)
                if not self._is_xml:
                    content = without_new_references(part.text, content)
                if len(part.line_lengths) > 1:
                    content = "\n".join(cut_in_proportion(content, part.line_lengths))
            written.append(content + part.gap)
        translation = "".join(written)
        if "'{" not in self._message:
            # Some programs would read this apostrophe as the beginning of a quote.
            translation = translation.replace("'{", "’{")
        return with_placeholders_of(self._message, translation, self._is_format, self._signs)


def _parts(message: str) -> list[_Part]:
    pieces = [*_GAP.split(message), ""]
    # The lines of each part, and what stands behind it.
    wrapped: list[list[str]] = []
    gaps: list[str] = []
    for line, gap in zip(pieces[::2], pieces[1::2]):
        if gaps and gaps[-1] == "\n" and _continues(wrapped[-1][-1], line):
            wrapped[-1].append(line)
            gaps[-1] = gap
        else:
            wrapped.append([line])
            gaps.append(gap)
    parts = []
    for lines, gap in zip(wrapped, gaps, strict=True):
        parts.append(_Part(" ".join(lines), gap, list(map(len, lines))))
    return parts


def _continues(before: str, line: str) -> bool:
    """Return whether the sentence of a line goes on in the next one."""
    return len(before) >= _WRAPPED and line[:1].islower() and not _SENTENCE_END.search(before)
