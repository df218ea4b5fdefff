"""Files are recognised by their names and beginnings, and what would be translated wrongly is refused."""

import gzip
import re
import zipfile

import pytest
from tiny_marian import save_tiny_marian

from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.formats import FORMATS, LINES, recognise


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("page.html", "A dog.", "html"),
        ("PAGE.HTM", "A dog.", "html"),
        ("page", "\ufeff\n<!DOCTYPE html>\n<p>A dog.", "html"),
        ("page.txt", "<html><p>A dog.", "html"),
        ("text.txt", "A dog.\n", None),
        ("text.en", "{name} has a <b>dog</b>.\n", None),
        ("text", "1\n2\n", None),
        ("text.cs", "Pes běží.\nPes (velký) běží & je rád.\n", None),
        ("text.eng", "A dog runs.\n", None),
        ("text.zh_CN", "一只狗。\n", None),
        ("text.de.2016", "Ein Hund läuft.\n", None),
        ("text.txt", 'Tom: Is it late?\n"No," she said.\nTom: It is!\n', None),
        ("text.tok", "A dog & apos;s tail ; it is @-@ long .\nA dog .\n", None),
        ("text", "", None),
        ("text", ">>de<< A dog\n\n>>pt_BR<< The house\n", None),
        ("text.source", "<2de> A dog runs.\n", None),
        ("train.en", "A dog runs.\n/home/dog/_cat\nIt is late.\n[on|off] = {}\n", None),
        ("talk.txt", "[Applause]\n[Music]\nThank you.\n", None),
        ("talk.en", "#MeToo\n# 1 song\n", None),
        ("talk.de_DE", "// A dog runs.\n", None),
        ("talk.eng_Latn", "% of people\n", None),
        ("talk.ace_Latn", "[Applause]\n", None),
    ],
)
def test_formats(tmp_path, name, content, expected):
    file_format = recognise(written(tmp_path, name, content))
    assert (file_format and file_format.name) == expected


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nA dog.\n", "srt"),
        ("a.po", 'msgid "a"\nmsgstr ""\n', "po"),
        ("a.md", "A <b>dog</b>.\n", "markdown"),
        ("strings.xml", "<resources><string name='a'>A dog.</string></resources>", "android"),
        ("a.html", "<p>A dog.</p>", "html"),
        ("a", "<!doctype html><p>A dog.</p>", "html"),
        # Tags are read in other XML and plain text.
        ("a.xml", "<a>A dog.</a>", None),
        ("a.txt", "<b>A dog.</b>\n", None),
        ("a.yaml", "a: <b>dog</b>\n", None),
    ],
)
def test_tags_do_not_hide_a_format(tmp_path, name, content, expected):
    path = written(tmp_path, name, content)
    file_format = recognise(path, tags=True)
    assert (file_format and file_format.name) == expected
    assert recognise(path, LINES, tags=True) is None


def test_a_format_that_the_user_names(tmp_path):
    path = written(tmp_path, "page.html", "A dog.")
    assert recognise(path, LINES) is None
    assert recognise(written(tmp_path, "text.csv", "A dog."), "html") is FORMATS["html"]
    with pytest.raises(UserError, match="There is no format 'pdf'"):
        recognise(path, "pdf")


def test_compressed_files_are_looked_into(tmp_path):
    assert recognise(written(tmp_path, "page.html.gz", gzip.compress(b"A dog."))).name == "html"
    with pytest.raises(UserError, match="is a PDF file"):
        recognise(written(tmp_path, "text.gz", gzip.compress(b"%PDF-1.7\n")))


@pytest.mark.parametrize("name", [None, LINES, "html"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"%PDF-1.7\n", "is a PDF file"),
        pytest.param(b"\x89PNG\r\n\x1a\n\0\0\0\x0d", "is no text: it has NUL bytes", id="png"),
        (b"{\\rtf1 A dog.}", "is a file of Rich Text Format"),
        pytest.param("A dog.".encode("utf-16"), "is text in UTF-16", id="utf-16"),
        pytest.param(b"A dog.\0", "is no text: it has NUL bytes", id="nul byte"),
    ],
)
def test_what_is_no_text(tmp_path, content, words, name):
    with pytest.raises(UserError, match=words):
        recognise(written(tmp_path, "file.txt", content), name)


def test_a_document_of_word(tmp_path):
    with zipfile.ZipFile(tmp_path / "letter.docx", "w") as file:
        file.writestr("word/document.xml", "<w:p>A dog.</w:p>")
    with pytest.raises(UserError, match=r"is a zip file, such as those of Word.* pandoc FILE -o text\.md"):
        recognise(tmp_path / "letter.docx")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "a,b"),
        ("a.yaml", "a: b"),
        ("a.py", "a = 1"),
        ("a.TMX", ""),
        ("a.rst", "A dog runs."),
        ("a.unknown", "A dog runs."),
        # Languages, too.
        ("a.asm", "A dog runs."),
        ("a.log", "A dog runs."),
        ("a.1", "A dog runs."),
        ("a.cs", "using System;\nclass Dog {\n}\n"),
        ("Makefile", "all: dog\n\tcc -o dog dog.c\n"),
        ("passwd", "root:x:0:0:root:/root:/bin/bash\nnews:x:9:9::/:/bin/sh\n"),
        ("settings", "A comment.\nname = dog\n"),
        ("table.txt", "dog\tcat\nbig\tsmall\n"),
        ("data.txt", '{\n"a": "A dog runs."\n}\n'),
        ("page.txt", "<?xml version='1.0'?>\nA dog runs.\n"),
        ("script.pl", "#!/usr/bin/perl\nA dog runs.\nIt is late.\n"),
        ("a.xyz_Latn", "A dog runs."),
        ("a", "<?xml version='1.0'?><a/>"),
        ("a", "#!/bin/sh\nls"),
    ],
)
def test_other_formats_are_refused(tmp_path, name, content):
    path = written(tmp_path, name, content)
    words = r"of no format that is supported, so translating its lines would damage it.* pandoc FILE -o text\.md"
    with pytest.raises(UserError, match=words):
        recognise(path)
    assert recognise(path, LINES) is None


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", "a", "Names that end in .csv are not those of texts."),
        pytest.param("a.csv.gz", gzip.compress(b"a"), "Names that end in .csv are not those of texts.", id="gzip"),
        ("talk", "\n[Applause]\nThank you.\n", "Line 2 looks like the beginning of a program, of data or of a key"),
        (
            "a.txt",
            "A dog.\n\nname = dog\nrun();\nb = 1\n",
            "3 of its first 4 lines look like code. Line 3 looks like a setting: 'name = dog'.",
        ),
        ("a.en", "# A dog.\n( ) = a b\n( ) + c\n", "Line 2 looks like a line of signs"),
    ],
)
def test_a_refusal_says_which_line_and_why(tmp_path, name, content, words):
    with pytest.raises(UserError, match=re.escape(words)):
        recognise(written(tmp_path, name, content))


@pytest.mark.parametrize(
    ("name", "content", "options", "words"),
    [
        ("a.pdf", b"%PDF-1.7", [], "is a PDF file"),
        ("a.yaml", "a: b", [], "translating its lines would damage it"),
        ("a.html", "<p>a</p>", [], "Give the language of its sentences, such as --documents en"),
        ("a.html", "<p>a</p>", ["--documents", "xx"], "'xx' is no language"),
        ("a.html", "<p>a</p>", ["--sentences", "en"], "--sentences is for lines of text"),
        ("a.html", "<p>a</p>", ["--documents", "en", "--fuzzy"], "for translations that wait for a review, and HTML"),
        ("a.txt", "A dog.", ["--fuzzy"], "--fuzzy is for files such as de.po and de.xlf, and a.txt has lines of text"),
        (
            "a.srt",
            "1\n",
            ["--tags", "--documents", "en"],
            "--tags is for lines of text, and a.srt is SubRip subtitles. L",
        ),
        ("package.json", "{}", ["--tags"], "may have other strings than messages"),
        ("a.html", "<p>a</p>", ["--documents", "en", "--alignments", "a.jsonl"], "--alignments is for lines"),
        ("a.html", "<p>a</p>", ["--documents", "en", "--tags", "--interactive"], "or give --format lines, which"),
    ],
)
def test_refused_before_a_model_is_loaded(tmp_path, monkeypatch, capsys, name, content, options, words):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, name, content)
    with pytest.raises(SystemExit, match="2"):
        main(["--model", "nowhere/at/all", "--input_file", name, "--output_file", "out", *options])
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_lines_of_a_file_that_is_called_otherwise(tmp_path):
    path, output = written(tmp_path, "a.yaml", "a b\nc\n"), tmp_path / "out"
    model = str(save_tiny_marian(tmp_path / "model"))
    main(["--model", model, "--input_file", str(path), "--output_file", str(output), "--format", LINES])
    assert len(output.read_text().splitlines()) == 2
