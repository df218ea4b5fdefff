"""The commands that time lengths and single sentences: tables, records, figures, mistakes."""

import json

import pytest
from tiny_marian import tiny_tokenizer

from benchmarks.speed import growth
from benchmarks.speed import latency_command as latency
from hf_capsule_mt.decoding.precisions import PRECISIONS

SMALL = ["--size", "tiny", "--config_overrides", "d_model=16"]


def test_growth(tmp_path, capsys):
    files = ["--output_file", str(tmp_path / "growth.json"), "--figure_file", str(tmp_path / "growth.svg")]
    lengths = ["--lengths", "4", "8", "12", "--fit_from", "8", "--rounds", "1", "--vocab_size", "20"]
    # Its positions do not suffice for the longest.
    transformer = "transformer max_position_embeddings=8"
    growth.main(["--methods", transformer, "capsnmt", *SMALL, *lengths, *files])
    lines = capsys.readouterr().out.splitlines()
    columns = [f"{kind}: {row}" for kind in ("training", "decoding") for row in (transformer, "capsnmt")]
    assert lines[0] == f"| words | {' | '.join(columns)} |"
    assert [line.split(" | ")[0] for line in lines[2:6]] == ["| 4", "| 8", "| 12", "| exponent"]
    assert "exponents from 8 words on" in lines[-1]
    record = json.loads((tmp_path / "growth.json").read_text())
    assert len(record["measurements"]) == len(record["medians"]) == 12
    assert set(record["exponents"]) == {"training", "decoding"}
    assert (tmp_path / "growth.svg").read_text().startswith("<?xml")


@pytest.fixture
def files(tmp_path):
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "in").write_text("a b c\nd\ne f\n")
    (tmp_path / "references").write_text("a\nb c d e\nf\n")
    return ["--tokenizer_name", str(tmp_path / "tokenizer"), "--input_file", str(tmp_path / "in")]


def test_latency(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.speed.decoders.find_spec", lambda name: None)
    references = ["--reference_file", str(tmp_path / "references"), "--num_sentences", "2"]
    latency.main([*files, *references, "--size", "tiny", "--output_file", str(tmp_path / "latency.json")])
    lines = capsys.readouterr().out.splitlines()
    rows = ["transformer", *(f"capsnmt num_sentence_capsules={capsules}" for capsules in (4, 6, 8))]
    names = [name for row in rows for name in (row, *(f"{row}, engine {dtype}" for dtype in PRECISIONS))]
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines[2 : 2 + len(names)]] == names
    assert "Means over 2 sentences (6 source tokens, 7 written)" in lines[-1]
    record = json.loads((tmp_path / "latency.json").read_text())
    assert record["settings"]["vocab_size"] == len(tiny_tokenizer())
    assert {row: len(times) for row, times in record["seconds"].items()} == dict.fromkeys(record["seconds"], 2)


def test_without_references_the_source_gives_the_length(files, capsys):
    latency.main([*files, *SMALL, "--methods", "capsnmt"])
    assert "Means over 3 sentences (9 source tokens, 9 written)" in capsys.readouterr().out


def error_of(command, options, capsys):
    with pytest.raises(SystemExit) as exit_:
        command.main(options)
    assert exit_.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lengths", "16", "--fit_from", "16"], "fewer than two of --lengths are as long"),
        (["--methods", "unknown"], "method is 'unknown'"),
        (["--rounds", "0"], "rounds is 0; it must be at least 1"),
        (["--figure_file", "growth.txt"], "growth.txt is no figure"),
        (["--output_file", "growth.png", "--figure_file", "growth.png"], "another file of this command, and would be"),
        (["--output_file", "nowhere/growth.json"], "the folder of nowhere/growth.json does not exist"),
    ],
)
def test_mistakes_of_growth(options, message, capsys):
    assert message in error_of(growth, [*SMALL, *options], capsys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "capsnmt", "--num_beams", "0"], "num_beams is 0"),
        (["--num_sentences", "-2"], "argument --num_sentences: -2 is too small"),
        (["--output_file", "in"], "--output_file names in, which is another file of this command, and would be lost"),
        (["--input_file", "blank"], "blank holds no sentence"),
        (["--reference_file", "absent"], "--reference_file names absent, which is not a file"),
    ],
)
def test_mistakes_of_latency(files, tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blank").write_text("\n")
    assert message in error_of(latency, [*files, *SMALL, *options], capsys)
