"""The words of the built-in English-German corpus: one German word for every English one.

A bar marks where a verb comes apart: ``auf|machen`` ("macht das Fenster auf"), ``turn|on`` ("turns it on").
Nouns are grouped by what can sensibly be done with them; a verb lists the groups its object comes from.
"""

from typing import NamedTuple


class Noun(NamedTuple):
    """A noun: `oblique` is the accusative and dative singular of the n-declension, empty for all others."""

    english: str
    gender: str
    german: str
    german_plural: str
    oblique: str = ""
    english_plural: str = ""
    uncountable: bool = False


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


THE = Determiner("the", "the", "d")
A = Determiner("a", "", "ein")
THIS = Determiner("this", "these", "dies")
MY = Determiner("my", "my", "mein")
YOUR = Determiner("your", "your", "dein")
HIS = Determiner("his", "his", "sein")
HER = Determiner("her", "her", "ihr")
OUR = Determiner("our", "our", "unser")

I = Pronoun("I", "me", "1s", "ich", "mich", "mir")  # noqa: E741
YOU = Pronoun("you", "you", "2s", "du", "dich", "dir")
HE = Pronoun("he", "him", "3s", "er", "ihn", "ihm")
SHE = Pronoun("she", "her", "3s", "sie", "sie", "ihr")
IT = Pronoun("it", "it", "3s", "es", "es", "ihm")
WE = Pronoun("we", "us", "p", "wir", "uns", "uns")
THEY = Pronoun("they", "them", "p", "sie", "sie", "ihnen")
NAMES = tuple(Pronoun(name, name, "3s", name, name, name) for name in ("Anna", "Maria", "Peter", "Paul"))


def _nouns(table: str) -> tuple[Noun, ...]:
    """Comma-separated: English (with / an irregular plural), gender, German, its plural, and n-declension form."""
    nouns = []
    for entry in table.split(","):
        english, gender, german, plural, *oblique = entry.split()
        singular, _, english_plural = english.partition("/")
        nouns.append(Noun(singular, gender, german, plural, *oblique, english_plural=english_plural))
    return tuple(nouns)


def _uncountable(table: str) -> tuple[Noun, ...]:
    """Comma-separated: English, gender, German."""
    entries = (entry.split() for entry in table.split(","))
    return tuple(Noun(english, gender, german, "", uncountable=True) for english, gender, german in entries)


NOUNS: dict[str, tuple[Noun, ...]] = {
    "parents": _nouns(
        "father m Vater Väter, mother f Mutter Mütter, grandfather m Großvater Großväter,"
        "grandmother f Großmutter Großmütter"
    ),
    "relatives": _nouns(
        "brother m Bruder Brüder, sister f Schwester Schwestern, uncle m Onkel Onkel,"
        "aunt f Tante Tanten, son m Sohn Söhne, daughter f Tochter Töchter, friend m Freund Freunde,"
        "colleague m Kollege Kollegen Kollegen"
    ),
    "adults": _nouns(
        "man/men m Mann Männer, woman/women f Frau Frauen, teacher m Lehrer Lehrer, doctor m Arzt Ärzte,"
        "neighbor m Nachbar Nachbarn Nachbarn, student m Student Studenten Studenten,"
        "farmer m Bauer Bauern Bauern, tourist m Tourist Touristen Touristen,"
        "gentleman/gentlemen m Herr Herren Herrn, waiter m Kellner Kellner,"
        "waitress f Kellnerin Kellnerinnen, nurse f Krankenschwester Krankenschwestern,"
        "guest m Gast Gäste"
    ),
    "children": _nouns("boy m Junge Jungen Jungen, girl n Mädchen Mädchen, child/children n Kind Kinder"),
    "pets": _nouns("dog m Hund Hunde, cat f Katze Katzen, bird m Vogel Vögel, rabbit m Hase Hasen Hasen"),
    "beasts": _nouns("horse n Pferd Pferde, bear m Bär Bären Bären, lion m Löwe Löwen Löwen"),
    "things": _nouns(
        "umbrella m Regenschirm Regenschirme, picture n Bild Bilder, key m Schlüssel Schlüssel,"
        "knife/knives n Messer Messer, cup f Tasse Tassen, glass n Glas Gläser, flower f Blume Blumen,"
        "present n Geschenk Geschenke, camera f Kamera Kameras"
    ),
    "containers": _nouns("bag f Tasche Taschen, suitcase m Koffer Koffer, box f Kiste Kisten"),
    "furniture": _nouns("table m Tisch Tische, chair m Stuhl Stühle, bed n Bett Betten, bench f Bank Bänke"),
    "clothes": _nouns(
        "coat m Mantel Mäntel, hat m Hut Hüte, scarf/scarves m Schal Schals, shirt n Hemd Hemden,jacket f Jacke Jacken"
    ),
    "vehicles": _nouns("car n Auto Autos, bicycle n Fahrrad Fahrräder, boat n Boot Boote"),
    "transport": _nouns("bus m Bus Busse, train m Zug Züge"),
    "devices": _nouns(
        "lamp f Lampe Lampen, radio/radios n Radio Radios, television m Fernseher Fernseher,"
        "computer m Computer Computer"
    ),
    "writings": _nouns(
        "book n Buch Bücher, letter m Brief Briefe, story f Geschichte Geschichten, report m Bericht Berichte"
    ),
    "press": _nouns("newspaper f Zeitung Zeitungen, magazine f Zeitschrift Zeitschriften"),
    "fruit": _nouns("apple m Apfel Äpfel, orange f Orange Orangen, tomato f Tomate Tomaten"),
    "snacks": _nouns("egg n Ei Eier, cake m Kuchen Kuchen"),
    "dishes": _uncountable("soup f Suppe, meat n Fleisch, rice m Reis"),
    "drinks": _uncountable("water n Wasser, milk f Milch, coffee m Kaffee, tea m Tee"),
    "openings": _nouns("window n Fenster Fenster, door f Tür Türen, drawer f Schublade Schubladen"),
    "rooms": _nouns("kitchen f Küche Küchen, room n Zimmer Zimmer, cellar m Keller Keller, office n Büro Büros"),
    "buildings": _nouns(
        "house n Haus Häuser, school f Schule Schulen, church f Kirche Kirchen, hotel n Hotel Hotels,"
        "museum n Museum Museen, library f Bibliothek Bibliotheken"
    ),
    "outdoors": _nouns("garden m Garten Gärten, park m Park Parks, forest m Wald Wälder, city f Stadt Städte"),
    "spots": _nouns("station m Bahnhof Bahnhöfe, lake m See Seen, river m Fluss Flüsse, bridge f Brücke Brücken"),
}
(SUN,) = _nouns("sun f Sonne Sonnen")
TIME, MONEY = _uncountable("time f Zeit, money n Geld")

_ADJECTIVE_TABLE = (
    "old alt, young jung, new neu, big groß, small klein, beautiful schön, expensive teuer teur, cheap billig,"
    "red rot, blue blau, green grün, black schwarz, white weiß, long lang,"
    "interesting interessant, fresh frisch, cold kalt, hot heiß, good gut,"
    "friendly freundlich, clever klug, rich reich, famous berühmt, tired müde müd, ill krank, happy glücklich,"
    "sad traurig, hungry hungrig, dark dunkel dunkl"
)
_BY_ENGLISH = {entry.split()[0]: Adjective(*entry.split()) for entry in _ADJECTIVE_TABLE.split(",")}


def _adjectives(words: str) -> tuple[Adjective, ...]:
    return tuple(_BY_ENGLISH[word] for word in words.split())


FEELINGS = _adjectives("tired ill happy sad hungry")
HINDRANCES = _adjectives("tired ill sad")
WEATHERS = _adjectives("cold hot dark")
ADJECTIVES: dict[str, tuple[Adjective, ...]] = {
    "parents": _adjectives("old friendly clever"),
    "relatives": _adjectives("young clever rich"),
    "adults": _adjectives("old young friendly clever rich famous"),
    "children": _adjectives("small friendly clever happy tired"),
    "pets": _adjectives("big small old young black white hungry beautiful"),
    "beasts": _adjectives("big small old young beautiful"),
    "things": _adjectives("new old beautiful expensive cheap small big red blue green"),
    "containers": _adjectives("new old big small black green"),
    "furniture": _adjectives("new old expensive cheap big small beautiful white"),
    "clothes": _adjectives("new old expensive cheap beautiful red blue green black white"),
    "vehicles": _adjectives("new old expensive cheap big small red blue black"),
    "transport": _adjectives("big old new red"),
    "devices": _adjectives("new old expensive cheap big small"),
    "writings": _adjectives("new old long interesting beautiful"),
    "press": _adjectives("new old interesting"),
    "fruit": _adjectives("fresh big small cheap good red"),
    "snacks": _adjectives("fresh big small cheap good"),
    "dishes": _adjectives("fresh hot cold good cheap"),
    "drinks": _adjectives("fresh hot cold good"),
    "openings": _adjectives("big small old new"),
    "rooms": _adjectives("big small dark beautiful"),
    "buildings": _adjectives("big small old new beautiful"),
    "outdoors": _adjectives("big small beautiful"),
    "spots": _adjectives("big small beautiful"),
}

_GOODS = "things containers furniture clothes vehicles devices writings"
_FOOD = "fruit snacks dishes drinks"
BE = Verb("be", "was", "sein", "ist", "gewesen", preterite="waren", simple=True)
HAVE = Verb("have", "had", "haben", "hat", "gehabt", f"{_GOODS} pets", preterite="hatten", simple=True)

BUY = Verb("buy", "bought", "kaufen", "kauft", "gekauft", f"{_GOODS} {_FOOD}")

TRANSITIVE = (
    BUY,
    Verb("sell", "sold", "verkaufen", "verkauft", "verkauft", f"{_GOODS} {_FOOD}"),
    Verb("look for", "looked", "suchen", "sucht", "gesucht", "persons things containers clothes pets"),
    Verb("find", "found", "finden", "findet", "gefunden", "things clothes writings pets", simple=True),
    Verb("lose", "lost", "verlieren", "verliert", "verloren", "things clothes containers", simple=True),
    Verb("need", "needed", "brauchen", "braucht", "gebraucht", _GOODS, simple=True),
    HAVE,
    Verb("see", "saw", "sehen", "sieht", "gesehen", "persons pets beasts vehicles", simple=True),
    Verb("hear", "heard", "hören", "hört", "gehört", "persons pets transport", simple=True),
    Verb("know", "knew", "kennen", "kennt", "gekannt", "persons", simple=True),
    Verb("love", "loved", "lieben", "liebt", "geliebt", "persons pets", simple=True),
    Verb("forget", "forgot", "vergessen", "vergisst", "vergessen", "things containers", simple=True),
    Verb("read", "read", "lesen", "liest", "gelesen", "writings press"),
    Verb("write", "wrote", "schreiben", "schreibt", "geschrieben", "writings"),
    Verb("eat", "ate", "essen", "isst", "gegessen", "fruit snacks dishes"),
    Verb("drink", "drank", "trinken", "trinkt", "getrunken", "drinks"),
    Verb("cook", "cooked", "kochen", "kocht", "gekocht", "dishes"),
    Verb("wash", "washed", "waschen", "wäscht", "gewaschen", "vehicles clothes fruit"),
    Verb("clean", "cleaned", "putzen", "putzt", "geputzt", "rooms openings"),
    Verb("repair", "repaired", "reparieren", "repariert", "repariert", "vehicles devices openings"),
    Verb("feed", "fed", "füttern", "füttert", "gefüttert", "pets beasts"),
    Verb("visit", "visited", "besuchen", "besucht", "besucht", "persons"),
    Verb("meet", "met", "treffen", "trifft", "getroffen", "persons"),
    Verb("open", "opened", "auf|machen", "macht", "gemacht", "openings containers"),
    Verb("close", "closed", "zu|machen", "macht", "gemacht", "openings containers"),
    Verb("turn|on", "turned", "ein|schalten", "schaltet", "geschaltet", "devices"),
    Verb("turn|off", "turned", "aus|schalten", "schaltet", "geschaltet", "devices"),
    Verb("tidy|up", "tidied", "auf|räumen", "räumt", "geräumt", "rooms"),
    Verb("pick|up", "picked", "ab|holen", "holt", "geholt", "persons"),
    Verb("invite", "invited", "ein|laden", "lädt", "geladen", "persons"),
    Verb("call", "called", "an|rufen", "ruft", "gerufen", "persons"),
    Verb("put|on", "put", "an|ziehen", "zieht", "gezogen", "clothes"),
    Verb("take|off", "took", "aus|ziehen", "zieht", "gezogen", "clothes"),
    Verb("throw|away", "threw", "weg|werfen", "wirft", "geworfen", "things fruit snacks press"),
    Verb("help", "helped", "helfen", "hilft", "geholfen", "persons", "dat"),
    Verb("thank", "thanked", "danken", "dankt", "gedankt", "persons", "dat"),
    Verb("follow", "followed", "folgen", "folgt", "gefolgt", "persons pets", "dat", auxiliary="sein"),
    Verb("listen to", "listened", "zu|hören", "hört", "gehört", "persons", "dat"),
    Verb("wait for", "waited", "warten", "wartet", "gewartet", "persons transport", "acc", "auf"),
    Verb("think of", "thought", "denken", "denkt", "gedacht", "persons", "acc", "an"),
    Verb("talk to", "talked", "sprechen", "spricht", "gesprochen", "persons", "dat", "mit"),
    Verb("play with", "played", "spielen", "spielt", "gespielt", "pets", "dat", "mit"),
    Verb("look after", "looked", "auf|passen", "passt", "gepasst", "persons pets", "acc", "auf"),
)
DITRANSITIVE = (
    Verb("give", "gave", "geben", "gibt", "gegeben", "things writings fruit"),
    Verb("show", "showed", "zeigen", "zeigt", "gezeigt", "things writings rooms clothes"),
    Verb("bring", "brought", "bringen", "bringt", "gebracht", "things drinks snacks fruit dishes"),
    Verb("offer", "offered", "an|bieten", "bietet", "geboten", "drinks fruit snacks"),
)
SLEEP = Verb("sleep", "slept", "schlafen", "schläft", "geschlafen")
PLAY = Verb("play", "played", "spielen", "spielt", "gespielt")
STAY = Verb("stay", "stayed", "bleiben", "bleibt", "geblieben", auxiliary="sein")
GO = Verb("go", "went", "gehen", "geht", "gegangen", auxiliary="sein")
RUN = Verb("run", "ran", "laufen", "läuft", "gelaufen", auxiliary="sein")
DRIVE = Verb("drive", "drove", "fahren", "fährt", "gefahren", auxiliary="sein")
COME = Verb("come", "came", "kommen", "kommt", "gekommen", auxiliary="sein")
PUT = Verb("put", "put", "legen", "legt", "gelegt", "writings press clothes")
LIE = Verb("lie", "lay", "liegen", "liegt", "gelegen", "writings press clothes")
BELONG = Verb("belong to", "belonged", "gehören", "gehört", "gehört", _GOODS, "dat", simple=True)
INTRANSITIVE = (
    Verb("laugh", "laughed", "lachen", "lacht", "gelacht"),
    Verb("cry", "cried", "weinen", "weint", "geweint"),
    Verb("swim", "swam", "schwimmen", "schwimmt", "geschwommen", auxiliary="sein"),
    Verb("get up", "got", "auf|stehen", "steht", "gestanden", auxiliary="sein"),
    Verb("fall asleep", "fell", "ein|schlafen", "schläft", "geschlafen", auxiliary="sein"),
    Verb("come back", "came", "zurück|kommen", "kommt", "gekommen", auxiliary="sein"),
)
TOGETHER = (
    PLAY,
    Verb("work", "worked", "arbeiten", "arbeitet", "gearbeitet"),
    Verb("wait", "waited", "warten", "wartet", "gewartet"),
    Verb("sing", "sang", "singen", "singt", "gesungen"),
    Verb("dance", "danced", "tanzen", "tanzt", "getanzt"),
)
RAIN = Verb("rain", "rained", "regnen", "regnet", "geregnet")
SNOW = Verb("snow", "snowed", "schneien", "schneit", "geschneit")
SHINE = Verb("shine", "shone", "scheinen", "scheint", "geschienen")
# English know is kennen for a person and wissen before a clause.
KNOW = Verb("know", "knew", "wissen", "weiß", "gewusst", simple=True)
REPORTING = (
    KNOW,
    Verb("say", "said", "sagen", "sagt", "gesagt", simple=True),
    Verb("believe", "believed", "glauben", "glaubt", "geglaubt", simple=True),
    Verb("hope", "hoped", "hoffen", "hofft", "gehofft", simple=True),
)
ATTEMPTS = (
    Verb("try", "tried", "versuchen", "versucht", "versucht"),
    Verb("forget", "forgot", "vergessen", "vergisst", "vergessen", simple=True),
    Verb("promise", "promised", "versprechen", "verspricht", "versprochen", simple=True),
)

_VERBS = {verb.english: verb for verb in TRANSITIVE}


def _verbs(names: str) -> tuple[Verb, ...]:
    return tuple(_VERBS[name] for name in names.split(", "))


ANYWHERE = _verbs("read, write, eat, drink, meet, look for")
MISHAPS = _verbs("find, lose, forget")
STATES = _verbs("need, have, see, hear, know, love")
NOTICING = _verbs("know, see")
SEEN_SOMEWHERE = _verbs("buy, find, see, read, eat, drink, meet, look for, wash, repair")
OF_ANIMALS = _verbs("follow, hear, love")
SEARCH, FIND = _verbs("look for, find")
# What somebody does to a thing, and what somebody else then does to it.
CONTRARY = (_verbs("lose, find"), _verbs("open, close"), _verbs("close, open"), _verbs("turn|on, turn|off"))
SEQUENCES = (
    _verbs("write, read"),
    _verbs("cook, eat"),
    _verbs("find, sell"),
    _verbs("buy, wash"),
    _verbs("repair, buy"),
)

CAN = Modal("can", "could", "können", "konnten")
MUST = Modal("have to", "had", "müssen", "mussten")
WANT = Modal("want to", "wanted", "wollen", "wollten")
MAY = Modal("be allowed to", "was", "dürfen", "durften")
SHOULD = Modal("should", "should", "sollten", "sollten")

AND, BUT = Phrase("and", "und"), Phrase("but", "aber")
BECAUSE, ALTHOUGH = Phrase("because", "weil"), Phrase("although", "obwohl")
IF, WHILE = Phrase("if", "wenn"), Phrase("while", "während")
THAT, WHETHER = Phrase("that", "dass"), Phrase("whether", "ob")
WHY, WHEN, WHERE = Phrase("why", "warum"), Phrase("when", "wann"), Phrase("where", "wo")
AT_HOME, HOME = Phrase("at home", "zu Hause"), Phrase("home", "nach Hause")

TODAY = Phrase("today", "heute")
NOW = (Phrase("now", "jetzt"), TODAY)
OFTEN = (
    Phrase("often", "oft"),
    Phrase("always", "immer"),
    Phrase("never", "nie"),
    Phrase("sometimes", "manchmal"),
)
REGULARLY = (
    Phrase("every day", "jeden Tag"),
    Phrase("every morning", "jeden Morgen"),
    Phrase("every evening", "jeden Abend"),
)
WEEKDAYS = (Phrase("on Monday", "am Montag"), Phrase("on Friday", "am Freitag"), Phrase("on Sunday", "am Sonntag"))
EARLIER = (
    Phrase("yesterday", "gestern"),
    Phrase("this morning", "heute Morgen"),
    Phrase("two days ago", "vor zwei Tagen"),
    *WEEKDAYS,
)
LATER = (Phrase("tomorrow", "morgen"), Phrase("this evening", "heute Abend"), *WEEKDAYS)
