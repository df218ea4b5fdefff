"""Sentences of the built-in corpus: every kind is a tree of choices over words and clauses.

The tree knows how many sentences it holds, and `draw` picks one of them with a random generator.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from . import grammar
from . import lexicon as lex
from .grammar import Clause, NounPhrase, Pair, Tense
from .lexicon import NOUNS, A, Adjective, Phrase, Pronoun, Verb


class Choice:
    """One of `options`, each as often as its weight; an option may be a choice or a combination itself."""

    def __init__(self, *options: Any, weights: Sequence[int] | None = None) -> None:
        self.options = options
        self.weights = weights
        self.size = sum(map(_size, options))

    def draw(self, rng: random.Random) -> Any:
        """One option, drawn at random."""
        return _draw(rng.choices(self.options, self.weights)[0], rng)


class Combination:
    """Result of `build` on one draw from each part; a part that is no choice is passed on as it is."""

    def __init__(self, build: Callable[..., Any], *parts: Any, **named_parts: Any) -> None:
        self.build, self.parts, self.named_parts = build, parts, named_parts
        self.size = math.prod(map(_size, (*parts, *named_parts.values())))

    def draw(self, rng: random.Random) -> Any:
        """One combination, drawn at random."""
        parts = [_draw(part, rng) for part in self.parts]
        return self.build(*parts, **{name: _draw(part, rng) for name, part in self.named_parts.items()})


def _size(option: Any) -> int:
    return option.size if isinstance(option, Choice | Combination) else 1


def _draw(option: Any, rng: random.Random) -> Any:
    return option.draw(rng) if isinstance(option, Choice | Combination) else option


# ------------------------------------------------------------------ noun phrases and places


def _phrases(*groups: str, singular: Any, plural: Any = None, adjectives: bool = True) -> Choice:
    """Noun phrases of the `groups`: one in four in the plural, one in five with an adjective."""
    options = []
    for group in groups:
        nouns = Choice(*NOUNS[group])
        adjective = Choice(None, Choice(*lex.ADJECTIVES[group]), weights=(4, 1)) if adjectives else None
        one = Combination(NounPhrase, nouns, singular, False, adjective)
        many = plural and Combination(NounPhrase, nouns, plural, True, adjective)
        options.append(Choice(one, many, weights=(3, 1)) if many else one)
    return Choice(*options, weights=[len(NOUNS[group]) for group in groups])


_POSSESSIVES = Choice(lex.MY, lex.YOUR, lex.HIS, lex.HER, lex.OUR)
_DEFINITE = Choice(lex.THE, lex.THIS, weights=(4, 1))
_ANY = Choice(lex.THE, A, lex.THIS, _POSSESSIVES, weights=(4, 4, 1, 2))
_FAMILY = Choice(
    _phrases("parents", singular=_POSSESSIVES),
    _phrases("relatives", singular=_POSSESSIVES, plural=_POSSESSIVES),
)
_ADULTS = _phrases("adults", singular=_DEFINITE, plural=_DEFINITE)
_PEOPLE = _phrases("adults", "children", singular=_DEFINITE, plural=_DEFINITE)
_STRANGERS = _phrases("adults", "children", singular=A, plural=A)
_PETS = _phrases("pets", singular=Choice(lex.THE, _POSSESSIVES), plural=_DEFINITE)
_NAMES = Choice(*lex.NAMES)
_PRONOUNS = Choice(lex.I, lex.YOU, lex.HE, lex.SHE, lex.WE, lex.THEY)
_ANYBODY = Choice(_FAMILY, _PEOPLE, _PRONOUNS, _NAMES, weights=(4, 4, 3, 1))


def _place(english: str, german: str, case: str, *groups: str) -> Combination:
    singular = Choice(lex.THE, A, weights=(4, 1))
    return Combination(grammar.prepositional, english, german, case, _phrases(*groups, singular=singular))


_LOCATION = Choice(
    lex.AT_HOME,
    _place("in", "in", "dat", "rooms", "buildings", "outdoors"),
    _place("at", "an", "dat", "spots"),
    _place("behind", "hinter", "dat", "buildings"),
    _place("in front of", "vor", "dat", "buildings"),
    weights=(1, 6, 2, 1, 1),
)
_INTO = _place("into", "in", "acc", "rooms", "buildings", "outdoors")
_TO = _place("to", "zu", "dat", "spots", "buildings")
_FROM = Choice(_place("from", "von", "dat", "spots"), _place("out of", "aus", "dat", "rooms", "buildings"))

# ------------------------------------------------------------------ predicates and clauses


def _objects(verb: Verb, persons: Any) -> Choice:
    options = []
    for group in verb.objects.split():
        if group == "persons":
            options.append(persons)
        elif NOUNS[group][0].uncountable:
            options.append(_phrases(group, singular=Choice(lex.THE, A, weights=(1, 2))))
        else:
            options.append(_phrases(group, singular=_ANY, plural=None if group == "rooms" else _ANY))
    return Choice(*options)


def _transitive(verbs: Iterable[Verb], persons: Any, **parts: Any) -> Choice:
    return Choice(*(Combination(dict, verb=verb, object=_objects(verb, persons), **parts) for verb in verbs))


def _deeds(persons: Any) -> Choice:
    """Predicates of doing something with a thing or a person."""
    onto = Choice(_place("on", "auf", "acc", "furniture"), _place("into", "in", "acc", "containers"))
    gifts = _phrases("things", "clothes", singular=A)
    receiver = Combination(grammar.prepositional, "for", "für", "acc", persons)
    return Choice(
        _transitive([verb for verb in lex.TRANSITIVE if not verb.simple], persons),
        _transitive(lex.DITRANSITIVE, persons, recipient=persons),
        _transitive(lex.ANYWHERE, persons, place=_LOCATION),
        _transitive([lex.PUT], persons, place=onto),
        Combination(dict, verb=lex.BUY, object=gifts, place=receiver),
        weights=(14, 4, 3, 1, 1),
    )


def _moves(persons: Any) -> Choice:
    """Predicates of doing something alone, and of going somewhere."""
    company = Combination(grammar.prepositional, "with", "mit", "dat", persons)
    return Choice(
        Combination(dict, verb=Choice(*lex.INTRANSITIVE)),
        Combination(dict, verb=Choice(*lex.TOGETHER), place=Choice(None, company, _LOCATION, weights=(1, 1, 4))),
        Combination(dict, verb=Choice(lex.STAY, lex.SLEEP), place=_LOCATION),
        Combination(dict, verb=Choice(lex.GO, lex.RUN), place=_INTO),
        Combination(dict, verb=Choice(lex.GO, lex.DRIVE), place=_TO),
        Combination(dict, verb=lex.GO, place=lex.HOME),
        Combination(dict, verb=lex.COME, place=_FROM),
        weights=(4, 5, 2, 2, 2, 1, 1),
    )


def _actions(persons: Any) -> Choice:
    return Choice(_deeds(persons), _moves(persons), weights=(3, 2))


def _clause(subject: NounPhrase | Pronoun, predicate: dict[str, Any], aspect: dict[str, Any]) -> Clause:
    return Clause(subject, **predicate, **aspect)


def _clauses(predicates: Callable[[Any], Choice], aspects: Any) -> Choice:
    """Clauses whose subject and object come from different groups, so that nobody visits himself."""
    kinds = (
        (_FAMILY, Choice(_PEOPLE, _NAMES, _PRONOUNS, weights=(6, 1, 1))),
        (_PEOPLE, Choice(_FAMILY, _NAMES, _PRONOUNS, weights=(6, 1, 1))),
        (Choice(_PRONOUNS, _NAMES, weights=(3, 1)), Choice(_FAMILY, _PEOPLE)),
    )
    return Choice(*(Combination(_clause, subject, predicates(persons), aspects) for subject, persons in kinds))


# ------------------------------------------------------------------ tense, mood, negation, time

_NEGATED = Choice(False, True, weights=(2, 1))
_THEN_OR_NOW = Choice(Tense.PRESENT, Tense.PAST)
_MODALS = Choice(lex.CAN, lex.MUST, lex.WANT, lex.MAY)
_PLAIN = Combination(dict, tense=_THEN_OR_NOW, negated=_NEGATED)
_POSITIVE = Combination(dict, tense=_THEN_OR_NOW)
_MODAL = Choice(
    Combination(dict, modal=Choice(*_MODALS.options, lex.SHOULD), negated=_NEGATED),
    Combination(dict, modal=_MODALS, tense=Tense.PAST, negated=_NEGATED),
    weights=(3, 1),
)


def _timed(slot: str, **parts: Any) -> Choice:
    """Tenses with an adverbial that fits them, as the clause's `time` or its `front`."""
    modal = Choice(lex.MUST, lex.WANT, lex.CAN)
    return Choice(
        Combination(dict, **{slot: Choice(*lex.NOW)}, **parts),
        Combination(dict, tense=Tense.PAST, **{slot: Choice(*lex.EARLIER)}, **parts),
        Combination(dict, tense=Tense.FUTURE, **{slot: Choice(*lex.LATER)}, **parts),
        Combination(dict, modal=modal, **{slot: Choice(lex.TODAY, *lex.LATER)}, **parts),
        weights=(1, 3, 3, 2),
    )


_HABITUAL = Choice(
    Combination(dict, tense=Tense.HABIT, time=Choice(*lex.REGULARLY)),
    Combination(dict, tense=Tense.HABIT, frequency=Choice(*lex.OFTEN)),
)
_FRONTED = Choice(
    _timed("front", negated=_NEGATED),
    Combination(dict, tense=Tense.HABIT, front=Choice(*lex.REGULARLY)),
    weights=(4, 1),
)
_SCHEDULED = Choice(_timed("time"), _HABITUAL, _FRONTED, weights=(1, 1, 2))
_EMBEDDED = Choice(_PLAIN, _MODAL, _timed("time"), _HABITUAL, weights=(3, 2, 1, 1))
_ASKED = Choice(_POSITIVE, Combination(dict, modal=_MODALS), _timed("time"), _HABITUAL, weights=(3, 1, 1, 1))
_ASKED_WHY = Choice(
    Combination(dict, front=lex.WHY, tense=_THEN_OR_NOW),
    Combination(dict, front=lex.WHY, modal=_MODALS),
    weights=(3, 1),
)
_ASKED_WHEN = Combination(dict, front=lex.WHEN, tense=Choice(Tense.PAST, Tense.FUTURE))
_ASKED_WHERE = Combination(dict, front=lex.WHERE, tense=_THEN_OR_NOW)
_DOING = Choice(_POSITIVE, Combination(dict, modal=Choice(lex.MUST, lex.WANT), tense=_THEN_OR_NOW))
_NOT_DOING = Choice(
    Combination(dict, tense=_THEN_OR_NOW, negated=True),
    Combination(dict, modal=Choice(lex.CAN, lex.WANT), tense=_THEN_OR_NOW, negated=True),
)

# ------------------------------------------------------------------ kinds of sentences


def _being(adjectives: Iterable[Adjective], **parts: Any) -> Combination:
    states = (Phrase(adjective.english, adjective.german) for adjective in adjectives)
    return Combination(dict, verb=lex.BE, place=Choice(*states), **parts)


def _descriptions() -> Choice:
    """Clauses on the properties of things and the feelings of people."""
    owned = Choice(lex.THE, lex.THIS, _POSSESSIVES)
    options = []
    for group, singular in (
        *((group, owned) for group in ("things", "clothes", "vehicles", "devices", "writings")),
        *((group, _DEFINITE) for group in ("rooms", "buildings", "beasts")),
    ):
        subject = _phrases(group, singular=singular, plural=_DEFINITE, adjectives=False)
        options.append(Combination(_clause, subject, _being(lex.ADJECTIVES[group]), _PLAIN))
    people = Combination(_clause, _ANYBODY, _being(lex.FEELINGS), _PLAIN)
    return Choice(Choice(*options), people, weights=(2, 1))


def _things_about() -> Choice:
    """Clauses on the places and owners of things."""
    options = []
    for verb, predicate in (
        (lex.LIE, {"place": _place("on", "auf", "dat", "furniture")}),
        (lex.BELONG, {"object": _ANYBODY}),
    ):
        things = _phrases(*verb.objects.split(), singular=_DEFINITE, plural=_DEFINITE)
        options.append(Combination(_clause, things, Combination(dict, verb=verb, **predicate), _PLAIN))
    return Choice(*options)


def _animals() -> Combination:
    under = _place("under", "unter", "dat", "furniture")
    inside = _place("in", "in", "dat", "rooms", "outdoors")
    predicates = Choice(
        Combination(dict, verb=Choice(lex.SLEEP, lex.PLAY), place=Choice(under, inside)),
        Combination(dict, verb=lex.RUN, place=_INTO),
        _transitive(lex.OF_ANIMALS, _FAMILY),
    )
    return Combination(_clause, _PETS, predicates, _PLAIN)


def _background(main: Clause) -> Tense:
    """The tense beside `main`: what will happen if it rains, what happened because it rained."""
    return Tense.HABIT if main.tense is Tense.FUTURE else main.tense


def _in_weather(conjunction: Phrase, main: Clause, weather: Clause, main_first: bool) -> Pair:
    return grammar.complex_sentence(conjunction, main, replace(weather, tense=_background(main)), main_first)


def _with_reason(
    conjunction: Phrase,
    subject: NounPhrase | Pronoun,
    predicate: dict[str, Any],
    aspect: dict[str, Any],
    reason: dict[str, Any],
    main_first: bool,
) -> Pair:
    """The noun comes first and its pronoun second, whichever clause that is."""
    doer, feeler = (subject, grammar.pronoun_for(subject)) if main_first else (grammar.pronoun_for(subject), subject)
    main = Clause(doer, **predicate, **aspect)
    return grammar.complex_sentence(conjunction, main, Clause(feeler, **reason, tense=_background(main)), main_first)


# Whom a pronoun takes up: never das Kind or das Mädchen, whose pronoun is no translation of he or she.
_REFERENTS = Choice(_FAMILY, _ADULTS, _PRONOUNS)
_TIME, _MONEY = NounPhrase(lex.TIME, A), NounPhrase(lex.MONEY, A)
_LACKING = Combination(dict, verb=lex.HAVE, object=Choice(_TIME, _MONEY), negated=True)
_REASONS = Choice(_being(lex.HINDRANCES), _LACKING)
_CONDITIONS = Choice(_being(lex.HINDRANCES, negated=True), {"verb": lex.HAVE, "object": _TIME})
_SUNSHINE = Clause(NounPhrase(lex.SUN, lex.THE), lex.SHINE)
_BAD_WEATHER = Choice(
    Clause(lex.IT, lex.RAIN),
    Clause(lex.IT, lex.SNOW),
    *(Clause(lex.IT, lex.BE, place=Phrase(word.english, word.german)) for word in lex.WEATHERS),
)


def _complex_sentences() -> Choice:
    order = Choice(True, False)
    others = Choice(_phrases("children", singular=_DEFINITE, plural=_DEFINITE), _NAMES)
    options = []
    for conjunction, aspects, reasons, weather in (
        (lex.BECAUSE, _NOT_DOING, _REASONS, _BAD_WEATHER),
        (lex.ALTHOUGH, _DOING, _REASONS, _BAD_WEATHER),
        (lex.IF, {"tense": Tense.FUTURE}, _CONDITIONS, Choice(_BAD_WEATHER, _SUNSHINE, weights=(4, 1))),
    ):
        options.append(Combination(_with_reason, conjunction, _REFERENTS, _actions(others), aspects, reasons, order))
        options.append(Combination(_in_weather, conjunction, _clauses(_actions, aspects), weather, order))
    at_once = Combination(_clause, _FAMILY, _actions(_NAMES), {})
    meanwhile = Combination(_clause, _PEOPLE, _actions(_FAMILY), {})
    return Choice(*options, Combination(grammar.complex_sentence, lex.WHILE, at_once, meanwhile, order))


def _reports() -> Choice:
    """Clauses with that and whether."""
    fact, doubt = _clauses(_actions, _EMBEDDED), _clauses(_actions, _ASKED)
    subject = Choice(_FAMILY, _PRONOUNS, _NAMES)
    telling = Combination(_clause, subject, Combination(dict, verb=Choice(*lex.REPORTING)), {})
    wondering = Combination(_clause, subject, {"verb": lex.KNOW, "negated": True}, {})
    return Choice(
        Combination(grammar.complex_sentence, lex.THAT, telling, fact, True),
        Combination(grammar.complex_sentence, lex.WHETHER, wondering, doubt, True),
        Combination(grammar.whether_question, Choice(lex.YOU, lex.HE, lex.SHE), doubt),
        weights=(3, 1, 1),
    )


def _attempt(subject: NounPhrase | Pronoun, verb: Verb, aspect: dict[str, Any], deed: dict[str, Any]) -> Pair:
    return grammar.infinitive_sentence(Clause(subject, verb, **aspect), Clause(subject, **deed))


def _relative(matrix: Clause, predicate: dict[str, Any], aspect: dict[str, Any]) -> Pair:
    return grammar.relative_sentence(matrix, Clause(grammar.relative_pronoun(matrix.object), **predicate, **aspect))


def _relatives() -> Combination:
    known = _phrases("adults", "children", singular=Choice(lex.THE, A), plural=_DEFINITE)
    noticing = Combination(dict, verb=Choice(*lex.NOTICING), object=known)
    matrix = Combination(_clause, Choice(_FAMILY, _PRONOUNS, _NAMES), noticing, {})
    return Combination(_relative, matrix, _actions(_FAMILY), _POSITIVE)


def _sequel(verbs: tuple[Verb, Verb], conjunction: Phrase, who: Any, thing: NounPhrase, other: Any) -> Pair:
    """Somebody did something with a thing, and somebody else did something with it."""
    first = Clause(who, verbs[0], object=thing, tense=Tense.PAST)
    return grammar.coordination(
        first, conjunction, Clause(other, verbs[1], object=grammar.thing_pronoun(thing), tense=Tense.PAST)
    )


def _vain_search(who: NounPhrase | Pronoun, thing: NounPhrase) -> Pair:
    found = Clause(grammar.pronoun_for(who), lex.FIND, object=grammar.thing_pronoun(thing), modal=lex.CAN, negated=True)
    return grammar.coordination(Clause(who, lex.SEARCH, object=thing), lex.BUT, found)


def _sequels() -> Choice:
    known = Choice(lex.THE, _POSSESSIVES, weights=(2, 1))
    options = []
    for conjunction, pairs in ((lex.BUT, lex.CONTRARY), (lex.AND, lex.SEQUENCES)):
        for first, second in pairs:
            for group in first.objects.split():
                if group in second.objects.split():
                    plural = None if NOUNS[group][0].uncountable else lex.THE
                    things = _phrases(group, singular=known, plural=plural)
                    options.append(Combination(_sequel, (first, second), conjunction, _FAMILY, things, _PEOPLE))
    sought = _phrases("things", "clothes", singular=known, plural=lex.THE)
    return Choice(Choice(*options), Combination(_vain_search, _REFERENTS, sought), weights=(3, 1))


@cache
def sentences() -> Choice:
    """Every sentence of the grammar, as (English, German) pairs."""
    states = partial(_transitive, lex.STATES)
    mishaps = partial(_transitive, lex.MISHAPS)
    where = partial(_transitive, lex.SEEN_SOMEWHERE)
    kinds = (
        (12, Combination(grammar.statement, _clauses(_actions, Choice(_PLAIN, _MODAL)))),
        (14, Combination(grammar.statement, _clauses(_actions, _SCHEDULED))),
        (4, Combination(grammar.statement, _clauses(states, _PLAIN))),
        (2, Combination(grammar.statement, _clauses(mishaps, Combination(dict, tense=Tense.PAST, negated=_NEGATED)))),
        (4, Combination(grammar.statement, Combination(_clause, _STRANGERS, _actions(_FAMILY), _POSITIVE))),
        (6, Combination(grammar.statement, _descriptions())),
        (4, Combination(grammar.statement, Choice(_things_about(), _animals()))),
        (8, Combination(grammar.question, _clauses(_actions, _ASKED))),
        (2, Combination(grammar.question, _clauses(states, _POSITIVE))),
        (2, Combination(grammar.question, _clauses(_actions, _ASKED_WHY))),
        (1, Combination(grammar.question, _clauses(_actions, _ASKED_WHEN))),
        (1, Combination(grammar.question, _clauses(where, _ASKED_WHERE))),
        (15, _complex_sentences()),
        (8, _reports()),
        (5, Combination(_attempt, _ANYBODY, Choice(*lex.ATTEMPTS), _POSITIVE, _deeds(_NAMES))),
        (5, _relatives()),
        (6, _sequels()),
    )
    return Choice(*(kind for _, kind in kinds), weights=[weight for weight, _ in kinds])
