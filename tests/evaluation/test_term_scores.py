"""Scores of terms in translations, and files with the terms of each source."""

import json

import pytest

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.evaluation.term_scores import measure_terms, read_terms, term_report

SOURCES = ["The printer, a printer.", "A printer is fast.", "Nothing.", "The fast printer."]


@pytest.fixture
def glossary(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("printer\tDrucker|Druckers\nfast\tschnell\n")
    return path


def test_every_term_needs_words_of_its_own(glossary):
    terms = read_terms(glossary, SOURCES)["proper"]
    assert [[term.source for term in of_line] for of_line in terms] == [
        ["printer", "printer"],
        ["printer", "fast"],
        [],
        ["fast", "printer"],
    ]
    translations = ["Der Drucker.", "Ein drucker, Drucker, Druckers ist SCHNELL.", "Drucker", "Des Druckers schnell."]
    scores = measure_terms(translations, terms)
    assert (scores.terms, scores.sentences) == (6, 3)
    assert scores.success == pytest.approx(4 / 6)
    assert scores.success_any_case == pytest.approx(5 / 6)
    assert scores.success_first_form == pytest.approx(3 / 6)
    # Drucker twice and Druckers once. "schnell" was found once.
    assert scores.consistency == pytest.approx(2 / 3)
    # The second has a form twice. The third has no term, so nothing in it is a copy.
    assert scores.sentences_with_copies == 1


def test_nothing_to_count():
    scores = measure_terms(["a"], [[]])
    assert (scores.success, scores.consistency, scores.sentences_with_copies) == (None, None, 0)
    record = {"mine": {**vars(scores), "chrf": None}}
    assert term_report(record).splitlines()[-1] == "| mine | 0 |  |  |  |  |  |  |"


def test_terms_of_each_source(tmp_path):
    path = tmp_path / "terms.jsonl"
    rows = [{"proper": {"printer": ["Drucker", "Druckers"]}}, {"random": {"fast": "schnell"}}, {}, {}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    terms = read_terms(path, SOURCES)
    assert [[term.source for term in of_line] for of_line in terms["proper"]] == [["printer", "printer"], [], [], []]
    assert terms["proper"][0][0].entry.targets == ("Drucker", "Druckers")
    assert [[term.source for term in of_line] for of_line in terms["random"]] == [[], ["fast"], [], []]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}\n{}\n", "terms.jsonl has 2 lines, but there are 1 sources"),
        ("{\n", "terms.jsonl:1: .*Write an object of JSON"),
        ("[]\n", "terms.jsonl:1: this is no object"),
        ('{"proper": ["a"]}\n', 'terms.jsonl:1: "proper" must be an object'),
        ('{"random": {"a": 1}}\n', "terms.jsonl:1: the target of 'a' must be a text"),
        ('{"proper": {"a": []}}\n', "terms.jsonl:1: the target is empty"),
    ],
)
def test_a_broken_file_names_its_line(tmp_path, text, message):
    path = tmp_path / "terms.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_terms(path, ["a"])
