"""The evaluation command for one system, and with a model that translates first."""

import gzip
import hashlib
import json
import os
from pathlib import Path

import pytest
from tiny_marian import save_tiny_marian

from hf_capsule_mt.cli import translate
from hf_capsule_mt.cli.evaluate import main
from hf_capsule_mt.evaluation.scores import score_translations

HEADERS = ("metric", "| sour", "| syst")
ATTENTION, TWO = ["--adequacy", "--aligner", "attention"], ["--max_tokens_per_batch", "2"]
HYPOTHESES = ["Ein Hund läuft .", "", "Zwei Männer sitzen auf einer Bank ."]
REFERENCES = [
    ["Ein Hund rennt .", "Nichts .", "Zwei Männer sitzen auf einer Bank ."],
    ["ein Hund läuft .", "", "Zwei Leute sitzen auf der Bank ."],
]


@pytest.fixture
def files(tmp_path):
    """The hypotheses, and two references of which one is compressed."""
    paths = [tmp_path / name for name in ("out.de", "ref1.de", "ref2.de.gz")]
    for path, lines in zip(paths, (HYPOTHESES, *REFERENCES)):
        content = "".join(f"{line}\n" for line in lines).encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return [str(path) for path in paths]


def test_table_and_record(files, tmp_path, capsys):
    record_file = tmp_path / "record.json"
    options = ["--tokenize", "none", "--lowercase", "--metrics", "bleu", "ter", "--output_file", str(record_file)]
    main(["--hypotheses", files[0], "--references", *files[1:], *options])
    settings = {"tokenize": "none", "lowercase": True, "metrics": ["bleu", "ter"]}
    scores = score_translations(HYPOTHESES, REFERENCES, **settings)
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["metric", "score", "signature"]
    assert [row.split() for row in rows] == [
        [name, f"{entry['score']:.2f}", entry["signature"]] for name, entry in scores.items()
    ]
    record = json.loads(record_file.read_text())
    assert record["scores"] == scores
    assert record["settings"] == settings
    inputs = [record["hypotheses"], *record["references"]]
    assert inputs == [{"file": file, "sha256": hashlib.sha256(Path(file).read_bytes()).hexdigest()} for file in files]
    environment = record["environment"]
    assert {"hf-capsule-mt", "torch", "sacrebleu"} <= environment["packages"].keys()
    assert {"device", "cpu_threads", "commit", "date"} <= environment.keys()
    assert {file.name for file in tmp_path.iterdir()} == {"out.de", "ref1.de", "ref2.de.gz", "record.json"}


def test_what_comes_through_a_pipe_is_read_once(files, tmp_path):
    record_file = tmp_path / "record.json"
    reader, writer = os.pipe()
    os.write(writer, Path(files[0]).read_bytes())
    os.close(writer)
    # As a shell names what <(...) writes.
    pipe = f"/dev/fd/{reader}"
    main(["--hypotheses", pipe, "--references", files[1], "--metrics", "bleu", "--output_file", str(record_file)])
    os.close(reader)
    record = json.loads(record_file.read_text())
    assert record["hypotheses"] == {"file": pipe, "sha256": None}
    assert record["references"][0]["sha256"] is not None
    assert record["scores"]["bleu"]["score"] == score_translations(HYPOTHESES, REFERENCES[:1])["bleu"]["score"]


@pytest.fixture
def model(tmp_path):
    """A model, sources and their references."""
    (tmp_path / "in.en").write_text("a b c\n\nd e f g\n")
    (tmp_path / "ref.de").write_text("c b a\n\ng f e d\n")
    return str(save_tiny_marian(tmp_path / "model"))


def test_a_model_translates_first(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    decoding = ["--model", model, "--input_file", "in.en", "--device", "cpu"]
    decoding += ["--num_beams", "2", "--max_new_tokens", "6"]
    translate.main([*decoding, "--output_file", "out.de"])
    judged = ["--references", "ref.de", "--output_file"]
    main(["--hypotheses", "out.de", *judged, "apart.json"])
    apart = capsys.readouterr().out
    main([*decoding, *judged, "at_once.json"])
    assert capsys.readouterr().out == apart
    main([*decoding, *judged, "kept.json", "--translations_file", "kept.de"])
    assert (tmp_path / "kept.de").read_text() == (tmp_path / "out.de").read_text()
    records = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in ("apart", "at_once", "kept")}
    assert records["at_once"]["scores"] == records["kept"]["scores"] == records["apart"]["scores"]
    assert records["apart"]["translation"] is records["at_once"]["hypotheses"] is None
    assert records["kept"]["hypotheses"]["sha256"] == records["apart"]["hypotheses"]["sha256"]
    assert records["kept"]["sources"]["file"] == "in.en"
    settings = {"num_beams": 2, "max_new_tokens": 6, "length_penalty": None, "dtype": "auto", "vocabulary": None}
    settings |= {"source_lang": None, "target_lang": None}
    assert records["at_once"]["translation"] == {"model": model, "revision": None, **settings}
    assert {path.name for path in tmp_path.iterdir()} == {
        *("in.en", "ref.de", "model", "out.de", "kept.de"),
        *(f"{name}.json" for name in records),
    }


def test_a_model_that_translates_aligns_as_well(model, tmp_path, capsys):
    files = ["--input_file", str(tmp_path / "in.en"), "--references", str(tmp_path / "ref.de")]
    options = [*ATTENTION, "--length_edges", "3", "--device", "cpu"]
    main(["--model", model, *files, *options, "--max_new_tokens", "6"])
    scores, lengths, adequacy = [part for part in capsys.readouterr().out.split("\n\n") if part[:6] in HEADERS]
    assert scores.splitlines()[1].startswith("bleu ")
    assert f"| {model}: BLEU |" in lengths
    assert f"| {model} |" in adequacy
    with pytest.raises(SystemExit):
        main(["--model", model, "--hypotheses", files[3], *files[2:], "--input_file", files[1], *ATTENTION, *TWO])
    assert "Line 3 has 10 tokens" in capsys.readouterr().err


@pytest.mark.parametrize("lost", ["out.de", "ref1.de", "in.en"])
@pytest.mark.parametrize("option", ["--output_file", "--figure_file"])
def test_no_file_that_is_read_is_written(files, tmp_path, capsys, option, lost):
    """By whatever name."""
    (tmp_path / "in.en").write_text("a\n\nb\n")
    before = (tmp_path / lost).read_bytes()
    (tmp_path / "link.svg").symlink_to(tmp_path / lost)
    sources = ["--input_file", str(tmp_path / "in.en"), "--length_edges", "3"]
    with pytest.raises(SystemExit):
        main(["--hypotheses", files[0], "--references", files[1], *sources, option, str(tmp_path / "link.svg")])
    assert f"{option} names {tmp_path}/link.svg, another file of this command" in capsys.readouterr().err
    assert (tmp_path / lost).read_bytes() == before
