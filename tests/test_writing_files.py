"""Hashes are those of the files, and a folder has one lock."""

import hashlib
import json
import os
import resource
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest
import torch
from filelock import FileLock

from hf_capsule_mt.files import (
    LOCK,
    environment,
    hash_file,
    hash_text,
    locked,
    locked_file,
    open_to_append,
    replaced_file,
    write_json,
)


def test_hashes(tmp_path):
    (tmp_path / "text").write_text("grün\n\n漢字\n", encoding="utf-8")
    digest = hashlib.sha256("grün\n\n漢字\n".encode()).hexdigest()
    assert hash_text(["grün", "", "漢字"]) == hash_file(tmp_path / "text") == digest


@pytest.mark.parametrize("name", ["text", "text.gz"])
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
@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_a_file_that_cannot_be_written_is_named(tmp_path, name, size):
    with (
        limited_size(),
        pytest.raises(OSError, match=f"^{tmp_path / name} cannot be written: File too large$"),
        replaced_file(tmp_path / name) as file,
    ):
        file.write(os.urandom(size))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("act", [lambda file: file.write(bytes(5_000)), lambda file: file.truncate(5_000)])
def test_a_file_that_cannot_be_appended_to_is_named(tmp_path, act):
    with (
        limited_size(),
        pytest.raises(OSError, match=f"^{tmp_path / 'text'} cannot be written: File too large$"),
        open_to_append(tmp_path / "text") as file,
    ):
        act(file)


def test_a_file_that_cannot_be_made_is_named(tmp_path):
    for path, reason in ((tmp_path / "absent" / "text", "No such file"), (tmp_path / "text" / "text", "Not a direc")):
        (tmp_path / "text").touch()
        with pytest.raises(OSError, match=f"^{path} cannot be written: {reason}"), replaced_file(path):
            pass
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder cannot be written: Is a directory"), replaced_file(tmp_path / "folder"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"text", "folder"}


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


def test_a_file_has_one_lock(tmp_path, monkeypatch):
    monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
    path = tmp_path / "out.de"
    with FileLock(f"{path}.lock"):
        with pytest.raises(BlockingIOError, match=f"another process writes {path}; wait"), locked_file(path):
            pass
        with locked_file(tmp_path / "other.de"):
            pass
    with locked_file(path), locked_file(path):
        assert [file.name for file in tmp_path.iterdir()] == ["out.de.lock"]
    assert not [*tmp_path.iterdir()]


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


def test_environment(monkeypatch):
    found = environment("cpu")
    assert found["packages"]["torch"] == torch.__version__
    assert {"hf-capsule-mt", "transformers", "sacrebleu"} <= found["packages"].keys()
    assert found["cpu_threads"] == torch.get_num_threads()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    assert environment("cuda:1")["device"] == "GPU 1"


def test_write_json(tmp_path):
    write_json(tmp_path / "record.json", {"path": tmp_path, "text": "grün"})
    written = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert written == {"path": str(tmp_path), "text": "grün"}


def test_a_record_is_not_replaced_by_half_of_another(tmp_path, monkeypatch):
    write_json(tmp_path / "record.json", {"first": 1})

    def fail(written, path):
        assert json.loads(Path(written).read_text()) == {"second": 2}
        raise OSError("no space left on device")

    monkeypatch.setattr("hf_capsule_mt.files.os.replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_json(tmp_path / "record.json", {"second": 2})
    assert json.loads((tmp_path / "record.json").read_text()) == {"first": 1}
