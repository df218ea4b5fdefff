"""Each text of a file says where it stands, and a file says which texts stay as they are."""

import pytest

from hf_capsule_mt.translation.formats import FORMATS
from hf_capsule_mt.translation.formats.base import lines_kept

PO = """msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "A dog."
msgstr "Ein Hund."

# A comment.
msgctxt "menu"
msgid "A cat runs."
msgstr ""

msgid "%d dog runs."
msgid_plural "%d dogs run."
msgstr[0] ""
msgstr[1] ""

msgid ""
"One line.\\n"
"Another line."
msgstr ""
"""
XLIFF_1 = """<xliff version="1.2"><file original="menu.c" source-language="en"><body>
<trans-unit id="a"><source>A dog.</source><target>Ein Hund.</target></trans-unit>
<group><trans-unit id="b"><source>A cat.</source></trans-unit></group>
</body></file></xliff>"""
XLIFF_2 = """<xliff version="2.0" srcLang="en"><file id="f1"><unit id="u1">
<segment><source>A dog.</source></segment>
<segment id="s2"><source>A cat.</source></segment>
</unit></file></xliff>"""
ANDROID = """<resources>
<string name="dog">A dog.</string>
<plurals name="cats">
<item quantity="one">A cat.</item>
<item quantity="other">Many cats.</item>
</plurals>
<string-array name="birds">
<item>A bird.</item><item translatable="false">Bird</item>
<item>A robin.</item>
</string-array></resources>"""
JSON = """{"title": "A dog.", "menu": {"a.b": "A cat.", "_comment": {"of": ["A note."]},
"birds": ["A bird.", 2, {"name": "A robin.", "rest": [["It runs."]]}]}, "end": "It is late."}"""
PROPERTIES = """# A comment.
dog.title = A dog.
k\\u00e4se\\ pr\\:eis : A \\
  cat.
"""
SRT = """7
00:00:01,000 --> 00:00:02,500
A dog runs

8
00:00:02,500 --> 00:00:04,000
through the snow.

00:00:05,000 --> 00:00:06,000
- It is late.
- A cat!

9
00:00:07,000 --> 00:00:08,000
A bird.
00:00:08,000 --> 00:00:09,000
A robin.
"""
VTT = """WEBVTT

00:01.000 --> 00:02.000
A dog.

the cat
00:02.000 --> 00:03.000
A cat.
"""
MARKDOWN = """# A dog

| A cat | A bird |
| --- | --- |

A dog runs.
It is late. ![A robin](robin.png)

<div>
<p>A cat.</p>
</div>
"""
HTML = """<!doctype html>
<html><body>
<p>A dog. <img
 alt="A bird."></p>
<p>A cat. <img alt="A bird." title="A robin."></p>
<!-- <img alt="Late."> --><img alt="Late.">
</body></html>"""


def places(name, content):
    """Return the text, line, unit and context of each text of a file."""
    document = FORMATS[name].read(content.encode())
    return [(text.text, *text.place) for text in document.texts]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (
            "po",
            PO,
            [
                ("A cat runs.", 7, "A cat runs.", "menu"),
                ("%d dog runs.", 12, "%d dog runs.", None),
                ("%d dogs run.", 12, "%d dog runs.", None),
                ("One line.", 17, "One line.\nAnother line.", None),
                ("Another line.", 17, "One line.\nAnother line.", None),
            ],
        ),
        ("xliff", XLIFF_1, [("A cat.", 3, "b", "menu.c")]),
        ("xliff", XLIFF_2, [("A dog.", 2, "u1", "f1"), ("A cat.", 3, "u1/s2", "f1")]),
        (
            "android",
            ANDROID,
            [
                ("A dog.", 2, "dog", None),
                ("A cat.", 4, "cats[one]", None),
                ("Many cats.", 5, "cats[other]", None),
                ("A bird.", 8, "birds[0]", None),
                ("A robin.", 9, "birds[2]", None),
            ],
        ),
        (
            "i18next",
            JSON,
            [
                ("A dog.", 1, "title", None),
                ("A cat.", 1, "menu.a.b", None),
                ("A bird.", 2, "menu.birds[0]", None),
                ("A robin.", 2, "menu.birds[2].name", None),
                ("It runs.", 2, "menu.birds[2].rest[0][0]", None),
                ("It is late.", 2, "end", None),
            ],
        ),
        ("properties", PROPERTIES, [("A dog.", 2, "dog.title", None), ("A cat.", 3, "käse pr:eis", None)]),
        (
            "srt",
            SRT,
            [
                ("A dog runs through the snow.", 3, "7 to 8", "00:00:01,000"),
                # It has no number of its own.
                ("It is late.", 10, "3", "00:00:05,000"),
                ("A cat!", 11, "3", "00:00:05,000"),
                ("A bird.", 15, "9", "00:00:07,000"),
                # The line in front of its times belongs to the cue before.
                ("A robin.", 17, "5", "00:00:08,000"),
            ],
        ),
        ("vtt", VTT, [("A dog.", 4, "1", "00:01.000"), ("A cat.", 8, "the cat", "00:02.000")]),
    ],
)
def test_places(name, content, expected):
    assert places(name, content) == expected


def test_places_in_markdown():
    found = places("markdown", MARKDOWN)
    # Heading, cells, paragraph, block of HTML. Texts of images come last, with their own lines.
    assert [line for _, line, _, _ in found] == [1, 3, 3, 6, 9, 7]
    assert {place[2:] for place in found} == {(None, None)}


def test_places_in_a_page_of_html():
    """The text of the page is one, and each sentence in it counts its own lines."""
    page, *attributes = places("html", HTML)
    assert page[1:] == (1, None, None)
    assert attributes == [("A bird.", 3, "alt", None), ("A robin.", 5, "title", None), ("Late.", 6, "alt", None)]


@pytest.mark.parametrize(
    ("name", "content", "lost", "left"),
    [
        # A plural stays as a whole.
        ("po", PO, "%d dogs run.", ["%d dog runs.", "%d dogs run."]),
        ("i18next", '{"a": "A dog.", "b": "Call {name}.", "c": "A cat."}', "Call {name}.", ["Call {name}."]),
        ("markdown", "A dog.\n\nA `cat` runs.\n\nA bird.", 'A <code m="1">cat</code> runs.', None),
    ],
)
def test_texts_that_stay(name, content, lost, left):
    document = FORMATS[name].read(content.encode())
    texts = [text.text for text in document.texts]
    assert not document.left
    document.written(texts)
    assert list(document.left) == []
    document.written(["Ein Hund." if text == lost else text for text in texts])
    assert [texts[number] for number in document.left] == (left or [lost])


STAYING = {
    "fuzzy": (
        "po",
        'msgid "A dog."\nmsgstr ""\n\n#, fuzzy\nmsgid "A cat."\nmsgstr "Katze"\n\n#, fuzzy\nmsgid "%d"\nmsgstr "%d"\n\n'
        'msgid "A bird."\nmsgstr "Ein Vogel."\n\n#, fuzzy\n#~ msgid "Old."\n#~ msgstr "Alt."\n',
        {"fuzzy": [4]},
    ),
    "approved and drafts of version 1": (
        "xliff",
        '<xliff version="1.2"><file><body>\n<trans-unit approved="yes"><source>A dog.</source></trans-unit>\n'
        '<trans-unit translate="no"><source>A cat.</source></trans-unit>\n'
        '<trans-unit><source>A bird.</source><target state="needs-review-translation">Vogel</target></trans-unit>\n'
        '<trans-unit approved="yes"><source>A cow.</source><target>Eine Kuh.</target></trans-unit>\n'
        '<trans-unit translate="no"><source>%s</source></trans-unit>\n</body></file></xliff>',
        {"approved without a translation": [2], "marked to stay": [3], "fuzzy": [4]},
    ),
    "approved and drafts of version 2": (
        "xliff",
        '<xliff version="2.0"><file><unit>\n<segment state="final"><source>A dog.</source></segment>\n'
        '<segment state="initial"><source>A cat.</source><target>Katze</target></segment>\n</unit></file></xliff>',
        {"approved without a translation": [2], "fuzzy": [3]},
    ),
    "strings": (
        "android",
        '<resources>\n<string name="a" translatable="false">A dog.</string>\n'
        '<string name="b" translatable="false">a_b</string>\n<string name="c">a "big" dog</string>\n'
        '<string name="d"><b>A dog\\nruns.</b>\\nA cat.</string>\n</resources>',
        {"marked to stay": [2], "quotes inside": [4], "raw HTML": [5, 5]},
    ),
    "comments of subtitles": (
        "vtt",
        "WEBVTT\n\nNOTE a dog\nruns\n\nNOTE 1\n\n00:01.000 --> 00:02.000\nNOTED\n",
        {"comments": [3]},
    ),
    "code of programs": ("i18next", '{"a": "a_b", "b": "A dog.", "_comment": "A note."}', {}),
    "values without words": ("properties", "# A comment.\na = a.b.c\nb = {0}\n", {}),
}


@pytest.mark.parametrize("name", STAYING)
def test_units_that_stay_are_counted_with_the_reason(name):
    file_format, content, expected = STAYING[name]
    document = FORMATS[file_format].read(content.encode())
    assert lines_kept(document) == expected


def test_drafts_that_are_replaced_do_not_stay():
    for name in ("fuzzy", "approved and drafts of version 1", "approved and drafts of version 2"):
        file_format, content, _ = STAYING[name]
        document = FORMATS[file_format].with_fuzzy().read(content.encode())
        assert "fuzzy" not in lines_kept(document)
