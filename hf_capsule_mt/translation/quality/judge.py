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
from ..translation import Sentence
from .signals import Signs, read_signs, written_tokens

_LONG_SOURCE = 10
_LEAST_SHARE = 0.4
"""A translation is too short if its source has so many tokens, and it has less than this share of them."""
_LONGEST_PHRASE = 16
_TIMES_IN_A_ROW = 3
_REPEATED_TOKENS = 4
"""A repetition: the longest phrase, how often it stands in a row, and how many tokens are copies."""
_COPIED_SHARE = 0.5
"""A translation copies its source if this share of its words stands in the source. Names are copied too."""


@dataclass(frozen=True)
class Judgement:
    """The judgement on a translation. A blank line has no score, no ratio and no signs."""

    score: float | None = None  # The mean log-probability of its tokens, with its end.
    source_length: int | None = None  # Tokens of its source without the end.
    length_ratio: float | None = None  # Its number of tokens divided by its source's, without the ends.
    limit_reached: bool = False  # It was cut at the limit to its length.
    empty: bool = False  # It has no words.
    too_short: bool = False  # A part must be missing, as happens to lines with several sentences.
    repeats: bool = False  # It repeats a phrase many times, and its source does not.
    source_cut: bool = False  # Its source was too long for the model, so that the rest is not translated.
    copies: bool = False  # Half of its words or more stand in the source.
    adds_numbers: bool = False  # It has a number that its source lacks.
    other_script: bool = False  # It is in the script of another language.
    signs: Signs = field(default_factory=Signs)

    def fields(self) -> dict[str, Any]:
        """Return the fields of a line of the report."""
        record = asdict(self)
        signs = record.pop("signs")
        return {**record, **signs}


def judge(
    reader: TextReader,
    sentence: Sentence,
    decoded: Decoded,
    text: str | None = None,
    places: Sequence[Place] | None = None,
) -> Judgement:
    """Judge a translation of a sentence, as it is written.

    A kept part may have replaced words of the model. Nobody reads these, so their tokens do not count.

    Args:
        reader: has prepared the sentence.
        sentence: the sentence.
        decoded: its translation. If the model has read it again, the judgement has a score and signs.
        text: the translation with its kept parts, if it has any.
        places: where words of the model stand in it, as in [`Restored`]. By default all stand there.
    """
    if text is None:
        text = decoded.text
    has_end = decoded.end is not None
    are_written = written_tokens(reader.tokenizer, decoded.token_ids, decoded.text, places)
    forced = decoded.forced
    score = None
    signs = None
    if forced is not None and forced.log_probabilities is not None:
        forced = forced.of_tokens([*are_written, True] if has_end else are_written)
        score = forced.mean_log_probability
        signs = read_signs(
            forced,
            reader.tokenizer,
            (sentence.segment.text, sentence.token_ids),
            (text, decoded.token_ids),
            has_end=has_end,
            language=_language_of(reader, sentence),
            kept=sentence.segment.kept_spans,
            are_written=are_written,
            places=places,
        )
    written = list(compress(decoded.token_ids, are_written))
    judgement = judged(sentence.token_ids, decoded.token_ids, has_end, text, score, signs, written)
    return replace(judgement, source_cut=sentence.is_cut)


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


def _language_of(reader: TextReader, sentence: Sentence) -> str | None:
    """Return the language that a sentence is translated into, if its code or the tokenizer says it."""
    if sentence.segment.code:
        return reader.codes.language_of(sentence.segment.code)
    # Marian's tokenizer may know its language.
    return sentence.direction.target or getattr(reader.tokenizer, "target_lang", None) or None


def judged(
    source: Sequence[int],
    target: Sequence[int],
    ended: bool,
    text: str,
    score: float | None,
    signs: Signs | None = None,
    written: Sequence[int] | None = None,
) -> Judgement:
    """Judge a translation.

    Args:
        source: token ids of its source, with the end.
        target: its token ids without the end.
        ended: whether the model wrote an end.
        text: the translation.
        score: the mean log-probability of its tokens, or None if it was not computed.
        signs: what else is known. By default nothing.
        written: those of the token ids that stand in the text. By default all.
    """
    signs = signs or Signs()
    copies = repeated_tokens(target if written is None else written)
    # Without the end.
    source_length = max(len(source) - 1, 1)
    is_long = source_length >= _LONG_SOURCE
    return Judgement(
        score=None if score is None else round(score, 4),
        source_length=source_length,
        length_ratio=round(len(target) / source_length, 4),
        limit_reached=not ended,
        empty=not text.strip(),
        too_short=is_long and len(target) < _LEAST_SHARE * source_length,
        repeats=copies >= _REPEATED_TOKENS and copies > repeated_tokens(source),
        copies=(signs.copied or 0.0) >= _COPIED_SHARE,
        adds_numbers=bool(signs.new_numbers),
        other_script=signs.script is not None,
        signs=signs,
    )


def repeated_tokens(ids: Sequence[int]) -> int:
    """Return how many tokens are copies of the phrase before them, for phrases three times in a row or more."""
    most = 0
    longest = min(_LONGEST_PHRASE, len(ids) // _TIMES_IN_A_ROW)
    for length in range(1, longest + 1):
        copies = 0
        for index in range(length, len(ids)):
            is_copy = ids[index] == ids[index - length]
            copies = copies + 1 if is_copy else 0
            if copies >= length * (_TIMES_IN_A_ROW - 1):
                most = max(most, copies)
    return most
