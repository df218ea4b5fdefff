"""What a request asks for: texts, each with its model and how it is read, and what became of them."""

from dataclasses import dataclass

from .models import Reading, ServedModel


@dataclass(frozen=True)
class SourceText:
    """A text that is translated."""

    text: str
    model: ServedModel
    reading: Reading
    confidence: float = 100.0  # How likely its source language is the one of the model.


@dataclass(frozen=True)
class Job:
    """The texts of a request."""

    sources: list[SourceText]

    @property
    def alternatives(self) -> int:
        """How many other translations of each text are wanted."""
        return 0

    @property
    def characters(self) -> int:
        """The number of characters of all texts."""
        return sum(len(source.text) for source in self.sources)

    @property
    def pairs(self) -> str:
        """The pairs of languages, as logs show them."""
        return ",".join(dict.fromkeys(source.model.name for source in self.sources))


@dataclass(frozen=True)
class TranslatedText:
    """What became of a text."""

    text: str
    alternatives: tuple[str, ...] = ()  # Other translations, the best first.
