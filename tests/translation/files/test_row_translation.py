"""Rows in the command `translate`: formats, shares, and what goes on after an interruption, to the byte."""

import codecs
import gzip
import hashlib
import json
import shutil
import signal
import time
from itertools import count

import psutil
import pyarrow as pa
import pytest
from forked_commands import end, run, run_both, start
from pyarrow import parquet
from tiny_marian import save_tiny_marian, tiny_model, tiny_tokenizer
from translated_lines import translate_lines

from hf_capsule_mt.cli.translate import main
from hf_capsule_mt.data import row_formats
from hf_capsule_mt.decoding.products import int8
from hf_capsule_mt.translation.files import job as job_module
from hf_capsule_mt.translation.files.sinks import RowsSink

TEXTS = ["a b c", None, "d e\n\nf g", "", *(f"{letter} a b c\nq {letter}" for letter in "defghijklmnop"), "a b c"]
ROWS = [{"id": f"<{number}>", "text": text, "score": number / 3} for number, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_tiny_marian(tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(scope="module")
def expected():
    lines = sorted({line for text in TEXTS if text for line in text.split("\n")})
    translations = dict(zip(lines, translate_lines(tiny_model(), tiny_tokenizer(), lines)))
    joined = ["\n".join(translations.get(line, "") for line in (text or "").split("\n")) for text in TEXTS]
    return [None if text is None else line for text, line in zip(TEXTS, joined)]


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


@pytest.fixture
def folder(tmp_path):
    """Files of each format with the same rows."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(jsonl(ROWS))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(jsonl(ROWS)))
    with pa.output_stream(str(folder / "c.jsonl.zst"), compression="zstd") as stream:
        stream.write(jsonl(ROWS))
    parquet.write_table(pa.Table.from_pylist(ROWS), folder / "d.parquet", compression="gzip")
    return folder


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """A file has several parts."""
    monkeypatch.setattr(row_formats, "PART_SIZE", 30)
    monkeypatch.setattr(job_module, "PART_SIZE", 30)


def words_of(checkpoint, folder, output, *options):
    files = sorted(map(str, folder.iterdir()))
    return ["--model", checkpoint, "--device", "cpu", "--input_file", *files, "--output_dir", str(output), *options]


def translate(checkpoint, folder, output, *options):
    main(words_of(checkpoint, folder, output, *options))


def rows_of(path):
    if path.suffix == ".parquet":
        return parquet.read_table(path).to_pylist()
    with pa.input_stream(str(path)) as stream:
        return [json.loads(line) for line in stream.read().splitlines()]


def hashes(output):
    """Of the outputs. Everything else that is left must be records."""
    left = {path.name for path in output.iterdir() if path.is_dir()}
    assert left == {".records"}
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in output.iterdir() if path.is_file()}


def test_rows_stay_and_get_a_translation(checkpoint, folder, tmp_path, expected, capsys):
    output = tmp_path / "out"
    translate(checkpoint, folder, output)
    # Those of all files.
    assert "4 of 4 files are complete. Units translated: 72 (120 sentences, " in capsys.readouterr().out
    new = [{**row, "translation": translation} for row, translation in zip(ROWS, expected)]
    assert len(hashes(output)) == 4
    for name in hashes(output):
        assert rows_of(output / name) == new, name
    file = parquet.ParquetFile(output / "d.parquet")
    assert file.metadata.row_group(0).column(0).compression == "GZIP"
    assert file.metadata.num_row_groups > 2
    assert file.schema_arrow.field("score").type == pa.float64()
    record = json.loads((output / ".records" / "d.parquet.json").read_text())
    assert record["units"] == len(ROWS)
    assert record["counts"]["segments"] == 30
    assert record["words_per_second"] > 0
    assert record["input_sha256"] == hashlib.sha256((folder / "d.parquet").read_bytes()).hexdigest()
    assert record["output_sha256"] == hashes(output)["d.parquet"]


def test_the_bytes_of_other_keys_stay(checkpoint, tmp_path):
    """A reader of JSON would change these numbers, and keep one of two equal keys."""
    line = b'{ "n": 1e400, "id": 12345678901234567890123, "x": 1.10, "x": 2, "text": "a \\ud800\\u0062",  "y":[ ] }'
    (tmp_path / "in").mkdir()
    # Blank lines are no rows, also with a byte order mark.
    mark = codecs.BOM_UTF8
    (tmp_path / "in" / "a.jsonl").write_bytes(mark + line + b" \r\n\n" + line)
    (tmp_path / "in" / "b.jsonl").write_bytes(mark + b"\r\n" + line)
    translate(checkpoint, tmp_path / "in", tmp_path / "out")
    first, second, end = (tmp_path / "out" / "a.jsonl").read_bytes().split(b"\n")
    assert first == mark + second + b" \r"
    assert second.startswith(line.removesuffix(b" }") + b', "translation": "')
    assert second.endswith(b'"}')
    assert end == b""
    assert (tmp_path / "out" / "b.jsonl").read_bytes() == second + b"\n"


def test_a_column_of_numbers(checkpoint, folder, tmp_path):
    translate(checkpoint, folder, tmp_path / "out", "--report_column", "report")
    for path in (tmp_path / "out").glob("[!.]*.*"):
        reports = [row["report"] for row in rows_of(path)]
        assert [report["segments"] for report in reports[:5]] == [1, 0, 2, 0, 2]


def test_a_page_of_rows(checkpoint, folder, tmp_path):
    page = tmp_path / "rows.html"
    translate(checkpoint, folder, tmp_path / "out", "--report_column", "report", "--report_page", str(page))
    records = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    lines = [line for text in TEXTS if text for line in text.split("\n") if line]
    assert len(records) == 4 * len(lines)
    for path in sorted(folder.iterdir()):
        of_file = [record for record in records if record["file"] == str(path)]
        assert [record["source"] for record in of_file] == lines
        for number, row in enumerate(rows_of(tmp_path / "out" / path.name), 1):
            of_row = [record for record in of_file if record["line"] == number]
            assert [record["sentence"] for record in of_row] == [*range(1, len(of_row) + 1)]
            written = [line for line in (row["translation"] or "").split("\n") if line]
            assert [record["translation"] for record in of_row if record["translation"]] == written
            assert sum(record["limit_reached"] for record in of_row) == row["report"]["limit_reached"]
    assert any(record["limit_reached"] for record in records)
    assert records[0]["source"] in page.read_text()


def test_half_of_a_character_in_a_report(checkpoint, tmp_path):
    """JSON can spell it, and UTF-8 cannot. The row keeps its bytes, and the report has what the model has read."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(b'{"text": "a \\ud83d b"}\n')
    page = tmp_path / "rows.html"

    translate(checkpoint, tmp_path / "in", tmp_path / "out", "--report_column", "report", "--report_page", str(page))

    [record] = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert record["source"] == "a \ufffd b"
    assert record["source"] in page.read_text()
    assert (tmp_path / "out" / "a.jsonl").read_bytes().startswith(b'{"text": "a \\ud83d b"')


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst", "a.parquet"])
def test_a_file_without_rows(checkpoint, tmp_path, name):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / name
    if name == "a.jsonl":
        path.touch()
    elif name == "a.jsonl.zst":
        pa.output_stream(str(path), compression="zstd").close()
    else:
        parquet.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    translate(checkpoint, tmp_path / "in", tmp_path / "out", "--report_column", "report")
    assert rows_of(tmp_path / "out" / name) == []
    if name == "a.parquet":
        assert parquet.read_schema(tmp_path / "out" / name).names == ["text", "translation", "report"]


def test_what_is_complete_is_skipped(checkpoint, folder, tmp_path, engine_calls):
    output = tmp_path / "out"
    translate(checkpoint, folder, output)
    before = hashes(output)
    (output / "d.parquet").unlink()
    engine_calls.clear()
    translate(checkpoint, folder, output)
    assert hashes(output) == before
    again = len(engine_calls)
    translate(checkpoint, folder, output)
    assert len(engine_calls) == again > 0
    # A run that was killed at its end has left its parts.
    parts = output / ".records" / "a.jsonl.unfinished"
    parts.mkdir()
    (parts / "lines").write_bytes(b"a")
    translate(checkpoint, folder, output)
    assert hashes(output) == before
    assert len(engine_calls) == again
    assert not parts.exists()


def test_shares_of_the_files(checkpoint, folder, tmp_path):
    translate(checkpoint, folder, tmp_path / "whole")
    for part, names in (("1/3", ["a.jsonl", "d.parquet"]), ("2/3", ["b.jsonl.gz"]), ("3/3", ["c.jsonl.zst"])):
        translate(checkpoint, folder, tmp_path / part[0], "--part", part)
        assert sorted(hashes(tmp_path / part[0])) == names
        translate(checkpoint, folder, tmp_path / "shared", "--part", part)
    assert hashes(tmp_path / "shared") == hashes(tmp_path / "whole")


@pytest.mark.skipif(not int8._int8_backends(), reason="this machine has no product in int8")
def test_all_shares_have_the_same_int8_products(checkpoint, folder, tmp_path, monkeypatch):
    """Each process times them by itself. The first one of a folder chooses."""
    for part, backend in (("1/2", int8._int8_backends()[0]), ("2/2", int8._int8_backends()[-1])):
        monkeypatch.setattr(int8, "_fastest_backend", lambda wide, many, backend=backend: backend)
        translate(checkpoint, folder, tmp_path / "out", "--dtype", "int8", "--part", part)
    records = [json.loads(path.read_text()) for path in (tmp_path / "out" / ".records").glob("*.*.json")]
    assert len(records) == 4
    for record in records:
        assert record["settings"]["int8_choice"]["many_rows"] == int8._int8_backends()[0]


@pytest.mark.slow
def test_two_processes(checkpoint, folder, tmp_path):
    log = tmp_path / "log"
    assert run("translate", words_of(checkpoint, folder, tmp_path / "one"), log) == 0, log.read_text()
    assert run_both("translate", words_of(checkpoint, folder, tmp_path / "two"), log) == [0, 0]
    assert hashes(tmp_path / "two") == hashes(tmp_path / "one")


@pytest.mark.slow
def test_killed_before_every_file_that_is_written(checkpoint, folder, tmp_path):
    """With `kill -9`, and again at the next file, until it is through."""
    log, size = tmp_path / "log", 30
    for path in folder.glob("*.*"):
        if path.name not in ("c.jsonl.zst", "d.parquet"):
            path.unlink()
    whole = run("translate", words_of(checkpoint, folder, tmp_path / "whole"), log, death=("in_small_parts", size))
    assert whole == 0, log.read_text()
    words, kills = words_of(checkpoint, folder, tmp_path / "out"), 0
    while (status := run("translate", words, log, death=("in_small_parts", size, 4))) != 0:
        assert status == -9, log.read_text()
        kills += 1
    assert kills > 3
    assert hashes(tmp_path / "out") == hashes(tmp_path / "whole")


@pytest.mark.slow
def test_killed_at_the_end_of_a_file(checkpoint, folder, tmp_path):
    """At each file that is written, in one part. No unfinished file is left."""
    for path in folder.glob("[b-d]*"):
        path.unlink()
    log, size = tmp_path / "log", 10_000
    assert run("translate", words_of(checkpoint, folder, tmp_path / "whole"), log, death=("in_small_parts", size)) == 0
    for replaces in count():
        output = tmp_path / str(replaces)
        words = words_of(checkpoint, folder, output)
        status = run("translate", words, log, death=("in_small_parts", size, replaces))
        if status == 0:
            break
        assert status == -9, log.read_text()
        assert run("translate", words, log, death=("in_small_parts", size)) == 0, log.read_text()
        assert hashes(output) == hashes(tmp_path / "whole")
        assert [path.name for path in (output / ".records").iterdir()] == ["a.jsonl.json"]
    assert replaces > 4


@pytest.mark.slow
def test_a_stopped_process_keeps_its_file_and_continues(checkpoint, folder, tmp_path):
    """Others are refused at once, and do not wait for days."""
    log, words = tmp_path / "log", words_of(checkpoint, folder, tmp_path / "out")
    whole = run("translate", words_of(checkpoint, folder, tmp_path / "whole"), log, death=("in_small_parts", 30))
    assert whole == 0, log.read_text()
    stopped = start("translate", words, log, death=("in_small_parts", 30, 5, "stop"))
    while psutil.Process(stopped.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.1)
    refused = tmp_path / "refused"
    assert run("translate", words, refused, death=("in_small_parts", 30)) == 1
    assert f"Another process works in {tmp_path / 'out' / '.records' / 'a.jsonl.unfinished'}" in refused.read_text()
    psutil.Process(stopped.pid).send_signal(signal.SIGCONT)
    assert end(stopped) == 0, log.read_text()
    assert hashes(tmp_path / "out") == hashes(tmp_path / "whole")


MISTAKES = {
    "text options": (["--output_file", "x"], "leave out --output_file"),
    "no share": (["--part", "3/2"], "3/2 is no share of the files"),
    "part 0": (["--part", "0/2"], "0/2 is no share of the files"),
    "its own folder": (["--output_dir", "in"], "which would be lost"),
}


@pytest.mark.parametrize(("options", "words"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(checkpoint, folder, tmp_path, monkeypatch, capsys, options, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        translate(checkpoint, folder, tmp_path / "out", *options)
    assert words in capsys.readouterr().err.splitlines()[-1]


FILES = {
    "UTF-8": ("a.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', "a.jsonl:2 is not UTF-8"),
    "JSON": ("a.jsonl", b'{"text": "a"}\n{"text": "b"\n', "a.jsonl:2: not JSON"),
    "a number": ("a.jsonl", b'{"text": 0}\n', "a.jsonl:1 has no text 'text'"),
    "a list": ("a.jsonl", b'["text"]\n', "a.jsonl:1 has no text 'text'"),
    "no Parquet": ("a.parquet", b"text", "a.parquet cannot be read"),
    "cut": ("a.jsonl.gz", gzip.compress(jsonl(ROWS))[:-9], "a.jsonl.gz cannot be decompressed"),
    "a format": ("a.csv", b"text\n", "a.csv is of no format that is supported"),
    "compression": ("a.jsonl.xz", b"", "rows are read from"),
}


@pytest.mark.parametrize(("name", "content", "words"), FILES.values(), ids=FILES)
def test_files_that_are_refused(checkpoint, tmp_path, capsys, name, content, words):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(content)
    with pytest.raises(SystemExit, match="1"):
        translate(checkpoint, tmp_path / "in", tmp_path / "out")
    assert words in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out" / name).exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--text_column", "words"], "'words'"),
        (["--translation_column", "id"], "has a key 'id' already"),
        (["--format", "lines"], "--format is for text"),
        (["--errors", "replace"], "whose columns have types"),
    ],
)
def test_options_that_no_file_has_room_for(checkpoint, folder, tmp_path, capsys, options, words):
    with pytest.raises(SystemExit, match="1"):
        translate(checkpoint, folder, tmp_path / "out", *options)
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 4
    assert words in errors[0]


def test_a_column_of_parquet_that_is_no_text(checkpoint, folder, tmp_path, capsys):
    (folder / "a.jsonl").unlink()
    with pytest.raises(SystemExit, match="1"):
        translate(checkpoint, folder, tmp_path / "out", "--text_column", "score")
    assert "has no text 'score'" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "out")
    for path in folder.glob("*.jsonl.*"):
        path.unlink()
    with pytest.raises(SystemExit, match="1"):
        translate(checkpoint, folder, tmp_path / "out", "--text_column", "score")
    assert "is of type double, not of text" in capsys.readouterr().err


def test_other_settings_and_other_inputs_are_not_mixed(checkpoint, folder, tmp_path, capsys, monkeypatch):
    output = tmp_path / "out"
    translate(checkpoint, folder, output)
    with pytest.raises(SystemExit, match="1"):
        translate(checkpoint, folder, output, "--num_beams", "2")
    assert "was translated with another num_beams" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        # The sentences of a part share batches.
        patch.setattr(job_module, "PART_SIZE", 40)
        with pytest.raises(SystemExit, match="1"):
            translate(checkpoint, folder, output)
    assert "was translated with another part_size" in capsys.readouterr().err
    # Another text of the same length.
    (folder / "a.jsonl").write_bytes(jsonl(ROWS).replace(b"a b c", b"a b d"))
    with pytest.raises(SystemExit, match="1"):
        translate(checkpoint, folder, output)
    assert "Delete it to translate the file again" in capsys.readouterr().err

    def interrupted(*_):
        raise KeyboardInterrupt

    shutil.rmtree(output)
    with monkeypatch.context() as patch:
        patch.setattr(RowsSink, "write", interrupted)
        with pytest.raises(SystemExit, match="130"):
            translate(checkpoint, folder, output)
    (folder / "a.jsonl").write_bytes(jsonl(ROWS[:4]))
    with pytest.raises(SystemExit, match="1"):
        translate(checkpoint, folder, output)
    assert "is of an interrupted run with another input" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: None, "a row was lost: 'a b c'"),
        (lambda text: text and text.replace("\n", " "), "line breaks were lost in 'd e"),
    ],
    ids=["a null", "a line"],
)
def test_a_translation_that_is_lost_is_a_fault(checkpoint, folder, tmp_path, monkeypatch, change, message):
    value = RowsSink._value
    monkeypatch.setattr(RowsSink, "_value", lambda self, one: change(value(self, one)))
    with pytest.raises(RuntimeError, match=message):
        translate(checkpoint, folder, tmp_path / "out")
    assert not (tmp_path / "out" / "a.jsonl").exists()


def test_a_row_that_is_lost_is_a_fault(checkpoint, folder, tmp_path, monkeypatch):
    written = row_formats.JSONLFile.new_part
    monkeypatch.setattr(row_formats.JSONLFile, "new_part", lambda self, rows, *rest: written(self, rows[:-1], *rest))
    with pytest.raises(RuntimeError, match=r"does not have the rows of .*a\.jsonl"):
        translate(checkpoint, folder, tmp_path / "out")
    assert not (tmp_path / "out" / "a.jsonl").exists()
