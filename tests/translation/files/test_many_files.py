"""Many files in one command: each has an output by its own format, in the folders of its input."""

import gzip
import json
from pathlib import Path

import pytest
from stand_in_translator import UpperCase, Writes
from tiny_marian import save_tiny_marian

from hf_capsule_mt.cli import translate as command
from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files import run as run_module
from hf_capsule_mt.translation.files import sources, translate_file
from hf_capsule_mt.translation.files.job import Job
from hf_capsule_mt.translation.files.journal import Journal
from hf_capsule_mt.translation.files.output_folders import RECORDS, OutputName, TranslatedFile, output_paths
from hf_capsule_mt.translation.files.run import translate_files
from hf_capsule_mt.translation.generation.model_options import DecodingOptions

CATALOGUE = """msgid "a %s"
msgstr ""

msgid "%d dog"
msgid_plural "%d dogs"
msgstr[0] ""
msgstr[1] ""
"""
FILES = {
    "README.md": "# a dog\n\nA **dog** [b](c.md).\n",
    "docs/a/notes.txt": "  a b\nc.\n\n1 2\n\n\td e. F g.\r\n",
    "docs/page.html.gz": gzip.compress(b"<p>a <b>dog</b></p>"),
    "locale/de.po": CATALOGUE,
}
OUTPUTS = {
    "README.md": b"# A DOG\n\nA **DOG** [B](c.md).\n",
    "docs/a/notes.txt": b"  A B C.\n\n1 2\n\n\tD E. F G.\r\n",
    "docs/page.html.gz": b"<p>A <b>DOG</b></p>",
    "locale/de.po": CATALOGUE.replace('msgstr ""', 'msgstr "A %s"')
    .replace('[0] ""', '[0] "%d DOG"')
    .replace('[1] ""', '[1] "%d DOGS"')
    .replace("msgid ", "#, fuzzy\nmsgid ")
    .encode(),
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with files of several formats, which is the current one."""
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        write(name, content)
    return tmp_path


def write(name, content):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path):
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


def outputs(folder="out"):
    paths = [path for path in Path(folder).rglob("*") if path.is_file() and ".records" not in path.parts]
    return {str(path.relative_to(folder)): read(path) for path in paths}


class Loader:
    """Loads a stand-in for a model. `sentences` are those that it read since it was asked last."""

    def __init__(self, translator=None):
        self.translator = translator or UpperCase()
        self.count = 0

    def __call__(self):
        self.count += 1
        return self.translator

    def sentences(self):
        seen = list(self.translator.seen)
        self.translator.seen.clear()
        return seen


def translate(load, *names, language="en", **options):
    paths = output_paths([Path(name) for name in names or FILES], Path("out"))
    return translate_files(Job(documents=language, **options), paths, Path("out"), load=load)


def test_each_file_by_its_format_in_its_folder(project):
    load = Loader()
    outcome = translate(load)
    assert outputs() == OUTPUTS
    assert load.count == 1
    assert outcome.errors == []
    assert {str(path): tuple(file[:3]) for path, file in outcome.files.items()} == {
        "README.md": (2, [], {}),
        "docs/a/notes.txt": (2, [], {}),
        "docs/page.html.gz": (1, [], {}),
        "locale/de.po": (2, [], {}),
    }


def test_a_second_run_does_what_is_left(project):
    load = Loader()
    translate(load, "README.md", "locale/de.po")
    load.sentences()
    outcome = translate(load)
    assert sorted(load.sentences()) == ["a b c.", "a dog", "d e. F g."]
    assert outcome.num_complete_before == 2
    assert len(outcome.files) == 4
    assert outputs() == OUTPUTS
    translate(load)
    assert load.count == 2
    assert load.sentences() == []


def test_what_has_changed_is_translated_again(project):
    load = Loader()
    translate(load)
    load.sentences()
    write("README.md", "# b\n")
    outcome = translate(load)
    assert load.sentences() == ["b"]
    assert outcome.num_complete_before == 3
    assert outputs()["README.md"] == b"# B\n"
    # Another format, and other settings.
    outcome = translate(load, "README.md", format="lines")
    assert outputs()["README.md"] == b"# B\n"
    assert load.sentences() == ["# b"]
    assert translate(load, keep="zz").num_complete_before == 0


def test_a_changed_sentence_costs_one_sentence(project):
    load = Loader()
    write("README.md", "# a dog\n\nIt is late.\n\nA cat.\n")
    translate(load, "README.md")
    load.sentences()
    write("README.md", "A cat.\n\n# a new dog\n\nIt is late.\n")

    outcome = translate(load, "README.md")

    assert load.sentences() == ["a new dog"]
    assert outcome.files[Path("README.md")].new == 1
    assert outputs()["README.md"] == b"A CAT.\n\n# A NEW DOG\n\nIT IS LATE.\n"
    # Other settings make other translations.
    translate(load, "README.md", keep="zz")
    assert sorted(load.sentences()) == ["A cat.", "It is late.", "a new dog"]
    write("README.md", "A cat.\n\nb\n")
    translate(load, "README.md")
    assert sorted(load.sentences()) == ["A cat.", "b"]


def test_a_changed_term_costs_the_sentences_that_have_it(project, run, engine_calls):
    write("a.md", "a b\n\nc d\n\ne f\n")
    write("terms.tsv", "a\tx\nc\ty\n")
    assert ". New: 3. " in run("a.md", "--glossary", "terms.tsv").out
    write("terms.tsv", "a\tx\nc\tz\n")
    assert ". New: 1. " in run("a.md", "--glossary", "terms.tsv").out


def test_a_report_of_known_texts(project, run):
    """Texts that were translated without a report are read again for it, and only once."""
    names = ["README.md", "docs/a/notes.txt"]
    run(*names, "--report_file", "whole.jsonl")
    write("README.md", "# a dog\n\nNew.\n")
    changed = run(*names, "--report_file", "report.jsonl")
    assert ". New: 1. " in changed.out
    whole = [json.loads(line) for line in Path("whole.jsonl").read_text().splitlines()]
    report = [json.loads(line) for line in Path("report.jsonl").read_text().splitlines()]
    assert report[0] == whole[0]
    assert report[2:] == whole[2:]


def test_fuzzy_messages(project):
    load = Loader()
    translate(load)
    Path("out/locale/de.po").replace("locale/de.po")
    assert translate(load).files[Path("locale/de.po")][:3] == (0, [], {"fuzzy": [1, 5]})
    load.sentences()
    outcome = translate(load, fuzzy=True)
    # Only catalogues and XLIFF have such messages.
    assert outcome.num_complete_before == 3
    assert load.sentences() == ["a %s", "%d dog", "%d dogs"]


def test_a_corrected_output_stays(project):
    load = Loader()
    translate(load)
    write("out/README.md", "# My dog\n")
    assert translate(load).errors == []
    write("README.md", "# b\n")
    write("docs/a/notes.txt", "b\n")
    outcome = translate(load, keep="zz")
    [error] = outcome.errors
    assert error.startswith("out/README.md was changed after it was translated, and now keep, README.md is another.")
    assert outputs()["README.md"] == b"# My dog\n"
    # The others are not held up.
    assert outputs()["docs/a/notes.txt"] == b"B\n"
    Path("out/README.md").unlink()
    assert translate(load, keep="zz").errors == []
    assert outputs()["README.md"] == b"# B\n"


def test_another_file_is_not_overwritten(project):
    write("out/README.md", "mine")
    outcome = translate(Loader())
    [error] = outcome.errors
    assert error.startswith("out/README.md is there, and has no record that this command wrote it.")
    assert outputs()["README.md"] == b"mine"
    assert len(outcome.files) == 3


def test_wrong_files_stop_nothing(project, monkeypatch):
    write("docs/latin.txt", b"caf\xe9\n")
    write("docs/letter.pdf", "%PDF-1.7")
    write("docs/x.md.xz", b"")
    write("docs/bad.xlf", "<xliff")
    write("rows.jsonl", '{"text": 1}')
    wrong = ["docs/latin.txt", "docs/letter.pdf", "docs/x.md.xz", "docs/bad.xlf", "rows.jsonl"]
    outcome = translate(Loader(), *wrong, *FILES)
    assert outputs() == OUTPUTS
    assert len(outcome.errors) == 5
    assert all(any(name in error for error in outcome.errors) for name in wrong)


def test_an_error_while_a_file_is_translated(project, monkeypatch):
    written = run_module._translate_into_folder

    def failing(file, *arguments):
        if file.path.name == "README.md":
            raise OSError(28, "No space left on device", "out/README.md")
        return written(file, *arguments)

    monkeypatch.setattr(run_module, "_translate_into_folder", failing)
    outcome = translate(Loader())
    assert len(outcome.files) == 3
    assert "No space left" in outcome.errors[0]


def test_an_interrupted_file_continues(project, monkeypatch):
    monkeypatch.setattr(sources, "_GROUP", 1)
    append = Journal.append

    def stopping(kept, items, source, *arguments):
        append(kept, items, source, *arguments)
        if "dog" in source[0] and "b" not in source[0]:
            raise KeyboardInterrupt

    load = Loader()
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", stopping)
        with pytest.raises(KeyboardInterrupt):
            translate(load)
    assert load.sentences() == ["a dog"]
    assert Path("out/.records/README.md.unfinished").is_dir()
    assert outputs().keys() & OUTPUTS.keys() == set()
    translate(load)
    assert load.sentences()[0] == "A dog b."
    assert outputs() == OUTPUTS


def test_units_that_stay_are_counted_where_they_are(project):
    page = translate(Loader(Writes("")), "README.md", "docs/page.html.gz")
    assert page.files[Path("README.md")][:3] == (2, [3], {})
    catalogue = translate(Loader(Writes("%s")), "README.md", "locale/de.po")
    assert catalogue.files[Path("locale/de.po")][:3] == (2, [4], {})
    # Also those of an earlier run.
    again = translate(Loader(), "README.md", "locale/de.po").files
    assert {path: file[:4] for path, file in again.items()} == {
        path: file[:4] for path, file in catalogue.files.items()
    }
    assert catalogue.files[Path("README.md")][:4] == page.files[Path("README.md")][:4]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["docs/a/notes.txt"], ["out/notes.txt"]),
        (["docs/a/notes.txt", "docs/page.html.gz"], ["out/a/notes.txt", "out/page.html.gz"]),
        (["README.md", "./docs/../README.md"], ["out/README.md"]),
        (["docs/a/notes.txt", "locale/de.po"], ["out/docs/a/notes.txt", "out/locale/de.po"]),
    ],
)
def test_outputs_keep_the_folders_behind_the_common_one(project, names, expected):
    assert [str(path) for path in output_paths(list(map(Path, names)), Path("out")).values()] == expected


def test_a_run_over_a_part_finds_its_outputs(project):
    write("docs/index.md", "# a\n")
    write("docs/api/index.md", "# b\n")
    translate(Loader(), "docs/index.md", "docs/api/index.md")
    write("docs/api/index.md", "# c\n")
    write("docs/api/new.md", "# d\n")

    outcome = translate(Loader(), "docs/api/index.md", "docs/api/new.md")

    assert outcome.errors == []
    assert outputs() == {"index.md": b"# A\n", "api/index.md": b"# C\n", "api/new.md": b"# D\n"}
    record = json.loads(Path("out/.records/api/new.md.json").read_text())
    assert record["input"] == "../docs/api/new.md"


def test_outputs_of_a_part_do_not_move(project):
    """Corrections in them would be left behind."""
    write("docs/api/index.md", "# b\n")
    translate(Loader(), "docs/api/index.md")
    with pytest.raises(UserError, match=r"--output_dir out has the files of .*/docs/api\."):
        translate(Loader(), "README.md", "docs/api/index.md")
    # Nothing is where they were.
    Path("out/index.md").unlink()
    translate(Loader(), "README.md", "docs/api/index.md")
    assert sorted(outputs()) == ["README.md", "docs/api/index.md"]


def test_an_output_of_another_input_is_refused_by_name(project):
    for folder in ("one", "two"):
        write(f"{folder}/index.md", f"# {folder}\n")
        write(f"{folder}/{folder}.md", "# a\n")
    translate(Loader(), "one/index.md", "one/one.md")
    # Files of another folder have room beside them.
    assert translate(Loader(), "two/two.md").errors == []

    [error] = translate(Loader(), "two/index.md").errors

    assert error.startswith(f"out/index.md is the translation of {project}/one/index.md, and that of two/index.md")
    assert outputs() == {"index.md": b"# ONE\n", "one.md": b"# A\n", "two.md": b"# A\n"}
    # The input was renamed.
    Path("one").rename("three")
    assert translate(Loader(), "two/index.md").errors == []
    assert outputs()["index.md"] == b"# TWO\n"


def test_a_project_and_its_outputs_may_move(project, monkeypatch):
    write("site/docs/index.md", "# a\n")
    write("site/docs/api/index.md", "# b\n")
    monkeypatch.chdir(project / "site")
    translate(Loader(), "docs/index.md", "docs/api/index.md")
    monkeypatch.chdir(project)
    Path("site").rename("page")
    monkeypatch.chdir(project / "page")
    load = Loader()
    assert translate(load, "docs/api/index.md").num_complete_before == 1
    assert load.count == 0


def test_a_record_that_does_not_name_its_input(project):
    translate(Loader(), "README.md")
    record_file = Path("out/.records/README.md.json")
    record = json.loads(record_file.read_text())
    del record["input"]
    record_file.write_text(json.dumps(record))
    assert translate(Loader(), "README.md").num_complete_before == 1


def test_what_is_above_a_link_is_not_in_front_of_it(project):
    write("x.txt", "a\n")
    write("other/folder/y.txt", "c\n")
    write("other/x.txt", "b\n")
    Path("link").symlink_to("other/folder")
    translate(Loader(), "x.txt", "link/../x.txt")
    assert outputs() == {"x.txt": b"A\n", "other/x.txt": b"B\n"}


def test_a_name_that_records_have_is_refused(project):
    write("int8_choice", "a\n")
    with pytest.raises(UserError, match="int8_choice cannot be translated into a folder"):
        output_paths([Path("README.md"), Path("int8_choice")], Path("out"))


def test_files_among_the_outputs_are_refused(project):
    for folder in (".", "docs/.."):
        with pytest.raises(UserError, match=r"has README.md, which would be lost"):
            output_paths([Path("README.md")], Path(folder))
    assert output_paths([Path("docs/a/notes.txt")], Path(".")) == {Path("docs/a/notes.txt"): Path("notes.txt")}
    translate(Loader())
    for folder in ("out", "docs/../out"):
        with pytest.raises(UserError, match=r"out/docs/a/notes.txt is an output in --output_dir"):
            output_paths([Path("README.md"), Path("out/docs/a/notes.txt")], Path(folder))
    write(".records/a.md", "a")
    with pytest.raises(UserError, match="is for records"):
        output_paths([Path("README.md"), Path(".records/a.md")], Path("out"))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("{name}", ["docs/a/notes.txt", "docs/page.html.gz", "README.md"]),
        ("{stem}.{lang}{suffix}", ["docs/a/notes.de.txt", "docs/page.de.html.gz", "README.de.md"]),
        ("values-{lang}/{name}", ["docs/values-de/notes.txt", "values-de/page.html.gz", "values-de/README.md"]),
    ],
)
def test_names_with_the_language(project, pattern, expected):
    paths = [Path(name) for name in ("docs/a/notes.txt", "docs/page.html.gz", "README.md")]
    found = output_paths(paths, Path("out"), OutputName(pattern, "de"))
    assert [path.relative_to("out").as_posix() for path in found.values()] == expected


def test_renamed_outputs_are_found_again(project):
    """By a run over a part of the files too."""
    name = OutputName("{stem}.{lang}{suffix}", "de")
    paths = [Path("docs/a/notes.txt"), Path("README.md")]
    first = output_paths(paths, Path("out"), name)
    translate_files(Job(documents="en"), first, Path("out"), load=Loader())

    part = output_paths(paths[:1], Path("out"), name)

    assert part == {paths[0]: Path("out/docs/a/notes.de.txt")}
    assert translate_files(Job(documents="en"), part, Path("out"), load=Loader()).num_complete_before == 1


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("{language}/{name}", "cannot be read"),
        ("{name", "cannot be read"),
        ("{lang}/{name}", "needs --target_lang"),
        ("../{name}", "leaves the output folder"),
        ("/tmp/{name}", "leaves the output folder"),
        ("{stem}.de", "must end as the input does"),
    ],
)
def test_names_that_are_refused(pattern, words):
    with pytest.raises(UserError, match=words):
        OutputName(pattern)


def test_two_inputs_with_one_output(project):
    paths = [Path("docs/a/notes.txt"), Path("docs/b/notes.txt")]
    write("docs/b/notes.txt", "a")
    with pytest.raises(UserError, match=r"would both be written to de/notes.txt"):
        output_paths(paths, Path("out"), OutputName("de/{name}"))


def test_records_of_an_earlier_clone_are_found(project):
    """They had a folder that sites published."""
    translate(Loader())
    Path("out/.records").rename("out/_records")

    outcome = translate(Loader())

    assert outcome.num_complete_before == 4
    assert not Path("out/_records").exists()


def test_running_text_is_that_of_documents(project, tmp_path):
    model = str(save_tiny_marian(tmp_path / "model"))
    text = "a b c. d e.\nf g\n\n  h i. \r\n\r\n1 2\n\nj http://a.b/c k\u2028l\x0bm"
    write("a.txt", text)
    main(["--model", model, "--documents", "en", "--input_file", "a.txt", "--output_file", "b.txt"])
    main(["--model", model, "--documents", "en", "--input_file", "a.txt", "--output_dir", "out"])
    # Lines are written with a line end.
    assert outputs()["a.txt"] + b"\n" == Path("b.txt").read_bytes()


def test_text_in_python(project):
    assert translate_file(UpperCase(), "docs/a/notes.txt", "b.txt", "en")[:3] == (2, [], {})
    assert Path("b.txt").read_bytes() == OUTPUTS["docs/a/notes.txt"]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """The command with a tiny model. It returns what is printed, and fails if the model is loaded twice."""
    model = str(save_tiny_marian(tmp_path / "model"))
    loaded = []
    load = DecodingOptions.load

    def counting(options, *arguments, **others):
        loaded.append(options)
        return load(options, *arguments, **others)

    monkeypatch.setattr(DecodingOptions, "load", counting)

    def translate(*words):
        loaded.clear()
        main(["--model", model, "--documents", "en", "--output_dir", "out", "--input_file", *words])
        assert len(loaded) <= 1
        return capsys.readouterr()

    return translate


def test_the_command(project, run):
    result = run("README.md", "docs/**/*", "locale/*.po", "--num_beams", "1")
    assert sorted(outputs()) == sorted(FILES)
    [line] = result.out.splitlines()
    assert line.startswith("4 of 4 files are complete. Units translated: ")
    assert line.endswith(" seconds.")
    assert "7/7 [" in result.err
    record = json.loads(Path("out/.records/docs/a/notes.txt.json").read_text())
    assert record["settings"]["num_beams"] == 1
    result = run("README.md", "docs/**/*", "locale/*.po", "--num_beams", "1")
    assert result.out.startswith("4 of 4 files are complete, 4 of them since an earlier run.")
    assert result.err == ""


def test_wrong_files_are_named_at_the_end(project, run, capsys):
    write("docs/letter.pdf", "%PDF-1.7")
    with pytest.raises(SystemExit) as exit_:
        run("README.md", "docs/*")
    assert exit_.value.code == 1
    result = capsys.readouterr()
    assert result.err.splitlines()[-1].startswith("error: docs/letter.pdf is a PDF file")
    assert result.out.startswith("2 of 3 files are complete.")


def test_a_corrected_glossary(project, run, engine_calls):
    write("terms.tsv", "dog\ta\n")
    run("README.md", "--glossary", "terms.tsv")
    first = outputs()
    write("terms.tsv", "dog\tb\n")
    assert "1 of 1 files are complete. " in run("README.md", "--glossary", "terms.tsv").out
    assert outputs() != first


def test_a_report_on_all_files(project, run):
    names = ["README.md", "docs/a/notes.txt"]
    run(*names, "--report_file", "report.jsonl")
    records = [json.loads(line) for line in Path("report.jsonl").read_text().splitlines()]
    assert [(record["file"], record["line"]) for record in records] == [
        ("README.md", 1),
        ("README.md", 3),
        ("docs/a/notes.txt", 1),
        ("docs/a/notes.txt", 6),
    ]
    first = Path("report.jsonl").read_bytes()
    Path("report.jsonl").unlink()
    # Also on files of an earlier run, whether or not another one wanted no report.
    assert "2 of them since an earlier run" in run(*names).out
    assert "2 of them since an earlier run" in run(*names, "--report_file", "report.jsonl").out
    assert Path("report.jsonl").read_bytes() == first
    write("README.md", "a b\n")
    run(*names, "--report_file", "report.jsonl")
    assert [line.count("README") for line in Path("report.jsonl").read_text().splitlines()] == [1, 0, 0]


def test_a_report_that_an_earlier_run_did_not_write(project, run):
    run("README.md")
    run("README.md", "docs/page.html.gz", "--report_file", "report.jsonl")
    assert "README.md" in Path("report.jsonl").read_text()


@pytest.mark.parametrize("kind", ["without calibration", "1f8ac10f23c5b5bc"])
def test_a_report_of_an_earlier_version_is_complete(project, run, kind):
    """Its record named the calibration of the report."""
    run("README.md", "--report_file", "report.jsonl")
    record_file = Path("out", RECORDS, "README.md.json")
    record = json.loads(record_file.read_text())
    record_file.write_text(json.dumps({**record, "report": kind}))

    printed = run("README.md", "--report_file", "report.jsonl").out

    assert "1 of them since an earlier run" in printed


def test_the_lines_of_a_page_replace_no_other_file(project, run, capsys):
    write("data.jsonl", '{"text": "mine"}\n')
    with pytest.raises(SystemExit, match="2"):
        run("README.md", "--report_page", "data.html")
    message = "--report_page data.html writes data.jsonl too, which is there and no report."
    assert message in capsys.readouterr().err
    assert Path("data.jsonl").read_text() == '{"text": "mine"}\n'
    assert not Path("out").exists()
    # Lines of an earlier report, also none.
    write("page.jsonl", "")
    for _ in range(2):
        run("README.md", "--report_page", "page.html")
        assert len(Path("page.jsonl").read_text().splitlines()) == 2


def test_the_last_line_names_units(tmp_path):
    left = list(range(1, 13))
    outcome = command.Outcome({Path("a.md"): TranslatedFile(20, left)}, num_complete_before=1)
    assert command._last_line(outcome, 2, 1.25) == (
        "1 of 2 files are complete, 1 of them since an earlier run. Units translated: 8 (0 sentences, 0 words). "
        "New: 0. Units left as they were: 12 (lost marks: 12), in a.md:1, a.md:2, a.md:3, a.md:4, a.md:5, a.md:6, "
        "a.md:7, a.md:8, a.md:9, a.md:10 and others. 1.2 seconds."
    )


def test_the_last_line_names_reasons(project):
    """Also those of files that an earlier run has translated."""
    write("a.md", "---\nlayout: a dog\n---\n\nIt is late.\n\n<!-- a comment -->\n")
    write("b.md", "![a](b.png 'a dog')\n\n<!-- a comment -->\n")
    load = Loader()
    units = "Units translated: 3 (2 sentences, 4 words)"
    for beginning in (
        f"2 of 2 files are complete. {units}. New: 3.",
        f"2 of 2 files are complete, 2 of them since an earlier run. {units}. New: 0.",
    ):
        outcome = translate(load, "a.md", "b.md")
        assert command._last_line(outcome, 2, 1.25) == (
            f"{beginning} Units left as they were: 4 (front matter: 1, comments: 2, link titles: 1), in a.md:1, "
            "a.md:7, b.md:1, b.md:3. 1.2 seconds."
        )
    assert load.count == 1


MISTAKES = {
    "a folder": (["docs"], [], "docs is a folder. Name its files, such as 'docs/**/*.md'"),
    "no file": (["docs/none.md"], [], "there is no file docs/none.md"),
    "no match": (["docs/*.rst"], [], "docs/*.rst matches no file"),
    "an output": (["README.md"], ["--output_file", "x"], "leave out --output_file"),
    "alignments": (["README.md"], ["--alignments", "x"], "--alignments is for one input"),
    "interactive": (["README.md"], ["--interactive"], "--interactive is for one input"),
    "a column": (["README.md"], ["--text_column", "words"], "--text_column is for rows"),
    "a report that is an input": (["README.md"], ["--report_file", "README.md"], "another file of this command"),
    "a report that is an output": (["README.md"], ["--report_file", "out/README.md"], "does not exist"),
    "an expression": (["README.md"], ["--keep", "("], "keep"),
}


@pytest.mark.parametrize(("names", "options", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(project, run, capsys, names, options, words):
    with pytest.raises(SystemExit, match="2"):
        run(*names, *options)
    assert words in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_language_that_there_is_not(project):
    load = Loader()
    with pytest.raises(UserError, match="'xx' is no language"):
        translate(load, "README.md", language="xx")
    assert load.count == 0


def test_a_model_that_needs_a_language_is_refused_once(project):
    with pytest.raises(UserError, match="the model has one source language"):
        translate(Loader(), source_lang="en")
