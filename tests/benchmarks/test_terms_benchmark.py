"""The script that mines terms and measures a glossary."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.terms import quality

MODEL = Path(__file__).parents[2] / "checkpoints" / "tatoeba-en-de-transformer"


@pytest.fixture
def dictionary():
    pairs = [("the printer works", "Der Drucker läuft"), ("a printer", "Ein Drucker"), ("my printer", "Mein Drucker")]
    pairs += [("of the printer", "Des Druckers")] * 3 + [("it works", "Es läuft"), ("she works", "Sie läuft")]
    pairs += [("of course", "Natürlich"), ("the end", "Das Ende")] * 9
    return quality.Dictionary(pairs * 2)


def test_nouns_are_proper_terms_with_their_forms(dictionary):
    found = dictionary.terms("Printer works", "Der Drucker läuft")
    assert found == {"proper": {"printer": ["Drucker", "Druckers"]}, "random": {"works": ["läuft"]}}
    # At the beginning every word has a capital.
    assert dictionary.terms("Printer", "Drucker")["random"] == {"printer": ["Drucker", "Druckers"]}
    assert dictionary.terms("Printer", "Das Gerät") == {"proper": {}, "random": {}}


def test_a_record(tmp_path, monkeypatch):
    texts = {"in.en": ["I like music.", "Where did you buy that coat?"], "in.de": ["Ich mag Musik.", "Wo? Die Jacke!"]}
    rows = [{"proper": {"music": ["Musik"]}}, {"proper": {"coat": ["Jacke"]}}]
    texts["terms.jsonl"] = [json.dumps(row) for row in rows]
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    words = ["run", "--model", str(MODEL), "--test", str(tmp_path / "in.en"), str(tmp_path / "in.de")]
    words += ["--terms", str(tmp_path / "terms.jsonl"), "--output_file", str(tmp_path / "record.json")]
    monkeypatch.setattr(sys, "argv", ["term_quality", *words])
    quality.main()
    proper = json.loads((tmp_path / "record.json").read_text())["modes"]["proper"]
    assert proper["states"] == {"model": 1, "forced": 1}
    assert proper["before"]["success"] == 0.5
    assert proper["after"]["success"] == 1
    assert proper["changed although already right"] == 0
    assert proper["chrf"]["already right"][0] == proper["chrf"]["already right"][1]
    assert proper["sentences searched again"] == 1
