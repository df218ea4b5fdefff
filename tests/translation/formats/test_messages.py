"""Messages of programs keep their lines, columns and placeholders."""

import pytest
from stand_in_translator import UpperCase

from hf_capsule_mt.translation.files import translate_file
from hf_capsule_mt.translation.formats.base import cut_in_proportion
from hf_capsule_mt.translation.formats.messages import Message

LONG = "This program is free software, and you can redistribute it"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Usage: %s [X]\\n  -a, --all    print it\\n\\n-b\\n", "USAGE: %s [X]\\n  -a, --all    PRINT IT\\n\\n-b\\n"),
        ("We are 100% sure of %1 and % d.", "WE ARE 100% SURE OF %1 AND % d."),
        (f"{LONG}\\nand use it.\\nEnd", f"{LONG.upper()}\\nAND USE IT.\\nEND"),
    ],
)
def test_lines_and_columns(tmp_path, message, expected):
    (tmp_path / "a.po").write_text(f'msgid "{message}"\nmsgstr ""\n')
    translate_file(UpperCase(), tmp_path / "a.po", tmp_path / "b.po", "en")
    written = (tmp_path / "b.po").read_text().replace('"\n"', "")
    assert written.endswith(f'msgstr "{expected}"\n')


def test_a_sentence_over_two_lines_is_one_text():
    message = Message(f"{LONG}\nand use it.\nEnd")
    assert [text.text for text in message.texts] == [f"{LONG} and use it.", "End"]
    assert message.written(iter(["a b c d e f g h", "i"])) == "a b c d e f g\nh\ni"


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        (LONG, "and use it.", True),
        (LONG, "And use it.", False),
        (f"{LONG}.", "and use it.", False),
        # A shorter line may be a heading.
        ("a " * 19 + "bc", "and use it.", True),
        ("a " * 19 + "b", "and use it.", False),
    ],
)
def test_which_lines_continue_a_sentence(first, second, is_one):
    texts = [text.text for text in Message(f"{first}\n{second}").texts]
    assert texts == ([f"{first} {second}"] if is_one else [first, second])


@pytest.mark.parametrize(
    ("text", "lengths", "pieces"),
    [
        # The middle of the long word is in the first half.
        ("a bbbbbb c", [1, 1], ["a bbbbbb", "c"]),
        ("a b cccccc", [1, 1], ["a b", "cccccc"]),
        ("aa bb cc dd", [2, 6], ["aa", "bb cc dd"]),
        # Each piece has a word, while there are enough.
        ("a b c", [10, 1, 1], ["a", "b", "c"]),
        ("a b", [1, 1, 1], ["a", "b", ""]),
        ("一二三四五", [1, 2], ["一二", "三四五"]),
        ("a <b c='d'>e</b> f", [1, 9], ["a", "<b c='d'>e</b> f"]),
    ],
)
def test_a_text_is_cut_in_proportion(text, lengths, pieces):
    assert cut_in_proportion(text, lengths) == pieces
