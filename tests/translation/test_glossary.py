"""Glossaries: files, terms in a text, and forms in its translation."""

import gzip
import random
from itertools import pairwise

import pytest

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.terms.glossary import Entry, Glossary, Term, copies, placed_forms, places_of_terms


def glossary(**terms):
    """`printer="Drucker|Druckers"`, an underscore for a space."""
    entries = []
    for source, targets in terms.items():
        entries.append(Entry((source.replace("_", " "),), tuple(targets.split("|")), source))
    return Glossary(entries)


def sources(found):
    return [term.source for term in found]


def test_the_longest_term_wins_and_terms_do_not_overlap():
    terms = glossary(laser="Laser", laser_printer="Laserdrucker", printer_paper="Papier")
    assert sources(terms.terms("A laser printer paper, a laser, and printer paper.")) == [
        "laser printer",
        "laser",
        "printer paper",
    ]
    # Nothing of a longer term that breaks off is lost.
    assert sources(glossary(a_b="x", a_a_c="y").terms("a a b")) == ["a b"]


def test_terms_are_whole_words():
    terms = glossary(art="Kunst", **{"C++": "C++"})
    assert sources(terms.terms("Art, start, arts, art-house C++ C+")) == ["Art", "art", "C++"]


def test_scripts_without_spaces_need_no_boundary():
    assert sources(glossary(電話="phone").terms("私の電話番号")) == ["電話"]


def test_a_capital_in_the_glossary_must_be_in_the_text():
    terms = glossary(IT="EDV", it="es", apple="Apfel", Apple="Apple")
    found = {term.source: term.entry.targets[0] for term in terms.terms("IT knows it, an apple, an APPLE and Apple.")}
    assert found == {"IT": "EDV", "it": "es", "apple": "Apfel", "APPLE": "Apfel", "Apple": "Apple"}


def test_a_term_that_occurs_twice_is_there_twice():
    found = glossary(dog="Hund").terms("A dog and a dog.")
    assert [(term.start, term.end) for term in found] == [(2, 5), (12, 15)]
    assert placed_forms("Ein Hund und noch ein Tier.", found) == ["Hund", None]
    assert placed_forms("Ein Hund und ein Hund.", found) == ["Hund", "Hund"]


def test_composed_letters_are_the_same_as_two():
    assert sources(glossary(**{"mu\u0308ller": "miller"}).terms("M\u00fcller")) == ["Müller"]


def test_each_term_needs_words_of_its_own():
    """A greedy choice would give "rotes Haus" to the first term, and leave none for the second."""
    found = glossary(house="rotes Haus|Haus", red="rotes|rotes Ding").terms("house red")
    assert placed_forms("Ein rotes Haus.", found) == ["Haus", "rotes"]
    assert placed_forms("Ein Haus.", found) == ["Haus", None]
    # Of two forms that begin at one word, the longer one.
    for forms in ("Haus|Haus Boot", "Haus Boot|Haus"):
        assert placed_forms("Ein Haus Boot.", glossary(house=forms).terms("house")) == ["Haus Boot"]


@pytest.mark.parametrize(
    ("translation", "expected"),
    [
        ("Der Drucker läuft.", "Drucker"),
        ("Des Druckers Papier.", "Druckers"),
        ("Der Laserdrucker läuft.", None),
        ("Der drucker läuft.", None),
        ("„Drucker“ steht dort.", "Drucker"),
    ],
)
def test_a_form_is_a_whole_word(translation, expected):
    found = glossary(printer="Drucker|Druckers").terms("printer")
    assert placed_forms(translation, found) == [expected]


def test_a_form_may_begin_a_sentence_with_a_capital():
    found = glossary(fast="schnell").terms("fast")
    assert placed_forms("„Schnell laufen.“", found) == ["schnell"]
    assert placed_forms("Er rannte. Schnell!", found) == ["schnell"]
    assert placed_forms("Er rannte Schnell.", found) == [None]
    for sign in "!?…:":
        assert placed_forms(f"Er rief{sign} Schnell!", found) == ["schnell"]
    assert placed_forms("Er rief, Schnell!", found) == [None]
    # The capital of another word says nothing about the first one.
    noun = glossary(art="schöne Kunst").terms("art")
    assert placed_forms("Schöne Kunst ist schwer.", noun) == ["schöne Kunst"]


def test_a_capital_inside_of_a_word_stays():
    found = glossary(phone="iPhone").terms("phone")
    assert placed_forms("iPhone ist da.", found) == ["iPhone"]
    assert placed_forms("IPhone ist da.", found) == [None]


def test_both_apostrophes_are_the_same():
    found = glossary(**{"driver's license": "permis d’conduire"}).terms("A driver’s license.")
    assert sources(found) == ["driver’s license"]
    assert placed_forms("un permis d'conduire", found) == ["permis d’conduire"]


def test_many_equal_terms_take_no_time():
    """One of them lacks its words. To try all of them in every order would take years."""
    found = glossary(dog="Hund").terms("dog " * 30)
    assert placed_forms("Hund " * 29, found) == ["Hund"] * 29 + [None]


def test_a_place_that_several_terms_may_have_goes_to_the_one_without_another():
    found = glossary(coat="Jacke|Mantel", jacket="Jacke").terms("coat, jacket")
    assert placed_forms("Eine Jacke und ein Mantel.", found) == ["Mantel", "Jacke"]


@pytest.mark.parametrize(
    ("houses", "translation", "expected"),
    [
        ("Haus", "Das Haus Boot und das Haus.", ["Haus", "Haus Boot"]),
        ("Haus", "Das Haus und das Haus Boot.", ["Haus", "Haus Boot"]),
        ("Haus|Heim", "Das Haus Boot und das Heim.", ["Heim", "Haus Boot"]),
        ("Haus", "Das Haus Boot.", ["Haus", None]),
    ],
)
def test_a_form_that_begins_another_one_leaves_its_words_to_it(houses, translation, expected):
    found = glossary(**{"house": houses, "boat": "Haus Boot"}).terms("house, boat")
    assert placed_forms(translation, found) == expected


@pytest.mark.parametrize("seed", range(20))
def test_places_do_not_overlap_and_none_is_left(seed):
    chance = random.Random(seed)
    for _ in range(20):
        kinds = []
        for number in range(chance.randint(1, 3)):
            forms = {" ".join(chance.choices("abc", k=chance.randint(1, 3))) for _ in range(chance.randint(1, 3))}
            kinds.append(Term(str(number), 0, 1, Entry((str(number),), tuple(sorted(forms)))))
        found = [term for term in kinds for _ in range(chance.randint(1, 2))]
        translation = " ".join(chance.choices("abc", k=6))
        rest = list(translation)
        for term, place in zip(found, places_of_terms(translation, found)):
            if place is not None:
                start, end, form = place
                assert form in term.entry.targets
                assert "".join(rest[start:end]) == form
                rest[start:end] = "_" * (end - start)
        left = [term for term, form in zip(found, placed_forms(translation, found)) if form is None]
        for term in left:
            assert placed_forms("".join(rest).replace("_", "x"), [term]) == [None]


def test_a_sentence_of_overlapping_terms_takes_no_time():
    """Each place overlaps others. To find the most terms that have one would take years."""
    kinds = []
    for number in range(60):
        forms = tuple(" ".join("ab"[number >> bit & 1] for bit in range(length)) for length in range(2, 8))
        kinds.append(Term(str(number), 0, 1, Entry((str(number),), (*forms, f"c{number}"))))
    chance = random.Random(1)
    places = places_of_terms(" ".join(chance.choices("ab", k=60)), kinds)
    taken = sorted(place for place in places if place is not None)
    assert 15 < len(taken) < 60
    assert all(before[1] <= after[0] for before, after in pairwise(taken))


@pytest.mark.parametrize("form", ["a " * 51, "語" * 51, "a" * 501])
def test_a_term_is_no_longer_than_a_model_reads(form):
    for sides in ((form, "x"), ("x", form)):
        with pytest.raises(UserError, match=r"x:1: the (source|target) is too long. A term has at most 50 words"):
            Glossary([Entry((sides[0],), (sides[1],), "x:1")])
    assert Glossary([Entry((form[:-2],), (form[:-2],), "x:1")])


def test_copies_are_counted_once():
    assert copies("Drucker, Druckers, Drucker", glossary(printer="Drucker|Druckers").terms("printer")) == [2]
    assert copies("rotes Haus", glossary(house="rotes Haus|Haus").terms("house")) == [0]
    # Without a space between them.
    assert copies("電話電話", glossary(phone="電話").terms("phone")) == [1]


def test_two_terms_with_the_same_form_are_no_copies():
    found = glossary(coat="Jacke|Jacken", jacket="Jacke", dog="Hund").terms("coat, jacket, dog")
    assert copies("Jacke, Jacke, Hund, Hund", found) == [0, 0, 1]
    assert copies("Jacke, Jacke, Jacken, Hund", found) == [1, 0, 0]


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def pairs(read):
    return [(entry.sources, entry.targets) for entry in read.entries]


def test_tsv(tmp_path):
    file = write(tmp_path / "terms.tsv", "# ours\nprinter|printers\tDrucker|Druckers\n\na\\|b\tx\n")
    expected = [(("printer", "printers"), ("Drucker", "Druckers")), (("a|b",), ("x",))]
    assert pairs(Glossary.read(file)) == expected
    compressed = tmp_path / "terms.tsv.gz"
    compressed.write_bytes(gzip.compress(file.read_bytes()))
    assert pairs(Glossary.read(compressed)) == expected


def test_csv_as_deepl_writes_it(tmp_path):
    text = 'printer,Drucker\r\n\r\n"a ""fast"" car, red","ein Wagen"\r\n'
    expected = [(("printer",), ("Drucker",)), (('a "fast" car, red',), ("ein Wagen",))]
    assert pairs(Glossary.read(write(tmp_path / "terms.csv", text))) == expected
    # The last one is of a language whose code begins like another one.
    rows = "dog,Hund,en-US,de\ndog,chien,EN,FR\ndog,perro,en_GB,es_419\ndog,tikiñ,en,frp\n"
    with_languages = write(tmp_path / "languages.csv", rows)
    assert pairs(Glossary.read(with_languages, "en", "fr")) == [(("dog",), ("chien",))]
    assert pairs(Glossary.read(with_languages, "en", "de")) == [(("dog",), ("Hund",))]
    assert pairs(Glossary.read(with_languages, "en_GB", "es")) == [(("dog",), ("perro",))]


TBX_2008 = """<?xml version="1.0"?>
<martif type="TBX" xml:lang="en"><text><body>
<termEntry><langSet xml:lang="en-US"><tig><term>printer</term></tig><ntig><termGrp><term>printing <hi>device</hi></term>
</termGrp></ntig></langSet><langSet xml:lang="de"><tig><term>Drucker</term></tig><tig><term>Printer</term>
<termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></tig></langSet></termEntry>
<termEntry><langSet xml:lang="fr"><tig><term>chien</term></tig></langSet></termEntry>
</body></text></martif>"""
TBX_2019 = """<tbx xmlns="urn:iso:std:iso:30042:ed-2" type="TBX-Core" style="dca" xml:lang="en"><text><body>
<conceptEntry><langSec xml:lang="en"><termSec><term>printer</term></termSec>
<termSec><term>printing device</term></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Drucker</term></termSec></langSec></conceptEntry></body></text></tbx>"""


@pytest.mark.parametrize(
    "text", [TBX_2008, TBX_2019, TBX_2019.replace("xml:lang", "lang"), TBX_2008.replace("deprecated", "superseded")]
)
def test_tbx(tmp_path, text):
    read = Glossary.read(write(tmp_path / "terms.tbx", text), "en", "de")
    assert pairs(read) == [(("printer", "printing device"), ("Drucker",))]


def test_an_empty_term_of_tbx_is_left_out(tmp_path):
    text = TBX_2019.replace("printing device", " ")
    assert pairs(Glossary.read(write(tmp_path / "terms.tbx", text), "en", "de")) == [(("printer",), ("Drucker",))]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("terms.tsv", "printer\tDrucker\ndog\n", r"terms.tsv:2: a line has a source, one tab"),
        ("terms.tsv", "a\tb\n\tc\n", r"terms.tsv:2: the source is empty"),
        ("terms.tsv", "a\tb|\n", r"terms.tsv:1: the target is empty"),
        ("terms.tsv", "a\tb\nc\td\nA|a\tx\n", r"terms.tsv:3: the glossary has 'a' twice. It is also in .*tsv:1"),
        ("terms.tsv", "# nothing\n", "has no entry"),
        ("terms.csv", "a,b\na,b,c\n", r"terms.csv:2: a row has a source, a target"),
        ("terms.csv", 'a,"b\n', r"terms.csv:1: .*Check the quotes"),
        ("terms.csv", "a,b,fr,de\n", "has no entry from en to de"),
        ("terms.tbx", TBX_2008.replace("printer<", "&own;<"), "terms.tbx: "),
        ("terms.tbx", TBX_2008[:-20], "terms.tbx: "),
        (
            "terms.tbx",
            TBX_2008.replace("<martif", '<!DOCTYPE martif [<!ENTITY own "x">]><martif').replace("printer<", "&own;<"),
            "the entity &own; is not read",
        ),
        ("terms.xlsx", "a", r"terms.xlsx is no glossary. Give a file .tsv, .csv or .tbx"),
    ],
)
def test_a_broken_file_names_its_line(tmp_path, name, text, message):
    with pytest.raises(UserError, match=message):
        Glossary.read(write(tmp_path / name, text), "en", "de")


def test_languages_that_a_file_needs(tmp_path):
    with pytest.raises(UserError, match="Name both languages"):
        Glossary.read(write(tmp_path / "terms.tbx", TBX_2019))
    with pytest.raises(UserError, match="Name both languages"):
        Glossary.read(write(tmp_path / "terms.csv", "a,b,en,de\n"))
