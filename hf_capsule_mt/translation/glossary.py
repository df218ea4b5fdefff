"""Glossaries: terms of a source language with the forms that a translation must use, and where texts contain them."""

import csv
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import regex

from hf_capsule_mt.data.lines import each_line, opened, without_compression
from hf_capsule_mt.errors import UserError

from .marked_segments import IN_WORD, UNSPACED

if TYPE_CHECKING:
    from lxml.etree import _Element

_ATOM = regex.compile(rf"[{UNSPACED}]\p{{M}}*|{IN_WORD}+|\S\p{{M}}*")
"""A word, a letter of a script without spaces, or a sign. A term begins and ends between two of them."""
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


@dataclass(frozen=True)
class Term:
    """An entry in a source text, which its translation must contain."""

    source: str
    """The words of the text."""
    start: int
    """Its first character in the text."""
    end: int
    """The character behind it."""
    entry: Entry


@dataclass
class _Node:
    """A place in the tree of all terms. The way to it spells the beginning of a term."""

    following: dict[str, "_Node"] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    """The entries that end here, by their form. The key of an entry that matches any case is in lower case."""


class Glossary:
    """Terms and their translations.

    Args:
        entries: the entries.

    Raises:
        UserError: if two entries have the same source form, or a side of an entry is empty.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)
        self._root = _Node()
        for entry in self.entries:
            _check_entry(entry)
            for form in entry.sources:
                self._add(form, entry)

    @classmethod
    def read(cls, path: str | Path, source_lang: str | None = None, target_lang: str | None = None) -> "Glossary":
        """Read a glossary from a file.

        * `.tsv`: source, a tab, target. Lines that begin with `#` are comments.
        * `.csv`: the same with commas, as DeepL exports it. A third and fourth column name both languages.
        * `.tbx`: TermBase eXchange of 2008 and 2019. Terms that it calls deprecated are left out.

        Both sides may have several forms, as in `printer|printers`. The file may be compressed, as in `.tsv.gz`.

        Args:
            path: the file, in UTF-8.
            source_lang: the source language, such as "en". TBX needs it, and CSV with columns of languages.
            target_lang: the target language, for the same files.

        Raises:
            UserError: if the file is damaged, has no entry for these languages, or two entries for one source. The
                message names file and line.
        """
        path = Path(path)
        suffix = without_compression(path).suffix
        readers = {".tsv": _read_tsv, ".csv": _read_csv, ".tbx": _read_tbx}
        if suffix not in readers:
            raise UserError(f"{path} is no glossary. Give a file .tsv, .csv or .tbx.")
        entries = list(readers[suffix](path, source_lang, target_lang))
        if not entries:
            languages = f" from {source_lang} to {target_lang}" if source_lang and target_lang else ""
            raise UserError(f"{path} has no entry{languages}.")
        return cls(entries)

    def terms(self, text: str) -> list[Term]:
        """Return the terms in a source text, from left to right.

        The longest term wins, and terms do not overlap. A term that occurs twice is there twice. An entry with a
        capital letter matches only as it is written. Others match in any case.
        """
        atoms = list(_ATOM.finditer(text))
        terms: list[Term] = []
        index = 0
        while index < len(atoms):
            length, entry = self._longest(text, atoms, index)
            if entry is None:
                index += 1
                continue
            start = atoms[index].start()
            end = atoms[index + length - 1].end()
            terms.append(Term(text[start:end], start, end, entry))
            index += length
        return terms

    def _add(self, form: str, entry: Entry) -> None:
        node = self._root
        for atom in _ATOM.findall(form):
            node = node.following.setdefault(_folded(atom), _Node())
        key = _spelling(form) if _has_capital(form) else _folded(_spelling(form))
        other = node.entries.setdefault(key, entry)
        if other is not entry:
            raise UserError(f"{entry.place}: the glossary has {form!r} twice. It is also in {other.place}.")

    def _longest(self, text: str, atoms: Sequence[regex.Match], first: int) -> tuple[int, Entry | None]:
        """Return the number of atoms of the longest term that begins with the atom `first`, and its entry."""
        longest = 0
        longest_entry = None
        node = self._root
        for index in range(first, len(atoms)):
            following = node.following.get(_folded(atoms[index][0]))
            if following is None:
                break
            node = following
            spelling = _spelling(text[atoms[first].start() : atoms[index].end()])
            entry = node.entries.get(spelling) or node.entries.get(_folded(spelling))
            if entry is not None:
                longest = index - first + 1
                longest_entry = entry
        return longest, longest_entry


def placed_forms(translation: str, terms: Sequence[Term]) -> list[str | None]:
    """Return which form of each term a translation contains, or None for a term that it lacks.

    Each term needs words of its own: one `Haus` counts for one of two terms. As many terms as possible get their words.
    A form stands at word boundaries and is written as in the glossary, but it may begin a sentence with a capital.
    """
    return [None if place is None else place[2] for place in places_of_terms(translation, terms)]


def places_of_terms(translation: str, terms: Sequence[Term]) -> list[tuple[int, int, str] | None]:
    """Return the place of each term in a translation, and the form there, as [`placed_forms`] chooses them."""
    return _most_without_overlap([_spans(translation, term.entry.targets) for term in terms])


def capitalised(form: str) -> str:
    """Return a form as it begins a sentence. A word with a capital inside, such as iPhone, stays as it is."""
    first_word = form.split(" ", 1)[0]
    return form if _has_capital(first_word) else form[:1].upper() + form[1:]


def count_forms(text: str, forms: Sequence[str]) -> int:
    """Return how often one of the forms of a term stands in a text, without counting words twice."""
    count = 0
    behind = 0
    for start, end, _ in sorted(_spans(text, forms)):
        if start >= behind:
            count += 1
            behind = end
    return count


def copies(text: str, terms: Sequence[Term]) -> list[int]:
    """Return, for each term, how often one of its forms is in a translation beyond the times that all terms ask for.

    Two terms may have a form in common, as "coat" and "jacket" have "Jacke". Then each may be there for the other.
    """
    numbers = []
    for term in terms:
        forms = {*term.entry.targets}
        needed = sum(not forms.isdisjoint(other.entry.targets) for other in terms)
        numbers.append(max(0, count_forms(text, term.entry.targets) - needed))
    return numbers


_Span = tuple[int, int, str]
"""First character, the character behind, and the form."""


def _spans(text: str, forms: Sequence[str]) -> list[_Span]:
    """Return the places of forms in a text, the longest first."""
    atoms = list(_ATOM.finditer(text))
    spelled = [_normal(atom[0]) for atom in atoms]
    spans: list[_Span] = []
    for form in forms:
        wanted = [_normal(atom) for atom in _ATOM.findall(form)]
        at_beginning = [capitalised(wanted[0]), *wanted[1:]]
        for index in range(len(atoms) - len(wanted) + 1):
            words = spelled[index : index + len(wanted)]
            if words == wanted or (words == at_beginning and _begins_sentence(spelled[:index])):
                spans.append((atoms[index].start(), atoms[index + len(wanted) - 1].end(), form))
    return sorted(spans, key=lambda span: (span[0] - span[1], span[0]))


def _begins_sentence(before: Sequence[str]) -> bool:
    """Return whether nothing, or the end of a sentence, stands before a word. Quotes and brackets do not count."""
    for atom in reversed(before):
        if atom.isalnum():
            return False
        if atom in ".!?…:":
            return True
    return True


def _most_without_overlap(candidates: Sequence[Sequence[_Span]]) -> list[_Span | None]:
    """Choose at most one span for each term, so that none overlap and as many terms as possible have one."""
    # Terms with the same spans are one kind. To try them in every order would take forever, for ten or more.
    terms_of_kind: dict[tuple[_Span, ...], list[int]] = {}
    for term, spans in enumerate(candidates):
        terms_of_kind.setdefault(tuple(spans), []).append(term)
    kinds = list(terms_of_kind)
    chosen: list[_Span | None] = [None] * len(candidates)
    for kind, span in _most_of_kinds(kinds, [len(terms) for terms in terms_of_kind.values()]):
        term = terms_of_kind[kinds[kind]].pop(0)
        chosen[term] = span
    return chosen


_Choice = tuple["_Choice | None", int, _Span]
"""The choice before it, a kind of term, and its span."""


def _most_of_kinds(kinds: Sequence[Sequence[_Span]], counts: Sequence[int]) -> list[tuple[int, _Span]]:
    """Choose as many spans as possible that do not overlap, and at most so many of each kind as it has terms.

    The spans are read from left to right. For every number of terms that are left of each kind, only the best choice
    is remembered.

    Args:
        kinds: the spans of each kind.
        counts: the number of terms of each kind.

    Returns:
        The kind and the span of each choice, from left to right.
    """
    places = []
    for kind, spans in enumerate(kinds):
        places += [(span, kind) for span in spans]
    places.sort(key=lambda place: (place[0][0], -place[0][1], place[1]))
    starts = [span[0] for span, _ in places]
    last_place = {kind: index for index, (_, kind) in enumerate(places)}
    # For each place, and one behind the last: by the terms that are left, the number of choices, and the last one.
    best: list[dict[tuple[int, ...], tuple[int, _Choice | None]]] = [{} for _ in range(len(places) + 1)]
    best[0][tuple(counts)] = (0, None)
    for index, (span, kind) in enumerate(places):
        behind = bisect_left(starts, span[1])
        overlaps_another = behind > index + 1
        for left, (number, choice) in best[index].items():
            takes = left[kind] > 0
            if takes:
                fewer = (*left[:kind], left[kind] - 1, *left[kind + 1 :])
                _remember(best, behind, fewer, number + 1, (choice, kind, span))
            # A span that no later one overlaps is never left out, if a term may have it.
            if overlaps_another or not takes:
                # Nothing behind the last span of a kind depends on how many of its terms are left.
                is_last = last_place[kind] == index
                unchanged = (*left[:kind], 0, *left[kind + 1 :]) if is_last else left
                _remember(best, index + 1, unchanged, number, choice)
    choices = []
    _, choice = max(best[-1].values(), key=lambda found: found[0])
    while choice is not None:
        choice, kind, span = choice
        choices.append((kind, span))
    return choices[::-1]


def _remember(
    best: Sequence[dict[tuple[int, ...], tuple[int, _Choice | None]]],
    index: int,
    left: tuple[int, ...],
    number: int,
    choice: _Choice | None,
) -> None:
    """Keep a number of choices if no other with the same terms left has as many."""
    if left not in best[index] or best[index][left][0] < number:
        best[index][left] = (number, choice)


def _check_entry(entry: Entry) -> None:
    for side, forms in (("source", entry.sources), ("target", entry.targets)):
        if not forms or not all(_ATOM.search(form) for form in forms):
            raise UserError(f"{entry.place}: the {side} is empty. Write both sides of the term.")


def _normal(text: str) -> str:
    """Return a text with composed letters and straight apostrophes. Files and texts may write both in two ways."""
    return unicodedata.normalize("NFC", text).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")


def _folded(text: str) -> str:
    return _normal(text).casefold()


def _spelling(text: str) -> str:
    """Return a form as it is compared: with single spaces."""
    return " ".join(_normal(text).split())


def _has_capital(form: str) -> bool:
    return any(letter.isupper() for letter in form)


def _forms(text: str) -> tuple[str, ...]:
    """Return the alternatives of one side of an entry."""
    forms = [form.strip().replace(r"\|", "|") for form in _ALTERNATIVE.split(text)]
    return tuple(dict.fromkeys(forms))


def _read_tsv(path: Path, source_lang: str | None, target_lang: str | None) -> Iterator[Entry]:
    for number, line in enumerate(each_line(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        sides = line.split("\t")
        if len(sides) != 2:
            raise UserError(
                f"{path}:{number}: a line has a source, one tab, and a target. This one has {len(sides)} parts."
            )
        source, target = sides
        yield Entry(_forms(source), _forms(target), f"{path}:{number}")


def _read_csv(path: Path, source_lang: str | None, target_lang: str | None) -> Iterator[Entry]:
    lines = csv.reader((f"{line}\n" for line in each_line(path)), strict=True)
    try:
        for row in lines:
            place = f"{path}:{lines.line_num}"
            if not row:
                continue
            if len(row) not in (2, 4):
                raise UserError(
                    f"{place}: a row has a source, a target and perhaps both languages. This one has {len(row)} fields."
                )
            if len(row) == 4 and not _is_pair(row[2:], source_lang, target_lang, place):
                continue
            yield Entry(_forms(row[0]), _forms(row[1]), place)
    except csv.Error as error:
        raise UserError(f"{path}:{lines.line_num}: {error}. Check the quotes of this row.") from error


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
        if not _is_language(section.get(xml_lang) or section.get("lang") or "", language):
            continue
        for group in section.iter("{*}tig", "{*}ntig", "{*}termSec"):
            term = next(group.iter("{*}term"), None)
            if term is not None and not _is_deprecated(group):
                forms.append(_text_of(term, place))
    return tuple(dict.fromkeys(filter(None, forms)))


def _is_deprecated(group: "_Element") -> bool:
    notes = [note for note in group.iter("{*}termNote") if note.get("type") == "administrativeStatus"]
    return any((note.text or "").strip().startswith(_NOT_TO_USE) for note in notes)


def _text_of(term: "_Element", place: str) -> str:
    for part in term.iter():
        if not isinstance(part.tag, str) and getattr(part, "name", None):
            raise UserError(f"{place}: the entity &{part.name}; is not read.")
    return " ".join("".join(term.itertext()).split())
