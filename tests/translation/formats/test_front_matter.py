"""The title and the description of a page of Markdown are translated, and the rest of its front matter stays."""

import pytest
import yaml
from stand_in_translator import UpperCase

from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats.front_matter import fields_of


def translated(tmp_path, front_matter):
    """Return the front matter of a page in capital letters, and the lines of what stays."""
    (tmp_path / "a.md").write_text(f"---\n{front_matter}---\n\nA dog.\n")
    outcome = translate_file(UpperCase(), tmp_path / "a.md", tmp_path / "b.md", "en")
    front, _, rest = (tmp_path / "b.md").read_text().removeprefix("---\n").partition("---\n")
    assert rest == "\nA DOG.\n"
    return front, outcome.kept.get("front matter", [])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("A dog", "A DOG"),
        ("A dog  ", "A DOG  "),
        ('"A dog: it runs"', '"A DOG: IT RUNS"'),
        ("'It''s a dog'", "'IT''S A DOG'"),
        (r'"A \"big\" dog"', r'"A \"BIG\" DOG"'),
    ],
)
def test_title_and_description(tmp_path, value, expected):
    front, kept = translated(tmp_path, f"title: {value}\ndescription: {value}\ndate: 2026-12-01\n")

    assert front == f"title: {expected}\ndescription: {expected}\ndate: 2026-12-01\n"
    assert kept == []


@pytest.mark.parametrize(
    "field",
    [
        "title: A dog # with a comment",
        "title: >\n  A dog",
        "title: A dog\n  that runs",
        "title: [a dog, a cat]",
        "title: &name A dog",
        "page:\n  title: A dog",
        "layout: a dog",
    ],
)
def test_what_stays_is_counted(tmp_path, field):
    front, kept = translated(tmp_path, f"{field}\n")

    assert front == f"{field}\n"
    assert kept == [1]


@pytest.mark.parametrize("field", ["title: 2026", "title: true", "title:", "draft: 1"])
def test_what_is_no_text(tmp_path, field):
    front, _ = translated(tmp_path, f"{field}\n")

    assert front == f"{field}\n"


def test_a_translation_that_needs_quotes():
    """Plain text may be a mapping, a comment or a number in another language."""
    [field] = fields_of("---\ntitle: A dog\n---\n")
    for translation in ("Hund: er läuft", "Hund # 1", "- Hund", "1.5", "yes", "'Hund", "Hund \\n"):
        value = field.written(translation)
        assert yaml.safe_load(f"title: {value}") == {"title": translation}
    assert field.written("Hund") == "Hund"
    assert field.written("Hund\nKatze") is None
    assert field.written(" ") is None
