"""A report of translations: how likely and how long each is, and whether it looks wrong."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..generation.decoder import Decoded
from ..preparation import TextReader
from ..tags.segments import MarkedSegment
from ..terms.forcing import PlacedTerm
from ..text.segments import Place
from ..translation import Sentence
from .faults import faults_in, named_with_numbers
from .judge import Judgement, aligned_terms, judge

_OF_LINES = {"line", "sentence", "source", "translation"}
"""What each line of a report has."""


def report_record(
    reader: TextReader,
    sentence: Sentence,
    decoded: Decoded | None,
    written: str,
    places: Sequence[Place] | None = None,
) -> dict[str, Any]:
    """Return what a report says of a sentence and its best translation, without its place.

    Args:
        reader: has prepared the sentence.
        sentence: the sentence.
        decoded: what the model wrote, or None for a sentence without token ids.
        written: the translation with its tags and kept parts.
        places: where words of the model stand in it, as in [`Restored`]. By default all stand there.
    """
    segment = sentence.segment
    translation = segment.without_tags(written)
    judgement = Judgement()
    if decoded is not None:
        judgement = judge(reader, sentence, decoded, translation, places)
    record = {"source": segment.text, "translation": translation, **judgement.fields()}
    if decoded is not None and decoded.terms:
        record["terms"] = [_term(term, translation) for term in aligned_terms(reader, sentence, decoded)]
    if decoded is not None and segment.kept_spans:
        record["placeholders"] = _placeholders(segment, decoded.text)
    return record


def _term(term: PlacedTerm, translation: str) -> dict[str, Any]:
    """Return what became of a term. A kept part may have been put where the model wrote it."""
    if term.form is not None and term.form.casefold() not in translation.casefold():
        term = replace(term, form=None, state="missing", aligned=None)
    return asdict(term)


def _placeholders(segment: MarkedSegment, translation: str) -> list[dict[str, Any]]:
    """Return the kept parts of a sentence, their places in it, and how they came into what the model wrote."""
    placeholders = []
    for (start, end), is_copied in segment.copied_parts(translation):
        state = "model" if is_copied else "placed"
        placeholders.append({"text": segment.text[start:end], "start": start, "end": end, "state": state})
    return placeholders


def is_report(path: Path) -> bool:
    """Return whether a file has lines of a report. One of no sentences is empty."""
    with open(path, "rb") as file:
        first_line = file.readline()
    if not first_line:
        return True
    try:
        record = json.loads(first_line)
    except ValueError:
        return False
    return isinstance(record, dict) and record.keys() >= _OF_LINES


def summary(report: Iterable[str]) -> str | None:
    """Return a sentence about the translations of a report that look wrong, or None if all look right.

    `report` has the lines of the report, in JSON. Earlier reports lack some fields, and others may have more.
    """
    counts: Counter[str] = Counter()
    first_marked = ""
    num_marked = 0
    total = 0
    missing_terms = 0

    for line in report:
        record = json.loads(line)
        total += 1
        missing_terms += sum(term["state"] == "missing" for term in record.get("terms", ()))
        faults = faults_in(record)
        counts.update(fault.name for fault in faults)
        if faults:
            num_marked += 1
            first_marked = first_marked or _place(record)

    sentences = []
    if num_marked:
        sentences.append(f"{num_marked} of {total} translations are marked: {named_with_numbers(counts)}.")
        sentences.append(f"The first is of {first_marked}.")
    if missing_terms:
        sentences.append(f"{missing_terms} terms of the glossary are missing.")
    return " ".join(sentences) or None


def _place(record: Mapping[str, Any]) -> str:
    """Return where a translation of a report stands, such as "line 3" or "line 3 of de.po"."""
    line = f"line {record['line']}"
    file = record.get("file")
    return line if file is None else f"{line} of {file}"
