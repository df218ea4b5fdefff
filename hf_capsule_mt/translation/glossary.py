"""Glossaries: terms of a source language with the forms that a translation must use, and where texts contain them."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import regex

from hf_capsule_mt.errors import UserError

from .disjoint_spans import Span, most_without_overlap
from .glossary_files import Entry, read_entries
from .word_spans import IN_WORD, UNSPACED

_ATOM = regex.compile(rf"[{UNSPACED}]\p{{M}}*|{IN_WORD}+|\S\p{{M}}*")
"""A word, a letter of a script without spaces, or a sign. A term begins and ends between two of them."""


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
        return cls(read_entries(Path(path), source_lang, target_lang))

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
    forms: list[str | None] = []
    for place in places_of_terms(translation, terms):
        forms.append(None if place is None else place[2])
    return forms


def places_of_terms(translation: str, terms: Sequence[Term]) -> list[tuple[int, int, str] | None]:
    """Return the place of each term in a translation, and the form there, as [`placed_forms`] chooses them."""
    return most_without_overlap([_spans(translation, term.entry.targets) for term in terms])


def capitalised(form: str) -> str:
    """Return a form as it begins a sentence. A word with a capital inside, such as iPhone, stays as it is."""
    first_word = form.split(" ", 1)[0]
    return form if _has_capital(first_word) else form[:1].upper() + form[1:]


def count_forms(text: str, forms: Sequence[str]) -> int:
    """Return how often one of the forms of a term stands in a text, without counting words twice."""
    count = 0
    behind = 0
    for start, end, _ in _spans(text, forms):
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


def _spans(text: str, forms: Sequence[str]) -> list[Span]:
    """Return the places of forms in a text, from left to right."""
    atoms = list(_ATOM.finditer(text))
    spelled = [_normal(atom[0]) for atom in atoms]
    spans: list[Span] = []
    for form in forms:
        wanted = [_normal(atom) for atom in _ATOM.findall(form)]
        at_beginning = [capitalised(wanted[0]), *wanted[1:]]
        for first in range(len(atoms) - len(wanted) + 1):
            behind = first + len(wanted)
            words = spelled[first:behind]
            if words == wanted or (words == at_beginning and _begins_sentence(spelled[:first])):
                spans.append((atoms[first].start(), atoms[behind - 1].end(), form))
    return sorted(spans)


def _begins_sentence(before: Sequence[str]) -> bool:
    """Return whether nothing, or the end of a sentence, stands before a word. Quotes and brackets do not count."""
    for atom in reversed(before):
        if atom.isalnum():
            return False
        if atom in ".!?…:":
            return True
    return True


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
