"""What is finished of a file stays until all of it stands."""

import gzip
import json
from pathlib import Path

import pytest

from hf_capsule_mt.translation import partial_output
from hf_capsule_mt.translation.partial_output import PartialOutput


def header(window):
    return {"window": window, "input": str(window)}


@pytest.mark.parametrize(("output", "report"), [("out.de.gz", "report.jsonl"), ("out.de", "report.jsonl.gz")])
def test_windows_survive_a_full_disk_at_the_end(tmp_path, monkeypatch, output, report):
    files = tmp_path / output, tmp_path / report
    partial = PartialOutput(*files)
    for window in range(2):
        partial.append(header(window), [f"line {window}"], [json.dumps({"line": window})])

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(partial_output.shutil, "copyfileobj", full)
        with pytest.raises(OSError, match="No space"):
            partial.finish()
    assert not any(file.exists() for file in files)
    again = PartialOutput(*files)
    assert all(again.has(header(window)) for window in range(2))
    again.finish()
    assert {file.name for file in tmp_path.iterdir()} == {output, report}
    texts = [(gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()) for file in files]
    assert texts == [b"line 0\nline 1\n", b'{"line": 0}\n{"line": 1}\n']


def test_a_text_that_does_not_reach_the_disk_is_named(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(partial_output.os, "fsync", full)
    with pytest.raises(OSError, match=f"^{tmp_path}/out.de.partial cannot be written: No space left on device$"):
        PartialOutput(tmp_path / "out.de").append(header(0), ["line 0"])
    assert not PartialOutput(tmp_path / "out.de").has(header(0))


@pytest.fixture
def interrupted(tmp_path):
    """The output file of a run that ended behind its first window."""
    PartialOutput(tmp_path / "out.de").append(header(0), ["line 0"])
    return tmp_path / "out.de"


@pytest.mark.parametrize("windows", [None, 1, [1], [{}], [{"header": {}}], [{"header": {}, "bytes": "x"}]], ids=str)
def test_a_damaged_index(interrupted, windows):
    Path(f"{interrupted}.partial.json").write_text(json.dumps({} if windows is None else {"windows": windows}))
    with pytest.raises(ValueError, match=r"out\.de\.partial\.json is damaged, or .*; delete it and all others"):
        PartialOutput(interrupted)


def test_a_text_that_was_cut_is_not_filled_up(interrupted):
    Path(f"{interrupted}.partial").write_bytes(b"li")
    with pytest.raises(ValueError, match="or shorter texts lie beside it"):
        PartialOutput(interrupted)


def test_a_report_that_is_asked_for_later_throws_nothing_away(interrupted, tmp_path):
    again = PartialOutput(interrupted, tmp_path / "report.jsonl")
    with pytest.raises(ValueError, match="is from an interrupted run with another report"):
        again.has({**header(0), "report": "report.jsonl"})
    assert Path(f"{interrupted}.partial").read_text() == "line 0\n"


def test_without_its_text_an_index_tells_nothing(interrupted):
    Path(f"{interrupted}.partial").unlink()
    assert not PartialOutput(interrupted).has(header(0))
