"""Pages of HTML: words and attributes are translated, and everything else stays."""

import re

import pytest
from stand_in_translator import UpperCase

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
