"""Files of glossaries: tab-separated, comma-separated, and TermBase eXchange."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import regex

from hf_capsule_mt.data.lines import each_line, opened, without_compression
from hf_capsule_mt.errors import UserError

if TYPE_CHECKING:
    from lxml.etree import _Element

_ALTERNATIVE = regex.compile(r"(?<!\\)\|")
"""Stands between the forms of a term. After a backslash it is part of the form."""
_NOT_TO_USE = ("deprecatedTerm", "supersededTerm")
"""How the values of TBX's administrativeStatus begin for terms that must not be used."""


@dataclass(frozen=True)
class Entry:
    """One entry of a glossary."""

    sources: tuple[str, ...]
    """The forms of the term in the source language."""
    targets: tuple[str, ...]
    """The forms that a translation may use. The first is the one to name in messages."""
    place: str = field(default="", compare=False)
    """The file and line of the entry, for messages."""


def read_entries(path: Path, source_lang: str | None, target_lang: str | None) -> list[Entry]:
    """Read the entries of a file, at least one, for these languages. [`Glossary.read`] describes the formats.

    Raises:
        UserError: if the file is damaged or has no entry for the languages. The message names file and line.
    """
    suffix = without_compression(path).suffix
    readers = {".tsv": _read_tsv, ".csv": _read_csv, ".tbx": _read_tbx}
    if suffix not in readers:
        raise UserError(f"{path} is no glossary. Give a file .tsv, .csv or .tbx.")

    entries = list(readers[suffix](path, source_lang, target_lang))
    if not entries:
        languages = ""
        if source_lang and target_lang:
            languages = f" from {source_lang} to {target_lang}"
        raise UserError(f"{path} has no entry{languages}.")
    return entries


def read_rows(lines: Iterable[str], suffix: str, name: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of a glossary with their places, for messages.

    Args:
        lines: without their ends. Blank ones are passed over.
        suffix: ".tsv" or ".csv".
        name: stands in front of the number of a line, such as "terms.tsv:".

    Returns:
        The place of each row, and its fields: a source, a target, and in CSV perhaps both languages.

    Raises:
        UserError: if a row has another number of fields, or quotes are wrong.
    """
    if suffix == ".tsv":
        return _tsv_rows(lines, name)
    return _csv_rows(lines, name)


def _tsv_rows(lines: Iterable[str], name: str) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{name}{number}"
        sides = line.split("\t")
        if len(sides) != 2:
            raise UserError(f"{place}: a line has a source, one tab, and a target. This one has {len(sides)} parts.")
        yield place, sides


def _csv_rows(lines: Iterable[str], name: str) -> Iterator[tuple[str, list[str]]]:
    rows = csv.reader((f"{line}\n" for line in lines), strict=True)
    try:
        for row in rows:
            if not row:
                continue
            place = f"{name}{rows.line_num}"
            if len(row) not in (2, 4):
                raise UserError(
                    f"{place}: a row has a source, a target and perhaps both languages, with commas between them. "
                    f"This one has {len(row)} fields."
                )
            yield place, row
    except csv.Error as error:
        raise UserError(f"{name}{rows.line_num}: {error}. Check the quotes of this row.") from error


def _read_tsv(path: Path, source_lang: str | None, target_lang: str | None) -> Iterator[Entry]:
    lines = _without_comments(each_line(path))
    for place, (source, target) in read_rows(lines, ".tsv", f"{path}:"):
        yield Entry(_forms(source), _forms(target), place)


def _without_comments(lines: Iterable[str]) -> Iterator[str]:
    """Yield an empty line for each comment, since the numbers of lines are in messages."""
    for line in lines:
        if line.startswith("#"):
            yield ""
        else:
            yield line


def _read_csv(path: Path, source_lang: str | None, target_lang: str | None) -> Iterator[Entry]:
    for place, row in read_rows(each_line(path), ".csv", f"{path}:"):
        if len(row) == 4 and not _is_pair(row[2:], source_lang, target_lang, place):
            continue
        yield Entry(_forms(row[0]), _forms(row[1]), place)


def _forms(text: str) -> tuple[str, ...]:
    """Return the alternatives of one side of an entry."""
    forms = []
    for form in _ALTERNATIVE.split(text):
        forms.append(form.strip().replace(r"\|", "|"))
    return tuple(dict.fromkeys(forms))


def _is_pair(row: Sequence[str], source_lang: str | None, target_lang: str | None, place: str) -> bool:
    """Return whether the languages of a row are the wanted ones."""
    if source_lang is None or target_lang is None:
        raise UserError(f"{place}: the row names its languages. Name both languages of the translation, too.")
    return _is_language(row[0], source_lang) and _is_language(row[1], target_lang)


def _is_language(code: str, wanted: str) -> bool:
    """Return whether a code such as "en-US" stands for the wanted language, such as "en"."""
    code = code.lower().replace("_", "-")
    wanted = wanted.lower().replace("_", "-")
    return code == wanted or code.startswith(f"{wanted}-")


def _read_tbx(path: Path, source_lang: str | None, target_lang: str | None) -> Iterator[Entry]:
    from lxml import etree

    if source_lang is None or target_lang is None:
        raise UserError(f"{path} has several languages. Name both languages of the translation.")

    tags = ("{*}termEntry", "{*}conceptEntry")
    try:
        with opened(path) as file:
            for _, concept in etree.iterparse(file, tag=tags, resolve_entities=False, load_dtd=False, no_network=True):
                place = f"{path}:{concept.sourceline}"
                sources = _terms_of(concept, source_lang, place)
                targets = _terms_of(concept, target_lang, place)
                if sources and targets:
                    yield Entry(sources, targets, place)
                # The parser keeps all that it has read.
                concept.clear()
    except etree.XMLSyntaxError as error:
        raise UserError(f"{path}: {error}") from error


def _terms_of(concept: "_Element", language: str, place: str) -> tuple[str, ...]:
    """Return the terms of a concept in a language, without those that must not be used."""
    xml_lang = "{http://www.w3.org/XML/1998/namespace}lang"
    forms: list[str] = []
    for section in concept.iter("{*}langSet", "{*}langSec"):
        code = section.get(xml_lang) or section.get("lang") or ""
        if not _is_language(code, language):
            continue
        for group in section.iter("{*}tig", "{*}ntig", "{*}termSec"):
            term = next(group.iter("{*}term"), None)
            if term is not None and not _is_deprecated(group):
                forms.append(_text_of(term, place))
    return tuple(dict.fromkeys(filter(None, forms)))


def _is_deprecated(group: "_Element") -> bool:
    for note in group.iter("{*}termNote"):
        is_status = note.get("type") == "administrativeStatus"
        status = (note.text or "").strip()
        if is_status and status.startswith(_NOT_TO_USE):
            return True
    return False


def _text_of(term: "_Element", place: str) -> str:
    for part in term.iter():
        if not isinstance(part.tag, str) and getattr(part, "name", None):
            raise UserError(f"{place}: the entity &{part.name}; is not read.")
    text = "".join(term.itertext())
    return " ".join(text.split())
