"""The grammar of the built-in corpus: a clause is described once and spelled out in English and in German.

    clause = Clause(NounPhrase(man, THE), open_, object=NounPhrase(window, THE), modal=WANT)
    english_clause(clause)              # the man wants to open the window
    german_clause(clause)               # der Mann will das Fenster aufmachen
    german_subordinate("weil", clause)  # weil der Mann das Fenster aufmachen will

The English decides the German: the English past becomes the perfect (the preterite for sein, haben and the
modals), every other tense the German present.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from . import lexicon as lex
from .lexicon import A, Adjective, Determiner, Modal, Noun, Phrase, Pronoun, Verb


class Pair(NamedTuple):
    """An English text and its German translation."""

    english: str
    german: str


class Tense(Enum):
    """The English tenses: `PRESENT` is progressive if the verb can be, `HABIT` is the simple present."""

    PRESENT = auto()
    HABIT = auto()
    FUTURE = auto()
    PAST = auto()


# Where ein, kein and the possessives have no ending, the adjective shows the strong one instead.
ENDINGLESS = {("nom", "m"), ("nom", "n"), ("acc", "n")}
PERSONS = ("1s", "2s", "3s", "p")
SHORT_SYLLABLE = re.compile(r"[^aeiou]*[aeiou][^aeiouwxy]")


@dataclass(frozen=True)
class NounPhrase:
    """A determiner, perhaps an adjective, and a noun; `A` is no article in the plural and before milk."""

    noun: Noun
    determiner: Determiner
    plural: bool = False
    adjective: Adjective | None = None

    @property
    def person(self) -> str:
        """The verb's person: ``3s`` or ``p``."""
        return "p" if self.plural else "3s"

    def in_english(self, case: str) -> str:
        """The English words, the same in every `case`."""
        noun = self.noun.english
        if self.plural:
            noun = self.noun.english_plural or s_form(noun)
        words = join(self.adjective and self.adjective.english, noun)
        if self.determiner is not A:
            return join(self.determiner.english_plural if self.plural else self.determiner.english, words)
        if self.plural or self.noun.uncountable:
            return words
        return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"

    def in_german(self, case: str, negated: bool = False) -> str:
        """The German words in `case`; `negated` turns ein, or no article, into kein."""
        gender = "p" if self.plural else self.noun.gender
        strong = lex.STRONG_ENDINGS[case][gender]
        weak = "e" if gender != "p" and (case == "nom" or (case == "acc" and gender != "m")) else "en"
        stem = "kein" if negated else self.determiner.german
        if self.determiner is A and not negated and (self.plural or self.noun.uncountable):
            article, ending = "", strong
        elif stem not in ("d", "dies") and (case, gender) in ENDINGLESS:
            article, ending = stem, strong
        else:
            article, ending = _with_ending(stem, strong), weak
        return join(article, self.adjective and _adjective_form(self.adjective, ending), self._german_noun(case))

    def _german_noun(self, case: str) -> str:
        if self.plural:
            plural = self.noun.german_plural
            return plural if case != "dat" or plural[-1] in "ns" else plural + "n"
        return self.noun.german if case == "nom" else self.noun.oblique or self.noun.german


@dataclass(frozen=True)
class Clause:
    """Who does what: everything both languages need to know to say it.

    `place` is any fixed complement (a place, a direction, a predicate adjective). `time` and `frequency` (often)
    stand inside the clause, `front` before it, where German puts the verb next.
    """

    subject: NounPhrase | Pronoun
    verb: Verb
    object: NounPhrase | Pronoun | None = None
    recipient: NounPhrase | Pronoun | None = None
    place: Phrase | None = None
    tense: Tense = Tense.PRESENT
    modal: Modal | None = None
    negated: bool = False
    time: Phrase | None = None
    frequency: Phrase | None = None
    front: Phrase | None = None


def join(*words: str | None) -> str:
    """The words that are there, with single spaces."""
    return " ".join(word for word in words if word)


def _sentence(english: str, german: str, mark: str = ".") -> Pair:
    """Return both texts with a capital and a closing `mark`."""
    return Pair(*(text[0].upper() + text[1:] + mark for text in (english, german)))


def pronoun_for(phrase: NounPhrase | Pronoun) -> Pronoun:
    """The pronoun that takes up a person or a thing; English "it" has the gender of the German noun."""
    if isinstance(phrase, Pronoun):
        return phrase
    if phrase.plural:
        return lex.THEY
    return {"m": lex.HE, "f": lex.SHE, "n": lex.IT}[phrase.noun.gender]


def thing_pronoun(phrase: NounPhrase) -> Pronoun:
    """The pronoun that takes up a thing: English "it", German er, sie or es after the noun's gender."""
    pronoun = pronoun_for(phrase)
    return pronoun if phrase.plural else pronoun._replace(english="it", english_object="it")


def relative_pronoun(phrase: NounPhrase) -> Pronoun:
    """The subject of a relative clause about the person `phrase`: "who", German der, die or das."""
    german = _with_ending("d", lex.STRONG_ENDINGS["nom"]["p" if phrase.plural else phrase.noun.gender])
    return Pronoun("who", "who", phrase.person, german, german, german)


def prepositional(english: str, german: str, case: str, phrase: NounPhrase | Pronoun) -> Phrase:
    """A prepositional phrase, contracted where German does so (in dem Garten: im Garten)."""
    return Phrase(f"{english} {phrase.in_english(case)}", _contract(f"{german} {phrase.in_german(case)}"))


def _contract(german: str) -> str:
    first, second, *rest = german.split()
    return join(lex.CONTRACTIONS.get(f"{first} {second}", f"{first} {second}"), *rest)


def _with_ending(stem: str, ending: str) -> str:
    return {"de": "die", "des": "das"}.get(stem + ending, stem + ending)


def _adjective_form(adjective: Adjective, ending: str) -> str:
    return (adjective.stem or adjective.german) + ending


# ---------------------------------------------------------------- German


def german_finite(lemma: str, person: str, third: str = "") -> str:
    """The form of `lemma` in `person`; a verb that is not irregular is built from its `third` person singular."""
    if lemma in lex.IRREGULAR:
        return lex.IRREGULAR[lemma][PERSONS.index(person)]
    if person == "1s":
        return re.sub("e?n$", "", lemma) + "e"
    if person == "2s":
        stem = third[:-1]
        return stem + ("t" if stem[-1] in "sßz" else "st")
    return third if person == "3s" else lemma


def german_predicate(clause: Clause) -> tuple[str, str]:
    """The finite verb, and what closes the clause: a prefix, a participle, an infinitive, or nothing."""
    verb, person, past = clause.verb, clause.subject.person, clause.tense is Tense.PAST
    prefix, stem = split_verb(verb)
    if clause.modal:
        lemma = clause.modal.german_past if past else clause.modal.german
        return german_finite(lemma, person), prefix + stem
    if past and verb.preterite:
        return german_finite(verb.preterite, person), ""
    if past:
        return german_finite(verb.auxiliary, person, "hat"), prefix + verb.participle
    return german_finite(stem, person, verb.third), prefix


def split_verb(verb: Verb) -> tuple[str, str]:
    """The separable prefix (or nothing) and the rest of the infinitive."""
    prefix, _, stem = verb.german.rpartition("|")
    return prefix, stem


def _german_middle(clause: Clause) -> str:
    """Everything between the finite verb (or the conjunction) and the end, without the subject."""
    verb, thing = clause.verb, clause.object
    kein = clause.negated and isinstance(thing, NounPhrase) and thing.determiner is A and not verb.preposition
    words = thing.in_german(verb.case, kein) if thing else ""
    is_pronoun = isinstance(thing, Pronoun)
    after = _contract(f"{verb.preposition} {words}") if verb.preposition else ""
    return join(
        words if is_pronoun and not after else "",
        clause.recipient and clause.recipient.in_german("dat"),
        clause.time and clause.time.german,
        clause.frequency and clause.frequency.german,
        "" if is_pronoun or after else words,
        "nicht" if clause.negated and not kein else "",
        after,
        clause.place and clause.place.german,
    )


def german_clause(clause: Clause) -> str:
    """A main clause: the verb comes second, after the subject or after `front`."""
    if clause.front:
        return german_inverted(clause)
    finite, end = german_predicate(clause)
    return join(clause.subject.in_german("nom"), finite, _german_middle(clause), end)


def german_inverted(clause: Clause) -> str:
    """The verb before the subject: in questions, after `front`, after a subordinate clause."""
    finite, end = german_predicate(clause)
    front = clause.front and clause.front.german
    return join(front, finite, clause.subject.in_german("nom"), _german_middle(clause), end)


def german_subordinate(conjunction: str, clause: Clause) -> str:
    """The finite verb last, where a separable verb is whole again: "dass er das Fenster aufmacht"."""
    finite, end = german_predicate(clause)
    last = end + finite if end and end == split_verb(clause.verb)[0] else join(end, finite)
    return join(conjunction, clause.subject.in_german("nom"), _german_middle(clause), last)


def german_infinitive(clause: Clause) -> str:
    """The infinitive with zu, without a subject: "das Fenster aufzumachen"."""
    prefix, stem = split_verb(clause.verb)
    return join(_german_middle(clause), f"{prefix}zu{stem}" if prefix else f"zu {stem}")


# ---------------------------------------------------------------- English


def s_form(word: str) -> str:
    """The plural of a noun, or the third person singular of a verb."""
    if word == "have":
        return "has"
    if re.search("[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search("(s|x|ch|sh|o)$", word) else "s")


def ing_form(verb: str) -> str:
    """The present participle."""
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e"):
        return verb[:-1] + "ing"
    return verb + (verb[-1] if SHORT_SYLLABLE.fullmatch(verb) else "") + "ing"


def english_verb(clause: Clause) -> tuple[str, str, str]:
    """The auxiliary of questions and negation, what follows it, and the two as one in a plain statement."""
    verb, modal, person, past = clause.verb, clause.modal, clause.subject.person, clause.tense is Tense.PAST
    first, _, rest = split_english(verb)[0].partition(" ")
    if clause.tense is Tense.FUTURE:
        first, rest = "will", join(first, rest)
    elif clause.tense is Tense.PRESENT and not (verb.simple or modal):
        first, rest = "be", join(ing_form(first), rest)
    past_form = verb.past
    if modal:
        modal_first, _, modal_rest = modal.english.partition(" ")
        first, rest, past_form = modal_first, join(modal_rest, first, rest), modal.past
    if first == "be":
        auxiliary = _english_be(person, past)
        return auxiliary, rest, join(auxiliary, rest)
    if first in ("will", "can", "should"):
        auxiliary = past_form if past else first
        return auxiliary, rest, join(auxiliary, rest)
    auxiliary = "did" if past else "does" if person == "3s" else "do"
    finite = past_form if past else s_form(first) if person == "3s" else first
    return auxiliary, join(first, rest), join(finite, rest)


def _english_be(person: str, past: bool) -> str:
    if past:
        return "was" if person in ("1s", "3s") else "were"
    return {"1s": "am", "3s": "is"}.get(person, "are")


def split_english(verb: Verb) -> tuple[str, str]:
    """The English verb and its separable particle (or nothing)."""
    base, _, particle = verb.english.partition("|")
    return base, particle


def _english_tail(clause: Clause) -> str:
    """Everything after the verb: "turns on the radio", but "turns it on"."""
    particle = split_english(clause.verb)[1]
    thing = clause.object and clause.object.in_english("acc")
    order = (thing, particle) if isinstance(clause.object, Pronoun) else (particle, thing)
    fixed = [phrase.english for phrase in (clause.place, clause.time) if phrase]
    return join(clause.recipient and clause.recipient.in_english("dat"), *order, *fixed)


def english_clause(clause: Clause) -> str:
    """A statement: an adverb of frequency stands before the verb."""
    auxiliary, rest, statement = english_verb(clause)
    if clause.negated:
        statement = join("cannot" if auxiliary == "can" else f"{auxiliary} not", rest)
    frequency = clause.frequency and clause.frequency.english
    front = clause.front and clause.front.english
    return join(front, clause.subject.in_english("nom"), frequency, statement, _english_tail(clause))


def english_question(clause: Clause) -> str:
    """A question, after its question word if `front` holds one."""
    auxiliary, rest, _ = english_verb(clause)
    frequency = clause.frequency and clause.frequency.english
    subject = clause.subject.in_english("nom")
    return join(clause.front and clause.front.english, auxiliary, subject, frequency, rest, _english_tail(clause))


def english_infinitive(clause: Clause) -> str:
    """The infinitive with to, without a subject: "to open the window"."""
    return join("to", split_english(clause.verb)[0], _english_tail(clause))


# ---------------------------------------------------------------- sentences


def statement(clause: Clause) -> Pair:
    """A main clause on its own."""
    return _sentence(english_clause(clause), german_clause(clause))


def question(clause: Clause) -> Pair:
    """A question; the clause's `front` is its question word, if it has one."""
    return _sentence(english_question(clause), german_inverted(clause), "?")


def complex_sentence(conjunction: Phrase, main: Clause, subordinate: Clause, main_first: bool) -> Pair:
    """A main and a subordinate clause in either order."""
    english = f"{conjunction.english} {english_clause(subordinate)}"
    german = german_subordinate(conjunction.german, subordinate)
    if main_first:
        return _sentence(f"{english_clause(main)} {english}", f"{german_clause(main)}, {german}")
    return _sentence(f"{english}, {english_clause(main)}", f"{german}, {german_inverted(main)}")


def coordination(first: Clause, conjunction: Phrase, second: Clause) -> Pair:
    """Two main clauses joined by and or but."""
    comma = "," if conjunction.english == "but" else ""
    english = f"{english_clause(first)}{comma} {conjunction.english} {english_clause(second)}"
    german = f"{german_clause(first)}{comma} {conjunction.german} {german_clause(second)}"
    return _sentence(english, german)


def whether_question(subject: Pronoun, content: Clause) -> Pair:
    """A polite question: "Do you know whether the bus is coming?"."""
    matrix = Clause(subject, lex.KNOW)
    english = f"{english_question(matrix)} {lex.WHETHER.english} {english_clause(content)}"
    german = f"{german_inverted(matrix)}, {german_subordinate(lex.WHETHER.german, content)}"
    return _sentence(english, german, "?")


def infinitive_sentence(matrix: Clause, content: Clause) -> Pair:
    """An infinitive with zu after `matrix`: "He is trying to open the window"."""
    english = f"{english_clause(matrix)} {english_infinitive(content)}"
    return _sentence(english, f"{german_clause(matrix)}, {german_infinitive(content)}")


def relative_sentence(matrix: Clause, content: Clause) -> Pair:
    """`content`, whose subject is a relative pronoun, about the object that `matrix` ends with."""
    english = f"{english_clause(matrix)} {english_clause(content)}"
    return _sentence(english, f"{german_clause(matrix)}, {german_subordinate('', content)}")
