"""The record of a run is complete."""

import hashlib

import torch

from hf_capsule_mt.training.record import environment, text_hash


def test_environment():
    found = environment()
    assert found["packages"]["torch"] == torch.__version__
    assert {"hf-capsule-mt", "transformers", "accelerate", "tokenizers", "sacrebleu"} <= found["packages"].keys()
    assert found["python"].startswith("3.")
    assert found["device"]
    assert found["cpu_threads"] == torch.get_num_threads()
    assert "commit" in found


def test_text_hash_is_that_of_the_file(tmp_path):
    lines = ["grün", "", "漢字"]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    assert text_hash(lines) == hashlib.sha256((tmp_path / "text").read_bytes()).hexdigest()
