"""Pages of HTML: words and attributes are translated, and everything else stays."""

import os
import re
from contextlib import contextmanager

import pytest
from stand_in_translator import UpperCase
from tiny_marian import save_tiny_marian

from hf_capsule_mt.cli import translate
from hf_capsule_mt.translation.files import translate_file

PAGE = """<!DOCTYPE html>
<html lang='en' class="a"><head><title>A dog. A cat.</title><style>b { color: red }</style></head>
<body title=""><p>See <img src="a.png" alt="a &quot;big&quot; dog" title='a dog'/>, <b>now</b>! Q&amp;A.</p>
<p class="notranslate" title="a dog">left <img alt="left"></p><img translate="no" alt="left">
<input placeholder="your name" value="left"><script>x("<p title='left'>")</script></body></html>
"""


def translated(tmp_path, page, **options):
    (tmp_path / "a.html").write_bytes(page.encode())
    translate_file(UpperCase(), tmp_path / "a.html", tmp_path / "b.html", "en", **options)
    return (tmp_path / "b.html").read_bytes().decode()


def test_a_page(tmp_path):
    expected = PAGE
    for words in ("A dog. A cat.", "See", "now<", "your name"):
        expected = expected.replace(words, words.upper())
    expected = expected.replace(
        "alt=\"a &quot;big&quot; dog\" title='a dog'", 'alt="A &quot;BIG&quot; DOG" title="A DOG"'
    )
    assert translated(tmp_path, PAGE) == expected


def test_the_language_that_the_tokenizer_knows(tmp_path):
    """As those of OPUS-MT do."""
    (tmp_path / "a.html").write_text(PAGE)
    translator = UpperCase()
    translator.tokenizer.target_lang = "de"

    translate_file(translator, tmp_path / "a.html", tmp_path / "b.html", "en")

    assert '<html lang="de" class="a">' in (tmp_path / "b.html").read_text()


def test_the_language_of_the_page(tmp_path):
    assert '<html lang="de" class="a">' in translated(tmp_path, PAGE, target_lang="de")
    assert '<HTML class=a Lang="de">' in translated(tmp_path, "<HTML class=a Lang=en><p>a", target_lang="de")
    page = '<html xmlns="x" xml:lang="en" lang="en" data-lang="en"><p>a</p></html>'
    expected = '<html xmlns="x" xml:lang="de" lang="de" data-lang="en"><p>A</p></html>'
    assert translated(tmp_path, page, target_lang="de") == expected
    page = """<html data-x=" lang='en' " lang="en"><p>a</p></html>"""
    assert translated(tmp_path, page, target_lang="de") == page.replace('"en"', '"de"').replace("<p>a", "<p>A")
    # A page that names none gets none.
    assert translated(tmp_path, "<html><p hreflang=en>a", target_lang="de") == "<html><p hreflang=en>A"


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ('<meta name="description" content="a dog">', '<meta name="description" content="A DOG">'),
        ("<META CONTENT='a dog' NAME=Description />", '<META CONTENT="A DOG" NAME=Description />'),
        ('<meta property="og:title" content="a dog"/>', '<meta property="og:title" content="A DOG"/>'),
        ('<meta property="og:description" content="a dog">', '<meta property="og:description" content="A DOG">'),
        ('<meta name="twitter:title" content="a dog">', '<meta name="twitter:title" content="A DOG">'),
        ('<meta name="twitter:description" content="a dog">', '<meta name="twitter:description" content="A DOG">'),
        ('<meta property="twitter:image:alt" content="a dog">', '<meta property="twitter:image:alt" content="A DOG">'),
    ],
)
def test_words_in_meta(tmp_path, tag, expected):
    assert (
        translated(tmp_path, f"<html><head>{tag}<title>b</title></head>")
        == f"<html><head>{expected}<title>B</title></head>"
    )


@pytest.mark.parametrize(
    "tag",
    [
        '<meta name="viewport" content="width=device-width">',
        '<meta name="description" content="a dog" translate="no">',
        '<meta property="og:image" content="a dog" title="a dog">',
        '<meta name="author" content="a dog">',
        '<meta http-equiv="description" content="a dog">',
        '<meta charset="utf-8" content="a dog">',
        '<link name="description" content="a dog">',
    ],
)
def test_other_contents_of_meta_stay(tmp_path, tag):
    page = f"<html><head>{tag}</head>"
    assert translated(tmp_path, page) == page


def test_attributes_of_what_is_not_translated_stay(tmp_path):
    """Also if another tag has the same words."""
    page = '<p>a <img alt="a dog"> b</p><p>c <img translate="no" alt="a dog"> d</p>'
    written = translated(tmp_path, page)
    assert '<img alt="A DOG">' in written
    assert '<img translate="no" alt="a dog">' in written


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        (
            """<a onclick="show(' title = \'a dog\'')" title="a dog">""",
            """<a onclick="show(' title = \'a dog\'')" title="A DOG">""",
        ),
        ("""<a data-x='<b alt="a dog">' alt='b'>""", """<a data-x='<b alt="a dog">' alt="B">"""),
        ("""<a data-title="a dog" x:title="a dog">""", """<a data-title="a dog" x:title="a dog">"""),
        (
            """<a title=dog><img alt=dog/></a><a href=a/ title = 'dog'>""",
            """<a title="DOG"><img alt="DOG"/></a><a href=a/ title = "DOG">""",
        ),
        ("""<a hidden href="x"title="dog">""", """<a hidden href="x"title="DOG">"""),
        (
            """<a data-x=" translate=no class='notranslate' " title="dog">""",
            """<a data-x=" translate=no class='notranslate' " title="DOG">""",
        ),
        ("""<a class="b NoTranslate" title="dog">""", """<a class="b NoTranslate" title="dog">"""),
        ("""<a translate=NO title="dog">""", """<a translate=NO title="dog">"""),
    ],
)
def test_only_attributes_that_readers_see_are_translated(tmp_path, tag, expected):
    """An attribute may have the text of others in it, such as a program."""
    assert translated(tmp_path, f"<p>{tag}c</a></p>").startswith(f"<p>{expected}")


def test_words_that_stay_are_counted(tmp_path, caplog):
    page = (
        "<!-- a comment --><!-- 1 -->\n<p translate=no>a <b>dog</b></p>\n<p>a <b class='notranslate'>cat</b> runs</p>\n"
        "<img translate=no alt='a dog'><img translate=no src='a.png'>\n<option label='a bird'>b</option>\n"
        "<svg><text>a</text></svg><script>'a dog'</script><style>a b</style><code translate=no>a</code>\n"
        "<p title='a dog' class='big dog'>a</p><meta name=description content='a dog'>\n"
        "<meta name='keywords' content='big dog'><meta name='generator' content='big dog'>"
    )
    (tmp_path / "a.html").write_text(page)

    kept = translate_file(UpperCase(), tmp_path / "a.html", tmp_path / "b.html", "en").kept

    assert kept == {"comments": [1], "marked to stay": [2, 3, 4], "attributes": [5, 8]}
    assert "not translated: marked to stay: 3. Their lines: 2, 3, 4" in caplog.text


def test_marks_and_ends_of_lines_stay(tmp_path):
    page = translated(tmp_path, "\ufeff<p>a\r\nb.</p>\r\n<p>c</p>\r\n")
    assert page == "\ufeff<p>A B.</p>\r\n<p>C</p>\r\n"


def test_only_words_are_read(tmp_path):
    translator = UpperCase()
    (tmp_path / "a.html").write_text(PAGE)
    translate_file(translator, tmp_path / "a.html", tmp_path / "b.html", "en")
    assert sorted(translator.seen) == sorted(
        ["A dog.", "A cat.", "See , now!", "Q&A.", 'a "big" dog', "a dog", "your name"]
    )
    assert not any(re.search("[<>]", text) for text in translator.seen)


@contextmanager
def standard_input(descriptor):
    """Let an open file be the standard input."""
    saved = os.dup(0)
    os.dup2(descriptor, 0)
    try:
        yield
    finally:
        os.dup2(saved, 0)
        os.close(saved)


def test_the_command_translates_a_page_in_one_way(tmp_path, capsysbinary):
    """With `--tags` and without, from a file, from standard input and from a stream."""
    page = tmp_path / "page.html"
    page.write_text("<!doctype html>\n<html lang='en'><p>a <img alt='b c'> d <b>e f</b>.<br>https://x.org/a")
    common = ["--model", str(save_tiny_marian(tmp_path / "model")), "--documents", "en", "--target_lang", "de"]
    named = [*common, "--input_file", str(page), "--output_file"]
    translate.main([*named, str(tmp_path / "a")])
    whole = (tmp_path / "a").read_bytes()
    assert whole.startswith(b'<!doctype html>\n<html lang="de"><p>')
    assert b"'b c'" not in whole
    assert whole.endswith(b"<br>https://x.org/a")
    translate.main([*named, str(tmp_path / "b"), "--tags"])
    assert (tmp_path / "b").read_bytes() == whole
    capsysbinary.readouterr()
    with page.open("rb") as file, standard_input(file.fileno()):
        translate.main([*common, "--tags"])
    assert capsysbinary.readouterr().out == whole
    end, beginning = os.pipe()
    os.write(beginning, page.read_bytes())
    os.close(beginning)
    with standard_input(end):
        translate.main([*common, "--format", "html"])
    assert capsysbinary.readouterr().out == whole


def test_lines_of_a_page_and_a_page_as_text_with_tags(tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<p>a <img alt='b c'> d.</p>\n<p>e f</p>")
    named = ["--model", str(save_tiny_marian(tmp_path / "model")), "--input_file", str(page), "--tags"]
    for options in (["--sentences", "en"], [], ["--documents", "en", "--format", "lines"]):
        translate.main([*named, *options, "--output_file", str(tmp_path / "out"), "--report_file", str(tmp_path / "r")])
        written = (tmp_path / "out").read_text()
        assert "<img alt='b c'>" in written
        assert written.count("</p>\n") == 2
