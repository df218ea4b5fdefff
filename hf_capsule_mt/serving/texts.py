"""What clients ask for: texts, each with its model. And what becomes of a text: sentences, then a translation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hf_capsule_mt.translation.preparation import TextOptions
from hf_capsule_mt.translation.tags.markup import Run
from hf_capsule_mt.translation.text_translator import Ranked
from hf_capsule_mt.translation.translation import PreparedText, Sentence

from .models import ServedModel


@dataclass(frozen=True)
class SourceText:
    """A text that is translated."""

    text: str
    model: ServedModel
    options: TextOptions
    confidence: float = 100.0  # How likely its source language is the one of the model.
    markup: list[Run] | None = None  # What was read of its tags, if it is of a file.

    @property
    def may_have_parts(self) -> bool:
        """Whether it may have tags, kept parts or terms, which are looked for and put back."""
        options = self.options
        has_kept_parts = options.keep is not None and options.keep.search(self.text) is not None
        return options.tags or has_kept_parts or options.glossary is not None


@dataclass(frozen=True)
class TranslationRequest:
    """The texts that a client wants to be translated."""

    sources: list[SourceText]
    alternatives: int = field(default=0, kw_only=True)  # Other translations of each text that are wanted.

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


def prepare(request: TranslationRequest) -> list[PreparedText]:
    """Cut the texts of a request into sentences.

    Raises:
        UserError: if a text cannot be read.
    """
    return [source.model.prepare(source.text, source.options, source.markup) for source in request.sources]


def sentences_to_decode(prepared: Iterable[PreparedText]) -> list[Sentence]:
    """Return the sentences of texts that the model decodes. The others are copied."""
    sentences: list[Sentence] = []
    for text in prepared:
        sentences += [sentence for sentence in text.sentences if sentence.token_ids]
    return sentences


def join(
    request: TranslationRequest, prepared: Sequence[PreparedText], decoded: Mapping[str, Sequence[Ranked]]
) -> list[TranslatedText]:
    """Return the translations of the texts of a request.

    Args:
        request: what a client asked for.
        prepared: its texts.
        decoded: by the name of a model, what it wrote for the sentences of [`sentences_to_decode`].
    """
    remaining = {name: iter(ranked) for name, ranked in decoded.items()}
    translated = []
    for source, text in zip(request.sources, prepared, strict=True):
        model = source.model
        of_text: list[Ranked] = []
        for sentence in text.sentences:
            of_text.append(next(remaining[model.name]) if sentence.token_ids else ())
        translation = model.translator.join(text, of_text)
        ranked_texts = [translation.text]
        ranked_texts += [alternative.text for alternative in translation.alternatives]
        # Beams that differ in their tokens may have the same text.
        best, *others = dict.fromkeys(ranked_texts)
        translated.append(TranslatedText(best, tuple(others)))
    return translated
