"""Hashes are those of the files, and a folder has one lock."""

import hashlib
from threading import Timer

import pytest
from filelock import FileLock

from hf_capsule_mt.files import LOCK, hash_file, hash_text, locked


def test_hashes(tmp_path):
    (tmp_path / "text").write_text("grün\n\n漢字\n", encoding="utf-8")
    digest = hashlib.sha256("grün\n\n漢字\n".encode()).hexdigest()
    assert hash_text(["grün", "", "漢字"]) == hash_file(tmp_path / "text") == digest


def test_a_folder_has_one_lock(tmp_path):
    folder = tmp_path / "new" / "folder"
    with locked(folder):
        with locked(folder.parent / "." / "folder"):
            pass
        with pytest.raises(TimeoutError):
            FileLock(folder / LOCK).acquire(timeout=0)
        assert [file.name for file in folder.iterdir()] == [LOCK]
    assert not folder.exists()
    with locked(folder):
        (folder / "result").touch()
    assert [file.name for file in folder.iterdir()] == ["result"]


def test_the_lock_of_another(tmp_path, monkeypatch):
    """It is waited for as long as a killed process may need to die."""
    other = FileLock(tmp_path / LOCK, thread_local=False)
    with other:
        monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
        with pytest.raises(BlockingIOError, match=f"another process works in {tmp_path}; wait"), locked(tmp_path):
            pass
        monkeypatch.setattr("hf_capsule_mt.files.GRACE", 60)
        Timer(0.2, other.release).start()
        with locked(tmp_path):
            assert not other.is_locked


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
