"""Messages at places of a file. Everything between them stays byte for byte."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .base import Document, replaced
from .messages import Message, warn_of_untranslated


class PlacedMessage(NamedTuple):
    """A message, where its bytes stand, and how its characters are written there."""

    start: int
    end: int
    message: Message
    write: Callable[[str], str]


class PlacedMessages(Document):
    """A file of messages."""

    def __init__(self, content: bytes, placed: Sequence[PlacedMessage], encoding: str = "utf-8") -> None:
        """Keep the messages in the order of the file."""
        self._content = content
        self._placed = placed
        self._encoding = encoding
        self.texts = []
        for placed_message in placed:
            self.texts += placed_message.message.texts

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the file with its translations."""
        rest = iter(translations)
        parts = []
        untranslated = []
        line = 1
        place = 0
        for start, end, message, write in self._placed:
            translated = message.written(rest)
            line += self._content.count(b"\n", place, start)
            place = start
            if translated is None:
                untranslated.append(line)
            else:
                parts.append((start, end, write(translated).encode(self._encoding)))
        warn_of_untranslated(untranslated, sum(bool(placed.message.texts) for placed in self._placed))
        return replaced(self._content, parts)
