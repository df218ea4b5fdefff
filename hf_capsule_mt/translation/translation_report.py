"""A report of translations: how likely and how long each is, and whether it looks wrong."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .trust import Signs

_LONG_SOURCE = 10
_LEAST_SHARE = 0.4
"""A translation is too short if its source has so many tokens, and it has less than this share of them."""
_LONGEST_PHRASE = 16
_TIMES_IN_A_ROW = 3
_REPEATED_TOKENS = 4
"""A repetition: the longest phrase, how often it stands in a row, and how many tokens are copies."""
_FAULTS = {
    "empty": "empty",
    "too_short": "far too short",
    "limit_reached": "at the limit of their length",
    "repeats": "repeating",
    "source_cut": "of a source that was cut",
    "copies": "copying their source",
    "adds_numbers": "with a number that their source lacks",
    "other_script": "in the script of another language",
    "low_coverage": "leaving out much of their source",
}
"""What may be wrong with a translation, and the words for it."""
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
    low_coverage: bool = False  # Its source gets less attention than almost all sources of the calibration.
    signs: Signs = field(default_factory=Signs)

    def fields(self) -> dict[str, Any]:
        """Return the fields of a line of the report."""
        record = asdict(self)
        signs = record.pop("signs")
        return {**record, **signs}


def judge(
    source: Sequence[int],
    target: Sequence[int],
    ended: bool,
    text: str,
    score: float | None,
    signs: Signs | None = None,
) -> Judgement:
    """Judge a translation.

    Args:
        source: token ids of its source, with the end.
        target: its token ids without the end.
        ended: whether the model wrote an end.
        text: the translation.
        score: the mean log-probability of its tokens, or None if it was not computed.
        signs: what else is known. By default nothing.
    """
    signs = signs or Signs()
    copies = repeated_tokens(target)
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


def mean_score(report: Iterable[str]) -> float | None:
    """Return the mean of the scores in the lines of a report, or None if there is none."""
    scores = [json.loads(line)["score"] for line in report]
    scores = [score for score in scores if score is not None]
    return sum(scores) / len(scores) if scores else None


def faults(report: Iterable[str]) -> str | None:
    """Return a sentence about the translations of a report that look wrong, or None if all look right.

    `report` has the lines of the report, in JSON. Earlier reports lack some fields, and others may have more.
    """
    counts: Counter[str] = Counter()
    marked_lines = []
    total = 0
    missing_terms = 0
    for line in report:
        judged = json.loads(line)
        total += 1
        kinds = [kind for kind in _FAULTS if judged.get(kind)]
        missing_terms += sum(term["state"] == "missing" for term in judged.get("terms", ()))
        counts.update(kinds)
        if kinds:
            marked_lines.append(judged["line"])
    terms = f"{missing_terms} terms of the glossary are missing." if missing_terms else None
    if not marked_lines:
        return terms
    parts = [f"{counts[kind]} {words}" for kind, words in _FAULTS.items() if counts[kind]]
    marked = (
        f"{len(marked_lines)} of {total} translations are marked: {', '.join(parts)}. The first is of line "
        f"{marked_lines[0]}."
    )
    return f"{marked} {terms}" if terms else marked
