"""A report of translations: how likely and how long each is, and whether it looks wrong."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ..generation.decoder import Decoded
from ..preparation import TextReader
from ..translation import Sentence
from .judge import Judgement, aligned_terms, judge

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


def report_record(reader: TextReader, sentence: Sentence, decoded: Decoded | None) -> dict[str, Any]:
    """Return what a report says of a sentence and its best translation, without its place.

    Args:
        reader: has prepared the sentence.
        sentence: the sentence.
        decoded: its translation, or None for a sentence without token ids.
    """
    if decoded is None:
        judgement = Judgement(source_cut=sentence.is_cut)
        return {"source": sentence.segment.text, "translation": sentence.copy or "", **judgement.fields()}
    record = {
        "source": sentence.segment.text,
        "translation": decoded.text,
        **judge(reader, sentence, decoded).fields(),
    }
    if decoded.terms:
        record["terms"] = [asdict(term) for term in aligned_terms(reader, sentence, decoded)]
    return record


def mean_score(report: Iterable[str]) -> float | None:
    """Return the mean of the scores in the lines of a report, or None if there is none."""
    scores = [json.loads(line)["score"] for line in report]
    scores = [score for score in scores if score is not None]
    if not scores:
        return None
    return sum(scores) / len(scores)


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
    terms = None
    if missing_terms:
        terms = f"{missing_terms} terms of the glossary are missing."
    if not marked_lines:
        return terms
    parts = []
    for kind, words in _FAULTS.items():
        if counts[kind]:
            parts.append(f"{counts[kind]} {words}")
    marked = (
        f"{len(marked_lines)} of {total} translations are marked: {', '.join(parts)}. The first is of line "
        f"{marked_lines[0]}."
    )
    if terms is None:
        return marked
    return f"{marked} {terms}"
