"""Catalogues of gettext: what has no translation gets one, which is marked for review."""

import re

import pytest
from stand_in_translator import UpperCase

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats import recognise
from hf_capsule_mt.translation.formats.placeholders import PLACEHOLDERS

CATALOGUE = """# A comment.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Language: pl\\n"
"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : 1);\\n"

#. for translators
#: a.c:1
#, c-format
msgid "A dog %s runs & %-5.2f%% of <b>it</b>.\\n"
msgstr ""

msgid "done"
msgstr "fertig"

#, fuzzy
msgid "nearly"
msgstr "fast"

msgctxt "menu"
msgid "one file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

msgid "%d"
msgstr ""

#~ msgid "old"
#~ msgstr ""
"""
EXPECTED = (
    CATALOGUE.replace("#, c-format", "#, c-format, fuzzy")
    .replace('<b>it</b>.\\n"\nmsgstr ""', '<b>it</b>.\\n"\nmsgstr "A DOG %s RUNS & %-5.2f%% OF <b>IT</b>.\\n"')
    .replace('msgctxt "menu"', '#, fuzzy\nmsgctxt "menu"')
    .replace(
        'msgstr[0] ""\nmsgstr[1] ""\nmsgstr[2] ""', 'msgstr[0] "ONE FILE"\nmsgstr[1] "%d FILES"\nmsgstr[2] "%d FILES"'
    )
)


def translated(tmp_path, catalogue):
    (tmp_path / "a.po").write_bytes(catalogue.encode())
    translate_file(UpperCase(), tmp_path / "a.po", tmp_path / "b.po", "en")
    return (tmp_path / "b.po").read_bytes().decode()


def test_a_catalogue(tmp_path):
    assert translated(tmp_path, CATALOGUE) == EXPECTED
    # What is translated now is left alone.
    assert translated(tmp_path, EXPECTED) == EXPECTED


def test_a_template_has_two_forms(tmp_path):
    template = CATALOGUE.replace("nplurals=3; plural=(n==1 ? 0 : 1)", "nplurals=INTEGER; plural=EXPRESSION")
    assert 'msgstr[0] "ONE FILE"\nmsgstr[1] "%d FILES"\n' in translated(tmp_path, template)


def test_a_language_without_plurals(tmp_path):
    catalogue = CATALOGUE.replace("nplurals=3; plural=(n==1 ? 0 : 1)", "nplurals=1; plural=0")
    assert 'msgstr[0] "%d FILES"\n\n' in translated(tmp_path, catalogue.replace('msgstr[1] ""\nmsgstr[2] ""\n', ""))


def test_damaged(tmp_path):
    with pytest.raises(UserError, match="The catalogue is damaged"):
        translated(tmp_path, 'msgid "a\nmsgstr\n')


def test_it_is_known_by_its_beginning(tmp_path):
    (tmp_path / "messages").write_text(CATALOGUE)
    assert recognise(tmp_path / "messages").name == "po"


@pytest.mark.parametrize(
    "text",
    ["%s", "%1$d", "%(name)s", "%%", "%-5.2f", "%lu", "{0}", "{name}", "{{x}}", "{n, plural, one {# a} other {# b}}"],
)
def test_placeholders(text):
    import regex

    assert regex.fullmatch(PLACEHOLDERS, text)
    assert not re.search(r"\w", regex.sub(PLACEHOLDERS, "", text))
