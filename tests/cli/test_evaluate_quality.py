"""Trained metrics, and reports that are measured, on the command line."""

import json

import pytest

from hf_capsule_mt.cli.evaluate import main
from hf_capsule_mt.evaluation.comet import CometScorer
from hf_capsule_mt.evaluation.metricx import MetricXScorer
from tests.evaluation.tiny_comet import REFERENCES, SOURCES, TRANSLATIONS, write_checkpoint, write_metricx

NAMES = {"in.en": SOURCES, "out.de": TRANSLATIONS, "ref.de": REFERENCES}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Texts, a COMET model and a CometKiwi model."""
    folder = tmp_path_factory.mktemp("quality")
    for name, lines in NAMES.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    write_checkpoint(folder / "comet_model", "regression")
    # It could read references too.
    write_checkpoint(folder / "kiwi_model", "unified-both")
    return folder


def evaluate(folder, *options):
    main([str(folder / option) if option in names_in(folder) else option for option in options])


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def refused(capsys, folder, *options):
    with pytest.raises(SystemExit) as exit_:
        evaluate(folder, *options)
    assert exit_.value.code == 2
    return capsys.readouterr().err


SCORED = ("--hypotheses", "out.de", "--input_file", "in.en", "--device", "cpu")


def test_comet_beside_sacrebleu(folder, capsys, tmp_path):
    record = str(tmp_path / "record.json")
    options = ["--references", "ref.de", "--metrics", "chrf", "comet", "--comet_model", str(folder / "comet_model")]
    evaluate(folder, *SCORED, *options, "--output_file", record)
    [_, chrf, comet] = capsys.readouterr().out.splitlines()
    expected = CometScorer.from_pretrained(folder / "comet_model").score(SOURCES, TRANSLATIONS, REFERENCES).mean
    assert comet.split() == ["comet", f"{expected:.4f}", str(folder / "comet_model")]
    assert chrf.split()[0] == "chrf"
    scores = json.loads((tmp_path / "record.json").read_text())["scores"]
    assert scores["comet"] == {"score": pytest.approx(expected), "signature": str(folder / "comet_model")}


@pytest.mark.parametrize("references", [REFERENCES, None])
def test_metricx_with_and_without_references(folder, capsys, tmp_path, references):
    model = write_metricx(tmp_path / "metricx-24-tiny")
    options = ["--metrics", "metricx", "--metricx_model", str(model), "--metricx_tokenizer", str(model / "tokenizer")]
    if references is not None:
        options += ["--references", "ref.de"]
    evaluate(folder, *SCORED, *options)
    scorer = MetricXScorer.from_pretrained(model, tokenizer=model / "tokenizer")
    scores = scorer.score(SOURCES, TRANSLATIONS, references)
    [_, line] = capsys.readouterr().out.splitlines()
    assert line.split()[:2] == ["metricx", f"{sum(scores) / len(scores):.4f}"]


def test_cometkiwi_needs_no_references(folder, capsys):
    evaluate(folder, *SCORED, "--metrics", "cometkiwi", "--cometkiwi_model", str(folder / "kiwi_model"))
    expected = CometScorer.from_pretrained(folder / "kiwi_model").score(SOURCES, TRANSLATIONS).mean
    table = capsys.readouterr().out
    assert table.splitlines()[1].split()[1] == f"{expected:.4f}"
    options = ["--references", "ref.de", "--metrics", "cometkiwi", "--cometkiwi_model", str(folder / "kiwi_model")]
    evaluate(folder, *SCORED, *options)
    assert capsys.readouterr().out == table


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([*SCORED, "--metrics", "cometkiwi"], "its models forbid commercial use"),
        ([*SCORED, "--metrics", "xcomet"], "--xcomet_model Unbabel/XCOMET-XL"),
        ([*SCORED, "--metrics", "comet"], "Give --references"),
        ([*SCORED], "Give --references"),
        ([*SCORED, "--references", "ref.de", "ref.de", "--metrics", "comet"], "comet compares with one reference"),
        (["--hypotheses", "out.de", "--references", "ref.de", "--metrics", "comet"], "Give --input_file"),
        (
            ["--compare", "out.de", "ref.de", "--references", "ref.de", "--metrics", "comet"],
            "--compare has no test for comet",
        ),
        (["--quality", "r", "--references", "ref.de", "--metrics", "metricx"], "--quality takes one metric"),
        (["--quality", "r", "--references", "ref.de", "--metrics", "bleu", "chrf"], "--quality takes one metric"),
        (["--quality", "r", "--references", "ref.de", "--metrics", "comet"], "--bad has no default for comet"),
    ],
)
def test_mistakes(folder, capsys, options, words):
    assert words in " ".join(refused(capsys, folder, *options).split())


def test_the_fields_of_a_report_are_measured(folder, capsys, tmp_path):
    """A score that follows the quality finds all bad translations, and one that is turned round does so too."""
    texts = ["a b c d", "a b x y", "p q r s", "t u v w"]
    (tmp_path / "ref").write_text("a b c d\n" * 4)
    rows = []
    for number, text in enumerate(texts, start=1):
        row = {
            "line": number,
            "sentence": 1,
            "source": "s",
            "translation": text,
            "score": -number,
            "p_bad": number / 10,
        }
        rows.append({**row, "uncovered": [1] * number, "copied": None, "same": 1})
    report = tmp_path / "report.jsonl"
    report.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--quality", str(report), "--references", str(tmp_path / "ref")]
    main([*options, "--bad", "20"])
    first, _, header, _, *lines = capsys.readouterr().out.splitlines()
    assert first == "50.0% of 4 translations have a chrf below 20."
    assert header == "| field | AUROC | Spearman | ECE | sentences |"
    cells = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in lines}
    assert cells.keys() == {"score", "p_bad", "uncovered"}
    assert {values[0] for values in cells.values()} == {"1.000"}
    assert float(cells["score"][1]) > 0.9
    assert float(cells["uncovered"][1]) < -0.9
    # 0.1 and 0.2 are right by so much, and 0.3 and 0.4 lack the rest to 1.
    assert cells["p_bad"][2] == "0.400"
    report.write_text("".join(json.dumps({**row, "line": 1}) + "\n" for row in rows))
    assert "Each line must be one sentence" in refused(capsys, folder, *options)
    del rows[0]["translation"]
    report.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "has no translations" in refused(capsys, folder, *options)
    assert "needs one file of --references" in refused(capsys, folder, "--quality", str(report))
    assert "--model does not go with --quality" in refused(capsys, folder, *options, "--model", "x")
