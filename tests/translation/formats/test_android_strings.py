"""Strings of Android: what users read is translated, and every other byte stays."""

import pytest
from lxml import etree
from stand_in_translator import UpperCase, Writes

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats import recognise

STRINGS = r"""<?xml version="1.0" encoding="utf-8"?>
<!-- <string name="no">comment</string> -->
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2" >
    <string name="a">It\'s a \"dog\" &amp; %1$s</string>
    <string name="stays" translatable="false">stays</string>
    <string name="b" >Hello <b>big</b> <xliff:g id="x" example="tom">user %d</xliff:g>!\nNew line</string>
    <string name="quoted">"It's   late"</string><string name='empty'/>
    <string name="html">&lt;b&gt;dog&lt;/b&gt; \u2026 don\u0027t</string>
    <string name="cdata"><![CDATA[a <a href="x">dog</a> & cat]]></string>
    <string name="two">a "dog  " runs</string>
    <string name="ref">@string/a</string>
    <string name="wrapped">a dog
        runs</string>
    <plurals name="p"><item quantity="one">%d dog</item>
      <item quantity="other">%d dogs</item></plurals>
    <string-array name="q" translatable="false"><item>stays</item></string-array>
    <string-array name="r"><item>red</item></string-array>
    <style name="s"><item name="t">stays</item></style>
</resources>
"""
EXPECTED = r"""<?xml version="1.0" encoding="utf-8"?>
<!-- <string name="no">comment</string> -->
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2" >
    <string name="a">IT\'S A \"DOG\" &amp; %1$s</string>
    <string name="stays" translatable="false">stays</string>
    <string name="b" >HELLO <b>BIG</b> <xliff:g id="x" example="tom">user %d</xliff:g>!\nNEW LINE</string>
    <string name="quoted">"IT\'S   LATE"</string><string name='empty'/>
    <string name="html">&lt;b&gt;DOG&lt;/b&gt; … DON\'T</string>
    <string name="cdata"><![CDATA[A <a href="x">DOG</a> & CAT]]></string>
    <string name="two">a "dog  " runs</string>
    <string name="ref">@string/a</string>
    <string name="wrapped">A DOG RUNS</string>
    <plurals name="p"><item quantity="one">%d DOG</item>
      <item quantity="other">%d DOGS</item></plurals>
    <string-array name="q" translatable="false"><item>stays</item></string-array>
    <string-array name="r"><item>RED</item></string-array>
    <style name="s"><item name="t">stays</item></style>
</resources>
"""


def translated(tmp_path, content):
    (tmp_path / "strings.xml").write_bytes(content.encode())
    translate_file(UpperCase(), tmp_path / "strings.xml", tmp_path / "out.xml", "en")
    return (tmp_path / "out.xml").read_bytes().decode()


def test_strings(tmp_path):
    assert translated(tmp_path, STRINGS) == EXPECTED


def test_the_library_reads_the_same(tmp_path):
    from translate.storage.aresource import AndroidResourceFile

    source, target = (AndroidResourceFile.parsestring(text.encode()) for text in (STRINGS, EXPECTED))
    assert [unit.getid() for unit in source.units] == [unit.getid() for unit in target.units]
    text_of = {unit.getid(): str(unit.target) for unit in target.units}
    assert text_of["a"] == 'IT\'S A "DOG" & %1$s'


def test_a_sign_at_the_start(tmp_path):
    content = r'<resources><string name="a">\@dog runs \? \\n</string></resources>'
    assert translated(tmp_path, content) == content.replace("dog runs", "DOG RUNS").replace(r"\? \\n", r"? \\N")


def test_references_to_characters_of_markup_stay(tmp_path):
    """As characters they would be read as XML, or not be seen."""
    content = r'<resources><string name="a">a \u003c dog \u0026 \u200b cat \u00e9</string></resources>'
    expected = r'<resources><string name="a">A \u003c DOG \u0026 \u200b CAT É</string></resources>'
    assert translated(tmp_path, content) == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("<resources>", "The XML is damaged"),
        ("<resources2/>", "is not <resources>"),
        ('<resources xmlns="urn:x"><string name="a">b</string></resources>', "has the attribute xmlns"),
        ('<?xml version="1.0" encoding="ISO-8859-1"?><resources/>', "says ISO-8859-1. Convert the file to UTF-8"),
    ],
)
def test_refused(tmp_path, content, words):
    (tmp_path / "strings.xml").write_text(content)
    with pytest.raises(UserError, match=words):
        translate_file(UpperCase(), tmp_path / "strings.xml", tmp_path / "b", "en", file_format="android")


def test_what_a_model_writes_is_no_markup(tmp_path):
    """Also the end of a section of characters is none."""
    (tmp_path / "strings.xml").write_text(
        '<resources><string name="a">dog</string><string name="b"><![CDATA[dog]]></string></resources>'
    )
    translate_file(Writes("a ]]> <c> & b"), tmp_path / "strings.xml", tmp_path / "out.xml", "en")
    plain, in_section = etree.parse(tmp_path / "out.xml").getroot()
    assert plain.text == "a ]]> <c> & b"
    assert in_section.text == "a ]]> <c> & b"


SECTIONS = {
    "two": ("<![CDATA[a dog]]> <![CDATA[runs & <b>sees</b>]]>", "<![CDATA[A DOG RUNS & <b>SEES</b>]]>"),
    "an end of one as characters": ("<![CDATA[a ]]]]><![CDATA[> dog]]>", "<![CDATA[A ]]]]><![CDATA[> DOG]]>"),
    "next to text": (
        "Hello <![CDATA[<b>dog</b> & cat]]> runs",
        "HELLO &lt;b&gt;DOG&lt;/b&gt; &amp; CAT RUNS",
    ),
    "next to a tag": ("<b>big</b> <![CDATA[dog]]>", "<b>BIG</b> DOG"),
}


@pytest.mark.parametrize(("inner", "expected"), SECTIONS.values(), ids=SECTIONS)
def test_sections_of_characters(tmp_path, inner, expected):
    """Their marks are no characters."""
    content = f'<resources><string name="a">{inner}</string></resources>'
    written = translated(tmp_path, content)
    assert written == content.replace(inner, expected)
    [source], [target] = etree.fromstring(content), etree.fromstring(written)
    assert "".join(target.itertext()).lower() == "".join(source.itertext()).lower()


def test_attributes_that_say_what_stays(tmp_path):
    head = '<resources xmlns:xliff="urn:x"><string name="a">'
    kept = '<xliff:g id="x" translate="no">b</xliff:g>, <annotation translate="no">c</annotation></string></resources>'
    source = rf"{head}see translate=\"no\" and {kept}"
    assert translated(tmp_path, source) == rf"{head}SEE TRANSLATE=\"NO\" AND {kept}"


def test_attributes_of_tools_stay(tmp_path):
    content = '<resources xmlns:t="urn:t" t:locale="en"><string name="a" t:ignore="x">dog</string></resources>'
    assert translated(tmp_path, content) == content.replace("dog", "DOG")


def test_entities_of_the_file_stay(tmp_path):
    head = '<!DOCTYPE resources [<!ENTITY app "<b>Dog</b>">]>'
    content = f'{head}<resources><string name="a">&app; runs</string></resources>'
    assert translated(tmp_path, content) == content.replace("runs", "RUNS")


def test_a_tag_over_two_lines_stays(tmp_path):
    """Each line is a text, and half of an element is none."""
    content = r'<resources><string name="a">a <b>b\nc</b> d\ne</string></resources>'
    assert translated(tmp_path, content) == content.replace(r"\ne", r"\nE")


def test_it_is_known_by_its_beginning(tmp_path):
    (tmp_path / "a.xml").write_text(STRINGS)
    assert recognise(tmp_path / "a.xml").name == "android"
