"""Which language a text is in: the only one that the server translates from, or what lingua finds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hf_capsule_mt.environment import is_installed
from hf_capsule_mt.language_tags import language_of

from .models import ServedModel
from .refusals import RequestError

if TYPE_CHECKING:
    from lingua import LanguageDetector as Lingua

_READ_CHARACTERS = 1000
"""More of a text makes the answer no better, but slower."""


@dataclass(frozen=True)
class Detected:
    """A language that a text may be in."""

    language: str  # As the server names it.
    confidence: float  # From 0 to 100.


class LanguageDetector:
    """Finds the source language of texts.

    Args:
        models: of the server. Only their source languages are looked for.
    """

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self._languages = list(dict.fromkeys(model.source for model in models))
        self._lingua: Lingua | None = None
        self._obstacle = ""
        if len(self._languages) > 1:
            self._lingua, self._obstacle = _lingua_of(self._languages)

    @property
    def takes_time(self) -> bool:
        """Whether a language is looked for in texts."""
        return self._lingua is not None

    def ranked(self, text: str) -> list[Detected]:
        """Return the languages of a text, the most likely first.

        The confidence is 0 if nothing was detected: in a text without letters, without a detector, and with only one
        source language, which may be wrong.
        """
        if self._lingua is None:
            return [Detected(self._languages[0], 0.0)]

        language_of = {_iso_code(language): language for language in self._languages}
        values = self._lingua.compute_language_confidence_values(text[:_READ_CHARACTERS])
        ranked = []
        for value in values:
            language = language_of[value.language.iso_code_639_1.name]
            ranked.append(Detected(language, round(100 * value.value, 1)))

        if not ranked[0].confidence:
            return [Detected(self._languages[0], 0.0)]
        return ranked

    def best(self, texts: Sequence[str]) -> list[Detected]:
        """Return the language of each text.

        Raises:
            RequestError: if it cannot be detected on this server.
        """
        if self._obstacle:
            known = ", ".join(self._languages)
            raise RequestError(400, f"Name the source language, one of {known}. It is not detected: {self._obstacle}.")
        return [self.ranked(text)[0] for text in texts]

    def only_language(self) -> str:
        """Return the source language of all models, for what cannot be detected.

        Raises:
            RequestError: if there are several.
        """
        if len(self._languages) > 1:
            known = ", ".join(self._languages)
            raise RequestError(400, f"Name the source language, one of {known}. It is not detected in files.")
        return self._languages[0]


def _lingua_of(languages: Sequence[str]) -> tuple["Lingua | None", str]:
    """Return what detects some languages, or None and the reason why nothing does."""
    if not is_installed("lingua"):
        return None, "lingua is not installed on this server"

    from lingua import IsoCode639_1, LanguageDetectorBuilder

    codes = []
    for language in languages:
        code = getattr(IsoCode639_1, _iso_code(language), None)
        if code is None:
            return None, f"lingua does not know {language}"
        if code in codes:
            return None, f"{language} is not told from another variant of the same language"
        codes.append(code)

    lingua = LanguageDetectorBuilder.from_iso_codes_639_1(*codes).build()
    # Otherwise the first client would wait for the models of the languages.
    lingua.compute_language_confidence_values("a")
    return lingua, ""


def _iso_code(language: str) -> str:
    """Return the letters of a language, as lingua writes them."""
    return (language_of(language) or language).upper()
