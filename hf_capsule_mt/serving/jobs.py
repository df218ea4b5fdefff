"""What a request asks for: texts, each with its model and how it is read, and what became of them."""

from dataclasses import asdict, dataclass, field
from typing import Any

from hf_capsule_mt.translation.preparation import TextOptions
from hf_capsule_mt.translation.quality.calibration import Quality

from .models import ServedModel


@dataclass(frozen=True)
class SourceText:
    """A text that is translated."""

    text: str
    model: ServedModel
    reading: TextOptions
    confidence: float = 100.0  # How likely its source language is the one of the model.


@dataclass(frozen=True)
class ClientJob:
    """The texts of a request."""

    sources: list[SourceText]
    alternatives: int = field(default=0, kw_only=True)  # Other translations of each text that are wanted.
    wants_quality: bool = field(default=False, kw_only=True)  # Whether the expected quality is wanted.

    @property
    def characters(self) -> int:
        """The number of characters of all texts."""
        return sum(len(source.text) for source in self.sources)

    @property
    def pairs(self) -> str:
        """The pairs of languages, as logs show them."""
        return ",".join(dict.fromkeys(source.model.name for source in self.sources))


@dataclass(frozen=True)
class SentenceQuality:
    """How good the translation of a sentence probably is."""

    source: str
    metric: str
    expected: Quality

    def fields(self) -> dict[str, Any]:
        """Return what a client reads."""
        return {"source": self.source, "metric": self.metric, **asdict(self.expected)}


@dataclass(frozen=True)
class TranslatedText:
    """What became of a text."""

    text: str
    alternatives: tuple[str, ...] = ()  # Other translations, the best first.
    qualities: tuple[SentenceQuality, ...] = ()  # Of its sentences, if they were asked for.
