"""The comparison of term banks with one beam, and the times of random models."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import term_beams, term_speed
from benchmarks.term_beams import PublishedBeam, SharedBeam
from hf_capsule_mt.decoding.search.term_automaton import State, TermAutomaton
from hf_capsule_mt.decoding.search.term_banks import Candidate
from hf_capsule_mt.translation.terms.glossary import Entry, Term

MODEL = Path(__file__).parents[2] / "checkpoints" / "tatoeba-en-de-transformer"


def test_the_places_of_a_beam_go_in_turn_to_the_fullest_banks():
    beam = SharedBeam(TermAutomaton([[(1, 2)], [(3,)]]), rows=4, width=4)
    nothing = [Candidate(score, 0, 9, State()) for score in (-1.0, -2.0, -3.0)]
    begun = [Candidate(-5.0, 0, 1, State(walk=(1,)))]
    one_term = [Candidate(score, 0, 2, State(placed=1)) for score in (-7.0, -8.0)]
    assert beam.fill([*nothing, *begun, *one_term]) == [one_term[0], begun[0], nothing[0], one_term[1]]
    assert beam.num_tokens(State(placed=2, walk=(1,))) == 2


def test_a_published_beam_closes_no_hypothesis():
    automaton = TermAutomaton([[(1, 2)]])
    scores = [-1.0, -2.0]
    assert SharedBeam(automaton, rows=2, width=2).closed_rows(scores, [0.9, 0.1]) == {0}
    assert PublishedBeam(automaton, rows=2, width=2).closed_rows(scores, [0.9, 0.1]) == set()


@pytest.fixture
def files(tmp_path):
    texts = {"in.en": ["I like music.", "Where did you buy that coat?"], "in.de": ["Ich mag Musik.", "Wo? Die Jacke!"]}
    rows = [{"proper": {"music": ["Musik"]}}, {"proper": {"coat": ["Jacke"]}}]
    texts["terms.jsonl"] = [json.dumps(row) for row in rows]
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def record_of(module, files, monkeypatch, *words):
    words = ["--terms", str(files / "terms.jsonl"), "--output_file", str(files / "record.json"), *words]
    monkeypatch.setattr(sys, "argv", [module.__name__, *words])
    module.main()
    return json.loads((files / "record.json").read_text())


def test_every_way_writes_the_terms(files, monkeypatch):
    words = ["--model", str(MODEL), "--test", str(files / "in.en"), str(files / "in.de")]
    record = record_of(term_beams, files, monkeypatch, *words)
    assert record["sentences"] == 1
    assert record["ways"]["no terms"]["success"] == 0
    assert [record["ways"][way.name]["success"] for way in term_beams.WAYS] == [1] * len(term_beams.WAYS)


def test_only_a_share_of_the_sentences_is_searched_again(files, monkeypatch):
    words = ["--test", str(files / "in.en"), "--tokenizer", str(MODEL), "--sizes", "tiny", "--sentences", "2"]
    record = record_of(term_speed, files, monkeypatch, *words, "--share", "0.5", "--max_new_tokens", "5")
    assert record["searched again"] == 1
    assert sum(record["sizes"]["tiny"]["states"].values()) == 1
    term = Term("coat", 0, 4, Entry(("coat",), ("Jacke",)))
    assert term_speed.with_share([[], [term], [term]], 2, 1.0) == [[], [term]]
