"""Messages of programs keep their lines, columns and placeholders."""

import pytest
from stand_in_translator import UpperCase

from hf_capsule_mt.translation.formats import translate_file
from hf_capsule_mt.translation.formats.messages import Message

pytest.importorskip("sentencex", reason='needs sentencex; pip install -e ".[files]"')
pytest.importorskip("translate", reason='needs translate-toolkit; pip install -e ".[files]"')

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
