"""The table of inputs and options: each "yes" equals the pipeline, and each "no" is refused with its reason."""

import json

import pytest
from forked_commands import run, run_both
from stand_in_translator import UpperCase
from tiny_marian import save_tiny_marian, tiny_model, tiny_tokenizer
from translated_lines import translate_lines

from hf_capsule_mt import pipeline
from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files.job import DOCUMENT, LINES, ROWS, Job
from hf_capsule_mt.translation.files.output_folders import output_paths
from hf_capsule_mt.translation.files.run import translate_files

TEXTS = {
    "a.md": "# a b c\n\nd **e**\n",
    "b.txt": "a b c\nd e f\n",
    "c.jsonl": '{"id": 1, "text": "a b c"}\n{"id": 2, "text": null}\n{"id": 3, "text": "d e f\\ng"}\n',
    "de.po": 'msgid "a b c"\nmsgstr ""\n',
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_tiny_marian(tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """One file of each kind, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def translate(checkpoint):
    return lambda *words: main(["--model", checkpoint, "--device", "cpu", *words])


def by_pipeline(checkpoint, *texts):
    translator = pipeline(checkpoint, device="cpu")
    return [translator(text)[0]["translation_text"] for text in texts]


def test_all_kinds_in_one_call(checkpoint, translate, files, capsys):
    translate("--documents", "en", "--sentences", "en", "--input_file", *TEXTS, "--output_dir", "out")

    one, two, three = by_pipeline(checkpoint, "a b c", "d e f", "g")
    assert (files / "out" / "b.txt").read_text() == f"{one}\n{two}\n"
    rows = [json.loads(line) for line in (files / "out" / "c.jsonl").read_text().splitlines()]
    assert [row["translation"] for row in rows] == [one, None, f"{two}\n{three}"]
    assert (files / "out" / "a.md").read_text().startswith(f"# {one}\n\n")
    assert f'msgstr "{one}"' in (files / "out" / "de.po").read_text()
    assert capsys.readouterr().out.startswith("4 of 4 files are complete.")


def test_a_report_of_all_kinds_has_a_line_for_each_sentence(translate, files):
    translate("--documents", "en", "--input_file", *TEXTS, "--output_dir", "out", "--report_page", "page.html")

    records = [json.loads(line) for line in (files / "page.jsonl").read_text().splitlines()]
    places = [(record["file"], record["line"], record["source"]) for record in records]
    assert ("c.jsonl", 3, "g") in places
    assert ("de.po", 1, "a b c") in places
    assert {file for file, _, _ in places} == set(TEXTS)
    assert all(record["score"] < 0 for record in records)


def test_a_glossary_of_all_kinds(translate, files):
    (files / "terms.tsv").write_text("d\tq\n")
    translate("--documents", "en", "--glossary", "terms.tsv", "--input_file", *TEXTS, "--output_dir", "out")
    for name in ("a.md", "b.txt", "c.jsonl"):
        assert "q" in (files / "out" / name).read_text().replace('"', "")


def test_n_best_of_rows_and_lines(checkpoint, translate, files):
    words = ["--sentences", "en", "--n_best", "2", "--num_beams", "2"]
    translate(*words, "--input_file", "b.txt", "c.jsonl", "--output_dir", "out")

    rows = [json.loads(line)["translation"] for line in (files / "out" / "c.jsonl").read_text().splitlines()]
    assert [row and len(row) for row in rows] == [2, None, 2]
    assert rows[0][0] == translate_lines(tiny_model(), tiny_tokenizer(), ["a b c"], num_beams=2)[0]
    translate(*words, "--input_file", "b.txt", "--output_file", "alone")
    assert (files / "out" / "b.txt").read_text() == (files / "alone").read_text()


def test_damaged_bytes_of_a_format(translate, files):
    (files / "a.md").write_bytes(b"# a \xff\n\nb\n")
    with pytest.raises(SystemExit, match="1"):
        translate("--documents", "en", "--input_file", "a.md", "--output_dir", "out")
    translate("--documents", "en", "--errors", "replace", "--input_file", "a.md", "--output_dir", "out")
    translate("--documents", "en", "--errors", "replace", "--input_file", "a.md", "--output_file", "b.md")
    assert (files / "out" / "a.md").read_bytes() == (files / "b.md").read_bytes()


@pytest.mark.slow
def test_two_processes_of_all_kinds(checkpoint, files):
    words = ["--model", checkpoint, "--device", "cpu", "--documents", "en"]
    for name, options in {
        "folder": ["--input_file", *TEXTS, "--output_dir", "{}", "--report_file", "{}.jsonl"],
        "page": ["--input_file", "a.md", "--output_file", "{}", "--report_file", "{}.jsonl"],
    }.items():
        log = files / "log"
        one, two = ([*words, *(word.format(f"{name}{number}") for word in options)] for number in (1, 2))
        assert run("translate", one, log) == 0, log.read_text()
        assert run_both("translate", two, log) == [0, 0], log.read_text()
        assert outputs(files / f"{name}1") == outputs(files / f"{name}2")
        assert (files / f"{name}1.jsonl").read_text() == (files / f"{name}2.jsonl").read_text()


def outputs(path):
    if path.is_file():
        return path.read_bytes()
    return {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (DOCUMENT, {"n_best": 2}, "--n_best is for lines of text, and a.md is Markdown"),
        (DOCUMENT, {"interactive": True}, "--interactive is for lines of text"),
        (DOCUMENT, {"sentences": "en"}, "--sentences is for lines of text"),
        (ROWS, {"errors": "replace"}, "whose columns have types"),
        (ROWS, {"format": "lines"}, "--format is for text"),
    ],
)
def test_what_does_not_go_with_a_kind(kind, options, words):
    with pytest.raises(UserError, match=words):
        Job(**options).check_kind(kind, "a.md is Markdown")
    Job(**options).check_kind(LINES, "a.txt has lines")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"documents": "en", "n_best": 2}, "--n_best is for lines"),
        ({"in_folder": True, "alignments": "a"}, "--alignments is for one input"),
        ({"in_folder": True, "interactive": True}, "--interactive is for one input"),
        ({"keep": "("}, "keep"),
        ({"sentences": "xx"}, "no language"),
    ],
)
def test_what_does_not_go_together(options, words):
    with pytest.raises(UserError, match=words):
        Job(**options).check()


def test_what_is_of_another_input_is_not_continued(files, monkeypatch):
    """Two runs over parts of a folder do not take each other's unfinished outputs."""
    for folder in ("one", "two"):
        (files / folder).mkdir()
        (files / folder / "a.md").write_text("a\n")

    class Stops(UpperCase):
        def decode_batches(self, *arguments, **options):
            raise KeyboardInterrupt

    def into_folder(path, load):
        return translate_files(Job(documents="en"), output_paths([path], files / "out"), files / "out", load=load)

    with pytest.raises(KeyboardInterrupt):
        into_folder(files / "one" / "a.md", Stops)
    unfinished = files / "out" / ".records" / "a.md.unfinished"
    unfinished.mkdir(exist_ok=True)
    (unfinished / "state.json").write_text(
        json.dumps({"settings": {"format": "markdown", "input": "../one/a.md"}, "input_lines": 0, "lines": 0})
    )
    (unfinished / "lines").touch()

    [error] = into_folder(files / "two" / "a.md", UpperCase).errors

    assert "is of an interrupted run with another" in error
    assert "input" in error


@pytest.mark.parametrize("name", ["out/.unfinished", "out/a.md.unfinished"])
def test_what_an_earlier_version_left_is_refused(files, name):
    (files / name).mkdir(parents=True)
    outputs = output_paths([files / "a.md"], files / "out")
    [error] = translate_files(Job(documents="en"), outputs, files / "out", load=UpperCase).errors
    assert "is of an interrupted run of an earlier version. Delete it to start again." in error


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_run_that_was_killed_between_its_record_and_its_output(files, is_moved):
    outputs = output_paths([files / "a.md"], files / "out")
    translate_files(Job(documents="en"), outputs, files / "out", load=UpperCase)
    output = files / "out" / "a.md"
    expected = output.read_bytes()
    unfinished = files / "out" / ".records" / "a.md.unfinished"
    unfinished.mkdir()
    (unfinished / "lines").write_bytes(b"x")
    if not is_moved:
        output.rename(unfinished / "whole.md")

    outcome = translate_files(Job(documents="en"), outputs, files / "out", load=None)

    assert outcome.num_complete_before == 1
    assert output.read_bytes() == expected
    assert not unfinished.exists()
