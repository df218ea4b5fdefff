"""A report as one page to open: the worst translations first, with filters, a search, and marks in both texts.

The page has all that it needs, and loads nothing. Its rows are data, which a script of the page draws as text.
"""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import regex
from jinja2 import Environment

from hf_capsule_mt.data.lines import each_line
from hf_capsule_mt.files import replace_text

from .faults import FAULTS, faults_in
from .suspicion import signals_of, suspicion, weight_of_faults

MOST_ROWS = 20_000
"""A page has so many translations at most, the worst ones. A browser opens it in about two seconds."""
HINTS = {
    "missing_term": "a term is missing",
    "placed": "a placeholder was put in",
    "uncovered": "uncovered words",
    "lacks_numbers": "lacks a number",
}
"""What else a reader may look for."""
_NUMBERS = ("score", "lowest", "lowest_word", "coverage", "length_ratio")
_HERE = Path(__file__).parent


class MarkedPart(NamedTuple):
    """A part of a text that is marked."""

    start: int
    end: int
    kind: str


def write_report_page(reports: Sequence[Path], page: Path, title: str) -> None:
    """Write reports as a page of HTML.

    Args:
        reports: files of `translate --report_file`, each of one or several files.
        page: the page. It is written whole or not at all.
        title: what was translated.
    """
    counts: Counter[str] = Counter()
    files: dict[str, int] = {}
    signals = []
    weights = []
    marked = 0
    names = {fault.name for fault in FAULTS}
    for record in _records(reports):
        kinds = kinds_of(record)
        counts.update(kinds)
        marked += not names.isdisjoint(kinds)
        files.setdefault(record.get("file") or title, len(files))
        signals.append(signals_of(record))
        weights.append(weight_of_faults(record))
    total = len(signals)

    # Facts come first. Equal ones stay in the order of the files.
    unusual = suspicion(np.array(signals)) if total else np.zeros(0)
    worst = np.lexsort((-unusual, -np.array(weights)))[:MOST_ROWS]
    rank_of = {int(number): rank for rank, number in enumerate(worst)}

    rows: list[Any] = [None] * len(worst)
    for number, record in enumerate(_records(reports)):
        if number in rank_of:
            file = files[record.get("file") or title]
            rows[rank_of[number]] = {"number": number, "file": file, **row_of(record)}

    words_of = {fault.name: fault.words for fault in FAULTS} | HINTS
    kinds = []
    for name, words in words_of.items():
        if counts[name]:
            kinds.append({"name": name, "words": words, "count": counts[name]})
    data = {"files": list(files), "kinds": kinds, "faults": sorted(names), "rows": rows}
    replace_text(page, _page(title, data, total, marked))


def _records(reports: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield the lines of reports that have a source."""
    for report in reports:
        for line in each_line(report):
            record = json.loads(line)
            # A blank line has nothing to look at.
            if record["source"].strip():
                yield record


def kinds_of(record: Mapping[str, Any]) -> list[str]:
    """Return the names of the faults and hints of a line of a report."""
    kinds = [fault.name for fault in faults_in(record)]
    states = {
        "missing_term": any(term["state"] == "missing" for term in record.get("terms", ())),
        "placed": any(part["state"] == "placed" for part in record.get("placeholders", ())),
        "uncovered": bool(record.get("uncovered")),
        "lacks_numbers": bool(record.get("missing_numbers")),
    }
    return kinds + [name for name, holds in states.items() if holds]


def row_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a line of a report.

    Returns:
        "source" and "translation" are lists of parts. A marked part is a list of its kind and its text. So the script
        need not know how a text is counted.
    """
    source = record["source"]
    translation = record["translation"]
    row = {
        "line": record["line"],
        "sentence": record["sentence"],
        "source": _parts(source, _source_marks(record)),
        "translation": _parts(translation, _translation_marks(record)),
        "kinds": kinds_of(record),
    }

    for name in ("unit", "context"):
        # The message of a catalogue of gettext is its own name.
        if record.get(name) and record[name] != source:
            row[name] = record[name]
    for name in _NUMBERS:
        if record.get(name) is not None:
            row[name] = record[name]

    missing = [term for term in record.get("terms", ()) if term["state"] == "missing"]
    if missing:
        row["missing"] = [f"{term['source']} → {term['target']}" for term in missing]
    return row


def _source_marks(record: Mapping[str, Any]) -> list[MarkedPart]:
    """Return the marks in a source, those that must not be covered first."""
    source = record["source"]
    marks = [MarkedPart(part["start"], part["end"], "placeholder") for part in record.get("placeholders", ())]
    for term in record.get("terms", ()):
        kind = "missing" if term["state"] == "missing" else "term"
        marks += _found(source, term["source"], kind)
    marks += [MarkedPart(word["start"], word["end"], "uncovered") for word in record.get("uncovered") or ()]
    for number in record.get("missing_numbers") or ():
        marks += _found(source, number, "number")
    return marks


def _translation_marks(record: Mapping[str, Any]) -> list[MarkedPart]:
    """Return the marks in a translation, those that must not be covered first."""
    translation = record["translation"]
    marks = []
    for part in record.get("placeholders", ()):
        kind = "placed" if part["state"] == "placed" else "placeholder"
        marks += _found(translation, part["text"], kind)
    for term in record.get("terms", ()):
        if term["form"] is not None:
            marks += _found(translation, term["form"], "term")
    for number in record.get("new_numbers") or ():
        marks += _found(translation, number, "number")
    if record.get("lowest_word"):
        marks += _found(translation, record["lowest_word"], "lowest")
    return marks


def _found(text: str, part: str, kind: str) -> list[MarkedPart]:
    """Return a mark where a part stands in a text, in small or capital letters, first as a word of its own."""
    escaped = regex.escape(part)
    for expression in (rf"(?<!\w){escaped}(?!\w)", escaped):
        match = regex.search(expression, text, regex.IGNORECASE)
        if match is not None and match[0]:
            return [MarkedPart(*match.span(), kind)]
    return []


def _parts(text: str, marks: Sequence[MarkedPart]) -> list[str | list[str]]:
    """Return a text as plain parts and marked ones. Where two marks overlap, the first one of the list stays."""
    chosen: list[MarkedPart] = []
    for mark in marks:
        if all(mark.end <= other.start or other.end <= mark.start for other in chosen):
            chosen.append(mark)

    parts: list[str | list[str]] = []
    place = 0
    for mark in sorted(chosen):
        parts.append(text[place : mark.start])
        parts.append([mark.kind, text[mark.start : mark.end]])
        place = mark.end
    parts.append(text[place:])
    return [part for part in parts if part]


def _page(title: str, data: Mapping[str, Any], total: int, marked: int) -> str:
    """Return the page.

    Its policy allows only its own script and style, by their hashes.
    """
    script = (_HERE / "report_page.js").read_text(encoding="utf-8")
    style = (_HERE / "report_page.css").read_text(encoding="utf-8")

    # Inside of a script nothing but these characters could end it, or begin a comment.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

    template = Environment(autoescape=True).from_string((_HERE / "report_page.html").read_text(encoding="utf-8"))
    return template.render(
        title=title,
        script=script,
        script_hash=_hash(script),
        style=style,
        style_hash=_hash(style),
        data=text,
        total=total,
        shown=len(data["rows"]),
        marked=marked,
    )


def _hash(text: str) -> str:
    """Return the hash of a script or style, as a policy for contents names it."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
