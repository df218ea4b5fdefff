"""Where tags and kept parts stand: examples of sources, translations and alignments, each of which shows another rule.

Words of a source are numbered from 0, and a kept part is a word. For each word of a translation an example has the
number of the word that it belongs to. In a pair, it belongs half as much to the second one.
"""

import random
import re

import pytest

from hf_capsule_mt.translation.tags.markup import read_markup
from hf_capsule_mt.translation.tags.segments import marked_segments
from hf_capsule_mt.translation.terms.glossary import Entry, Glossary, places_of_terms
from hf_capsule_mt.translation.text.words import keep_pattern

BRACES = r"\{\w\}|7"
BULLETS = r"\{\w\}|- |7 ?"


def cut_at_stops(text):
    return re.findall(r"[^.]+\.? ?|\. ?", text) or [""]


EXAMPLES = [
    ("ab7 ", BULLETS, None, [("ab7", [1, 1])], "ab7 "),
    ("a -  ", BULLETS, None, [("- A", [1, 1])], "- A  "),
    ("a,<r/>", BRACES, cut_at_stops, [("P Q R S T {x}", [0, 0, None, None, (1, 1), 0, 0, 0])], "P Q R S T {x}<r/>"),
    ("{y}ab. ", BRACES, None, [("{y} AB . {y}", [2, (None, 2), 1, 0])], " AB . {y} "),
    ("{y} a. ", BULLETS, cut_at_stops, [("P", [1])], "{y} P "),
    ("a  {x}\n{y}", BRACES, None, [("P {x}", [0, (2, 0)])], "P {x} {y}"),
    ("{x}{x} abc\n", BRACES, cut_at_stops, [("{x} {x} ABC", [0, (0, 0), (0, 0)])], "{x} {x} ABC\n"),
    ("a\nb<img/> - ", BRACES, cut_at_stops, [("P Q R S T", [0, 0, 0, 0, 0])], "P Q R<img/> S T "),
    (".<b>  a\n</b>", None, cut_at_stops, [("A", [None])], ".<b>  A</b>\n"),
    ("a<img/>. b  ", BRACES, cut_at_stops, [("A .", [1, (0, 1)]), ("B", [0])], "<img/>A . B  "),
    ("a<i> {y}</i>", BRACES, cut_at_stops, [("A {y} A", [None, 0, None])], "A <i>{y}</i> A"),
    ("a bc. {x}\nd ", BRACES, cut_at_stops, [("A BC .", [None, 1, 0]), ("P Q R", [0, 1, (0, 1)])], "A BC . {x} Q R "),
    (
        "<i>a </i>b-  ",
        BRACES,
        cut_at_stops,
        [("P Q R S T {x}", [0, 2, 0, 1, (1, 0), 0, (None, 1), 1])],
        "<i>P Q R</i> S T {x}  ",
    ),
    (
        "<i>ab  </i>\n7 ",
        BRACES,
        None,
        [("P Q R S T {x}", [0, 0, 1, 0, None, (None, 1), (None, 1), 1])],
        "<i>P Q</i> 7 S T {x} ",
    ),
    ("a <i>b . </i> ", BRACES, cut_at_stops, [("P Q {x}", [1, None, 1, 2, 0])], "<i>P Q {x</i>}  "),
    ("{x} a bc {x}  ", BULLETS, cut_at_stops, [("P Q R S T", [0, (3, 2), (1, 2), (None, 3), 3])], "{x} Q R {x}  "),
    ("{x}<b>\n. 7  </b>", None, None, [("7 . {x}", [3, 1, 1, 1, (0, 3)])], "<b>\n. 7  </b> . {x}  "),
    ("<br/> 7 -  a{y} ", BRACES, cut_at_stops, [("7 - A {y} 7", [1, 2, None, 0, 2])], "<br/> 7 - A {y} "),
    (
        "<b>a. b </b>c . ",
        BRACES,
        cut_at_stops,
        [("P Q R S {x}", [None, None, (1, 0), 0, None, 0, 1]), ("B C .", [(0, 2), 1, 2])],
        "<b>P Q R S {x} B</b> C . ",
    ),
    ("a<r/>  <b>b\nc</b>", BULLETS, cut_at_stops, [("A B C A", [1, 2, 1, (1, 2)])], "<r/><b>A B C A</b>"),
    ("7ab<b></b> 7\nc . ", BULLETS, None, [("7ab 7 C .", [(0, 1), 0, 1, 1, (0, 3)])], "7ab <b></b>7 C . "),
    ("<s/>- a <i> b </i>", BULLETS, None, [("B A -", [0, 1, 2])], "<s/>B A -<i></i> "),
    ("a <r/>  <b> . b</b>", BRACES, None, [(". A B", [2, 0, 1])], "<r/> <b>. A B</b>"),
    ("<br/>. {y} <s/> a. ", BRACES, None, [("P Q R S T", [1, 1, None, 1, None])], "<br/>{y} R S <s/> T "),
    (", <b>  a <img/>b</b>", None, cut_at_stops, [(", A B", [(0, 1), None, (0, 2)])], "<b><img/>,</b> A B"),
    (
        ". <i></i> &amp;\na 7  . ",
        BULLETS,
        cut_at_stops,
        [("& A 7 .", [(2, 1), 2, (1, 3), (1, 0)])],
        ".  <i></i>&amp; A 7 . ",
    ),
    (
        "<b>a</b><i><b>bcd</b></i>",
        BULLETS,
        cut_at_stops,
        [("P Q R S {x}", [None, (None, 0), 0, 0, 0, 0, 0])],
        "<i><b></b></i><b>P Q R S {x}</b>",
    ),
    ("<b> 7 a\n<i>  7 7 </i></b>", BULLETS, None, [("7 A 7 7", [1, 2, 2])], " <b>7 A <i>  7 7 </i></b> "),
    (",<b>\n. a  b  </b>c<b>. </b>", BULLETS, None, [("P Q R", [3, None, 1])], "<b>P Q R</b><b></b> "),
    ("<b>a  <br/> b  </b><i>cd </i>", BULLETS, None, [("A", [0]), ("CD B", [1, 0])], "<b>A  <br/> CD B</b><i></i> "),
    (
        "{y}<i>a <i>. <b> </b> bc</i></i>",
        BRACES,
        cut_at_stops,
        [(". A {y}", [0, (1, 2), 2]), ("BC", [(0, 0)])],
        ". {y} <i>A {y}<i>   <b></b>BC</i></i>",
    ),
    ("<img/>a<b><b>7 <i>\n<br/></i></b></b>", BULLETS, None, [("P", [0])], "<img/>P<b><b> 7 <i> \n<br/></i></b></b>"),
    (
        "- . &amp;\na<s/>  <i> b  c . d. e  </i>",
        None,
        None,
        [("- . & A B C . D . E -", [2, 7, 1, 6, 6, 2, 9, 8, 8, 9, 6])],
        "- <i>. &amp; A B C . D . E -</i><s/>  ",
    ),
    # Of a later sentence: "c" belongs to the first element, and no word of it to the second.
    (
        "<b>a. c</b> d <i>e</i>",
        None,
        cut_at_stops,
        [("A .", [0, 1]), ("P Q R S", [2, 0, 1, 2])],
        "<b>A . P Q</b> R <i>S</i>",
    ),
    # Elements without letters, and those that stay as they are.
    ("a <b>+</b> b", None, None, [("B A", [2, 0])], "<b>+</b> B A"),
    ("a <code>b<code>c</code>d</code> e", None, None, [("E A", [2, 0])], "<code>b<code>c</code>d</code> E A"),
    ("a<sup>2</sup> b", None, None, [("B A", [1, 0])], "B A<sup>2</sup>"),
    ("a <code> </code> b", None, None, [("B A", [1, 0])], "<code> </code> B A"),
]


@pytest.mark.parametrize(("source", "keep", "cut", "translations", "expected"), EXAMPLES)
def test_tags_and_kept_parts(source, keep, cut, translations, expected):
    rest = iter(translations)
    parts = []
    for segment in marked_segments(source, read_markup(source), keep and keep_pattern(keep), cut):
        translation = ""
        if segment.text:
            text, owners = next(rest)
            restored = segment.restored(text, lambda source, target, owners=owners: weights(source, target, owners))
            translation = restored.text
            words = segment.without_tags(translation)
            for start, end, place in restored.places or ():
                assert words[place : place + end - start] == text[start:end]
        parts.append(segment.around(translation))
    assert "".join(parts) == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_kept_part_takes_no_place_of_a_term(seed):
    """It replaces no word of a term, and stands between no two of them, wherever its own words are aligned."""
    choose = random.Random(seed)
    entries = [Entry(("d",), ("T U",), "x:1"), Entry(("e",), ("V",), "x:2")]
    terms = Glossary(entries).terms("a {x} b {y} d e")
    [segment] = marked_segments("a {x} b {y} d e", None, keep_pattern(BRACES), None)
    for _ in range(20):
        parts = ["T U", "V", "P", "Q", "R", "{x}"]
        choose.shuffle(parts)
        text = " ".join(parts)
        owners = [choose.choice([None, 0, 1, 2, 3, 4, 5]) for _ in range(7)]

        written = segment.restored(text, lambda *words, owners=owners: weights(*words, owners), terms).text

        assert None not in places_of_terms(written, terms)
        assert (written.count("{x}"), written.count("{y}")) == (1, 1)


def test_a_word_in_a_copy_of_a_kept_part_is_no_term():
    """Here the model has copied the first one, and the second word is the term."""
    terms = Glossary([Entry(("server",), ("server",), "x:1")]).terms("{server} is a server")
    [segment] = marked_segments("{server} is a server", None, keep_pattern(r"\{\w+\}"), None)
    restored = segment.restored("{server} P server", lambda *words: weights(*words, [0, 0, 0]), terms)
    assert restored.text == "{server} P server"


def test_a_copy_of_a_kept_part_in_a_term_stays():
    """The model has written `USB` twice, and one of them is part of a term."""
    text = "the drive in USB"
    terms = Glossary([Entry(("drive",), ("USB-Stick",), "x:1")]).terms(text)
    [segment] = marked_segments(text, None, keep_pattern("USB"), None)
    restored = segment.restored("der USB-Stick in USB", lambda *words: weights(*words, [0, 1, 2, 3]), terms)
    assert restored.text == "der USB-Stick in USB"


def weights(source, target, owners):
    """Return how much each word of a translation belongs to each word of its source."""
    rows = []
    for owner in owners:
        first, second = owner if isinstance(owner, tuple) else (owner, None)
        rows.append([1.0 if number == first else 0.5 if number == second else 0.0 for number in range(len(source))])
    assert len(rows) == len(target)
    return rows


@pytest.mark.parametrize(
    ("source", "lines"),
    [(",\na\n. b", [0, 2]), ("<r/>\n<br/>.a", [1]), ("<p>a\n</p>\n\n<p>b. c\nd. e</p>", [0, 3, 3, 4])],
)
def test_lines_of_segments(source, lines):
    assert [segment.line for segment in marked_segments(source, read_markup(source), None, cut_at_stops)] == lines


@pytest.mark.parametrize(
    ("source", "is_needed"),
    [
        ("a<s/>", False),
        ("<s/>a", False),
        ("<b>a b</b>", False),
        ("<b><i>a</i></b>", False),
        ("a <s/>b", True),
        ("<b>a</b> b", True),
    ],
)
def test_only_what_stands_between_words_needs_an_alignment(source, is_needed):
    [segment] = marked_segments(source, read_markup(source), None, None)
    assert segment.needs_alignment == is_needed
