"""Hashes are those of the files."""

import hashlib

from hf_capsule_mt.files import hash_file, hash_text


def test_hashes(tmp_path):
    (tmp_path / "text").write_text("grün\n\n漢字\n", encoding="utf-8")
    digest = hashlib.sha256("grün\n\n漢字\n".encode()).hexdigest()
    assert hash_text(["grün", "", "漢字"]) == hash_file(tmp_path / "text") == digest
