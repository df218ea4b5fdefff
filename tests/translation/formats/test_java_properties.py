"""Properties of Java: values are translated, and every other byte stays."""

import json

import pytest
from stand_in_translator import UpperCase

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats import recognise

PROPERTIES = r"""# a comment = stays\
! another
title = A dog
no.space=runs fast
colon : a: b
  indented\ key\ with\:signs   and a value
long = a very \
       long one \
  # is no comment
lines = one\ntwo\t three
empty =
blank
arguments = It''s {0} and {1,number} in '{2}'
plain = It's late
path = /a/b.png
latin = na\u00efve caf\u00e9
"""
EXPECTED = r"""# a comment = stays\
! another
title = A DOG
no.space=RUNS FAST
colon : A: B
  indented\ key\ with\:signs   AND A VALUE
long = A VERY LONG ONE # IS NO COMMENT
lines = ONE\nTWO\t THREE
empty =
blank
arguments = IT’S {0} AND {1,number} IN '{2}'
plain = IT'S LATE
path = /a/b.png
latin = NA\u00cfVE CAF\u00c9
""".replace("’", r"\u2019")


def translated(tmp_path, content):
    (tmp_path / "messages.properties").write_bytes(content)
    translate_file(UpperCase(), tmp_path / "messages.properties", tmp_path / "out.properties", "en")
    return (tmp_path / "out.properties").read_bytes()


def test_properties(tmp_path):
    assert translated(tmp_path, PROPERTIES.encode()) == EXPECTED.encode()
    returns = PROPERTIES.replace("\n", "\r\n").encode()
    assert translated(tmp_path, returns) == EXPECTED.replace("\n", "\r\n").encode()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("# ä\na=ä dog".encode(), "# ä\na=Ä DOG".encode(), id="UTF-8"),
        pytest.param("# ä\na=ä dog".encode("latin-1"), b"# \xe4\na=\\u00c4 DOG", id="latin-1"),
        (rb"a=\ud83d\ude00 dog", rb"a=\ud83d\ude00 DOG"),
        (rb"a=\ leads \\n", rb"a=\ LEADS \\N"),
        # Without the backslash they would be the sign between the key and the value.
        (rb"a \= dog", rb"a \= DOG"),
        (rb"a \: dog", rb"a \: DOG"),
    ],
)
def test_characters(tmp_path, content, expected):
    assert translated(tmp_path, content) == expected


CONTINUED = {
    "in the key": ("ke\\\n   y = a dog\n", "ke\\\n   y = A DOG\n"),
    "a key that ends its line": ("key\\\n  more\n", "key\\\n  more\n"),
    "in front of the sign": ("key \\\n\t = a dog\n", "key \\\n\t = A DOG\n"),
    "behind the sign": ("key = \\\n  : a dog\n", "key = \\\n  \\: A DOG\n"),
    "without a sign": ("key \\\n  a dog\n", "key \\\n  A DOG\n"),
    "a comment does not": ("# a \\\nkey = a dog\n", "# a \\\nkey = A DOG\n"),
}


@pytest.mark.parametrize(("content", "expected"), CONTINUED.values(), ids=CONTINUED)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["Unix", "Windows", "Mac"])
def test_a_backslash_continues_a_line(tmp_path, content, expected, end):
    written = translated(tmp_path, content.replace("\n", end).encode())
    assert written == expected.replace("\n", end).encode()


def test_lines_that_end_with_a_return(tmp_path):
    returns = PROPERTIES.replace("\n", "\r").encode()
    assert translated(tmp_path, returns) == EXPECTED.replace("\n", "\r").encode()
    report = tmp_path / "report.jsonl"
    (tmp_path / "messages.properties").write_bytes(b"# a\ra = dog\r\rb = cat\r")
    translate_file(UpperCase(), tmp_path / "messages.properties", tmp_path / "b", "en", report_file=report)
    assert [json.loads(line)["line"] for line in report.read_text().splitlines()] == [2, 4]


def test_the_library_reads_the_same_keys():
    from translate.storage import properties

    def read(content):
        store = properties.javautf8file()
        store.parse(content.encode())
        return {unit.name: unit.source for unit in store.units if unit.name}

    source = read(PROPERTIES)
    target = read(EXPECTED)
    assert list(source) == list(target)
    assert target["long"] == "A VERY LONG ONE # IS NO COMMENT"
    assert target["latin"] == "NAÏVE CAFÉ"


@pytest.mark.parametrize("name", ["messages.properties", "LocalStrings_de.properties", "lang/a.properties"])
def test_names_of_messages(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("")
    assert recognise(tmp_path / name).name == "properties"


@pytest.mark.parametrize("name", ["log4j.properties", "gradle.properties"])
def test_settings_are_refused(tmp_path, name):
    (tmp_path / name).write_text("level = debug")
    with pytest.raises(UserError, match="give --format properties"):
        recognise(tmp_path / name)
