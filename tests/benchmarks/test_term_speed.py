"""The times of a glossary with random models."""

import json
import sys
from pathlib import Path

from benchmarks.terms import speed
from hf_capsule_mt.translation.terms.glossary import Entry, Term

MODEL = Path(__file__).parents[2] / "checkpoints" / "tatoeba-en-de-transformer"


def test_only_a_share_of_the_sentences_is_searched_again(tmp_path, monkeypatch):
    (tmp_path / "in.en").write_text("I like music.\nWhere did you buy that coat?\n")
    rows = [{"proper": {"music": ["Musik"]}}, {"proper": {"coat": ["Jacke"]}}]
    (tmp_path / "terms.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    record_file = tmp_path / "record.json"
    words = ["--test", tmp_path / "in.en", "--terms", tmp_path / "terms.jsonl", "--output_file", record_file]
    words += ["--tokenizer", MODEL, "--sizes", "tiny", "--sentences", 2, "--share", 0.5, "--max_new_tokens", 5]
    monkeypatch.setattr(sys, "argv", ["term_speed", *map(str, words)])
    speed.main()
    record = json.loads(record_file.read_text())
    assert record["searched again"] == 1
    assert sum(record["sizes"]["tiny"]["states"].values()) == 1
    term = Term("coat", 0, 4, Entry(("coat",), ("Jacke",)))
    assert speed.with_share([[], [term], [term]], 2, 1.0) == [[], [term]]
