"""Trained metrics on the command line."""

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
    folder = tmp_path_factory.mktemp("metrics")
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
    ],
)
def test_mistakes(folder, capsys, options, words):
    assert words in " ".join(refused(capsys, folder, *options).split())
