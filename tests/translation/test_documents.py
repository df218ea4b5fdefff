"""Documents are cut into segments that fit, and lose nothing by it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_capsule_mt.translation.documents import Segment, cut_document, language_code

pytest.importorskip("sentencex", reason='needs sentencex; pip install -e ".[documents]"')

TEXT = "Dr. Smith left.  He was late!\n\n  \n- one,\n  two; three\n"


def fits(limit):
    return lambda text: len(text) <= limit


def test_sentences_and_white_space():
    assert cut_document(TEXT, "en", fits(99)) == [
        Segment("", "Dr. Smith left.", "  "),
        Segment("", "He was late!", "\n\n"),
        Segment("  \n", "- one, two; three", "\n"),
    ]
    assert cut_document("", "en", fits(9)) == [Segment("", "", "")]
    assert cut_document(" \n", "en", fits(9)) == [Segment(" \n", "", "")]


@pytest.mark.parametrize(
    ("limit", "parts"),
    [
        (19, ["one two,", "three four five six"]),
        (16, ["one two,", "three four five", "six"]),
        (8, ["one two,", "three", "four", "five six"]),
        (4, ["one", "two,", "thr", "ee", "four", "five", "six"]),
    ],
)
def test_a_long_sentence_is_cut_where_it_hurts_least(limit, parts):
    found = cut_document("one two, three four five six", "en", fits(limit))
    assert [segment.text for segment in found] == parts


@given(st.text(alphabet="ab .,;!?\n\t\u3002\u00e9"), st.integers(1, 12))
def test_nothing_is_lost_or_added(document, limit):
    segments = cut_document(document, "en", fits(limit))
    assert all(len(segment.text) <= limit for segment in segments)
    assert "".join(document.split()) == "".join(segment.text for segment in segments).replace(" ", "")
    # Around the segments, white space is that of the document; within, single spaces.
    assert "".join(segment.around(segment.text) for segment in segments).split() == document.split()


def test_languages():
    assert [language_code(code) for code in ("en", "de_DE", "pt-BR", "zh_CN")] == ["en", "de", "pt", "zh"]
    for code in (None, "", "eng_Latn"):
        with pytest.raises(ValueError, match="two letters"):
            language_code(code)
