import pytest

from hf_capsule_mt.quickstart import lexicon as lex
from hf_capsule_mt.quickstart.grammar import (
    Clause,
    NounPhrase,
    Tense,
    complex_sentence,
    coordination,
    german_predicate,
    infinitive_sentence,
    ing_form,
    prepositional,
    question,
    relative_pronoun,
    relative_sentence,
    s_form,
    statement,
    thing_pronoun,
    whether_question,
)

NOUNS = {noun.english: noun for group in lex.NOUNS.values() for noun in group}
ADJECTIVES = {word.english: word for group in lex.ADJECTIVES.values() for word in group}
ADVERBIALS = {phrase.english: phrase for phrase in (*lex.NOW, *lex.OFTEN, *lex.REGULARLY, *lex.EARLIER, *lex.LATER)}
VERBS = {
    verb.english: verb
    for group in (lex.TRANSITIVE, lex.DITRANSITIVE, lex.INTRANSITIVE, lex.TOGETHER, lex.REPORTING[1:])
    for verb in (*group, lex.BE, lex.GO, lex.SLEEP, lex.LIE, lex.PUT)
}


def the(noun, adjective=None, *, plural=False):
    return phrase(lex.THE, noun, adjective, plural=plural)


def a(noun, adjective=None, *, plural=False):
    return phrase(lex.A, noun, adjective, plural=plural)


def phrase(determiner, noun, adjective=None, *, plural=False):
    return NounPhrase(NOUNS[noun], determiner, plural, ADJECTIVES[adjective] if adjective else None)


def clause(subject, verb, *, time=None, front=None, **parts):
    return Clause(
        subject,
        VERBS[verb],
        time=ADVERBIALS[time] if time else None,
        front=ADVERBIALS[front] if front else None,
        **parts,
    )


OPENING = {"verb": "open", "object": the("window")}


# ---------------------------------------------------------------- declension


@pytest.mark.parametrize(
    ("case", "noun", "german"),
    [
        ("nom", "table", "der neue Tisch, ein neuer Tisch, mein neuer Tisch, dieser neue Tisch"),
        ("acc", "table", "den neuen Tisch, einen neuen Tisch, meinen neuen Tisch, diesen neuen Tisch"),
        ("dat", "table", "dem neuen Tisch, einem neuen Tisch, meinem neuen Tisch, diesem neuen Tisch"),
        ("nom", "lamp", "die neue Lampe, eine neue Lampe, meine neue Lampe, diese neue Lampe"),
        ("acc", "lamp", "die neue Lampe, eine neue Lampe, meine neue Lampe, diese neue Lampe"),
        ("dat", "lamp", "der neuen Lampe, einer neuen Lampe, meiner neuen Lampe, dieser neuen Lampe"),
        ("nom", "book", "das neue Buch, ein neues Buch, mein neues Buch, dieses neue Buch"),
        ("acc", "book", "das neue Buch, ein neues Buch, mein neues Buch, dieses neue Buch"),
        ("dat", "book", "dem neuen Buch, einem neuen Buch, meinem neuen Buch, diesem neuen Buch"),
    ],
)
def test_adjectives_take_weak_endings_after_der_and_mixed_ones_after_ein(case, noun, german):
    phrases = [phrase(determiner, noun, "new") for determiner in (lex.THE, lex.A, lex.MY, lex.THIS)]
    assert ", ".join(each.in_german(case) for each in phrases) == german


@pytest.mark.parametrize(
    ("case", "german"),
    [
        ("nom", "die neuen Bücher, neue Bücher, keine neuen Bücher, unsere neuen Bücher"),
        ("acc", "die neuen Bücher, neue Bücher, keine neuen Bücher, unsere neuen Bücher"),
        ("dat", "den neuen Büchern, neuen Büchern, keinen neuen Büchern, unseren neuen Büchern"),
    ],
)
def test_plural_endings(case, german):
    bare = a("book", "new", plural=True)
    ours = phrase(lex.OUR, "book", "new", plural=True)
    forms = (
        the("book", "new", plural=True).in_german(case),
        bare.in_german(case),
        bare.in_german(case, negated=True),
        ours.in_german(case),
    )
    assert ", ".join(forms) == german


@pytest.mark.parametrize(
    ("noun", "german"),
    [("child", "den Kindern"), ("woman", "den Frauen"), ("car", "den Autos"), ("teacher", "den Lehrern")],
)
def test_dative_plural_takes_an_n_unless_the_plural_ends_in_n_or_s(noun, german):
    assert the(noun, plural=True).in_german("dat") == german


@pytest.mark.parametrize(
    ("noun", "forms"),
    [
        ("student", ("der Student", "den Studenten", "dem Studenten")),
        ("gentleman", ("der Herr", "den Herrn", "dem Herrn")),
        ("boy", ("der Junge", "den Jungen", "dem Jungen")),
        ("man", ("der Mann", "den Mann", "dem Mann")),
    ],
)
def test_n_declension(noun, forms):
    assert tuple(the(noun).in_german(case) for case in ("nom", "acc", "dat")) == forms


@pytest.mark.parametrize(
    ("case", "noun", "german"),
    [
        ("acc", "coffee", "heißen Kaffee, keinen heißen Kaffee"),
        ("nom", "coffee", "heißer Kaffee, kein heißer Kaffee"),
        ("acc", "milk", "heiße Milch, keine heiße Milch"),
        ("dat", "water", "heißem Wasser, keinem heißen Wasser"),
    ],
)
def test_without_an_article_the_adjective_has_the_strong_ending(case, noun, german):
    drink = a(noun, "hot")
    assert f"{drink.in_german(case)}, {drink.in_german(case, negated=True)}" == german


def test_adjective_stems_and_english_articles():
    assert a("car", "expensive").in_german("acc") == "ein teures Auto"
    assert a("room", "dark").in_german("dat") == "einem dunklen Zimmer"
    assert a("apple").in_english("acc") == "an apple"
    assert a("car", "old").in_english("acc") == "an old car"
    assert a("apple", "fresh").in_english("acc") == "a fresh apple"


# ---------------------------------------------------------------- conjugation


@pytest.mark.parametrize(
    ("verb", "forms"),
    [
        ("read", "ich lese, du liest, er liest, wir lesen"),
        ("wait for", "ich warte, du wartest, er wartet, wir warten"),
        ("feed", "ich füttere, du fütterst, er füttert, wir füttern"),
        ("invite", "ich lade, du lädst, er lädt, wir laden"),
        ("have", "ich habe, du hast, er hat, wir haben"),
        ("be", "ich bin, du bist, er ist, wir sind"),
    ],
)
def test_present_tense(verb, forms):
    subjects = (lex.I, lex.YOU, lex.HE, lex.WE)
    made = [f"{who.nom} {german_predicate(clause(who, verb))[0]}" for who in subjects]
    assert ", ".join(made) == forms


@pytest.mark.parametrize(
    ("verb", "third", "participle"),
    [
        ("run", "runs", "running"),
        ("write", "writes", "writing"),
        ("lie", "lies", "lying"),
        ("cry", "cries", "crying"),
        ("wash", "washes", "washing"),
        ("go", "goes", "going"),
        ("visit", "visits", "visiting"),
        ("draw", "draws", "drawing"),
    ],
)
def test_english_forms(verb, third, participle):
    assert (s_form(verb), ing_form(verb)) == (third, participle)


# ---------------------------------------------------------------- clauses


@pytest.mark.parametrize(
    ("parts", "english", "german"),
    [
        ({}, "He is opening the window.", "Er macht das Fenster auf."),
        ({"modal": lex.WANT}, "He wants to open the window.", "Er will das Fenster aufmachen."),
        ({"tense": Tense.PAST}, "He opened the window.", "Er hat das Fenster aufgemacht."),
        ({"negated": True}, "He is not opening the window.", "Er macht das Fenster nicht auf."),
        (
            {"tense": Tense.PAST, "negated": True},
            "He did not open the window.",
            "Er hat das Fenster nicht aufgemacht.",
        ),
        (
            {"tense": Tense.HABIT, "time": "every day"},
            "He opens the window every day.",
            "Er macht jeden Tag das Fenster auf.",
        ),
        (
            {"modal": lex.CAN, "negated": True},
            "He cannot open the window.",
            "Er kann das Fenster nicht aufmachen.",
        ),
        (
            {"modal": lex.MUST, "tense": Tense.PAST},
            "He had to open the window.",
            "Er musste das Fenster aufmachen.",
        ),
        (
            {"modal": lex.MAY, "negated": True},
            "He is not allowed to open the window.",
            "Er darf das Fenster nicht aufmachen.",
        ),
    ],
)
def test_separable_verb_in_a_main_clause(parts, english, german):
    assert statement(clause(lex.HE, **OPENING, **parts)) == (english, german)


def test_separable_verb_is_whole_at_the_end_of_a_subordinate_clause():
    says = clause(lex.SHE, "say")
    for parts, english, german in (
        ({}, "he is opening the window", "er das Fenster aufmacht"),
        ({"tense": Tense.PAST}, "he opened the window", "er das Fenster aufgemacht hat"),
        ({"modal": lex.SHOULD}, "he should open the window", "er das Fenster aufmachen sollte"),
    ):
        pair = complex_sentence(lex.THAT, says, clause(lex.HE, **OPENING, **parts), main_first=True)
        assert pair == (f"She says that {english}.", f"Sie sagt, dass {german}.")


def test_infinitive_with_zu():
    for verb, english, german in (
        ("open", "to open the window", "das Fenster aufzumachen"),
        ("clean", "to clean the window", "das Fenster zu putzen"),
    ):
        pair = infinitive_sentence(
            Clause(the("man"), lex.ATTEMPTS[0], tense=Tense.PAST), clause(the("man"), verb, object=the("window"))
        )
        assert pair == (f"The man tried {english}.", f"Der Mann hat versucht, {german}.")


@pytest.mark.parametrize(
    ("made", "english", "german"),
    [
        # The verb stays second: after an adverbial the subject follows it.
        (
            clause(the("man"), "buy", object=a("car", "old"), tense=Tense.FUTURE, front="tomorrow"),
            "Tomorrow the man will buy an old car.",
            "Morgen kauft der Mann ein altes Auto.",
        ),
        (
            clause(the("child", plural=True), "go", place=lex.HOME, tense=Tense.PAST, front="yesterday"),
            "Yesterday the children went home.",
            "Gestern sind die Kinder nach Hause gegangen.",
        ),
        # Recipients are dative and come before the time, which comes before the thing.
        (
            clause(the("man"), "give", recipient=the("woman"), object=the("book"), tense=Tense.PAST, time="yesterday"),
            "The man gave the woman the book yesterday.",
            "Der Mann hat der Frau gestern das Buch gegeben.",
        ),
        (
            clause(lex.I, "offer", recipient=lex.THEY, object=a("coffee", "hot")),
            "I am offering them hot coffee.",
            "Ich biete ihnen heißen Kaffee an.",
        ),
        # Dative verbs, prepositional objects and n-declension.
        (
            clause(lex.SHE, "help", object=the("neighbor"), tense=Tense.PAST),
            "She helped the neighbor.",
            "Sie hat dem Nachbarn geholfen.",
        ),
        (
            clause(lex.YOU, "follow", object=lex.HE, tense=Tense.PAST),
            "You followed him.",
            "Du bist ihm gefolgt.",
        ),
        (
            clause(lex.WE, "wait for", object=the("student"), negated=True),
            "We are not waiting for the student.",
            "Wir warten nicht auf den Studenten.",
        ),
        (
            clause(lex.YOU, "look after", object=lex.SHE, tense=Tense.HABIT, frequency=lex.OFTEN[0]),
            "You often look after her.",
            "Du passt oft auf sie auf.",
        ),
        # Negation: kein for ein and for no article, nicht otherwise.
        (
            clause(the("boy"), "buy", object=a("apple"), negated=True),
            "The boy is not buying an apple.",
            "Der Junge kauft keinen Apfel.",
        ),
        (
            clause(lex.THEY, "drink", object=a("milk"), tense=Tense.PAST, negated=True),
            "They did not drink milk.",
            "Sie haben keine Milch getrunken.",
        ),
        # Preterite of sein and haben; simple present of know.
        (
            clause(lex.WE, "have", object=a("dog", plural=True), tense=Tense.PAST),
            "We had dogs.",
            "Wir hatten Hunde.",
        ),
        (
            clause(the("car"), "be", place=lex.Phrase("expensive", "teuer"), tense=Tense.PAST, negated=True),
            "The car was not expensive.",
            "Das Auto war nicht teuer.",
        ),
        (clause(lex.I, "know", object=the("doctor")), "I know the doctor.", "Ich kenne den Arzt."),
    ],
)
def test_statements(made, english, german):
    assert statement(made) == (english, german)


@pytest.mark.parametrize(
    ("made", "english", "german"),
    [
        (
            clause(the("woman"), "invite", object=lex.I, tense=Tense.PAST),
            "Did the woman invite me?",
            "Hat die Frau mich eingeladen?",
        ),
        (clause(lex.YOU, "know", object=the("boy")), "Do you know the boy?", "Kennst du den Jungen?"),
        (
            Clause(lex.SHE, lex.SLEEP, front=lex.WHY, modal=lex.WANT, tense=Tense.PAST),
            "Why did she want to sleep?",
            "Warum wollte sie schlafen?",
        ),
        (
            Clause(lex.THEY, lex.GO, place=lex.HOME, front=lex.WHEN, tense=Tense.FUTURE),
            "When will they go home?",
            "Wann gehen sie nach Hause?",
        ),
    ],
)
def test_questions(made, english, german):
    assert question(made) == (english, german)


def test_two_way_prepositions_and_contractions():
    table, garden, station = the("table"), the("garden"), the("station")
    assert prepositional("on", "auf", "dat", table).german == "auf dem Tisch"
    assert prepositional("on", "auf", "acc", table).german == "auf den Tisch"
    assert prepositional("in", "in", "dat", garden).german == "im Garten"
    assert prepositional("into", "in", "acc", the("house", "old")).german == "ins alte Haus"
    assert prepositional("into", "in", "acc", garden).german == "in den Garten"
    assert prepositional("to", "zu", "dat", station).german == "zum Bahnhof"
    assert prepositional("to", "zu", "dat", the("school")).german == "zur Schule"
    assert prepositional("in", "in", "dat", a("forest", plural=True)).german == "in Wäldern"


# ---------------------------------------------------------------- sentences of two clauses


def test_a_fronted_subordinate_clause_puts_the_verb_first():
    staying = Clause(the("child"), lex.STAY, place=lex.AT_HOME)
    raining = Clause(lex.IT, lex.RAIN)
    assert complex_sentence(lex.BECAUSE, staying, raining, main_first=False) == (
        "Because it is raining, the child is staying at home.",
        "Weil es regnet, bleibt das Kind zu Hause.",
    )
    assert complex_sentence(lex.BECAUSE, staying, raining, main_first=True) == (
        "The child is staying at home because it is raining.",
        "Das Kind bleibt zu Hause, weil es regnet.",
    )


def test_if_with_the_english_future():
    calling = clause(lex.I, "call", object=phrase(lex.MY, "brother"), tense=Tense.FUTURE)
    having_time = Clause(lex.I, lex.HAVE, object=NounPhrase(lex.TIME, lex.A))
    assert complex_sentence(lex.IF, calling, having_time, main_first=False) == (
        "If I have time, I will call my brother.",
        "Wenn ich Zeit habe, rufe ich meinen Bruder an.",
    )


def test_although_with_the_past():
    went = clause(the("tourist", plural=True), "swim", tense=Tense.PAST)
    cold = Clause(lex.IT, lex.BE, place=lex.Phrase("cold", "kalt"), tense=Tense.PAST)
    assert complex_sentence(lex.ALTHOUGH, went, cold, main_first=True) == (
        "The tourists swam although it was cold.",
        "Die Touristen sind geschwommen, obwohl es kalt war.",
    )


@pytest.mark.parametrize(
    ("noun", "plural", "english", "german"),
    [
        ("key", False, "it", "ihn"),
        ("bag", False, "it", "sie"),
        ("knife", False, "it", "es"),
        ("key", True, "them", "sie"),
    ],
)
def test_the_pronoun_has_the_gender_of_its_noun(noun, plural, english, german):
    thing = the(noun, plural=plural)
    lost = clause(lex.I, "lose", object=thing, tense=Tense.PAST)
    found = clause(lex.SHE, "find", object=thing_pronoun(thing), tense=Tense.PAST)
    assert coordination(lost, lex.BUT, found) == (
        f"I lost {thing.in_english('acc')}, but she found {english}.",
        f"Ich habe {thing.in_german('acc')} verloren, aber sie hat {german} gefunden.",
    )


def test_an_english_particle_follows_the_pronoun():
    lamp = the("lamp")
    on = clause(lex.I, "turn|on", object=lamp, tense=Tense.PAST)
    off = clause(lex.HE, "turn|off", object=thing_pronoun(lamp), tense=Tense.PAST)
    assert coordination(on, lex.BUT, off) == (
        "I turned on the lamp, but he turned it off.",
        "Ich habe die Lampe eingeschaltet, aber er hat sie ausgeschaltet.",
    )


@pytest.mark.parametrize(
    ("noun", "plural", "german"),
    [("man", False, "den Mann, der"), ("woman", False, "die Frau, die"), ("girl", False, "das Mädchen, das")],
)
def test_relative_clause(noun, plural, german):
    person = the(noun, plural=plural)
    sings = clause(relative_pronoun(person), "sing")
    assert relative_sentence(clause(lex.I, "see", object=person), sings) == (
        f"I see the {noun} who is singing.",
        f"Ich sehe {german} singt.",
    )


def test_relative_clause_about_several():
    people = the("child", plural=True)
    went = clause(relative_pronoun(people), "get up", tense=Tense.PAST)
    assert relative_sentence(clause(lex.HE, "know", object=people), went) == (
        "He knows the children who got up.",
        "Er kennt die Kinder, die aufgestanden sind.",
    )


def test_whether():
    assert whether_question(lex.YOU, clause(the("guest"), "come back", tense=Tense.PAST)) == (
        "Do you know whether the guest came back?",
        "Weißt du, ob der Gast zurückgekommen ist?",
    )
