"""The script that measures where tags come back: what it draws, what it calls right, and its record."""

import json
import random
import sys

import pytest
from tiny_marian import save_tiny_marian

from benchmarks.tags import places
from hf_capsule_mt.evaluation.alignment import Alignment


@pytest.mark.parametrize(
    ("tagged", "judgement"),
    [
        ("a <b>c</b> d", "right"),
        ("a <b>c d</b>", "among others"),
        ("<b>a c</b> d", "among others"),
        ("<b>a</b> c d", "elsewhere"),
        ("a <b></b>c d", "elsewhere"),
    ],
)
def test_judgements(tagged, judgement):
    assert places.judge(tagged, "a c d", 1) == judgement


def test_words_without_one_translation_are_not_drawn():
    links = [(0, 0), (1, 1), (1, 2), (2, 3), (3, 3), (4, 4)]
    assert {places.draw(["a", "b", "c", "d", "."], links, random.Random(seed)) for seed in range(9)} == {(0, 0)}
    assert places.draw(["."], [(0, 0)], random.Random(0)) is None


@pytest.mark.parametrize("options", [[], ["--layers"]])
def test_a_record(tmp_path, monkeypatch, options):
    def in_order(sources, streams, **_):
        pairs = zip(sources, streams[0], strict=True)
        return [[Alignment(len(s), tuple(t), tuple((i, i) for i in range(min(len(s), len(t))))) for s, t in pairs]]

    monkeypatch.setattr(places, "align_words", in_order)
    save_tiny_marian(tmp_path)
    (tmp_path / "text").write_text("a b c d e\ng &amp; h\ni j k\n")
    text, record = str(tmp_path / "text"), tmp_path / "record.json"
    words = ["--models", f"plain={tmp_path}", "--alignment_data", text, text]
    words += ["--input_file", text, "--output_file", str(record)]
    monkeypatch.setattr(sys, "argv", ["tag_places", *words, *options])
    places.main()
    found = json.loads(record.read_text())["models"]["plain"]
    assert len(found) == (6 if options else 1)
    for shares in found.values():
        assert shares.pop("tags") == 2
        assert sum(shares.values()) == pytest.approx(1)
