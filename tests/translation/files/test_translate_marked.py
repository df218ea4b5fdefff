"""`translate` with tags, with what is kept, and with a report: lines and documents, interrupted and resumed."""

import json
import re

import pytest
from interrupted_translation import interrupt_after
from tiny_marian import save_tiny_marian, tiny_model, tiny_tokenizer
from translated_lines import translate_lines

from hf_capsule_mt.cli.translate import main

LINES = ["a <b>c d</b> e {x}", "", "<i>g h</i>", "<p>i j</p><p>k l <b>m</b> n</p>", "q"]
MARKED = ["--tags", "--keep", r"\{\w\}", "--num_beams", "2", "--max_tokens_per_batch", "12"]
FLAGS = ["empty", "limit_reached", "source_cut", "too_short", "repeats"]
FLAGS += ["copies", "adds_numbers", "other_script"]
SIGNS = ["lowest", "lowest_word", "end", "coverage", "uncovered", "entropy", "copied"]
SIGNS += ["new_numbers", "missing_numbers", "script"]
KEYS = ["line", "sentence", "source", "translation", "score", "source_length", "length_ratio", *FLAGS, *SIGNS]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_tiny_marian(tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def translate(checkpoint, source, target, *options):
    files = ["--input_file", str(source), "--output_file", str(target)]
    main(["--model", checkpoint, *files, *map(str, options)])
    return target.read_text()


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_with_tags(checkpoint, source, tmp_path):
    found = translate(checkpoint, source, tmp_path / "out", *MARKED).splitlines()
    assert [sorted(re.findall("<.*?>", line)) for line in found] == [
        sorted(re.findall("<.*?>", line)) for line in LINES
    ]
    assert found[0].count("{x}") == 1
    assert re.sub("<.*?>", "", found[2]) == translate_lines(tiny_model(), tiny_tokenizer(), ["g h"], num_beams=2)[0]
    assert (found[1], found[4]) == ("", translate_lines(tiny_model(), tiny_tokenizer(), ["q"], num_beams=2)[0])


def test_a_report_without_an_output_is_written_in_the_end(checkpoint, source, tmp_path, monkeypatch):
    interrupt_after(monkeypatch, batches=1)
    options = [*MARKED, "--chunk_size", "2", "--report_file", tmp_path / "b.jsonl"]
    with pytest.raises(KeyboardInterrupt):
        main(["--model", checkpoint, "--input_file", str(source), *map(str, options)])
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt"}


def test_a_report_is_resumed_with_its_output(checkpoint, source, tmp_path, monkeypatch, caplog):
    whole = translate(
        checkpoint, source, tmp_path / "whole", *MARKED, "--chunk_size", "2", "--report_file", tmp_path / "a"
    )
    report, options = tmp_path / "b.jsonl", [*MARKED, "--chunk_size", "2", "--report_file", tmp_path / "b.jsonl"]
    interrupt_after(monkeypatch, batches=1)
    arguments = (checkpoint, source, tmp_path / "out", *options)
    with pytest.raises(KeyboardInterrupt):
        translate(*arguments)
    assert not report.exists()
    monkeypatch.undo()
    assert translate(*arguments) == whole
    assert report.read_text() == (tmp_path / "a").read_text()
    found = records(report)
    assert [entry["line"] for entry in found] == [1, 2, 3, 4, 4, 5]
    assert [list(entry) for entry in found] == [[*KEYS, "placeholders"], *[KEYS] * 5]
    assert [entry["sentence"] for entry in found] == [1, 1, 1, 1, 2, 1]
    # Without tags, but with what is kept.
    kept = found[0]["placeholders"]
    assert [(part["text"], part["start"], part["end"]) for part in kept] == [("{x}", 8, 11)]
    assert found[0]["translation"].count("{x}") == 1
    assert [entry["source"] for entry in found] == ["a c d e {x}", "", "g h", "i j", "k l m n", "q"]
    judged = [2, 3, 4, 5]
    plain = translate_lines(tiny_model(), tiny_tokenizer(), [found[row]["source"] for row in judged], num_beams=2)
    assert [found[row]["translation"] for row in judged] == plain
    blank = {**dict.fromkeys(KEYS), **dict.fromkeys(FLAGS, False)}
    assert found[1] == {**blank, "line": 2, "sentence": 1, "source": "", "translation": ""}
    marked = [entry for entry in found if any(entry[key] for key in FLAGS)]
    assert marked
    assert f"{len(marked)} of 6 translations are marked: " in caplog.text
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "whole", "out", "a", "b.jsonl"}


@pytest.mark.parametrize("marked", [[], ["--keep", "x"], ["--tags"]])
def test_lines_are_counted_in_documents(checkpoint, tmp_path, capsys, marked):
    source = tmp_path / "in.txt"
    source.write_text("A b. C d.\n\nE f.\n\nG h i j k l m n o p q r s.\n")
    report = ["--documents", "en", "--report_file", tmp_path / "report", *marked]
    translate(checkpoint, source, tmp_path / "out", *report)
    assert [entry["line"] for entry in records(tmp_path / "report")] == [1, 3, 5]
    with pytest.raises(SystemExit):
        translate(checkpoint, source, tmp_path / "other", "--documents", "en", "--max_tokens_per_batch", "10", *marked)
    assert "Line 5 has 14 tokens" in capsys.readouterr().err


def test_a_report_has_what_was_copied(checkpoint, source, tmp_path):
    source.write_text("a b\n1984\n")
    translate(checkpoint, source, tmp_path / "out", "--report_file", tmp_path / "report")
    decoded, copied = records(tmp_path / "report")
    assert (copied["translation"], copied["score"]) == ("1984", None)
    assert (decoded["translation"], copied["line"]) == ((tmp_path / "out").read_text().splitlines()[0], 2)


def test_a_report_tells_of_sources_that_were_cut(checkpoint, source, tmp_path, caplog):
    source.write_text("a b\n" + "a " * 200 + "\nc\n")
    translate(checkpoint, source, tmp_path / "out", "--report_file", tmp_path / "report")
    assert [entry["source_cut"] for entry in records(tmp_path / "report")] == [False, True, False]
    assert "1 of a source that was cut" in caplog.text


def test_an_element_of_a_document_goes_over_its_paragraphs(checkpoint, source, tmp_path):
    """So a document with tags is one window."""
    source.write_text("<div>A b.\n\nC d.</div>\n")
    options = ["--documents", "en", "--tags"]
    whole = translate(checkpoint, source, tmp_path / "whole", *options)
    assert re.sub("[a-z ]", "", whole) == "<>\n\n</>\n"
    assert translate(checkpoint, source, tmp_path / "out", *options, "--chunk_size", "1") == whole
