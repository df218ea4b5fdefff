"""The command `calibrate`, and what `translate --calibration` makes of its file."""

import json
import random

import pytest
from tiny_marian import WORDS, save_tiny_marian

from hf_capsule_mt.cli import translate
from hf_capsule_mt.cli.calibrate import main
from hf_capsule_mt.evaluation.comet import CometScorer
from tests.evaluation.tiny_comet import write_checkpoint


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A translation model, and 60 sentences with references."""
    folder = tmp_path_factory.mktemp("calibrate")
    generator = random.Random(0)
    lines = [generator.choices(WORDS, k=generator.randint(1, 9)) for _ in range(60)]
    # Neither is scored.
    lines += [[], ["12"]]
    (folder / "val.en").write_text("".join(" ".join(line) + "\n" for line in lines))
    (folder / "val.de").write_text("".join(" ".join(reversed(line)) + "\n" for line in lines))
    (folder / "few.en").write_text("a b\nc d\n")
    (folder / "few.de").write_text("b a\nd c\n")
    save_tiny_marian(folder / "model")
    return folder


def options_of(folder, sources, references):
    files = ["--input_file", str(folder / sources), "--references", str(folder / references)]
    return ["--model", str(folder / "model"), *files, "--output_file", str(folder / "c.json"), "--device", "cpu"]


@pytest.mark.parametrize(
    ("sources", "references", "options", "words"),
    [
        ("val.en", "val.de", ["--metric", "metricx"], "argument --metric: invalid choice"),
        ("val.en", "val.de", ["--metric", "comet"], "--bad has no default for comet"),
        ("val.en", "val.de", ["--metric", "xcomet", "--bad", "0.5"], "--xcomet_model Unbabel/XCOMET-XL"),
        ("val.en", "val.de", ["--metrics", "comet"], "There is no option --metrics. Did you mean --metric?"),
        ("few.en", "few.de", [], "A calibration needs 50"),
        ("val.en", "few.de", [], "has 62 lines"),
        ("val.en", "val.en", [], "are the same file"),
        ("val.en", "none.de", [], "--references: there is no file"),
        ("val.en", "val.de", ["--output_file", "val.en"], "another file of this command"),
        ("val.en", "val.de", ["--vocabulary", "few.en", "--output_file", "few.en"], "another file of this command"),
    ],
)
def test_mistakes(folder, capsys, monkeypatch, sources, references, options, words):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit, match="2"):
        main([*options_of(folder, sources, references), *options])
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (folder / "c.json").exists()


def test_comet_may_say_what_is_good(folder, capsys, tmp_path):
    """Its scores, of the model's translations, are those that the calibration learns from."""
    model = write_checkpoint(tmp_path / "comet", "regression")
    calibration = tmp_path / "c.json"
    options = [*options_of(folder, "val.en", "val.de"), "--max_new_tokens", "12", "--output_file", str(calibration)]
    main([*options, "--metric", "comet", "--comet_model", str(model), "--bad=-1.1"])
    record = json.loads(calibration.read_text())
    assert (record["metric"], record["bad"], record["num_sentences"]) == ("comet", -1.1, 60)
    output = ["--output_file", str(tmp_path / "out")]
    translate.main([*options[:2], *options[2:4], "--max_new_tokens", "12", "--device", "cpu", *output])
    texts = [(folder / "val.en"), (tmp_path / "out"), (folder / "val.de")]
    scores = CometScorer.from_pretrained(model).score(*(file.read_text().split("\n")[:60] for file in texts)).scores
    assert record["held_out"]["share_bad"] == pytest.approx(sum(score < -1.1 for score in scores) / 60)


def test_a_calibration_adds_to_the_report(folder, capsys, tmp_path, caplog):
    decoding = ["--model", str(folder / "model"), "--num_beams", "2", "--max_new_tokens", "12", "--device", "cpu"]
    calibration = tmp_path / "c.json"
    sources = ["--input_file", str(folder / "val.en")]
    texts = [*sources, "--references", str(folder / "val.de")]
    main([*texts, *decoding, "--bad", "9", "--output_file", str(calibration)])
    assert capsys.readouterr().out.startswith("60 sentences, logistic. ")
    record = json.loads(calibration.read_text())
    assert (record["num_sentences"], record["bad"]) == (60, 9)
    assert 0 < record["held_out"]["share_bad"] < 1
    outputs = ["--output_file", str(tmp_path / "out"), "--report_file", str(tmp_path / "r")]
    arguments = [*decoding, *sources, *outputs]
    translate.main([*arguments, "--calibration", str(calibration)])
    rows = [json.loads(line) for line in (tmp_path / "r").read_text().splitlines()]
    assert all(row["interval"][0] <= row["quality"] <= row["interval"][1] for row in rows[:60])
    assert all(0 <= row["p_bad"] <= 1 for row in rows[:60])
    for row in rows[60:]:
        assert (row["quality"], row["interval"], row["p_bad"]) == (None, None, None)
    assert "another kind" not in caplog.text
    limit = sorted(row["coverage"] for row in rows[:60])[30]
    calibration.write_text(json.dumps({**record, "least_coverage": limit}))
    translate.main([*arguments, "--calibration", str(calibration)])
    rows = [json.loads(line) for line in (tmp_path / "r").read_text().splitlines()]
    assert [row["low_coverage"] for row in rows[:60]] == [row["coverage"] < limit for row in rows[:60]]
    assert 10 < [row["low_coverage"] for row in rows].count(True) <= 30
    translate.main([*arguments[:-1], str(tmp_path / "plain")])
    assert "quality" not in json.loads((tmp_path / "plain").read_text().splitlines()[0])
    beams = arguments.index("2")
    with pytest.raises(SystemExit):
        translate.main([*arguments[:beams], "3", *arguments[beams + 1 :], "--calibration", str(calibration)])
    assert "num_beams is 3, not 2" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        translate.main([*arguments[:-2], "--calibration", str(calibration)])
    assert "Give --report_file" in capsys.readouterr().err
    # Nothing that this model writes is so likely.
    calibration.write_text(json.dumps({**record, "score_range": [-0.001, 0]}))
    translate.main([*arguments, "--calibration", str(calibration)])
    assert "This text is of another kind" in caplog.text
