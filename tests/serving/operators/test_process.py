"""The process of a server: keys that are read again, and lines of the log."""

import hashlib
import json
import logging
import os
import signal
import sys

import pytest

from hf_capsule_mt.serving.operators.log import JsonLines
from hf_capsule_mt.serving.operators.process import KeyReloading
from hf_capsule_mt.serving.settings import ApiKeys


def line_of(key):
    return f"owner {hashlib.sha256(key.encode()).hexdigest()}\n"


@pytest.fixture
def handler():
    """Gives the signal its handler back."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "keys"
    path.write_text(line_of("first"))
    return path


@pytest.mark.usefixtures("handler")
def test_a_signal_while_models_are_loaded(file):
    """It comes before the server runs, and must neither end the process nor be lost."""
    keys = ApiKeys.read(file)
    reloading = KeyReloading(keys)
    os.kill(os.getpid(), signal.SIGHUP)
    file.write_text(line_of("second"))
    reloading.reload_if_asked()
    assert keys.owner("second") == "owner"
    # Without another signal nothing is read.
    file.write_text(line_of("third"))
    reloading.reload_if_asked()
    assert keys.owner("second") == "owner"


@pytest.mark.usefixtures("handler")
@pytest.mark.parametrize("damaged", [b"", pytest.param(b"\xff\n", id="not UTF-8"), b"owner abc\n", None])
def test_a_damaged_file_leaves_the_old_keys(file, caplog, damaged):
    keys = ApiKeys.read(file)
    reloading = KeyReloading(keys)
    os.kill(os.getpid(), signal.SIGHUP)
    file.unlink() if damaged is None else file.write_bytes(damaged)
    reloading.reload_if_asked()
    assert keys.owner("first") == "owner"
    assert "the old ones hold" in caplog.text


def test_without_keys_the_signal_ends_the_process_as_before():
    before = signal.getsignal(signal.SIGHUP)
    KeyReloading(ApiKeys())
    assert signal.getsignal(signal.SIGHUP) == before


def test_a_system_without_the_signal(file, monkeypatch):
    """Windows has none."""
    monkeypatch.delattr(signal, "SIGHUP")
    keys = ApiKeys.read(file)
    KeyReloading(keys).reload_if_asked()
    assert keys.owner("first") == "owner"


def test_an_error_is_one_line_of_json():
    try:
        raise ValueError("a\nb")
    except ValueError:
        record = logging.LogRecord("name", logging.ERROR, __file__, 1, "failed: %s", ("c\nd",), sys.exc_info())
    line = JsonLines().format(record)
    assert "\n" not in line
    fields = json.loads(line)
    assert (fields["level"], fields["logger"], fields["message"]) == ("ERROR", "name", "failed: c\nd")
    assert fields["traceback"].endswith("ValueError: a\nb")
