"""Addresses of the Web and of e-mail stay in documents, rows and files with a format."""

import subprocess
import sys

import pytest
import regex
from stand_in_translator import UpperCase
from tiny_marian import save_tiny_marian, tiny_model, tiny_tokenizer
from transformers import pipeline

from hf_capsule_mt.cli import translate
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.text.words import keep_pattern, with_addresses, with_own_flags


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("see https://x.org/a. Now", ["https://x.org/a"]),
        ("(see http://x.org/a?b=c&d#e), “https://x.org/”!", ["http://x.org/a?b=c&d#e", "https://x.org/"]),
        (
            "https://en.wikipedia.org/wiki/A_(b), **HTTPS://X.org**",
            ["https://en.wikipedia.org/wiki/A_(b)", "HTTPS://X.org"],
        ),
        ("www.x.org or mailto:a@b.de or a.b+c@x-y.co.uk.", ["www.x.org", "mailto:a@b.de", "a.b+c@x-y.co.uk"]),
        (
            "müller@straße.de, https://de.wikipedia.org/wiki/Käse",
            ["müller@straße.de", "https://de.wikipedia.org/wiki/Käse"],
        ),
        ("请看https://x.org了解。写信给a@b.de吧", ["https://x.org", "a@b.de"]),
        ("at 5 p.m. @home a@b file.txt awww.b", []),
        # What follows a sign of e-mail is no name.
        ("a@b.a@b.a@b.", ["a@b.a"]),
    ],
)
def test_what_is_an_address(text, addresses):
    assert with_addresses().findall(text) == addresses


def test_other_parts_are_kept_too():
    both = with_addresses(keep_pattern(r"(\w)\1"))
    assert [match[0] for match in both.finditer("aa http://a.de ab")] == ["aa", "http://a.de"]
    with pytest.raises(UserError, match="not a regular expression"):
        with_addresses("(")


@pytest.mark.parametrize(
    "keep", [r"(?i)HOUSE", r"(?x) h o u s e # a comment", regex.compile(r"^House$", regex.IGNORECASE | regex.MULTILINE)]
)
def test_flags_of_an_expression_hold_for_it_alone(keep):
    text = "a.b\nhouse\nsee http://a.de HTTP"
    assert with_addresses(keep).findall(text) == ["house", "http://a.de"]
    joined = regex.compile(f"{with_own_flags(regex.compile(keep))}|a .b|HTTP|x# y")
    assert joined.findall(text + " x# y a .b http") == ["house", "HTTP", "x# y", "a .b"]


ANY = "see a@b.de and https://x.org/a."
FILES = {
    "a.html": (
        f'<!doctype html><p>{ANY}</p><p>to <a href="mailto:a@b.de">a@b.de</a></p><p>www.x.org</p><img alt="to c@d.de">'
    ),
    "a.md": f"# To a@b.de\n\n{ANY}\n\n* www.x.org\n* <a@b.de>\n",
    "a.srt": f"1\n00:00:01,000 --> 00:00:02,000\n{ANY}\n\n2\n00:00:03,000 --> 00:00:04,000\nwww.x.org\n",
    "a.po": f'msgid "{ANY}"\nmsgstr ""\n\nmsgid "www.x.org"\nmsgstr ""\n',
    "messages.json": f'{{"a": "{ANY}", "b": "www.x.org"}}',
    "messages.properties": f"a={ANY}\nb=www.x.org\n",
    "strings.xml": f'<resources><string name="a">{ANY}</string><string name="b">www.x.org</string></resources>',
    "a.xlf": f'<xliff version="1.2"><trans-unit id="1"><source>{ANY}</source></trans-unit></xliff>',
}


@pytest.mark.parametrize("name", FILES)
def test_files_with_a_format(tmp_path, name):
    (tmp_path / name).write_text(FILES[name])
    translate_file(UpperCase(), tmp_path / name, tmp_path / f"out-{name}", "en")
    found = (tmp_path / f"out-{name}").read_text()
    assert "SEE a@b.de AND https://x.org/a." in found
    assert "WWW" not in found
    assert "@B" not in found
    assert "C@D" not in found
    if name == "a.html":
        assert '<p>TO <a href="mailto:a@b.de">a@b.de</a></p>' in found
    translate_file(UpperCase(), tmp_path / name, tmp_path / f"out-{name}", "en", translate_addresses=True)
    assert "SEE A@B.DE AND HTTPS://X.ORG/A." in (tmp_path / f"out-{name}").read_text()


def test_the_pipeline_keeps_them_in_documents():
    translator = pipeline("translation", model=tiny_model(), tokenizer=tiny_tokenizer(), device="cpu")
    text = "a b@c.de d"

    def written(**options):
        return translator(text, **options)[0]["translation_text"]

    assert written(documents="en").count("b@c.de") == 1
    assert written(tags=True).count("b@c.de") == 1
    assert "@" not in written(tags=True, translate_addresses=True)
    # Elsewhere it writes what `generate()` does.
    assert written() == written(documents="en", translate_addresses=True)
    assert "@" not in written()
    assert "word_alignment" in translator(text, documents="en", return_alignments=True)[0]


def test_the_command_keeps_them_in_documents(tmp_path):
    checkpoint = str(save_tiny_marian(tmp_path / "model"))
    (tmp_path / "in.txt").write_text("https://x.org/a.\n\na b@c.de d\n")

    def written(*options):
        names = ["--input_file", str(tmp_path / "in.txt"), "--output_file", str(tmp_path / "out.txt")]
        translate.main(["--model", checkpoint, *names, *options])
        return (tmp_path / "out.txt").read_text()

    lines = written("--documents", "en").split("\n")
    assert lines[0] == "https://x.org/a."
    assert lines[2].count("b@c.de") == 1
    assert "@" not in written("--documents", "en", "--translate_addresses")
    assert "@" not in written()
    # Of text with tags, too.
    lines = written("--tags").split("\n")
    assert lines[0] == "https://x.org/a."
    assert lines[2].count("b@c.de") == 1
    assert "@" not in written("--tags", "--translate_addresses")


def test_time_grows_with_the_length():
    """A quadratic expression would take hours, which the limit ends."""
    code = """from hf_capsule_mt.translation.text.words import with_addresses
for text in ("a", ".", "a.", "a@", "a@b", "a@b.", "https://", "https://.", "https://a(", "www.", "%na@"):
    for before in ("", "https://a("):
        with_addresses().sub("", before + text * (400_000 // len(text)))
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
