"""Terms in the evaluation command."""

import json

import pytest
from ending_models import STORED

from hf_capsule_mt.cli.evaluate import main

MODEL = str(STORED / "tatoeba-en-de-transformer")
SOURCES = ["Where did you buy that coat?", "I like music.", "1984"]
REFERENCES = ["Wo hast du diese Jacke gekauft?", "Ich mag Musik.", "1984"]
TERMS = [{"proper": {"coat": ["Jacke"]}}, {"proper": {"music": "Musik"}, "random": {"like": "liebe"}}, {}]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "in.en").write_text("".join(f"{line}\n" for line in SOURCES))
    (tmp_path / "ref.de").write_text("".join(f"{line}\n" for line in REFERENCES))
    (tmp_path / "terms.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in TERMS))
    (tmp_path / "terms.tsv").write_text("coat\tJacke\nmusic\tMusik\n")
    return tmp_path


def evaluate(folder, *options, terms="terms.jsonl"):
    names = ("--input_file", "in.en", "--references", "ref.de", "--output_file", "out.json", "--terms", terms)
    main([str(folder / name) if "." in name else name for name in names] + [*options])
    return json.loads((folder / "out.json").read_text())["terms"]


def test_a_model_with_and_without_its_terms(files, capsys):
    options = ["--model", MODEL, "--num_beams", "4"]
    proper = evaluate(files, *options)
    reference = str(files / "ref.de")
    assert [*proper] == ["without terms", "proper terms", reference]
    assert [scores["success"] for scores in proper.values()] == [0.5, 1, 1]
    assert proper["proper terms"]["chrf"] > proper["without terms"]["chrf"]
    assert "| proper terms | 2 | 100.0% | 100.0% | 100.0% |" in capsys.readouterr().out
    assert evaluate(files, *options, terms="terms.tsv") == proper
    # Proper terms are counted, whatever the model is given.
    random = evaluate(files, *options, "--term_mode", "random")
    assert [*random] == ["without terms", "random terms", reference]
    assert random["random terms"]["success"] == 0.5
    assert [*evaluate(files, *options, "--term_mode", "none")] == ["without terms", reference]


def test_translations_that_are_there(files):
    (files / "out.de").write_text("Jacke Jacke\nLärm\n1984\n")
    scores = evaluate(files, "--hypotheses", str(files / "out.de"))[str(files / "out.de")]
    assert (scores["success"], scores["sentences_with_copies"]) == (0.5, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--terms", "terms.tsv"], "--terms needs --input_file"),
        (["--term_mode", "random"], "--term_mode and --glossary_languages need --terms"),
        (["--input_file", "in.en", "--terms", "terms.tsv", "--term_mode", "random"], "is for translations by --model"),
    ],
)
def test_refusals(files, capsys, options, message):
    options = [str(files / word) if word.startswith(("in.", "terms.")) else word for word in options]
    reference = str(files / "ref.de")
    with pytest.raises(SystemExit):
        main(["--hypotheses", reference, "--references", reference, *options])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--term_mode", "random"], "--term_mode random needs a .jsonl file"),
        (["--engine", "transformers"], "--terms needs --engine fast"),
    ],
)
def test_refusals_with_a_model(files, capsys, options, message):
    with pytest.raises(SystemExit):
        evaluate(files, "--model", MODEL, *options, terms="terms.tsv")
    assert message in capsys.readouterr().err
