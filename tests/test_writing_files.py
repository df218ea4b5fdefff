"""Files are written whole or not at all, and a folder has one lock."""

import errno
import fcntl
import os
import resource
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Timer

import pytest
from filelock import FileLock

from hf_capsule_mt.files import LOCK, locked, replace_text, replaced_file


@pytest.mark.parametrize("name", ["text", "text.gz", "text.zst"])
def test_an_error_while_a_file_is_open_is_not_the_files(tmp_path, name):
    (tmp_path / name).write_bytes(b"old")
    with pytest.raises(OSError, match=r"^the weights are damaged$"), replaced_file(tmp_path / name):
        raise OSError("the weights are damaged")
    assert (tmp_path / name).read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == [name]


@contextmanager
def limited_size():
    """No file may have more than 4,096 bytes: not in a fixture, for pytest's own log may have more after the test."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# The last bytes are written when the file is closed.
@pytest.mark.parametrize("size", [5_000, 1_000_000])
@pytest.mark.parametrize("name", ["text", "text.gz", "text.zst"])
def test_a_file_that_cannot_be_written_is_named(tmp_path, name, size):
    with limited_size(), pytest.raises(OSError, match=f"^{tmp_path / name} "), replaced_file(tmp_path / name) as file:
        file.write(os.urandom(size))
    assert not [*tmp_path.iterdir()]


def test_threads_that_write_one_file(tmp_path):
    """Each writes all of it, and what was written last stays."""
    texts = [str(number) * 100_000 for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda text: replace_text(tmp_path / "text", text), texts * 4))
    assert (tmp_path / "text").read_text() in texts
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_private_file_stays_private(tmp_path):
    (tmp_path / "text").touch(mode=0o600)
    with replaced_file(tmp_path / "text") as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "text").stat().st_mode) == 0o600


def test_a_new_file_has_the_permissions_of_others(tmp_path):
    (tmp_path / "other").touch()
    replace_text(tmp_path / "new", "text")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_folder_has_one_lock(tmp_path):
    folder = tmp_path / "new" / "folder"
    with locked(folder):
        with locked(folder.parent / "." / "folder"):
            pass
        with pytest.raises(TimeoutError):
            FileLock(folder / LOCK).acquire(timeout=0)
        assert [file.name for file in folder.iterdir()] == [LOCK]
    assert not folder.exists()
    with suppress(RuntimeError), locked(folder):
        (folder / "result").touch()
        raise RuntimeError
    assert [file.name for file in folder.iterdir()] == ["result"]


def test_the_lock_of_another(tmp_path, monkeypatch):
    """It is waited for as long as a killed process may need to die."""
    other = FileLock(tmp_path / LOCK, thread_local=False)
    with other:
        monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
        with pytest.raises(BlockingIOError), locked(tmp_path):
            pass
        monkeypatch.setattr("hf_capsule_mt.files.GRACE", 60)
        Timer(0.2, other.release).start()
        with locked(tmp_path):
            assert not other.is_locked


def test_a_folder_that_its_holder_removes_is_made_and_locked_again(tmp_path, caplog):
    """Otherwise the process that waited would write without a lock, next to a third one."""
    folder = tmp_path / "new"
    folder.mkdir()
    other = FileLock(folder / LOCK, thread_local=False)
    other.acquire()

    def end():
        (folder / LOCK).unlink()
        other.release()
        folder.rmdir()

    Timer(0.2, end).start()
    with locked(folder), pytest.raises(TimeoutError):
        FileLock(folder / LOCK).acquire(timeout=0)
    assert caplog.text == ""


def test_a_lock_that_is_left_on_a_file_system_without_locks(tmp_path, monkeypatch, caplog):
    """It may be that of a killed process on another machine, and stops nobody."""

    def flock(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / LOCK).write_text("1234\nanother-machine\n")
    with locked(tmp_path):
        (tmp_path / "result").touch()
    assert "cannot be locked" in caplog.text
    assert [file.name for file in tmp_path.iterdir()] == ["result"]
