"""Finished translations next to an output file, which only one process may change."""

import shutil

import pytest

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files.journal import Journal, folder_beside


@pytest.fixture
def begun(tmp_path):
    """An output of which one line is finished."""
    output = tmp_path / "out"
    folder_beside(output).mkdir()
    kept = Journal(folder_beside(output), {})
    kept.append(1, ["a"], {"lines": b"A\n"})
    return kept, folder_beside(output)


def content(kept):
    with kept.opened() as file:
        return file.read()


def shorten(folder):
    (folder / "lines").write_bytes(b"A")


def remove(folder):
    shutil.rmtree(folder)


@pytest.mark.parametrize("change", [shorten, remove])
def test_what_another_process_took_away_is_not_filled_with_zeros(begun, change):
    kept, folder = begun
    change(folder)
    with pytest.raises(UserError, match="was changed by another process"):
        kept.append(1, ["b"], {"lines": b"B\n"})
    with pytest.raises(UserError, match="was changed by another process"):
        kept.write("lines", folder / "whole")
    assert not (folder / "lines").exists() or (folder / "lines").read_bytes() == b"A"


def test_a_run_that_was_killed_while_it_finished_begins_again(tmp_path):
    """One of its two files is in its place already, and the state still counts its lines."""
    output, report = tmp_path / "out", tmp_path / "report"
    folder_beside(output).mkdir()
    lines = {"lines": b"A\n", "report": b"{}\n"}
    Journal(folder_beside(output), {}, ("lines", "report")).append(1, ["a"], lines)
    (folder_beside(output) / "lines").rename(output)
    again = Journal(folder_beside(output), {}, ("lines", "report"))
    assert again.items == 0
    again.append(1, ["a"], lines)
    again.write("lines", output)
    again.write("report", report)
    assert (output.read_text(), report.read_text()) == ("A\n", "{}\n")


def test_the_folder_is_gone_before_the_first_line(tmp_path):
    folder_beside(tmp_path / "out").mkdir()
    kept = Journal(folder_beside(tmp_path / "out"), {})
    folder_beside(tmp_path / "out").rmdir()
    with pytest.raises(UserError, match="was changed by another process"):
        kept.append(1, ["a"], {"lines": b"A\n"})


def test_what_a_killed_run_wrote_behind_its_state_is_cut(begun):
    kept, folder = begun
    (folder / "lines").write_bytes(b"A\nhalf a li")
    # It is no finished line.
    assert content(kept) == b"A\n"
    kept.append(1, ["b"], {"lines": b"B\n"})
    assert (folder / "lines").read_bytes() == b"A\nB\n"
    assert content(kept) == b"A\nB\n"


def test_files_of_a_run_without_a_state_are_its_own(tmp_path):
    """It was killed before it wrote its state, or while it wrote it."""
    folder = folder_beside(tmp_path / "out")
    folder.mkdir()
    for name in ("lines", ".state.json.partial"):
        (folder / name).write_bytes(b"half a li")
    kept = Journal(folder_beside(tmp_path / "out"), {})
    kept.append(1, ["a"], {"lines": b"A\n"})
    kept.write("lines", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "A\n"


def test_files_of_a_run_with_a_report_are_its_own(tmp_path):
    """It was interrupted before it wrote its state, and the next run writes no report."""
    folder = folder_beside(tmp_path / "out")
    folder.mkdir()
    for name in ("lines", "report", "alignments"):
        (folder / name).write_bytes(b"half a li")
    kept = Journal(folder_beside(tmp_path / "out"), {})
    kept.append(1, ["a"], {"lines": b"A\n"})
    kept.write("lines", tmp_path / "out")
    kept.discard()
    assert (tmp_path / "out").read_text() == "A\n"
    assert list(folder.iterdir()) == []


def test_a_run_without_lines_writes_an_empty_file(tmp_path):
    folder_beside(tmp_path / "out").mkdir()
    kept = Journal(folder_beside(tmp_path / "out"), {})
    assert content(kept) == b""
    kept.write("lines", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b""
