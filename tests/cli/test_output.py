"""A written file is whole or absent."""

import json
from pathlib import Path

import pytest

from hf_capsule_mt.files import write_json


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
