"""XLIFF: units without a target get one, codes come back, and everything else stays."""

import re

import pytest
from lxml import etree
from stand_in_translator import UpperCase, Writes

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats import recognise

OLD = """<?xml version="1.0" encoding="UTF-8"?>
<!-- a comment -->
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:x="urn:x">
  <file original="a" source-language="en" target-language="de" datatype="plaintext"><body>
    <trans-unit id="1" x:y="z">
      <source>A <g id="1">dog</g> &amp; <ph id="2">&lt;br/&gt;</ph> runs %s.</source>
    </trans-unit>
    <trans-unit id="2"><source>done</source><target>fertig</target></trans-unit>
    <trans-unit id="3" translate="no"><source>code</source></trans-unit>
    <trans-unit id="4"><source>late</source><target/></trans-unit>
  </body></file>
</xliff>
"""
NEW = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en">
  <file id="f1">
    <unit id="1"><segment><source>A <pc id="1">dog</pc></source></segment></unit>
    <unit id="2"><segment state="final"><source>done</source><target>fertig</target></segment></unit>
    <unit id="3" translate="no"><segment><source>code</source></segment></unit>
  </file>
</xliff>"""


def translated(tmp_path, content, **options):
    (tmp_path / "a.xlf").write_bytes(content.encode())
    translate_file(UpperCase(), tmp_path / "a.xlf", tmp_path / "b.xlf", "en", **options)
    return (tmp_path / "b.xlf").read_bytes().decode()


def test_version_1(tmp_path):
    state = 'target state="needs-review-translation"'
    found = translated(tmp_path, OLD)
    target = f'<{state}>A <g id="1">DOG</g> &amp; <ph id="2">&lt;br/&gt;</ph> RUNS %s.</target>'
    assert found == OLD.replace("%s.</source>", f"%s.</source>\n      {target}").replace(
        "<target/>", f"<{state}>LATE</target>"
    )
    etree.fromstring(found.encode())
    # What is translated now is left alone.
    assert translated(tmp_path, found) == found


def test_a_language_that_the_file_names_stays(tmp_path):
    written = translated(tmp_path, OLD.replace('target-language="de"', 'target-language="de-AT"'), target_lang="de")
    assert 'target-language="de-AT"' in written
    unnamed = translated(tmp_path, OLD.replace(' target-language="de"', ""), target_lang="de")
    assert 'target-language="de"' in unnamed
    empty = '<xliff version="1.2"><file original="a"/></xliff>'
    assert '<file original="a" target-language="de"/>' in translated(tmp_path, empty, target_lang="de")


def test_every_other_byte_stays(tmp_path):
    """Quotes, spaces in tags, sections of characters and prefixes are not written in another way."""

    def odd(content):
        return content.replace('id="1" x:y="z"', "id = '1'\tx:y='z' ").replace("done", "<![CDATA[done]]>")

    assert translated(tmp_path, odd(OLD)) == odd(translated(tmp_path, OLD))
    prefixed = '<a:xliff xmlns:a="urn:a" version="1.2"><a:trans-unit><a:source>dog</a:source></a:trans-unit></a:xliff>'
    target = '<a:target state="needs-review-translation">DOG</a:target>'
    assert translated(tmp_path, prefixed) == prefixed.replace("</a:source>", f"</a:source>{target}")


def test_a_text_over_lines_is_one(tmp_path):
    content = NEW.replace('A <pc id="1">dog</pc>', 'A <pc id="1">dog\n    runs</pc>\n    fast.')
    assert '<target>A <pc id="1">DOG RUNS</pc> FAST.</target>' in translated(tmp_path, content)


def test_a_state_is_replaced(tmp_path):
    initial = translated(tmp_path, NEW.replace("<segment><source>A", '<segment state="initial"><source>A'))
    assert initial == translated(tmp_path, NEW)


def old_unit(target, attributes=""):
    return f'<xliff version="1.2"><trans-unit{attributes}><source>dog</source>{target}</trans-unit></xliff>'


def new_unit(target, attributes=""):
    return f'<xliff version="2.1"><unit><segment{attributes}><source>dog</source>{target}</segment></unit></xliff>'


@pytest.mark.parametrize("target", ["", "<target/>", "<target>Hund</target>"])
@pytest.mark.parametrize("fuzzy", [False, True])
def test_units_that_somebody_approved_stay(tmp_path, target, fuzzy):
    for content in (
        old_unit(target, ' approved="yes"'),
        old_unit("<target state='final'>Hund</target>"),
        old_unit('<target state="signed-off"/>'),
        new_unit(target, ' state="reviewed"'),
        new_unit(target, ' state="final"'),
    ):
        assert translated(tmp_path, content, fuzzy=fuzzy) == content


REVIEW = '<target state="needs-review-translation">DOG</target>'


@pytest.mark.parametrize(
    ("target", "expected", "fuzzy_expected"),
    [
        # A copy of the source is no work of anybody.
        ('<target state="new">dog</target>', REVIEW, REVIEW),
        ('<target state="needs-translation"> dog</target>', REVIEW, REVIEW),
        ('<target state="new">Hund</target>', None, REVIEW),
        ('<target state="needs-translation">Hund</target>', None, REVIEW),
        ('<target state="needs-l10n">Hund</target>', None, REVIEW),
        ('<target state="needs-review-translation">dog</target>', None, REVIEW),
        ('<target state="translated">dog</target>', None, None),
        ("<target>dog</target>", None, None),
        ('<target state-qualifier="tm-suggestion" state="needs-review-translation" >Hund</target>', None, REVIEW),
    ],
)
def test_targets_that_may_be_replaced(tmp_path, target, expected, fuzzy_expected):
    content = old_unit(target)
    assert translated(tmp_path, content) == old_unit(expected or target)
    assert translated(tmp_path, content, fuzzy=True) == old_unit(fuzzy_expected or target)


@pytest.mark.parametrize("attributes", ["", ' state="initial"', ' state="translated"'])
@pytest.mark.parametrize("fuzzy", [False, True])
@pytest.mark.parametrize("words", ["dog", "Hund"])
def test_targets_of_segments_that_may_be_replaced(tmp_path, attributes, fuzzy, words):
    content = new_unit(f"<target>{words}</target>", attributes)
    is_replaced = "initial" in attributes and (fuzzy or words == "dog")
    expected = new_unit("<target>DOG</target>", ' state="translated"') if is_replaced else content
    assert translated(tmp_path, content, fuzzy=fuzzy) == expected


def test_a_substate_goes_with_its_state(tmp_path):
    content = new_unit("", ' id="1" subState="x:copied" state="initial"')
    assert translated(tmp_path, content) == new_unit("<target>DOG</target>", ' id="1" state="translated"')


def test_a_unit_may_be_translated_in_a_group_that_is_not(tmp_path):
    unit = "<trans-unit{}><source>dog</source></trans-unit>"
    content = f'<xliff version="1.2"><group translate="no">{unit.format("")}{{}}</group></xliff>'
    yes = unit.format(' translate="yes"')
    assert translated(tmp_path, content.format(yes)) == content.format(yes.replace("</source>", f"</source>{REVIEW}"))


def test_what_a_model_writes_is_no_markup(tmp_path):
    (tmp_path / "a.xlf").write_text(NEW)
    translate_file(Writes("a < b & c"), tmp_path / "a.xlf", tmp_path / "b.xlf", "en")
    [target] = etree.parse(tmp_path / "b.xlf").xpath("//*[local-name()='unit'][@id='1']//*[local-name()='target']")
    assert "".join(target.itertext()) == "a < b & c"


def test_attributes_that_say_what_stays(tmp_path):
    """The source has one, on an element, on a code and as text."""
    source = 'see translate="no" and <mrk translate="no">b</mrk> <ph translate="no" id="2">c</ph> <g id="3">d</g>'
    expected = source.replace("see", "SEE").replace(" and ", " AND ").replace('"3">d', '"3">D')
    expected = expected.replace('SEE translate="no"', 'SEE TRANSLATE="NO"')
    found = translated(tmp_path, OLD.replace("<source>late", f"<source>{source}"))
    assert f'<target state="needs-review-translation">{expected}</target>' in found


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ('hello <x id="1"/>, how', "hello {1}, how"),
        ('my name is <x id="1"/>.', "my name is {1}."),
        ('my name is <ph id="1" equiv="name"/>.', "my name is {1}."),
        ('<x id="1"/> and (<x id="2"/>) run', "{1} and ({2}) run"),
        ('use {1} or <x id="1"/>', "use {1} or {2}"),
        ('<ph id="1">%d</ph> dogs', "%d dogs"),
        # Codes that begin and end something, and line breaks, are no words.
        ('a <x id="1"/>dog<x id="2"/> runs', "a dog runs"),
        ('a <x id="1" equiv-text="&lt;b&gt;"/> dog', "a dog"),
        ('a dog,<x id="1" ctype="lb"/> a cat', "a dog, a cat"),
        ('a <ph id="1" type="fmt" subType="xlf:lb"/> dog', "a dog"),
        ('a <bx id="1"/>dog<ex id="1"/> runs', "a dog runs"),
        ('a <sc id="1"/>dog<ec startRef="1"/> runs', "a dog runs"),
        ('a <it id="1" pos="open">&lt;b></it>dog runs', "a dog runs"),
        ('a <bpt id="1">&lt;b></bpt>dog<ept id="1">&lt;/b></ept> runs', "a dog runs"),
        ('a <ph id="1">&lt;b></ph>dog<ph id="2">&lt;/b></ph> runs', "a dog runs"),
        ('a <bx id="1"/>, b', "a , b"),
    ],
)
def test_codes_keep_their_places_and_spaces(tmp_path, source, read):
    def upper(part):
        return part["code"] or part[0].upper()

    translator = UpperCase()
    (tmp_path / "a.xlf").write_text(old_unit("").replace("dog", source, 1))
    translate_file(translator, tmp_path / "a.xlf", tmp_path / "b.xlf", "en")
    expected = re.sub(r"(?P<code><(ph|it|bpt|ept) [^<]*</\2>|<[^<>]*>|%d)|[^<%]+", upper, source)
    assert f">{expected}</target>" in (tmp_path / "b.xlf").read_text()
    assert " ".join(translator.seen) == read


def test_a_target_stands_behind_the_segments_of_its_source(tmp_path):
    segments = '<seg-source><mrk mtype="seg" mid="0">dog</mrk></seg-source>'
    content = f'<xliff version="1.2"><trans-unit><source>dog</source>{segments}<note>n</note></trans-unit></xliff>'
    target = '<target state="needs-review-translation">DOG</target>'
    assert translated(tmp_path, content) == content.replace("<note>", f"{target}<note>")


def test_codes_with_a_prefix_stay(tmp_path):
    unit = '<a:trans-unit><a:source>dog <a:ph id="1">c</a:ph></a:source></a:trans-unit>'
    content = f'<a:xliff xmlns:a="urn:a" version="1.2">{unit}</a:xliff>'
    target = '<a:target state="needs-review-translation">DOG <a:ph id="1">c</a:ph></a:target>'
    assert translated(tmp_path, content) == content.replace("</a:source>", f"</a:source>{target}")


def test_ends_of_lines(tmp_path):
    found = translated(tmp_path, OLD.replace("\n", "\r\n"))
    assert found == translated(tmp_path, OLD).replace("\n", "\r\n")


def test_version_2(tmp_path):
    found = translated(tmp_path, NEW, target_lang="de")
    expected = NEW.replace("<segment><source>A", '<segment state="translated"><source>A').replace(
        "</pc></source>", '</pc></source><target>A <pc id="1">DOG</pc></target>'
    )
    assert found == expected.replace('srcLang="en"', 'srcLang="en" trgLang="de"')


@pytest.mark.parametrize(("content", "words"), [("<xliff>", "The XML is damaged"), ("<a/>", "is not <xliff>")])
def test_refused(tmp_path, content, words):
    with pytest.raises(UserError, match=words):
        translated(tmp_path, content)


def test_it_is_known_by_its_beginning(tmp_path):
    (tmp_path / "a.xml").write_text(OLD)
    assert recognise(tmp_path / "a.xml").name == "xliff"
