"""The words of the built-in English-German corpus, from `words.yaml`: one German word for every English one.

A bar marks where a verb comes apart: ``auf|machen`` ("macht das Fenster auf"), ``turn|on`` ("turns it on").
Nouns are grouped by what can sensibly be done with them; a verb lists the groups its object comes from.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import yaml


class Noun(NamedTuple):
    """A noun: `oblique` is the accusative and dative singular of the n-declension, empty for all others."""

    english: str
    gender: str
    german: str
    german_plural: str = ""
    oblique: str = ""
    english_plural: str = ""

    @property
    def uncountable(self) -> bool:
        """True if there is no plural."""
        return not self.german_plural


class Adjective(NamedTuple):
    """An adjective: `stem` takes the endings where it differs from the bare form (teuer, ein teures Auto)."""

    english: str
    german: str
    stem: str = ""


class Verb(NamedTuple):
    """A verb, its English past, and its German third person and participle, both without a separable prefix.

    `case` and `preposition` are what the German object takes; `auxiliary` forms the perfect, unless the verb
    has a `preterite`; `simple` verbs have no English progressive.
    """

    english: str
    past: str
    german: str
    third: str
    participle: str
    objects: str = ""
    case: str = "acc"
    preposition: str = ""
    auxiliary: str = "haben"
    simple: bool = False
    preterite: str = ""


class Modal(NamedTuple):
    """A modal verb; `german_past` is the plural of the preterite."""

    english: str
    past: str
    german: str
    german_past: str


class Determiner(NamedTuple):
    """A determiner: the German stem that takes the endings (``d`` stands for der, die, das)."""

    english: str
    english_plural: str
    german: str


class Pronoun(NamedTuple):
    """A pronoun or a name: the English subject and object forms, the person, the German cases."""

    english: str
    english_object: str
    person: str
    nom: str
    acc: str
    dat: str

    def in_english(self, case: str) -> str:
        """The English form in `case`."""
        return self.english if case == "nom" else self.english_object

    def in_german(self, case: str, negated: bool = False) -> str:
        """The German form in `case`; negation leaves it as it is."""
        return getattr(self, case)


class Phrase(NamedTuple):
    """Words that keep their form: an adverbial, a conjunction, a predicate adjective."""

    english: str
    german: str


def _noun(row: str) -> Noun:
    english, *german = row.split()
    singular, _, plural = english.partition("/")
    return Noun(singular, *german, english_plural=plural)


def _verb(row: list[Any]) -> Verb:
    options = row[-1] if isinstance(row[-1], dict) else {}
    return Verb(*(form for form in row if form is not options), **options)


def _adjectives(words: str) -> tuple[Adjective, ...]:
    return tuple(_BY_ENGLISH[word] for word in words.split())


def _verbs(words: Iterable[str]) -> tuple[Verb, ...]:
    """The transitive verbs of these names."""
    return tuple(next(verb for verb in TRANSITIVE if verb.english == word) for word in words)


_WORDS = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))
_BY_ENGLISH = {row.split()[0]: Adjective(*row.split()) for row in _WORDS["adjectives"]}
_VERBS = {group: tuple(map(_verb, rows)) for group, rows in _WORDS["verbs"].items()}
_PHRASES = {group: tuple(Phrase(*pair) for pair in pairs.items()) for group, pairs in _WORDS["phrases"].items()}

THE, A, THIS, MY, YOUR, HIS, HER, OUR = (Determiner(*row) for row in _WORDS["determiners"])
I, YOU, HE, SHE, IT, WE, THEY = (Pronoun(*row) for row in _WORDS["pronouns"])  # noqa: E741
NAMES = tuple(Pronoun(name, name, "3s", name, name, name) for name in _WORDS["names"].split())

NOUNS: dict[str, tuple[Noun, ...]] = {
    group: tuple(map(_noun, found["words"])) for group, found in _WORDS["nouns"].items()
}
SUN, TIME, MONEY = NOUNS.pop("named")
ADJECTIVES: dict[str, tuple[Adjective, ...]] = {
    group: _adjectives(_WORDS["nouns"][group]["adjectives"]) for group in NOUNS
}
FEELINGS, HINDRANCES, WEATHERS = (_adjectives(_WORDS[kind]) for kind in ("feelings", "hindrances", "weathers"))

TRANSITIVE, DITRANSITIVE = _VERBS["transitive"], _VERBS["ditransitive"]
INTRANSITIVE, TOGETHER = _VERBS["intransitive"], _VERBS["together"]
REPORTING, ATTEMPTS = _VERBS["reporting"], _VERBS["attempts"]
BE, SLEEP, STAY, GO, RUN, DRIVE, COME, PUT, LIE, BELONG, RAIN, SNOW, SHINE = _VERBS["named"]
BUY, SEARCH, FIND, HAVE = _verbs(["buy", "look for", "find", "have"])
KNOW, PLAY = REPORTING[0], TOGETHER[0]
ANYWHERE, MISHAPS, STATES, NOTICING, SEEN_SOMEWHERE, OF_ANIMALS = map(_verbs, _WORDS["verb_groups"].values())
CONTRARY, SEQUENCES = (tuple(map(_verbs, _WORDS[kind])) for kind in ("contrary", "sequences"))
CAN, MUST, WANT, MAY, SHOULD = (Modal(*row) for row in _WORDS["modals"])

AND, BUT, BECAUSE, ALTHOUGH, IF, WHILE, THAT, WHETHER, WHY, WHEN, WHERE, AT_HOME, HOME = _PHRASES["function_words"]
NOW, OFTEN, REGULARLY = _PHRASES["now"], _PHRASES["often"], _PHRASES["regularly"]
EARLIER, LATER = (_PHRASES[group] + _PHRASES["weekdays"] for group in ("earlier", "later"))
TODAY = NOW[-1]

# By infinitive, the forms in every person.
IRREGULAR: dict[str, list[str]] = {verb: forms.split() for verb, forms in _WORDS["irregular"].items()}
CONTRACTIONS: dict[str, str] = _WORDS["contractions"]
STRONG_ENDINGS: dict[str, dict[str, str]] = _WORDS["strong_endings"]
