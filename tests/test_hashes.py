"""Hashes are those of the files."""

import hashlib

from hf_capsule_mt.files import hash_file, hash_text


def test_hashes(tmp_path):
    lines = ["grün", "", "漢字"]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    digest = hashlib.sha256("grün\n\n漢字\n".encode()).hexdigest()
    assert hash_text(lines) == hash_file(tmp_path / "text") == digest
