"""Messages at places of a file. Everything between them stays byte for byte."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .base import Document, replaced
from .messages import Message


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
        for start, end, message, write in self._placed:
            translated = write(message.written(rest))
            parts.append((start, end, translated.encode(self._encoding)))
        return replaced(self._content, parts)
