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
    """A verb with its English past, German third person singular, and participle without the separable prefix.

    `case` and `preposition` are what the German object takes; `auxiliary` forms the perfect, unless the verb
    has a `preterite`; `simple` verbs have no English progressive.
    """

    english: str
    past: str
    german: str
    third: str
    participle: str
    objects: tuple[str, ...] = ()
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
    """A pronoun or a name: English subject and object form, person, German nominative, accusative and dative."""

    english: str
    english_object: str
    person: str
    nom: str
    acc: str
    dat: str


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

NOUNS: dict[str, tuple[Noun, ...]] = {
    "parents": (
        Noun("father", "m", "Vater", "Väter"),
        Noun("mother", "f", "Mutter", "Mütter"),
        Noun("grandfather", "m", "Großvater", "Großväter"),
        Noun("grandmother", "f", "Großmutter", "Großmütter"),
    ),
    "relatives": (
        Noun("brother", "m", "Bruder", "Brüder"),
        Noun("sister", "f", "Schwester", "Schwestern"),
        Noun("uncle", "m", "Onkel", "Onkel"),
        Noun("aunt", "f", "Tante", "Tanten"),
        Noun("son", "m", "Sohn", "Söhne"),
        Noun("daughter", "f", "Tochter", "Töchter"),
        Noun("friend", "m", "Freund", "Freunde"),
        Noun("nephew", "m", "Neffe", "Neffen", "Neffen"),
        Noun("colleague", "m", "Kollege", "Kollegen", "Kollegen"),
    ),
    "people": (
        Noun("man", "m", "Mann", "Männer", english_plural="men"),
        Noun("woman", "f", "Frau", "Frauen", english_plural="women"),
        Noun("teacher", "m", "Lehrer", "Lehrer"),
        Noun("doctor", "m", "Arzt", "Ärzte"),
        Noun("neighbor", "m", "Nachbar", "Nachbarn", "Nachbarn"),
        Noun("student", "m", "Student", "Studenten", "Studenten"),
        Noun("farmer", "m", "Bauer", "Bauern", "Bauern"),
        Noun("customer", "m", "Kunde", "Kunden", "Kunden"),
        Noun("tourist", "m", "Tourist", "Touristen", "Touristen"),
        Noun("gentleman", "m", "Herr", "Herren", "Herrn", english_plural="gentlemen"),
        Noun("waiter", "m", "Kellner", "Kellner"),
        Noun("waitress", "f", "Kellnerin", "Kellnerinnen"),
        Noun("nurse", "f", "Krankenschwester", "Krankenschwestern"),
        Noun("guest", "m", "Gast", "Gäste"),
        Noun("artist", "m", "Künstler", "Künstler"),
        Noun("actress", "f", "Schauspielerin", "Schauspielerinnen"),
    ),
    "children": (
        Noun("boy", "m", "Junge", "Jungen", "Jungen"),
        Noun("girl", "n", "Mädchen", "Mädchen"),
        Noun("child", "n", "Kind", "Kinder", english_plural="children"),
    ),
    "pets": (
        Noun("dog", "m", "Hund", "Hunde"),
        Noun("cat", "f", "Katze", "Katzen"),
        Noun("bird", "m", "Vogel", "Vögel"),
        Noun("rabbit", "m", "Hase", "Hasen", "Hasen"),
    ),
    "wild animals": (
        Noun("horse", "n", "Pferd", "Pferde"),
        Noun("bear", "m", "Bär", "Bären", "Bären"),
        Noun("lion", "m", "Löwe", "Löwen", "Löwen"),
        Noun("elephant", "m", "Elefant", "Elefanten", "Elefanten"),
    ),
    "things": (
        Noun("ring", "m", "Ring", "Ringe"),
        Noun("umbrella", "m", "Regenschirm", "Regenschirme"),
        Noun("clock", "f", "Uhr", "Uhren"),
        Noun("ball", "m", "Ball", "Bälle"),
        Noun("picture", "n", "Bild", "Bilder"),
        Noun("key", "m", "Schlüssel", "Schlüssel"),
        Noun("knife", "n", "Messer", "Messer", english_plural="knives"),
        Noun("cup", "f", "Tasse", "Tassen"),
        Noun("glass", "n", "Glas", "Gläser"),
        Noun("flower", "f", "Blume", "Blumen"),
        Noun("present", "n", "Geschenk", "Geschenke"),
        Noun("camera", "f", "Kamera", "Kameras"),
    ),
    "containers": (
        Noun("bag", "f", "Tasche", "Taschen"),
        Noun("suitcase", "m", "Koffer", "Koffer"),
        Noun("box", "f", "Kiste", "Kisten"),
        Noun("drawer", "f", "Schublade", "Schubladen"),
    ),
    "furniture": (
        Noun("table", "m", "Tisch", "Tische"),
        Noun("chair", "m", "Stuhl", "Stühle"),
        Noun("bed", "n", "Bett", "Betten"),
        Noun("bench", "f", "Bank", "Bänke"),
        Noun("carpet", "m", "Teppich", "Teppiche"),
    ),
    "clothes": (
        Noun("coat", "m", "Mantel", "Mäntel"),
        Noun("hat", "m", "Hut", "Hüte"),
        Noun("dress", "n", "Kleid", "Kleider"),
        Noun("shirt", "n", "Hemd", "Hemden"),
        Noun("jacket", "f", "Jacke", "Jacken"),
        Noun("sweater", "m", "Pullover", "Pullover"),
    ),
    "vehicles": (
        Noun("car", "n", "Auto", "Autos"),
        Noun("bicycle", "n", "Fahrrad", "Fahrräder"),
        Noun("boat", "n", "Boot", "Boote"),
        Noun("truck", "m", "Lastwagen", "Lastwagen"),
    ),
    "transport": (
        Noun("bus", "m", "Bus", "Busse"),
        Noun("train", "m", "Zug", "Züge"),
        Noun("taxi", "n", "Taxi", "Taxis"),
    ),
    "devices": (
        Noun("lamp", "f", "Lampe", "Lampen"),
        Noun("radio", "n", "Radio", "Radios", english_plural="radios"),
        Noun("television", "m", "Fernseher", "Fernseher"),
        Noun("computer", "m", "Computer", "Computer"),
        Noun("machine", "f", "Maschine", "Maschinen"),
    ),
    "writings": (
        Noun("book", "n", "Buch", "Bücher"),
        Noun("letter", "m", "Brief", "Briefe"),
        Noun("story", "f", "Geschichte", "Geschichten"),
        Noun("poem", "n", "Gedicht", "Gedichte"),
        Noun("report", "m", "Bericht", "Berichte"),
    ),
    "press": (
        Noun("newspaper", "f", "Zeitung", "Zeitungen"),
        Noun("magazine", "f", "Zeitschrift", "Zeitschriften"),
    ),
    "fruit": (
        Noun("apple", "m", "Apfel", "Äpfel"),
        Noun("orange", "f", "Orange", "Orangen"),
        Noun("egg", "n", "Ei", "Eier"),
        Noun("tomato", "f", "Tomate", "Tomaten"),
        Noun("cake", "m", "Kuchen", "Kuchen"),
    ),
    "dishes": (
        Noun("soup", "f", "Suppe", "Suppen", uncountable=True),
        Noun("meat", "n", "Fleisch", "", uncountable=True),
        Noun("rice", "m", "Reis", "", uncountable=True),
    ),
    "drinks": (
        Noun("water", "n", "Wasser", "", uncountable=True),
        Noun("milk", "f", "Milch", "", uncountable=True),
        Noun("coffee", "m", "Kaffee", "", uncountable=True),
        Noun("tea", "m", "Tee", "", uncountable=True),
    ),
    "openings": (
        Noun("window", "n", "Fenster", "Fenster"),
        Noun("door", "f", "Tür", "Türen"),
    ),
    "rooms": (
        Noun("kitchen", "f", "Küche", "Küchen"),
        Noun("room", "n", "Zimmer", "Zimmer"),
        Noun("cellar", "m", "Keller", "Keller"),
        Noun("office", "n", "Büro", "Büros"),
        Noun("garage", "f", "Garage", "Garagen"),
    ),
    "buildings": (
        Noun("house", "n", "Haus", "Häuser"),
        Noun("school", "f", "Schule", "Schulen"),
        Noun("church", "f", "Kirche", "Kirchen"),
        Noun("hotel", "n", "Hotel", "Hotels"),
        Noun("museum", "n", "Museum", "Museen"),
        Noun("hospital", "n", "Krankenhaus", "Krankenhäuser"),
        Noun("library", "f", "Bibliothek", "Bibliotheken"),
    ),
    "outdoors": (
        Noun("garden", "m", "Garten", "Gärten"),
        Noun("park", "m", "Park", "Parks"),
        Noun("forest", "m", "Wald", "Wälder"),
        Noun("city", "f", "Stadt", "Städte"),
        Noun("village", "n", "Dorf", "Dörfer"),
    ),
    "spots": (
        Noun("station", "m", "Bahnhof", "Bahnhöfe"),
        Noun("airport", "m", "Flughafen", "Flughäfen"),
        Noun("lake", "m", "See", "Seen"),
        Noun("river", "m", "Fluss", "Flüsse"),
        Noun("bridge", "f", "Brücke", "Brücken"),
    ),
}
SUN = Noun("sun", "f", "Sonne", "Sonnen")
TIME = Noun("time", "f", "Zeit", "Zeiten", uncountable=True)
MONEY = Noun("money", "n", "Geld", "Gelder", uncountable=True)

_ADJECTIVES = {
    adjective.english: adjective
    for adjective in (
        Adjective("old", "alt"),
        Adjective("young", "jung"),
        Adjective("new", "neu"),
        Adjective("big", "groß"),
        Adjective("small", "klein"),
        Adjective("beautiful", "schön"),
        Adjective("expensive", "teuer", "teur"),
        Adjective("cheap", "billig"),
        Adjective("red", "rot"),
        Adjective("blue", "blau"),
        Adjective("green", "grün"),
        Adjective("black", "schwarz"),
        Adjective("white", "weiß"),
        Adjective("heavy", "schwer"),
        Adjective("long", "lang"),
        Adjective("interesting", "interessant"),
        Adjective("boring", "langweilig"),
        Adjective("fresh", "frisch"),
        Adjective("cold", "kalt"),
        Adjective("hot", "heiß"),
        Adjective("good", "gut"),
        Adjective("friendly", "freundlich"),
        Adjective("clever", "klug"),
        Adjective("rich", "reich"),
        Adjective("famous", "berühmt"),
        Adjective("tired", "müde", "müd"),
        Adjective("ill", "krank"),
        Adjective("happy", "glücklich"),
        Adjective("sad", "traurig"),
        Adjective("hungry", "hungrig"),
        Adjective("dangerous", "gefährlich"),
        Adjective("quiet", "ruhig"),
        Adjective("dark", "dunkel", "dunkl"),
    )
}


def _adjectives(words: str) -> tuple[Adjective, ...]:
    return tuple(_ADJECTIVES[word] for word in words.split())


STATES = _adjectives("tired ill happy sad hungry")
ADJECTIVES: dict[str, tuple[Adjective, ...]] = {
    "parents": _adjectives("friendly clever rich famous"),
    "relatives": _adjectives("friendly clever rich famous"),
    "people": _adjectives("old young friendly clever rich famous"),
    "children": _adjectives("small friendly clever happy hungry tired"),
    "pets": _adjectives("big small old young black white hungry beautiful"),
    "wild animals": _adjectives("big small old young beautiful dangerous"),
    "things": _adjectives("new old beautiful expensive cheap small big red blue green"),
    "containers": _adjectives("new old heavy big small black green"),
    "furniture": _adjectives("new old expensive cheap big small beautiful white"),
    "clothes": _adjectives("new old expensive cheap beautiful red blue green black white"),
    "vehicles": _adjectives("new old expensive cheap big small red blue black"),
    "transport": _adjectives("big old new red"),
    "devices": _adjectives("new old expensive cheap big small"),
    "writings": _adjectives("new old long interesting boring beautiful"),
    "press": _adjectives("new old interesting boring"),
    "fruit": _adjectives("fresh big small cheap good"),
    "dishes": _adjectives("fresh hot cold good cheap"),
    "drinks": _adjectives("fresh hot cold good"),
    "openings": _adjectives("big small old new"),
    "rooms": _adjectives("big small dark quiet beautiful"),
    "buildings": _adjectives("big small old new beautiful quiet"),
    "outdoors": _adjectives("big small beautiful quiet"),
    "spots": _adjectives("big small old beautiful"),
}

_GOODS = ("things", "containers", "furniture", "clothes", "vehicles", "devices", "writings")
_FOOD = ("fruit", "dishes", "drinks")
BE = Verb("be", "was", "sein", "ist", "gewesen", preterite="waren", simple=True)
HAVE = Verb("have", "had", "haben", "hat", "gehabt", (*_GOODS, "pets"), preterite="hatten", simple=True)

TRANSITIVE = (
    Verb("buy", "bought", "kaufen", "kauft", "gekauft", (*_GOODS, *_FOOD)),
    Verb("sell", "sold", "verkaufen", "verkauft", "verkauft", (*_GOODS, *_FOOD)),
    Verb("look for", "looked", "suchen", "sucht", "gesucht", ("persons", "things", "containers", "clothes", "pets")),
    Verb("find", "found", "finden", "findet", "gefunden", ("things", "clothes", "writings", "pets"), simple=True),
    Verb("lose", "lost", "verlieren", "verliert", "verloren", ("things", "clothes", "containers"), simple=True),
    Verb("need", "needed", "brauchen", "braucht", "gebraucht", _GOODS, simple=True),
    HAVE,
    Verb("see", "saw", "sehen", "sieht", "gesehen", ("persons", "pets", "wild animals", "vehicles"), simple=True),
    Verb("hear", "heard", "hören", "hört", "gehört", ("persons", "pets", "transport"), simple=True),
    Verb("know", "knew", "kennen", "kennt", "gekannt", ("persons",), simple=True),
    Verb("love", "loved", "lieben", "liebt", "geliebt", ("persons", "pets"), simple=True),
    Verb("forget", "forgot", "vergessen", "vergisst", "vergessen", ("things", "containers"), simple=True),
    Verb("read", "read", "lesen", "liest", "gelesen", ("writings", "press")),
    Verb("write", "wrote", "schreiben", "schreibt", "geschrieben", ("writings",)),
    Verb("eat", "ate", "essen", "isst", "gegessen", ("fruit", "dishes")),
    Verb("drink", "drank", "trinken", "trinkt", "getrunken", ("drinks",)),
    Verb("cook", "cooked", "kochen", "kocht", "gekocht", ("dishes",)),
    Verb("order", "ordered", "bestellen", "bestellt", "bestellt", ("dishes", "drinks", "fruit")),
    Verb("wash", "washed", "waschen", "wäscht", "gewaschen", ("vehicles", "clothes", "fruit")),
    Verb("clean", "cleaned", "putzen", "putzt", "geputzt", ("rooms", "openings")),
    Verb("repair", "repaired", "reparieren", "repariert", "repariert", ("vehicles", "devices", "openings")),
    Verb("draw", "drew", "zeichnen", "zeichnet", "gezeichnet", ("pets", "wild animals", "buildings")),
    Verb("wear", "wore", "tragen", "trägt", "getragen", ("clothes",)),
    Verb("feed", "fed", "füttern", "füttert", "gefüttert", ("pets", "wild animals")),
    Verb("visit", "visited", "besuchen", "besucht", "besucht", ("persons",)),
    Verb("meet", "met", "treffen", "trifft", "getroffen", ("persons",)),
    Verb("open", "opened", "auf|machen", "macht", "gemacht", ("openings", "containers")),
    Verb("close", "closed", "zu|machen", "macht", "gemacht", ("openings", "containers")),
    Verb("turn|on", "turned", "ein|schalten", "schaltet", "geschaltet", ("devices",)),
    Verb("turn|off", "turned", "aus|schalten", "schaltet", "geschaltet", ("devices",)),
    Verb("tidy|up", "tidied", "auf|räumen", "räumt", "geräumt", ("rooms",)),
    Verb("pick|up", "picked", "ab|holen", "holt", "geholt", ("persons",)),
    Verb("invite", "invited", "ein|laden", "lädt", "geladen", ("persons",)),
    Verb("call", "called", "an|rufen", "ruft", "gerufen", ("persons",)),
    Verb("put|on", "put", "an|ziehen", "zieht", "gezogen", ("clothes",)),
    Verb("take|off", "took", "aus|ziehen", "zieht", "gezogen", ("clothes",)),
    Verb("throw|away", "threw", "weg|werfen", "wirft", "geworfen", ("things", "fruit", "press")),
    Verb("help", "helped", "helfen", "hilft", "geholfen", ("persons",), "dat"),
    Verb("thank", "thanked", "danken", "dankt", "gedankt", ("persons",), "dat"),
    Verb("answer", "answered", "antworten", "antwortet", "geantwortet", ("persons",), "dat"),
    Verb("follow", "followed", "folgen", "folgt", "gefolgt", ("persons", "pets"), "dat", auxiliary="sein"),
    Verb("listen to", "listened", "zu|hören", "hört", "gehört", ("persons",), "dat"),
    Verb("wait for", "waited", "warten", "wartet", "gewartet", ("persons", "transport"), "acc", "auf"),
    Verb("think of", "thought", "denken", "denkt", "gedacht", ("persons",), "acc", "an"),
    Verb("talk to", "talked", "sprechen", "spricht", "gesprochen", ("persons",), "dat", "mit"),
    Verb("play with", "played", "spielen", "spielt", "gespielt", ("pets",), "dat", "mit"),
    Verb("look after", "looked", "auf|passen", "passt", "gepasst", ("persons", "pets"), "acc", "auf"),
)
DITRANSITIVE = (
    Verb("give", "gave", "geben", "gibt", "gegeben", ("things", "writings", "fruit")),
    Verb("show", "showed", "zeigen", "zeigt", "gezeigt", ("things", "writings", "rooms", "clothes")),
    Verb("bring", "brought", "bringen", "bringt", "gebracht", ("things", "drinks", "fruit", "dishes")),
    Verb("send", "sent", "schicken", "schickt", "geschickt", ("writings", "things")),
    Verb("lend", "lent", "leihen", "leiht", "geliehen", ("writings", "vehicles", "clothes")),
    Verb("offer", "offered", "an|bieten", "bietet", "geboten", ("drinks", "fruit")),
)
SLEEP = Verb("sleep", "slept", "schlafen", "schläft", "geschlafen")
PLAY = Verb("play", "played", "spielen", "spielt", "gespielt")
STAY = Verb("stay", "stayed", "bleiben", "bleibt", "geblieben", auxiliary="sein")
GO = Verb("go", "went", "gehen", "geht", "gegangen", auxiliary="sein")
RUN = Verb("run", "ran", "laufen", "läuft", "gelaufen", auxiliary="sein")
DRIVE = Verb("drive", "drove", "fahren", "fährt", "gefahren", auxiliary="sein")
COME = Verb("come", "came", "kommen", "kommt", "gekommen", auxiliary="sein")
PUT = Verb("put", "put", "legen", "legt", "gelegt", ("writings", "press", "clothes"))
LIE = Verb("lie", "lay", "liegen", "liegt", "gelegen", ("writings", "press", "clothes"))
BELONG = Verb("belong to", "belonged", "gehören", "gehört", "gehört", _GOODS, "dat", simple=True)
INTRANSITIVE = (
    Verb("laugh", "laughed", "lachen", "lacht", "gelacht"),
    Verb("cry", "cried", "weinen", "weint", "geweint"),
    Verb("swim", "swam", "schwimmen", "schwimmt", "geschwommen", auxiliary="sein"),
    Verb("get up", "got", "auf|stehen", "steht", "gestanden", auxiliary="sein"),
    Verb("fall asleep", "fell", "ein|schlafen", "schläft", "geschlafen", auxiliary="sein"),
    Verb("come back", "came", "zurück|kommen", "kommt", "gekommen", auxiliary="sein"),
)
LOCATED = (
    SLEEP,
    PLAY,
    Verb("work", "worked", "arbeiten", "arbeitet", "gearbeitet"),
    Verb("wait", "waited", "warten", "wartet", "gewartet"),
    Verb("sing", "sang", "singen", "singt", "gesungen"),
    Verb("dance", "danced", "tanzen", "tanzt", "getanzt"),
)
RAIN = Verb("rain", "rained", "regnen", "regnet", "geregnet")
SNOW = Verb("snow", "snowed", "schneien", "schneit", "geschneit")
SHINE = Verb("shine", "shone", "scheinen", "scheint", "geschienen")
# `know` is kennen for a person and wissen before a clause.
REPORTING = (
    Verb("say", "said", "sagen", "sagt", "gesagt", simple=True),
    Verb("know", "knew", "wissen", "weiß", "gewusst", simple=True),
    Verb("believe", "believed", "glauben", "glaubt", "geglaubt", simple=True),
    Verb("hope", "hoped", "hoffen", "hofft", "gehofft", simple=True),
)
KNOW = REPORTING[1]
ATTEMPTS = (
    Verb("try", "tried", "versuchen", "versucht", "versucht"),
    Verb("forget", "forgot", "vergessen", "vergisst", "vergessen", simple=True),
    Verb("promise", "promised", "versprechen", "verspricht", "versprochen", simple=True),
)

CAN = Modal("can", "could", "können", "konnten")
MUST = Modal("have to", "had", "müssen", "mussten")
WANT = Modal("want to", "wanted", "wollen", "wollten")
MAY = Modal("be allowed to", "was", "dürfen", "durften")
SHOULD = Modal("should", "should", "sollten", "sollten")

TODAY = Phrase("today", "heute")
NOW = (Phrase("now", "jetzt"), TODAY)
OFTEN = (Phrase("often", "oft"), Phrase("always", "immer"), Phrase("never", "nie"), Phrase("sometimes", "manchmal"))
REGULARLY = (
    Phrase("every day", "jeden Tag"),
    Phrase("every week", "jede Woche"),
    Phrase("every morning", "jeden Morgen"),
)
WEEKDAYS = (Phrase("on Monday", "am Montag"), Phrase("on Friday", "am Freitag"), Phrase("on Sunday", "am Sonntag"))
EARLIER = (
    Phrase("yesterday", "gestern"),
    Phrase("last week", "letzte Woche"),
    Phrase("two days ago", "vor zwei Tagen"),
    *WEEKDAYS,
)
LATER = (Phrase("tomorrow", "morgen"), Phrase("next week", "nächste Woche"), *WEEKDAYS)
