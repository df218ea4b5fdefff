"""What goes into a translator and what comes out: the sentences of a text, and translations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hf_capsule_mt.data.languages import ONE_PAIR, Direction

from .alignment.links import WordLink, copied_words, joined_links
from .text.segments import Segment


@dataclass(frozen=True)
class Translation:
    """A translation of a text or of a sentence, with its tags and kept parts.

    The score is the log-probability of its tokens, divided by their number to the power of `length_penalty`, by default
    1. So it is 0 at most, and higher is better. The number has the end of the translation. The score of a text is the
    mean of those of its sentences, by the number of tokens of their sources.
    """

    text: str
    score: float | None = None  # None if nobody asked for it, or nothing was decoded.
    links: tuple[WordLink, ...] | None = None  # One for each aligned word of the translation. None if not asked for.
    alternatives: tuple["Translation", ...] = ()  # Other translations, the best first.
    # The next ones are of a sentence, and of a text.
    record: dict[str, Any] | None = None  # What a report says of it, without its place. None if not asked for.
    sentences: tuple["Translation", ...] = ()  # Of its sentences, if their records or links were asked for.

    def number(self, index: int) -> "Translation":
        """Return this translation for 0, and an alternative for others. There may be fewer: then it is the last."""
        ranked = [self, *self.alternatives]
        return ranked[min(index, len(ranked) - 1)]

    def fields(self, has_score: bool) -> dict[str, Any]:
        """Return what a pipeline returns: `translation_text`, and what was asked for."""
        record: dict[str, Any] = {"translation_text": self.text}
        if has_score:
            record["score"] = self.score
        if self.links is not None:
            record["word_alignment"] = [(link.source, link.target) for link in self.links]
            record["character_alignment"] = [(link.source_span, link.target_span) for link in self.links]
        return record


@dataclass(frozen=True)
class Sentence:
    """A segment of a text, and what the model reads of it."""

    segment: Segment
    token_ids: list[int]  # Empty if nothing is decoded.
    copy: str | None = None  # The translation of a segment without letters.
    is_cut: bool = False  # It was longer than the model reads.
    direction: Direction = ONE_PAIR  # Whose first token its translation begins with.
    terms: tuple[Any, ...] = ()  # What a glossary says that its translation must have, one `Term` each.

    def unread(self, *, has_links: bool = False) -> Translation:
        """Return the translation of a sentence without token ids, with its tags and kept parts.

        Without letters it is copied. The tokenizer makes nothing of some words.
        """
        copied = self.copy or ""
        links = None
        if has_links:
            links = copied_words(self.segment.text, copied)
        return Translation(self.segment.put_back(copied), None, links)


@dataclass(frozen=True)
class PreparedText:
    """The sentences of a text, at least one."""

    sentences: Sequence[Sentence]
    text: str = ""  # The source.

    def join(self, translations: Sequence[Translation], *, has_links: bool = False) -> Translation:
        """Return the translation of the text. Its alternative k has alternative k of each sentence.

        Args:
            translations: those of its sentences.
            has_links: whether they have links. Then the text has them too.
        """
        count = 1 + max(len(translation.alternatives) for translation in translations)
        lengths = [len(sentence.token_ids) for sentence in self.sentences]
        ranked = []
        for number in range(count):
            chosen = [translation.number(number) for translation in translations]
            parts = []
            for sentence, translation in zip(self.sentences, chosen, strict=True):
                parts.append(sentence.segment.around(translation.text))
            text = "".join(parts)
            links = None
            if has_links:
                links = self._links(chosen, text)
            score = score_of_text([translation.score for translation in chosen], lengths)
            ranked.append(Translation(text, score, links))
        best = with_alternatives(ranked)
        if has_links or any(translation.record is not None for translation in translations):
            best = replace(best, sentences=tuple(translations))
        return best

    def _links(self, translations: Sequence[Translation], target: str) -> tuple[WordLink, ...]:
        """Return which words of the text and of its translation belong together."""
        parts: list[tuple[str, str, Sequence[WordLink]]] = []
        for sentence, translation in zip(self.sentences, translations, strict=True):
            before = sentence.segment.before
            after = sentence.segment.after
            # What has no letters, such as a number between two sentences, stands there too.
            parts.append((before, before, copied_words(before, before)))
            parts.append((sentence.segment.text, translation.text, translation.links or ()))
            parts.append((after, after, copied_words(after, after)))
        return joined_links(parts, self.text, target)


def with_alternatives(ranked: Sequence[Translation]) -> Translation:
    """Return the first translation with the others as its alternatives."""
    return replace(ranked[0], alternatives=tuple(ranked[1:]))


def score_of_text(scores: Sequence[float | None], lengths: Sequence[int]) -> float | None:
    """Return the mean of the scores of sentences, by the number of tokens of their sources. None if none has any."""
    total = 0.0
    weight = 0
    for score, length in zip(scores, lengths, strict=True):
        if score is not None:
            total += score * length
            weight += length
    if not weight:
        return None
    return total / weight
