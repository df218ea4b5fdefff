"""A corpus that needs no download: English sentences with German translations, drawn from a grammar of our own.

    generate_corpus(8000)      # [("Why is the boy crying?", "Warum weint der Junge?"), ...]
    write_corpus("builtin")    # builtin/train.en, builtin/train.de, builtin/validation.en, ...

`builtin_lexicon` has the words, `builtin_grammar` puts a clause into both languages, and this module decides what is
said: every kind of sentence is a tree of choices, whose size is the number of sentences it holds.
"""

import os
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from . import builtin_lexicon as lex
from .builtin_grammar import (
    Clause,
    NounPhrase,
    Pair,
    Tense,
    english_clause,
    english_infinitive,
    english_question,
    german_clause,
    german_infinitive,
    german_inverted,
    german_subordinate,
    prepositional,
    sentence,
)
from .builtin_lexicon import NOUNS, A, Phrase, Pronoun, Verb


class Choice:
    """One of `options`, each as often as its weight; an option may be a choice or a combination itself."""

    def __init__(self, *options: Any, weights: Iterable[int] | None = None):
        self.options = options
        self.weights = list(weights) if weights else None
        self.size = sum(map(_size, options))

    def draw(self, rng: random.Random) -> Any:
        """One option, drawn at random."""
        return _draw(rng.choices(self.options, self.weights)[0], rng)


class Combination:
    """What `build` makes of one draw from each part; a part that is no choice is passed on as it is."""

    def __init__(self, build: Callable[..., Any], *parts: Any, **named_parts: Any):
        self.build, self.parts, self.named_parts = build, parts, named_parts
        self.size = 1
        for part in (*parts, *named_parts.values()):
            self.size *= _size(part)

    def draw(self, rng: random.Random) -> Any:
        """One combination, drawn at random."""
        parts = [_draw(part, rng) for part in self.parts]
        return self.build(*parts, **{name: _draw(part, rng) for name, part in self.named_parts.items()})


def _size(option: Any) -> int:
    return option.size if isinstance(option, Choice | Combination) else 1


def _draw(option: Any, rng: random.Random) -> Any:
    return option.draw(rng) if isinstance(option, Choice | Combination) else option


# ------------------------------------------------------------------ noun phrases and places


def _phrases(*groups: str, singular: Choice, plural: Choice | None = None, adjectives: bool = True) -> Choice:
    """Noun phrases of the `groups`: one in four in the plural, one in four with an adjective."""
    options = []
    for group in groups:
        nouns = Choice(*NOUNS[group])
        adjective = Choice(None, Choice(*lex.ADJECTIVES[group]), weights=(3, 1)) if adjectives else None
        one = Combination(NounPhrase, nouns, singular, False, adjective)
        many = plural and Combination(NounPhrase, nouns, plural, True, adjective)
        options.append(Choice(one, many, weights=(3, 1)) if many else one)
    return Choice(*options, weights=[len(NOUNS[group]) for group in groups])


_POSSESSIVES = Choice(lex.MY, lex.YOUR, lex.HIS, lex.HER, lex.OUR)
_DEFINITE = Choice(lex.THE, lex.THIS, weights=(4, 1))
_ANY = Choice(lex.THE, A, lex.THIS, _POSSESSIVES, weights=(4, 4, 1, 2))
_INDEFINITE = Choice(A)
_FAMILY = Choice(
    _phrases("parents", singular=_POSSESSIVES), _phrases("relatives", singular=_POSSESSIVES, plural=_POSSESSIVES)
)
_ADULTS = _phrases("people", singular=_DEFINITE, plural=_DEFINITE)
_PEOPLE = _phrases("people", "children", singular=_DEFINITE, plural=_DEFINITE)
_STRANGERS = _phrases("people", "children", singular=_INDEFINITE, plural=_INDEFINITE)
_PETS = _phrases("pets", singular=Choice(lex.THE, _POSSESSIVES), plural=_DEFINITE)
_NAMES = Choice(*lex.NAMES)
_PRONOUNS = Choice(lex.I, lex.YOU, lex.HE, lex.SHE, lex.WE, lex.THEY)
_ANYBODY = Choice(_FAMILY, _PEOPLE, _PRONOUNS, _NAMES, weights=(4, 4, 3, 1))


def _place(english: str, german: str, case: str, *groups: str) -> Combination:
    singular = Choice(lex.THE, A, weights=(4, 1))
    return Combination(prepositional, english, german, case, _phrases(*groups, singular=singular))


_LOCATION = Choice(
    Phrase("at home", "zu Hause"),
    _place("in", "in", "dat", "rooms", "buildings", "outdoors"),
    _place("at", "an", "dat", "spots"),
    _place("behind", "hinter", "dat", "buildings"),
    _place("in front of", "vor", "dat", "buildings"),
    weights=(1, 6, 2, 1, 1),
)
_INTO = _place("into", "in", "acc", "rooms", "buildings", "outdoors")
_TO = _place("to", "zu", "dat", "spots", "buildings")
_FROM = Choice(_place("from", "von", "dat", "spots"), _place("out of", "aus", "dat", "rooms", "buildings"))


def pronoun_for(phrase: NounPhrase | Pronoun, thing: bool = False) -> Pronoun:
    """The pronoun that takes up `phrase`: for a thing English has "it" and German the noun's gender."""
    if isinstance(phrase, Pronoun):
        return phrase
    if phrase.plural:
        return lex.THEY
    pronoun = {"m": lex.HE, "f": lex.SHE, "n": lex.IT}[phrase.noun.gender]
    return pronoun._replace(english="it", english_object="it") if thing else pronoun


# ------------------------------------------------------------------ predicates and clauses


def _objects(verb: Verb, persons: Choice) -> Choice:
    options = []
    for group in verb.objects:
        if group == "persons":
            options.append(persons)
        elif NOUNS[group][0].uncountable:
            options.append(_phrases(group, singular=Choice(lex.THE, A, weights=(1, 2))))
        else:
            options.append(_phrases(group, singular=_ANY, plural=_ANY))
    return Choice(*options)


def _transitive(verbs: Iterable[Verb], persons: Choice, **parts: Any) -> Choice:
    return Choice(*(Combination(dict, verb=verb, object=_objects(verb, persons), **parts) for verb in verbs))


def _deeds(persons: Choice) -> Choice:
    """What somebody does with a thing or a person."""
    onto = Choice(_place("on", "auf", "acc", "furniture"), _place("into", "in", "acc", "containers"))
    gifts = _phrases("things", "clothes", singular=_INDEFINITE)
    receiver = Combination(prepositional, "for", "für", "acc", persons)
    return Choice(
        _transitive([verb for verb in lex.TRANSITIVE if not verb.simple], persons),
        _transitive(lex.DITRANSITIVE, persons, recipient=persons),
        _transitive(lex.ANYWHERE, persons, place=_LOCATION),
        _transitive([lex.PUT], persons, place=onto),
        Combination(dict, verb=lex.BUY, object=gifts, place=receiver),
        weights=(14, 4, 3, 1, 1),
    )


def _moves(persons: Choice) -> Choice:
    """What somebody does alone, or where he goes."""
    company = Combination(prepositional, "with", "mit", "dat", persons)
    return Choice(
        Combination(dict, verb=Choice(*lex.INTRANSITIVE)),
        Combination(dict, verb=Choice(*lex.LOCATED), place=Choice(None, company, _LOCATION, weights=(1, 1, 4))),
        Combination(dict, verb=lex.STAY, place=_LOCATION),
        Combination(dict, verb=Choice(lex.GO, lex.RUN), place=_INTO),
        Combination(dict, verb=Choice(lex.GO, lex.DRIVE), place=_TO),
        Combination(dict, verb=lex.GO, place=Phrase("home", "nach Hause")),
        Combination(dict, verb=lex.COME, place=_FROM),
        weights=(4, 6, 1, 2, 2, 1, 1),
    )


def _actions(persons: Choice) -> Choice:
    return Choice(_deeds(persons), _moves(persons), weights=(3, 2))


def _states(persons: Choice) -> Choice:
    """What English says in the simple present: somebody knows, has, sees."""
    return _transitive([verb for verb in lex.TRANSITIVE if verb.simple], persons)


def _clause(subject: NounPhrase | Pronoun, predicate: dict[str, Any], aspect: dict[str, Any]) -> Clause:
    return Clause(subject, **predicate, **aspect)


def _clauses(predicates: Callable[[Choice], Choice], aspects: Choice) -> Choice:
    """Clauses whose subject and object come from different groups, so that nobody visits himself."""
    kinds = (
        (_FAMILY, Choice(_PEOPLE, _NAMES, _PRONOUNS, weights=(6, 1, 1))),
        (_PEOPLE, Choice(_FAMILY, _NAMES, _PRONOUNS, weights=(6, 1, 1))),
        (Choice(_PRONOUNS, _NAMES, weights=(3, 1)), Choice(_FAMILY, _PEOPLE)),
    )
    return Choice(*(Combination(_clause, subject, predicates(persons), aspects) for subject, persons in kinds))


# ------------------------------------------------------------------ tense, mood, negation, time

_YES_OR_NO = Choice(False, True, weights=(2, 1))
_MODALS = Choice(lex.CAN, lex.MUST, lex.WANT, lex.MAY)
_PLAIN = Choice(Combination(dict, negated=_YES_OR_NO), Combination(dict, negated=_YES_OR_NO, tense=Tense.PAST))
_MODAL = Choice(
    Combination(dict, modal=Choice(*_MODALS.options, lex.SHOULD), negated=_YES_OR_NO),
    Combination(dict, modal=_MODALS, tense=Tense.PAST, negated=_YES_OR_NO),
    weights=(3, 1),
)


def _timed(slot: str, **parts: Any) -> Choice:
    """Tenses with an adverbial that fits, as the clause's `time` or its `front`."""
    return Choice(
        Combination(dict, **{slot: Choice(*lex.NOW)}, **parts),
        Combination(dict, tense=Tense.PAST, **{slot: Choice(*lex.EARLIER)}, **parts),
        Combination(dict, tense=Tense.FUTURE, **{slot: Choice(*lex.LATER)}, **parts),
        Combination(dict, modal=Choice(lex.MUST, lex.WANT, lex.CAN), **{slot: Choice(lex.TODAY, *lex.LATER)}, **parts),
        weights=(1, 3, 3, 2),
    )


_HABITUAL = Choice(
    Combination(dict, tense=Tense.HABIT, time=Choice(*lex.REGULARLY)),
    Combination(dict, tense=Tense.HABIT, frequency=Choice(*lex.OFTEN)),
)
_FRONTED = Choice(
    _timed("front", negated=_YES_OR_NO),
    Combination(dict, tense=Tense.HABIT, front=Choice(*lex.REGULARLY)),
    weights=(4, 1),
)
_INSIDE = Choice(_PLAIN, _MODAL, _timed("time"), _HABITUAL, weights=(3, 2, 1, 1))
_ASKED = Choice(
    Choice({}, {"tense": Tense.PAST}, Combination(dict, modal=_MODALS)), _timed("time"), _HABITUAL, weights=(4, 1, 1)
)
_WHY = Phrase("why", "warum")
_WHEN = Phrase("when", "wann")
_ASKED_WHY = Choice(
    Combination(dict, front=_WHY, tense=Choice(Tense.PRESENT, Tense.PAST)), Combination(dict, front=_WHY, modal=_MODALS)
)
_ASKED_WHEN = Combination(dict, front=_WHEN, tense=Choice(Tense.PAST, Tense.FUTURE))
_NOW_OR_PAST = Choice({}, {"tense": Tense.PAST})

# ------------------------------------------------------------------ sentences


def statement(clause: Clause) -> Pair:
    """A main clause on its own."""
    return Pair(sentence(english_clause(clause)), sentence(german_clause(clause)))


def question(clause: Clause) -> Pair:
    """A question: the clause's `front` is the question word, if it has one."""
    german = german_clause(clause) if clause.front else german_inverted(clause)
    return Pair(sentence(english_question(clause), "?"), sentence(german, "?"))


def complex_sentence(conjunction: Phrase, main: Clause, subordinate: Clause, main_first: bool) -> Pair:
    """A main and a subordinate clause in either order."""
    english = f"{conjunction.english} {english_clause(subordinate)}"
    german = german_subordinate(conjunction.german, subordinate)
    if main_first:
        return Pair(sentence(f"{english_clause(main)} {english}"), sentence(f"{german_clause(main)}, {german}"))
    return Pair(sentence(f"{english}, {english_clause(main)}"), sentence(f"{german}, {german_inverted(main)}"))


def reported(matrix: Clause, conjunction: Phrase, content: Clause) -> Pair:
    """Saying or believing that something is so."""
    return complex_sentence(conjunction, matrix, content, True)


def asked_whether(subject: Pronoun, content: Clause) -> Pair:
    """Do you know whether ...?"""
    matrix = Clause(subject, lex.KNOW_THAT)
    english = f"{english_question(matrix)} whether {english_clause(content)}"
    return Pair(sentence(english, "?"), sentence(f"{german_inverted(matrix)}, {german_subordinate('ob', content)}", "?"))


def attempt(matrix: Clause, deed: dict[str, Any]) -> Pair:
    """An infinitive with zu: trying, forgetting, promising to do something."""
    content = Clause(matrix.subject, **deed)
    english = f"{english_clause(matrix)} {english_infinitive(content)}"
    return Pair(sentence(english), sentence(f"{german_clause(matrix)}, {german_infinitive(content)}"))


def relative(matrix: Clause, predicate: dict[str, Any], aspect: dict[str, Any]) -> Pair:
    """A relative clause about the person who is the object of `matrix`."""
    who = NounPhrase(matrix.object.noun, lex.RELATIVE, matrix.object.plural)
    pronoun = Pronoun("who", "who", who.person, who.in_german_determiner("nom"), "", "")
    content = Clause(pronoun, **predicate, **aspect)
    english = f"{english_clause(matrix)} {english_clause(content)}"
    return Pair(sentence(english), sentence(f"{german_clause(matrix)}, {german_subordinate('', content)}"))
