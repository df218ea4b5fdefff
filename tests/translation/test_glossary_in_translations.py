"""Glossaries in the pipeline, the command and the report."""

import json

import pytest
from ending_models import STORED
from transformers import AutoTokenizer

import hf_capsule_mt
from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation import texts as texts_module
from hf_capsule_mt.translation.glossary import Entry, Glossary
from hf_capsule_mt.translation.term_writer import token_spellings, word_boundaries

MODEL = STORED / "tatoeba-en-de-transformer"
LINES = [
    "Where did you buy that coat?",
    "I like music.",
    "1984",
    "The old dog sleeps.",
    "A dog and a dog.",
    "He bought the coat for his dog.",
]
TERMS = "coat\tJacke|Jacken\ndog\tHund\nold\tbetagte|betagter\n"


@pytest.fixture(scope="module")
def translator():
    return hf_capsule_mt.pipeline(MODEL, device="cpu", num_beams=4)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "in.en").write_text("".join(f"{line}\n" for line in LINES))
    (tmp_path / "terms.tsv").write_text(TERMS)
    return tmp_path


def translate(folder, *options):
    output = folder / "out.de"
    main(["--model", str(MODEL), "--num_beams", "4", "--input_file", str(folder / "in.en"), *options])
    return output.read_text().splitlines()


def test_terms_are_there_and_nothing_else_changes(files):
    output = ["--output_file", str(files / "out.de")]
    plain = translate(files, *output)
    report = files / "report.jsonl"
    found = translate(files, *output, "--glossary", str(files / "terms.tsv"), "--report_file", str(report))
    assert "Jacke" in found[0]
    assert "Jacke" not in plain[0]
    # Without a term, and with terms that the model writes by itself.
    assert [found[index] for index in (1, 2, 4)] == [plain[index] for index in (1, 2, 4)]
    rows = [json.loads(line) for line in report.read_text().splitlines()]
    states = [[term["state"] for term in row.get("terms", [])] for row in rows]
    assert states == [["forced"], [], [], ["forced", "model"], ["model", "model"], ["forced", "model"]]
    assert rows[0]["terms"] == [{"source": "coat", "target": "Jacke", "form": "Jacke", "state": "forced", "copies": 0}]


def test_the_pipeline_writes_as_the_command(files, translator):
    lines = translate(files, "--output_file", str(files / "out.de"), "--glossary", str(files / "terms.tsv"))
    results = translator(LINES, glossary=str(files / "terms.tsv"), batch_size=3)
    assert [result["translation_text"] for result in results] == lines
    with pytest.raises(UserError, match="A glossary gives one translation"):
        translator(LINES[0], glossary=str(files / "terms.tsv"), num_return_sequences=2)
    with pytest.raises(UserError, match="A glossary needs engine 'fast'"):
        translator(LINES[0], glossary=str(files / "terms.tsv"), engine="transformers")


def test_a_sentence_with_its_terms_is_not_searched_again(translator, monkeypatch):
    searched = []
    complete = texts_module.TermWriter._search
    monkeypatch.setattr(
        texts_module.TermWriter, "_search", lambda *args: (searched.append(len(args[1])), complete(*args))[1]
    )
    glossary = Glossary([Entry(("dog",), ("Hund",), "x:1")])
    translator("A dog and a dog.", glossary=glossary)
    assert searched == []
    translator("A dog and a dog.", glossary=Glossary([Entry(("dog",), ("Tier",), "x:1")]))
    assert searched == [1]


def test_tags_and_kept_parts_stay_outside(translator):
    glossary = Glossary([Entry(("coat",), ("Jacke",), "x:1"), Entry(("dog",), ("Tier",), "x:2")])
    text = "<p>Where did you buy that <b>coat</b>?</p>"
    [result] = translator(text, glossary=glossary, tags=True)
    assert "<b>Jacke</b>" in result["translation_text"]
    [kept] = translator("The dog sleeps.", glossary=glossary, keep="dog")
    assert "Tier" not in kept["translation_text"]


def test_the_least_copies_win(translator):
    """The search also finds a translation that has the word twice."""
    glossary = Glossary([Entry(("music",), ("Lärm",), "x:1")])
    [result] = translator("I like music very much.", glossary=glossary)
    assert result["translation_text"].count("Lärm") == 1


def test_another_glossary_does_not_continue(files, capsys):
    unfinished = files / "out.de.unfinished"
    options = ["--output_file", str(files / "out.de"), "--chunk_size", "2", "--glossary", str(files / "terms.tsv")]
    whole = translate(files, *options)
    assert not unfinished.exists()
    (files / "terms.tsv").write_text("coat\tMantel\n")
    assert translate(files, *options) != whole


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ("coat\n", "terms.tsv:1: a line has a source, one tab"),
        ("coat\t\n", "terms.tsv:1: the target is empty"),
    ],
)
def test_a_wrong_glossary_ends_before_the_work(files, capsys, terms, message):
    (files / "terms.tsv").write_text(terms)
    with pytest.raises(SystemExit):
        translate(files, "--output_file", str(files / "out.de"), "--glossary", str(files / "terms.tsv"))
    assert message in capsys.readouterr().err


def test_spellings_of_a_form():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    boundaries = word_boundaries(tokenizer)
    spellings = token_spellings(tokenizer, "haus")
    texts = {tokenizer.decode(list(spelling)).strip() for spelling in spellings}
    assert texts == {"haus", "Haus"}
    inside, behind_space = (
        [spelling for spelling in spellings if begins(spelling)]
        for begins in (
            lambda spelling: boundaries.begins_inside[spelling[0]],
            lambda spelling: not boundaries.begins_inside[spelling[0]],
        )
    )
    assert inside
    assert behind_space
    assert all(boundaries.ends_inside[spelling[-1]] for spelling in spellings)
    assert not boundaries.begins_inside[tokenizer.eos_token_id]
