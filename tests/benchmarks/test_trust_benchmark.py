"""Damaged references are damaged as their names say, and records become the tables of a page."""

import gzip
import json
import random
import sys

import numpy as np
import pytest
from tiny_marian import WORDS, save_tiny_marian

from benchmarks.quality import damaged_references, trust

TARGET = "Mein alter Hund schläft, aber deine Katze fängt heute Mäuse."
PAIRS = [
    ("My old dog sleeps, but your cat catches mice today.", TARGET),
    ("It rains.", "Draußen regnet wieder Wasser."),
]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("third", "Mein alter Hund schläft, aber deine."),
        ("clause", "Mein alter Hund schläft."),
        ("swapped", PAIRS[1][1]),
        ("copied", PAIRS[0][0]),
        ("added", f"{TARGET} Draußen regnet"),
    ],
)
def test_damage(kind, expected):
    pairs = PAIRS if kind == "swapped" else PAIRS[1:]
    assert damaged_references.damage(kind, *PAIRS[0], pairs, random.Random(0)) == expected


def test_damage_at_random_places():
    whole = TARGET.split()
    for seed in range(20):
        generator = random.Random(seed)
        one = damaged_references.damage("one word", *PAIRS[0], PAIRS, generator).split()
        assert len(one) == len(whole) - 1
        assert one[-1].endswith(".")
        assert len(damaged_references.damage("two words", *PAIRS[0], PAIRS, generator).split()) == len(whole) - 2
        repeated = damaged_references.damage("repeated", *PAIRS[0], PAIRS, generator).split()
        assert len(repeated) == len(whole) + 6
        assert any(repeated[place : place + 3] == repeated[place + 3 : place + 6] for place in range(10))
        changed = damaged_references.damage("wrong word", *PAIRS[0], PAIRS[1:], generator).split()
        assert sum(old != new for old, new in zip(whole, changed, strict=True)) == 1
    assert damaged_references.damage("one word", "You.", "Du.", PAIRS, random.Random(0)) is None


def test_false_alarms():
    is_bad = np.array([True] * 10 + [False] * 10)
    assert trust.false_alarms(is_bad, np.array([*range(10, 20), *range(10)])) == 0
    assert trust.false_alarms(is_bad, np.zeros(20)) == 1


def test_from_a_corpus_to_a_page(tmp_path, monkeypatch):
    generator = random.Random(0)
    for name, number in (("val", 60), ("test", 60), ("test_long", 20)):
        lines = [generator.choices(WORDS, k=generator.randint(6, 12)) for _ in range(number)]
        for language, words in (
            ("en", lines),
            ("de", [[f"{word}{word}{word}{word}" for word in line] for line in lines]),
        ):
            text = "".join(" ".join(line) + ".\n" for line in words)
            (tmp_path / f"{name}.{language}.gz").write_bytes(gzip.compress(text.encode()))
    save_tiny_marian(tmp_path / "model")
    errors, record, page = tmp_path / "errors.jsonl", tmp_path / "record.json", tmp_path / "page.md"

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["trust", *map(str, words)])
        trust.main()

    data = ("--data_dir", tmp_path)
    command("make", *data, "--sentences", 20, "--output_file", errors)
    first = errors.read_text()
    rows = [json.loads(line) for line in first.splitlines()]
    assert {row["kind"] for row in rows} == set(damaged_references.KINDS)
    assert all(row["damaged"] != row["whole"] for row in rows)
    command("make", *data, "--sentences", 20, "--output_file", errors)
    assert errors.read_text() == first
    options = ("--model", tmp_path / "model", "--num_beams", 1, "--test_sentences", 20, "--output_file", record)
    command("run", *data, "--errors", errors, *options)
    page.write_text(f"before\n{trust.BEGIN}\nold\n{trust.END}\nafter\n")
    command("page", "--records", record, "--page", page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| coverage |" in text
    assert "with 1 beam.*" in text
    measured = json.loads(record.read_text())
    assert measured["errors"]["copied words"]["copied"] == 1.0
    assert measured["calibration"].keys() == {"val, held out", "test", "test_long"}
