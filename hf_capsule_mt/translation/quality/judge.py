"""Judgements on translations: what looks wrong, by the words, and by a pass in which the model reads them again.

Quality stands beside the translator. It takes what was decoded, and nothing that is decoded depends on it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import compress
from typing import Any

from ..alignment.words import attended_span
from ..generation.decoder import Decoded
from ..preparation import TextReader
from ..terms.forcing import PlacedTerm
from ..terms.glossary import places_of_terms
from ..text.segments import Place
from ..text.words import Span
from ..translation import Sentence
from .faults import FAULTS, Evidence, faults_of
from .signals import Signals, forced_tokens, read_signals, written_tokens


@dataclass(frozen=True)
class Judgement:
    """The judgement on a translation. A blank line has no score, no ratio and no signals."""

    score: float | None = None  # The mean log-probability of its tokens, with its end.
    source_length: int | None = None  # Tokens of its source without the end.
    length_ratio: float | None = None  # Its number of tokens divided by its source's, without the ends.
    faults: tuple[str, ...] = ()  # The names of those in `FAULTS` that it has.
    signals: Signals = field(default_factory=Signals)

    def fields(self) -> dict[str, Any]:
        """Return the fields of a line of the report."""
        numbers = {"score": self.score, "source_length": self.source_length, "length_ratio": self.length_ratio}
        faults = {fault.name: fault.name in self.faults for fault in FAULTS if fault.holds is not None}
        return {**numbers, **faults, **asdict(self.signals)}


def judge(
    reader: TextReader,
    sentence: Sentence,
    decoded: Decoded,
    text: str | None = None,
    places: Sequence[Place] | None = None,
) -> Judgement:
    """Judge a translation of a sentence, as it is written.

    A kept part may have replaced words of the model. Nobody reads these, so their tokens do not count. Neither do the
    tokens of a term that the search had to write: the model did not choose them.

    Args:
        reader: has prepared the sentence.
        sentence: the sentence.
        decoded: its translation. If the model has read it again, the judgement has a score and signals.
        text: the translation with its kept parts, if it has any.
        places: where words of the model stand in it, as in [`Restored`]. By default all stand there.
    """
    if text is None:
        text = decoded.text
    has_end = decoded.end is not None
    are_written = written_tokens(reader.tokenizer, decoded.token_ids, decoded.text, places)

    forced = decoded.forced
    score = None
    signals = Signals()
    if forced is not None and forced.log_probabilities is not None:
        are_forced = forced_tokens(reader.tokenizer, decoded.token_ids, _places_of_forced_terms(sentence, decoded))
        are_scored = [is_written and not is_forced for is_written, is_forced in zip(are_written, are_forced)]
        scored = forced.of_tokens([*are_scored, True] if has_end else are_scored)
        forced = forced.of_tokens([*are_written, True] if has_end else are_written)
        forced = replace(forced, log_probabilities=scored.log_probabilities)
        score = forced.mean_log_probability
        signals = read_signals(
            forced,
            reader.tokenizer,
            (sentence.segment.text, sentence.token_ids),
            (text, decoded.token_ids),
            has_end=has_end,
            language=_language_of(reader, sentence),
            kept=sentence.segment.kept_spans,
            are_scored=are_scored,
            places=places,
        )
    evidence = Evidence(
        sentence.token_ids,
        decoded.token_ids,
        text,
        has_end=has_end,
        written=list(compress(decoded.token_ids, are_written)),
        is_source_cut=sentence.is_cut,
        signals=signals,
    )
    return judged(evidence, score)


def aligned_terms(reader: TextReader, sentence: Sentence, decoded: Decoded) -> tuple[PlacedTerm, ...]:
    """Return what became of the terms of a sentence, with whether the model looked at them when it wrote them.

    Args:
        reader: has prepared the sentence.
        sentence: the sentence.
        decoded: its translation. Without the attention nobody knows where the model looked.
    """
    if not decoded.terms or decoded.forced is None or decoded.forced.mean_attention is None:
        return decoded.terms

    attention = decoded.forced.mean_attention
    source = sentence.segment.text, sentence.token_ids
    places = places_of_terms(decoded.text, sentence.terms)

    completed = []
    for placed, term, place in zip(decoded.terms, sentence.terms, places, strict=True):
        if place is not None:
            span = attended_span(attention, reader.tokenizer, source, decoded.token_ids, place[:2])
            is_aligned = span is not None and span[0] < term.end and term.start < span[1]
            placed = replace(placed, aligned=is_aligned)
        completed.append(placed)
    return tuple(completed)


def _places_of_forced_terms(sentence: Sentence, decoded: Decoded) -> list[Span]:
    """Return where the terms stand in what the model wrote that it would not have written by itself."""
    if not any(term.state == "forced" for term in decoded.terms):
        return []
    spans = []
    places = places_of_terms(decoded.text, sentence.terms)
    for placed, place in zip(decoded.terms, places, strict=True):
        if placed.state == "forced" and place is not None:
            spans.append(place[:2])
    return sorted(spans)


def _language_of(reader: TextReader, sentence: Sentence) -> str | None:
    """Return the language that a sentence is translated into, if its code or the tokenizer says it."""
    if sentence.segment.code:
        return reader.codes.language_of(sentence.segment.code)
    # Marian's tokenizer may know its language.
    return sentence.direction.target or getattr(reader.tokenizer, "target_lang", None) or None


def judged(evidence: Evidence, score: float | None) -> Judgement:
    """Judge a translation.

    Args:
        evidence: what is known of it.
        score: the mean log-probability of its tokens, or None if it was not computed.
    """
    return Judgement(
        score=None if score is None else round(score, 4),
        source_length=evidence.source_length,
        length_ratio=round(len(evidence.target) / evidence.source_length, 4),
        faults=faults_of(evidence),
        signals=evidence.signals,
    )
