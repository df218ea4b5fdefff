"""Glossaries: terms of a source language with the forms that a translation must use, and where texts contain them."""

import json
import unicodedata
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import regex

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_text

from ..text.words import IN_WORD, UNSPACED
from .files import Entry, read_entries

_ATOM = regex.compile(rf"[{UNSPACED}]\p{{M}}*|{IN_WORD}+|\S\p{{M}}*")
"""A word, a letter of a script without spaces, or a sign. A term begins and ends between two of them."""
MOST_WORDS = 50
"""The most words and signs of a form. A model reads and writes sentences of some hundred tokens."""
MOST_CHARACTERS = 500
"""The most characters of a form, for the same reason."""
FormSpan = tuple[int, int, str]
"""First character, the character behind, and the form of the term that stands there."""
Targets = tuple[str, ...]
"""The forms of a term in translations."""
Taken = tuple[FormSpan, Targets]
"""A place, and the forms of the term that has it."""


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


class Glossary:
    """Terms and their translations.

    Args:
        entries: the entries.

    Raises:
        UserError: if two entries have the same source form, or a side of an entry is empty or too long.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)
        # By the spelling of a source form, or by its folded spelling if the entry matches in any case.
        self._exact: dict[str, Entry] = {}
        self._any_case: dict[str, Entry] = {}
        # How many words the forms have that begin with a word, the most first.
        self._word_counts: dict[str, list[int]] = {}
        for entry in self.entries:
            _check_entry(entry)
            for form in entry.sources:
                self._add(form, entry)

    def digest(self) -> str:
        """Return a hash of the terms, wherever their file is."""
        return hash_text(json.dumps([entry.sources, entry.targets]) for entry in self.entries)

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
        words = _with_spaces(atoms)
        terms: list[Term] = []
        index = 0

        while index < len(atoms):
            count, entry = self._longest(words, index)
            if entry is None:
                index += 1
                continue
            start = atoms[index].start()
            end = atoms[index + count - 1].end()
            terms.append(Term(text[start:end], start, end, entry))
            index += count
        return terms

    def _add(self, form: str, entry: Entry) -> None:
        words = _with_spaces(_ATOM.finditer(form))
        spelling = _spelling(words)
        if _has_capital(form):
            other = self._exact.setdefault(spelling, entry)
        else:
            other = self._any_case.setdefault(spelling.casefold(), entry)
        if other is not entry:
            raise UserError(f"{entry.place}: the glossary has {form!r} twice. It is also in {other.place}.")

        counts = self._word_counts.setdefault(words[0].strip().casefold(), [])
        if len(words) not in counts:
            counts.append(len(words))
            counts.sort(reverse=True)

    def _longest(self, words: Sequence[str], first: int) -> tuple[int, Entry | None]:
        """Return the number of words of the longest term that begins with the word `first`, and its entry."""
        for count in self._word_counts.get(words[first].strip().casefold(), ()):
            behind = first + count
            spelling = _spelling(words[first:behind])
            entry = self._exact.get(spelling) or self._any_case.get(spelling.casefold())
            if entry is not None and behind <= len(words):
                return count, entry
        return 0, None


def placed_forms(translation: str, terms: Sequence[Term]) -> list[str | None]:
    """Return which form of each term a translation contains, or None for a term that it lacks.

    Each term needs words of its own: one `Haus` counts for one of two terms.
    A form stands at word boundaries and is written as in the glossary, but it may begin a sentence with a capital.
    """
    forms: list[str | None] = []
    for place in places_of_terms(translation, terms):
        forms.append(None if place is None else place[2])
    return forms


def places_of_terms(translation: str, terms: Sequence[Term]) -> list[FormSpan | None]:
    """Return the place of each term in a translation, and the form there, as [`placed_forms`] chooses them.

    To find the most terms that have a place would take time that grows exponentially. So two ways are tried, and the
    one that finds more is taken.
    """
    spans_of_forms = _spans_of_forms(translation, [term.entry.targets for term in terms])
    waiting: defaultdict[Targets, deque[int]] = defaultdict(deque)
    for number, term in enumerate(terms):
        waiting[term.entry.targets].append(number)
    counts = {forms: len(numbers) for forms, numbers in waiting.items()}
    ways = (_first_end_first(spans_of_forms, counts), _fewest_places_first(spans_of_forms, counts))

    # Of equal terms the first has the first place.
    taken = []
    for span, forms in max(ways, key=len):
        number = waiting[forms].popleft()
        taken.append((number, span, forms))

    places: list[FormSpan | None] = [None] * len(terms)
    behind = len(translation)
    for number, span, forms in reversed(taken):
        place = _longest_there(span, spans_of_forms[forms], behind)
        places[number] = place
        behind = place[0]
    return places


def _first_end_first(
    spans_of_forms: Mapping[Targets, Sequence[FormSpan]], counts: Mapping[Targets, int]
) -> list[Taken]:
    """Return places that do not overlap, from left to right. The place that ends first is taken first.

    If several terms may have it, the one that has no other place, or whose other places end first, gets it.

    Args:
        spans_of_forms: all places of the forms of terms.
        counts: how many terms have these forms.
    """
    candidates = []
    for forms, spans in spans_of_forms.items():
        for start, end, form in spans:
            start_of_last = spans[-1][0]
            candidates.append((end, start_of_last, start, form, forms))

    remaining = dict(counts)
    taken = []
    behind = 0
    for end, _, start, form, forms in sorted(candidates):
        if start >= behind and remaining[forms]:
            remaining[forms] -= 1
            taken.append(((start, end, form), forms))
            behind = end
    return taken


def _fewest_places_first(
    spans_of_forms: Mapping[Targets, Sequence[FormSpan]], counts: Mapping[Targets, int]
) -> list[Taken]:
    """Return places that do not overlap, from left to right. Terms with few places take theirs first.

    In "Haus Boot, Haus" the term with the form "Haus Boot" has one place, and that with "Haus" can have another.

    Args:
        spans_of_forms: all places of the forms of terms.
        counts: how many terms have these forms.
    """
    taken: list[Taken] = []
    for forms in sorted(spans_of_forms, key=lambda forms: len(spans_of_forms[forms])):
        remaining = counts[forms]
        for span in spans_of_forms[forms]:
            index = bisect_left(taken, (span, forms))
            end_before = 0
            if index > 0:
                end_before = taken[index - 1][0][1]
            is_free = end_before <= span[0]
            if index < len(taken):
                start_behind = taken[index][0][0]
                is_free = is_free and span[1] <= start_behind

            if remaining and is_free:
                taken.insert(index, (span, forms))
                remaining -= 1
    return taken


def _longest_there(place: FormSpan, spans: Sequence[FormSpan], behind: int) -> FormSpan:
    """Return the longest span that begins at a place, and ends before the next term: "Haus Boot", not only "Haus".

    The spans are sorted.
    """
    longest = place
    for index in range(bisect_left(spans, place[:1]), len(spans)):
        span = spans[index]
        if span[0] != place[0]:
            break
        if longest[1] < span[1] <= behind:
            longest = span
    return longest


def capitalised(form: str) -> str:
    """Return a form as it begins a sentence. A word with a capital inside, such as iPhone, stays as it is."""
    first_word = form.split(" ", 1)[0]
    if _has_capital(first_word):
        return form
    return form[:1].upper() + form[1:]


def copies(text: str, terms: Sequence[Term]) -> list[int]:
    """Return, for each term, how often one of its forms is in a translation beyond the times that all terms ask for.

    Two terms may have a form in common, as "coat" and "jacket" have "Jacke". Then each may be there for the other.
    """
    numbers_of_forms: dict[Targets, int] = {}
    for forms, spans in _spans_of_forms(text, [term.entry.targets for term in terms]).items():
        of_term = {*forms}
        needed = sum(not of_term.isdisjoint(other.entry.targets) for other in terms)
        numbers_of_forms[forms] = max(0, _count(spans) - needed)
    return [numbers_of_forms[term.entry.targets] for term in terms]


def _count(spans: Sequence[FormSpan]) -> int:
    """Return how many spans there are from left to right that do not overlap."""
    count = 0
    behind = 0
    for start, end, _ in spans:
        if start >= behind:
            count += 1
            behind = end
    return count


def _spans_of_forms(text: str, forms_of_terms: Iterable[Targets]) -> dict[Targets, list[FormSpan]]:
    """Return the places of the forms of each term in a text, from left to right."""
    atoms = list(_ATOM.finditer(text))
    words = [_normal(atom[0]) for atom in atoms]
    begins_sentence = _beginnings(words)
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        places.setdefault(word, []).append(place)

    spans_of_forms: dict[Targets, list[FormSpan]] = {}
    for forms in dict.fromkeys(forms_of_terms):
        spans: list[FormSpan] = []
        for form in forms:
            first_word, *rest = [_normal(atom) for atom in _ATOM.findall(form)]
            possible = list(places.get(first_word, ()))
            with_capital = capitalised(first_word)
            if with_capital != first_word:
                possible += [place for place in places.get(with_capital, ()) if begins_sentence[place]]

            for place in possible:
                behind = place + 1 + len(rest)
                if words[place + 1 : behind] == rest:
                    start = atoms[place].start()
                    end = atoms[behind - 1].end()
                    spans.append((start, end, form))
        spans_of_forms[forms] = sorted(spans)
    return spans_of_forms


def _beginnings(words: Sequence[str]) -> list[bool]:
    """Return whether nothing, or the end of a sentence, stands before each word. Quotes and brackets do not count."""
    beginnings = []
    is_beginning = True
    for word in words:
        beginnings.append(is_beginning)
        if word.isalnum():
            is_beginning = False
        elif word in ".!?…:":
            is_beginning = True
    return beginnings


def _check_entry(entry: Entry) -> None:
    for side, forms in (("source", entry.sources), ("target", entry.targets)):
        if not forms or not all(_ATOM.search(form) for form in forms):
            raise UserError(f"{entry.place}: the {side} is empty. Write both sides of the term.")
        for form in forms:
            if len(form) > MOST_CHARACTERS or len(_ATOM.findall(form)) > MOST_WORDS:
                raise UserError(
                    f"{entry.place}: the {side} is too long. A term has at most {MOST_WORDS} words and signs, and "
                    f"{MOST_CHARACTERS} characters."
                )


def _normal(text: str) -> str:
    """Return a text with composed letters and straight apostrophes. Files and texts may write both in two ways."""
    return unicodedata.normalize("NFC", text).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")


def _with_spaces(atoms: Iterable[regex.Match]) -> list[str]:
    """Return the words of a text, each with one space in front of it if any white space stands there."""
    words = []
    behind = 0
    for atom in atoms:
        space = ""
        if atom.start() > behind:
            space = " "
        words.append(space + _normal(atom[0]))
        behind = atom.end()
    return words


def _spelling(words: Sequence[str]) -> str:
    """Return some words as they are compared."""
    return "".join(words).lstrip()


def _has_capital(form: str) -> bool:
    return any(letter.isupper() for letter in form)
