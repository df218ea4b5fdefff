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


@pytest.mark.parametrize(
    "note",
    ["[^1]", "[^note]", "[1]", "[1][2]", "[^1][^2]", "\u00b9", "*", "\u2020", ")", "]\u201d", ""],
    ids=["note", "named", "number", "numbers", "notes", "raised", "star", "dagger", "bracket", "quote", "none"],
)
@pytest.mark.parametrize("space", [" ", "\n"], ids=["space", "line"])
def test_a_note_belongs_to_the_sentence_before_it(note, space):
    document = f"I like snow.{note}{space}It is late."
    found = marked_segments(document, None, None, partial(cut_text, language="en", fits=fits(99)))
    assert [segment.text for segment in found] == [f"I like snow.{note}", "It is late."]


def test_a_note_in_front_of_a_sentence_without_a_space():
    assert cut_text("\u6211\u559c\u6b22\u96ea\u3002[^1]\u5f88\u665a\u4e86\u3002", "zh", fits(99)) == [
        "\u6211\u559c\u6b22\u96ea\u3002[^1]",
        "\u5f88\u665a\u4e86\u3002",
    ]
    # A link is no note.
    assert cut_text("I like snow.[Go](x) now.", "en", fits(99)) == ["I like snow.", "[Go](x) now."]


@given(st.text(alphabet="ab .,;!?[^1])\n\t\u3002\u00e9"), st.integers(1, 12))
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
