"""Messages of programs, and files that have them at some places.

The lines and columns of a message stay, and are translated by themselves. Everything between two messages of a file
stays byte for byte.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hf_capsule_mt.data.lines import without_compression
from hf_capsule_mt.language_tags import is_language
from hf_capsule_mt.long_work import next_step

from .accelerators import Accelerators
from .base import (
    Document,
    Kept,
    Reason,
    Text,
    TextPlace,
    cut_in_proportion,
    replaced,
    text_with_tags,
    without_new_references,
    xml_text,
)
from .placeholders import PLACEHOLDER, PLACEHOLDERS, has_words, with_placeholders_of

# The end of a line, or the space between columns.
_GAP = re.compile(r"([ \t]*\r?\n\s*|[ \t]{2,}|\t)")
_LINE_END = re.compile(rb"\r\n|[\r\n]")
_SENTENCE_END = re.compile(r"[.?!:;]['\")]*$")
_WRAPPED = 40
"""Characters of a line from which on a line that begins with a small letter continues it."""
_NAMED = re.compile(
    r"(?:\w*(?:messages?|strings|resources|labels|bundle|translations?)(?:[-_.](?:[a-z]{2}(?:[-_]\w+)?|default))?)",
    re.IGNORECASE,
)
_LANGUAGE = re.compile(r"([a-z]{2})(?:[-_][A-Za-z]{2,4})?")
_FOLDERS = {"locales", "locale", "i18n", "l10n", "lang", "langs", "translations"}


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
        accelerators: Accelerators | None = None,
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
            accelerators: those of its file, if labels have any there.
        """
        next_step()
        self._accelerators = accelerators
        self._accelerator = None
        if accelerators is not None:
            message, self._accelerator = accelerators.split(message)
        self._message = message
        self._is_format = is_format
        self._signs = signs

        # The lines of each part, and the gap behind it.
        parts = [([message], "")]
        has_lines_in_placeholder = any(_GAP.search(found[0]) for found in PLACEHOLDER.finditer(message))
        if lines and has_words(message) and not has_lines_in_placeholder:
            parts = _parts(message)

        self._is_xml = tags
        self._parts: list[tuple[list[str], str, Text | None]] = []
        self.texts: list[Text] = []
        self.unread: list[str] = []  # Parts with words that stay, because their tags do not enclose each other.
        read = text_with_tags
        if tags:
            read = xml_text

        for part_lines, gap in parts:
            source = " ".join(part_lines)
            text = None
            if has_words(source):
                text = read(source, keep, ignored_tags)
                if text is None:
                    self.unread.append(source)
            if text is not None:
                self.texts.append(text)
            self._parts.append((part_lines, gap, text))

    def written(self, translations: Iterator[str]) -> str | None:
        """Return the message in which its texts have the next translations.

        None is returned if a program could not use it, because it has not the placeholders of the source.
        """
        next_step()
        written = []
        for lines, gap, text in self._parts:
            content = " ".join(lines)
            if text is not None:
                content = next(translations)
                if not self._is_xml:
                    content = without_new_references(text, content)
                if len(lines) > 1:
                    content = "\n".join(cut_in_proportion(content, list(map(len, lines))))
            written.append(content + gap)

        translation = "".join(written)
        if "'{" not in self._message:
            # Some programs would read this apostrophe as the beginning of a quote.
            translation = translation.replace("'{", "’{")

        translation = with_placeholders_of(self._message, translation, self._is_format, self._signs)
        if translation is None or self._accelerator is None:
            return translation
        return self._accelerators.put(translation, self._accelerator)


class PlacedMessages(Document):
    """A file with messages at some places."""

    def __init__(self, content: bytes, encoding: str = "utf-8") -> None:
        self._content = content
        self._encoding = encoding
        self._placed: list[tuple[int, int, Message, Callable[[str], str]]] = []
        # The place up to which line ends were counted, and its line.
        self._counted = 0
        self._line = 1
        self.texts = []
        self.kept: list[Kept] = []

    def add(
        self,
        start: int,
        end: int,
        message: Message,
        write: Callable[[str], str],
        unit: str | None = None,
        context: str | None = None,
    ) -> None:
        """Add the next message of the file.

        Args:
            start: its first byte.
            end: the byte behind it.
            message: its characters.
            write: returns characters as they are written there.
            unit: the name of the message, such as its key.
            context: what else names it.
        """
        self._placed.append((start, end, message, write))
        place = TextPlace(self._line_at(start), unit, context)
        self.texts += [text._replace(place=place) for text in message.texts]
        self.kept += [Kept(Reason.RAW_HTML, place.line, words) for words in message.unread]

    def keep(self, reason: Reason, start: int, text: str) -> None:
        """Count a message that stays, the next one of the file.

        Args:
            reason: why it stays.
            start: its first byte.
            text: its words.
        """
        self.kept.append(Kept(reason, self._line_at(start), text))

    def _line_at(self, place: int) -> int:
        """Return the line of a byte, from 1. Places come in the order of the file."""
        self._line += len(_LINE_END.findall(self._content, self._counted, place))
        self._counted = place
        return self._line

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the file with its translations."""
        rest = iter(translations)
        parts = []
        self.left = []
        number = 0

        for start, end, message, write in self._placed:
            translated = message.written(rest)
            behind = number + len(message.texts)
            if translated is None:
                self.left += range(number, behind)
            else:
                parts.append((start, end, write(translated).encode(self._encoding)))
            number = behind
        return replaced(self._content, parts)


def _parts(message: str) -> list[tuple[list[str], str]]:
    """Return the parts of a message between two gaps: the lines of each, which one sentence may fill, and its gap."""
    pieces = [*_GAP.split(message), ""]
    wrapped: list[list[str]] = []
    gaps: list[str] = []

    for line, gap in zip(pieces[::2], pieces[1::2]):
        if gaps and gaps[-1] == "\n" and _continues(wrapped[-1][-1], line):
            wrapped[-1].append(line)
            gaps[-1] = gap
        else:
            wrapped.append([line])
            gaps.append(gap)
    return list(zip(wrapped, gaps, strict=True))


def _continues(before: str, line: str) -> bool:
    """Return whether the sentence of a line goes on in the next one."""
    return len(before) >= _WRAPPED and line[:1].islower() and not _SENTENCE_END.search(before)
