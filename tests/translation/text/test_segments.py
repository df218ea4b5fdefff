"""Documents are cut into segments that fit, and lose nothing by it."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_capsule_mt.translation.tags.segments import marked_segments
from hf_capsule_mt.translation.text.segments import cut_text, language_code

TEXT = "Dr. Smith left.  He was late!\n\n  \n- one,\n  two; three\n"


def fits(limit):
    return lambda text: len(text) <= limit


def test_sentences_and_white_space():
    found = marked_segments(TEXT, None, None, partial(cut_text, language="en", fits=fits(99)))
    assert [(segment.before, segment.text, segment.after) for segment in found] == [
        ("", "Dr. Smith left.", "  "),
        ("", "He was late!", "\n\n"),
        ("  \n", "- one, two; three", "\n"),
    ]
    assert cut_text("", "en", fits(9)) == [""]
    assert cut_text(" \n", "en", fits(9)) == [" \n"]


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
    found = cut_text("one two, three four five six", "en", fits(limit))
    assert [part.strip() for part in found] == parts


@given(st.text(alphabet="ab .,;!?\n\t\u3002\u00e9"), st.integers(1, 12))
def test_nothing_is_lost_or_added(document, limit):
    parts = cut_text(document, "en", fits(limit))
    assert "".join(parts) == document
    assert all(len(part.strip()) <= limit for part in parts)


def test_sentences_of_a_long_paragraph():
    """They are looked for in windows, whose ends are no ends of sentences."""
    sentences = [f"Dog number {number} runs to Dr. Smith. " for number in range(2_000)]
    assert cut_text("".join(sentences), "en", fits(99)) == sentences


def test_languages():
    codes = ("en", "de_DE", "pt-BR", "zh_CN", "eng_Latn")
    assert [language_code(code) for code in codes] == ["en", "de", "pt", "zh", "en"]
    # sentencex has rules of no language by its three letters.
    for code in (None, "", "xx", "ace_Latn"):
        with pytest.raises(ValueError, match="two letters"):
            language_code(code)
