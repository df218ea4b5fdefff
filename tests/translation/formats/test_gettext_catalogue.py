"""Catalogues of gettext: what has no translation gets one, which is marked for review."""

import re
from datetime import datetime, timedelta

import pytest
from stand_in_translator import UpperCase, Writes

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


def translated(tmp_path, catalogue, encoding="utf-8", **options):
    (tmp_path / "a.po").write_bytes(catalogue.encode(encoding))
    translate_file(UpperCase(), tmp_path / "a.po", tmp_path / "b.po", "en", **options)
    return (tmp_path / "b.po").read_bytes().decode(encoding)


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


ODD = """#, fuzzy
msgid ""
msgstr ""
"POT-Creation-Date: 2020-01-01 10:00+0000\\n"
"PO-Revision-Date: YEAR-MO-DA HO:MI+ZONE\\n"
"Content-Type: text/plain; charset=UTF-8\\n"


#,fuzzy,no-wrap
#| msgid "A cat runs."
msgid  "A dog runs."
msgstr "Eine Katze läuft."

#, fuzzy
msgctxt "number"
msgid "%s is late"
msgid_plural "%s are late"
msgstr[0] ""
"%s alt"
msgstr[1] "%s alte"

msgid   "done"
msgstr "fer"
  "tig"
#. for translators
#: a.c:1
#, fuzzy
#~| msgid "older"
#~ msgid "old"
#~ msgstr ""
#~ "a"
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_what_is_not_translated_stays_to_the_byte(tmp_path, newline):
    """The library would write it in its own way."""
    catalogue = ODD.replace("\n", newline)
    assert translated(tmp_path, catalogue) == catalogue
    new = f'msgid  "late"{newline}msgstr{{}}{newline}{newline}{newline}#~ msgid "x"{newline}#~ msgstr ""'
    written = translated(tmp_path, catalogue + newline + new.format(' ""'))
    assert written == dated(catalogue, written) + f"{newline}#, fuzzy{newline}" + new.format(' "LATE"')


def dated(catalogue, written):
    """Return a catalogue with the time that another one was translated at."""
    date = re.search(r"PO-Revision-Date: (.*?)\\n", written)[1]
    revised = datetime.strptime(date, "%Y-%m-%d %H:%M%z")
    assert timedelta(0) <= datetime.now().astimezone() - revised < timedelta(minutes=5)
    return catalogue.replace("YEAR-MO-DA HO:MI+ZONE", date)


def test_fuzzy_messages_are_translated_again(tmp_path):
    written = translated(tmp_path, ODD, fuzzy=True)
    expected = dated(ODD, written).replace("Eine Katze läuft.", "A DOG RUNS.")
    # It says what the replaced translation was made for.
    expected = expected.replace('#| msgid "A cat runs."\n', "")
    expected = expected.replace('""\n"%s alt"', '"%s IS LATE"').replace("%s alte", "%s ARE LATE")
    assert written == expected


def test_the_time_of_the_translation_without_a_place(tmp_path):
    without = ODD.replace('"PO-Revision-Date: YEAR-MO-DA HO:MI+ZONE\\n"\n', "")
    written = translated(tmp_path, without, fuzzy=True)
    creation, revision, content = written.splitlines()[3:6]
    assert "POT-Creation-Date" in creation
    assert re.fullmatch(r'"PO-Revision-Date: \d{4}-\d\d-\d\d \d\d:\d\d[+-]\d{4}\\n"', revision)
    assert "Content-Type" in content


def test_lines_are_not_wrapped(tmp_path):
    """With the flag of gettext, they end where the message has a line break."""
    text = "A dog runs through the snow. " * 5
    catalogue = f'#{{}}\nmsgid ""\n"{text}\\n"\n"b\\n"\nmsgstr ""\n'
    lines = translated(tmp_path, catalogue.format(", no-wrap")).splitlines()
    assert lines[-3:] == ['msgstr ""', f'"{text.upper()}\\n"', '"B\\n"']
    assert len(translated(tmp_path, catalogue.format("")).splitlines()) > 7


def test_another_encoding(tmp_path):
    catalogue = CATALOGUE.replace("UTF-8", "ISO-8859-1").replace("A comment.", "Ein Kätzchen.")
    expected = EXPECTED.replace("UTF-8", "ISO-8859-1").replace("A comment.", "Ein Kätzchen.")
    assert translated(tmp_path, catalogue, "latin-1") == expected
    (tmp_path / "a.po").write_bytes(catalogue.encode("latin-1"))
    translate_file(Writes("Ś"), tmp_path / "a.po", tmp_path / "b.po", "en")
    written = (tmp_path / "b.po").read_text()
    assert "# Ein Kätzchen." in written
    assert "charset=UTF-8" in written
    assert 'msgstr[0] "Ś"' in written
    with pytest.raises(UserError, match="not in ascii"):
        translated(tmp_path, catalogue.replace("ISO-8859-1", "ascii"), "latin-1")


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
