"""Several files of plain text in one command: each has an output of its own, and is finished to the byte."""

import gzip
import json

import pyarrow as pa
import pytest
from tiny_marian import save_tiny_marian

from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.translation.files.journal import Journal

LINES = [
    "a b c",
    "",
    "d e. f g",
    "  q a b ",
    "1 2\r",
    "\u2028",
    *(f"{letter} a b c" for letter in "defghijklmnop"),
    "a b c",
    "",
]
TEXT = "".join(f"{line}\n" for line in LINES).encode()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_tiny_marian(tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """The same lines three times, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.en").write_bytes(TEXT)
    (tmp_path / "b.en.gz").write_bytes(gzip.compress(TEXT))
    with pa.output_stream("c.en.zst", compression="zstd") as stream:
        stream.write(TEXT)
    return tmp_path


@pytest.fixture
def translate(checkpoint):
    # Windows are smaller than a file.
    return lambda *words: main(["--model", checkpoint, "--device", "cpu", "--chunk_size", "5", *words])


@pytest.fixture
def several(translate):
    """Translates the three files into a folder."""
    return lambda output, *words: translate(
        "--input_file", "a.en", "b.en.gz", "c.en.zst", "--output_dir", output, *words
    )


def outputs(folder):
    left = {path.name for path in folder.iterdir() if path.is_dir()}
    assert left == {".records"}
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


@pytest.mark.parametrize("options", [[], ["--sentences", "en"]], ids=["lines", "sentences"])
def test_an_output_is_that_of_the_file_by_itself(translate, several, files, options):
    several("out", *options)
    translate("--input_file", "a.en", "--output_file", "alone", *options)
    alone = (files / "alone").read_text().split("\n")
    new = outputs(files / "out")
    assert list(new) == ["a.en", "b.en.gz", "c.en.zst"]
    lines = new["a.en"].decode().split("\n")
    assert len(lines) == len(LINES) + 1
    assert [line.strip() for line in lines] == [line.strip() for line in alone]
    # Of a file by itself, only sentences keep the white space around them.
    assert lines[3] == f"  {lines[3].strip()} "
    assert gzip.decompress(new["b.en.gz"]) == new["a.en"]
    with pa.input_stream(str(files / "out" / "c.en.zst"), compression="zstd") as stream:
        assert stream.read() == new["a.en"]
    record = json.loads((files / "out" / ".records" / "c.en.zst.json").read_text())
    assert record["units"] == len(LINES)


def test_shares_and_what_is_complete(several, files, engine_calls):
    several("whole")
    several("shared", "--part", "2/2")
    assert list(outputs(files / "shared")) == ["b.en.gz"]
    several("shared", "--part", "1/2")
    assert outputs(files / "shared") == outputs(files / "whole")
    engine_calls.clear()
    several("shared")
    assert not engine_calls


def test_a_changed_line_of_the_same_length_is_noticed(several, files, capsys):
    several("out")
    before = outputs(files / "out")
    (files / "a.en").write_bytes(TEXT.replace(b"a b c", b"a b d"))

    with pytest.raises(SystemExit, match="1"):
        several("out")

    assert "out/a.en was translated with another a.en." in capsys.readouterr().err
    assert outputs(files / "out") == before


def test_folders_stay(translate, files):
    (files / "other" / "more").mkdir(parents=True)
    (files / "other" / "more" / "a.en").write_bytes(TEXT)
    translate("--input_file", "**/a.en", "--output_dir", "out")
    assert sorted(path.name for path in (files / "out").iterdir()) == [".records", "a.en", "other"]
    assert (files / "out" / "other" / "more" / "a.en").read_bytes() == (files / "out" / "a.en").read_bytes()
    assert (files / "out" / ".records" / "other" / "more" / "a.en.json").is_file()


def test_a_run_over_a_part_finds_its_outputs(translate, files, engine_calls):
    (files / "other").mkdir()
    (files / "other" / "a.en").write_bytes(TEXT)
    translate("--input_file", "a.en", "other/a.en", "--output_dir", "out")
    engine_calls.clear()
    translate("--input_file", "other/a.en", "--output_dir", "out")
    assert not engine_calls
    assert json.loads((files / "out" / ".records" / "other" / "a.en.json").read_text())["input"] == "../other/a.en"


def test_an_output_of_another_input_is_refused_by_name(translate, files, capsys):
    for folder in ("one", "two"):
        (files / folder).mkdir()
        (files / folder / "a.en").write_bytes(TEXT)
    translate("--input_file", "one/a.en", "--output_dir", "out")
    with pytest.raises(SystemExit, match="1"):
        translate("--input_file", "two/a.en", "--output_dir", "out")
    assert f"out/a.en is the translation of {files}/one/a.en" in capsys.readouterr().err


def test_an_interrupted_file_continues(several, files, engine_calls, monkeypatch):
    several("whole")
    whole = len(engine_calls)
    engine_calls.clear()
    append, parts = Journal.append, []

    def stopping_in_the_second_file(self, *arguments):
        if self.folder.name == "b.en.gz.unfinished" and self.items == 10:
            raise KeyboardInterrupt
        parts.append(arguments)
        append(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", stopping_in_the_second_file)
        with pytest.raises(SystemExit, match="130"):
            several("out")
    assert sorted(path.name for path in (files / "out").iterdir()) == [".records", "a.en"]
    assert len(parts) > 4
    several("out")
    assert outputs(files / "out") == outputs(files / "whole")
    # The window that was not kept is decoded again.
    assert len(engine_calls) == whole + 1


def test_a_file_without_lines(translate, files):
    (files / "empty.en").touch()
    (files / "no_end.en").write_bytes(b"a b c")
    translate("--input_file", "empty.en", "no_end.en", "--output_dir", "out")
    new = outputs(files / "out")
    assert new["empty.en"] == b""
    assert new["no_end.en"].count(b"\n") == 1


MISTAKES = {
    "Markdown": (["a.en", "m.md"], [], "m.md is Markdown"),
    "Markdown with tags": (["a.en", "m.md"], ["--tags"], "m.md is Markdown"),
    "a named format": (["a.en"], ["--format", "html"], "a.en is HTML"),
    "no text": (["a.en", "code.py"], [], "code.py is of no format that is supported"),
    "pairs": (["a.en", "p.tsv"], [], "p.tsv is of no format that is supported"),
    "a compression": (["a.en", "x.en.xz"], [], "x.en.xz: only .gz and .zst are written compressed"),
    "UTF-8": (["latin.en"], [], "latin.en:2: not UTF-8"),
}


@pytest.mark.parametrize(("names", "options", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(translate, files, capsys, names, options, words):
    (files / "other").mkdir()
    (files / "other" / "a.en").write_bytes(TEXT)
    (files / "r.jsonl").write_text('{"text": "a b c"}\n')
    (files / "m.md").write_text("# a b c\n")
    (files / "code.py").write_text("import a\n")
    (files / "p.tsv").write_text("a\tb\n")
    (files / "x.en.xz").touch()
    (files / "latin.en").write_bytes(b"a b c\n\xff\n")
    with pytest.raises(SystemExit, match="1"):
        translate("--input_file", *names, "--output_dir", "out", *options)
    assert words in capsys.readouterr().err.splitlines()[-1]
    assert not (files / "out" / names[-1]).exists()


@pytest.mark.parametrize("option", ["--text_column", "--report_column"])
def test_options_for_rows_where_there_are_none(translate, files, capsys, option):
    with pytest.raises(SystemExit, match="2"):
        translate("--input_file", "a.en", "--output_dir", "out", option, "words")
    assert f"{option} is for rows, and no file has any" in capsys.readouterr().err
    assert not (files / "out").exists()


def test_without_a_folder(translate, capsys):
    with pytest.raises(SystemExit, match="2"):
        translate("--input_file", "a.en", "b.en.gz", "--output_file", "out.de")
    assert "Give --output_dir for their outputs" in capsys.readouterr().err
