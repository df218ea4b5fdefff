"""Hashes are those of the files, and a folder has one lock."""

import hashlib

import pytest

from hf_capsule_mt.files import LOCK, hash_file, hash_text, locked


def test_hashes(tmp_path):
    (tmp_path / "text").write_text("grün\n\n漢字\n", encoding="utf-8")
    digest = hashlib.sha256("grün\n\n漢字\n".encode()).hexdigest()
    assert hash_text(["grün", "", "漢字"]) == hash_file(tmp_path / "text") == digest


def test_a_folder_has_one_lock(tmp_path):
    folder = tmp_path / "new" / "folder"
    with locked(folder):
        with pytest.raises(BlockingIOError, match=f"another process works in {folder}; wait"), locked(folder):
            pass
        assert [file.name for file in folder.iterdir()] == [LOCK]
    assert not folder.exists()
    with locked(folder):
        (folder / "result").touch()
    assert [file.name for file in folder.iterdir()] == ["result"]


def test_an_error_ends_the_lock(tmp_path):
    with pytest.raises(RuntimeError, match="work"), locked(tmp_path):
        raise RuntimeError("work")
    with locked(tmp_path):
        pass
    assert tmp_path.exists()


def test_the_lock_of_a_killed_process_is_none(tmp_path):
    (tmp_path / LOCK).touch()
    with locked(tmp_path):
        pass
