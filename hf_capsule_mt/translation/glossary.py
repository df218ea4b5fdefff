"""Glossaries: terms of a source language with the forms that a translation must use, and where texts contain them."""

import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

import regex

from hf_capsule_mt.errors import UserError

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
        for first in range(len(atoms) - len(wanted) + 1):
            behind = first + len(wanted)
            words = spelled[first:behind]
            if words == wanted or (words == at_beginning and _begins_sentence(spelled[:first])):
                spans.append((atoms[first].start(), atoms[behind - 1].end(), form))
    return sorted(spans, key=_longest_first)


def _longest_first(span: _Span) -> tuple[int, int]:
    """Return what spans are sorted by: the longest first, and of several the first in the text."""
    start, end, _ = span
    return start - end, start


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
_Left = tuple[int, ...]
"""How many terms of each kind have no span yet."""
_Best = dict[_Left, tuple[int, _Choice | None]]
"""By the terms that are left, the largest number of choices, and the last of them."""


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
    places = _places_from_left(kinds)
    starts = [span[0] for span, _ in places]
    last_place = {kind: index for index, (_, kind) in enumerate(places)}
    # What is best in front of each place, and behind the last one.
    best: list[_Best] = [{} for _ in range(len(places) + 1)]
    best[0][tuple(counts)] = (0, None)
    for index, (span, kind) in enumerate(places):
        behind = bisect_left(starts, span[1])
        overlaps_another = behind > index + 1
        for left, (number, choice) in best[index].items():
            takes = left[kind] > 0
            if takes:
                fewer = _with_number(left, kind, left[kind] - 1)
                _remember(best[behind], fewer, number + 1, (choice, kind, span))
            # A span that no later one overlaps is never left out, if a term may have it.
            if overlaps_another or not takes:
                # Nothing behind the last span of a kind depends on how many of its terms are left.
                is_last = last_place[kind] == index
                relevant = _with_number(left, kind, 0) if is_last else left
                _remember(best[index + 1], relevant, number, choice)
    choices = []
    _, choice = max(best[-1].values(), key=itemgetter(0))
    while choice is not None:
        choice, kind, span = choice
        choices.append((kind, span))
    return choices[::-1]


def _places_from_left(kinds: Sequence[Sequence[_Span]]) -> list[tuple[_Span, int]]:
    """Return the spans of all kinds with their kinds, from left to right, and of one start the longest first."""
    places = []
    for kind, spans in enumerate(kinds):
        places += [(span, kind) for span in spans]

    def position(place: tuple[_Span, int]) -> tuple[int, int, int]:
        (start, end, _), kind = place
        return start, -end, kind

    return sorted(places, key=position)


def _with_number(left: _Left, kind: int, number: int) -> _Left:
    """Return how many terms are left of each kind, with another number for one kind."""
    return (*left[:kind], number, *left[kind + 1 :])


def _remember(best: _Best, left: _Left, number: int, choice: _Choice | None) -> None:
    """Keep a number of choices if no other with the same terms left has as many."""
    if left not in best or best[left][0] < number:
        best[left] = (number, choice)


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
