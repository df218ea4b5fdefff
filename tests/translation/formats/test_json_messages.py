"""Messages in JSON: strings are translated, and every other byte stays."""

import json

import pytest
from stand_in_translator import UpperCase, Writes
from tiny_marian import save_tiny_marian

from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats import recognise

MESSAGES = r"""{
  "_comment": "of developers", "_comment_b": "another one",
  "@locale": "a comment", "title":"A \"dog\" {{name}} runs & jumps",
    "items_one" : "{{count}} item",	"nested": {"deep": ["see $t(common.x, {\"count\": 1}) now", 1.50, null, true]},
  "icu": "{n, plural, one {# dog} other {# dogs}} run", "empty": "", "path": "/img/dog.png", "id": "big_dog",
  "date": "YYYY-MM-DD", "tags": "a <b>dog</b>", "lines": "one\n\ntwo", "done": "DONE: 100%"
}
"""
EXPECTED = r"""{
  "_comment": "of developers", "_comment_b": "another one",
  "@locale": "a comment", "title":"A \"DOG\" {{name}} RUNS & JUMPS",
    "items_one" : "{{count}} ITEM",	"nested": {"deep": ["SEE $t(common.x, {\"count\": 1}) NOW", 1.50, null, true]},
  "icu": "{n, plural, one {# dog} other {# dogs}} RUN", "empty": "", "path": "/img/dog.png", "id": "big_dog",
  "date": "YYYY-MM-DD", "tags": "A <b>DOG</b>", "lines": "ONE\n\nTWO", "done": "DONE: 100%"
}
"""


def translated(tmp_path, content):
    (tmp_path / "en.json").write_bytes(content.encode())
    translate_file(UpperCase(), tmp_path / "en.json", tmp_path / "out.json", "en")
    return (tmp_path / "out.json").read_bytes().decode()


def test_messages(tmp_path):
    assert translated(tmp_path, MESSAGES) == EXPECTED
    assert translated(tmp_path, MESSAGES.replace("\n", "\r\n")) == EXPECTED.replace("\n", "\r\n")


def test_a_file_without_references_gets_none(tmp_path):
    (tmp_path / "en.json").write_text('{"a": "a dog"}')
    translate_file(Writes("ein Löwe"), tmp_path / "en.json", tmp_path / "out.json", "en")
    assert (tmp_path / "out.json").read_text() == '{"a": "ein Löwe"}'


@pytest.mark.parametrize(
    ("content", "expected"),
    [(r'{"a": "\u00e4 dog"}', r'{"a": "\u00c4 DOG"}'), ('{"a": "ä dog"}', '{"a": "Ä DOG"}')],
)
def test_references_to_characters(tmp_path, content, expected):
    assert translated(tmp_path, content) == expected
    assert json.loads(expected) == {"a": "Ä DOG"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"_comment": {"a": "dog"}, "b": "dog"}', '{"_comment": {"a": "dog"}, "b": "DOG"}'),
        ('{"a": ["dog", {"@b": "dog"}, "dog"]}', '{"a": ["DOG", {"@b": "dog"}, "DOG"]}'),
        ('{"@a": ["dog", {"b": {"c": "dog"}}, "dog"]}', '{"@a": ["dog", {"b": {"c": "dog"}}, "dog"]}'),
        ('{"a": {"_comment_b": "dog"}, "c": [{}, "dog"]}', '{"a": {"_comment_b": "dog"}, "c": [{}, "DOG"]}'),
        ('[{"@a": "{"}, "dog", [{"@a": "}"}, ["dog"]]]', '[{"@a": "{"}, "DOG", [{"@a": "}"}, ["DOG"]]]'),
    ],
)
def test_comments_end_with_their_value(tmp_path, content, expected):
    assert translated(tmp_path, content) == expected


def test_half_of_a_character(tmp_path):
    """Nobody can read or write it."""
    assert translated(tmp_path, r'{"a": "\ud83d dog", "b": "\ud83d\ude00 dog"}') == (
        r'{"a": "\ufffd DOG", "b": "\ud83d\ude00 DOG"}'
    )


def test_a_number_of_thousands_of_digits_stays(tmp_path):
    content = f'{{"number": {"1" * 5000}, "title": "%s"}}'
    assert translated(tmp_path, content % "a dog") == content % "A DOG"


def test_damaged(tmp_path):
    with pytest.raises(UserError, match="The JSON is damaged"):
        translated(tmp_path, '{"a": "b",}')


@pytest.mark.parametrize("name", ["en.json", "pt-BR.json", "messages.json", "translation.de.json", "locales/en/a.json"])
def test_names_of_messages(tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("{}")
    assert recognise(tmp_path / name).name == "i18next"


@pytest.mark.parametrize("name", ["package.json", "tsconfig.json", "js.json"])
def test_other_files_of_json_are_refused(tmp_path, name):
    (tmp_path / name).write_text('{"main": "dog"}')
    with pytest.raises(UserError, match="give --format i18next"):
        recognise(tmp_path / name)
    assert recognise(tmp_path / name, "i18next").name == "i18next"


def test_the_command_takes_them(tmp_path):
    (tmp_path / "en.json").write_text('{"a": "a b c"}')
    model = str(save_tiny_marian(tmp_path / "model"))
    files = ["--input_file", str(tmp_path / "en.json"), "--output_file", str(tmp_path / "de.json")]
    main(["--model", model, "--documents", "en", *files])
    assert json.loads((tmp_path / "de.json").read_text()).keys() == {"a"}
