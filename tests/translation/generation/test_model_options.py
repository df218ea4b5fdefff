"""The options of decoding, which say what the files of a model are."""

from collections import Counter

import pytest
from tiny_marian import save_tiny_teacher

from hf_capsule_mt.cli import distill, translate
from hf_capsule_mt.translation.generation import model_options as decoding_options
from hf_capsule_mt.translation.generation.model_options import DecodingOptions


@pytest.fixture
def folder(tmp_path):
    save_tiny_teacher(tmp_path / "model")
    for name in ("a.en", "b.en"):
        (tmp_path / name).write_text("g h\nr s t\nq\ni j k l m n o p\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (distill, ["--train_file", "a.en", "--output_file", "out.en", "out.de"]),
        (translate, ["--input_file", "a.en", "b.en", "--output_dir", "out", "--sentences", "en"]),
        (translate, ["--input_file", "a.en", "--output_file", "out", "--report_file", "report"]),
    ],
    ids=["distill", "several files", "report"],
)
def test_the_files_of_a_model_are_read_once_for_their_hashes(folder, monkeypatch, command, options):
    monkeypatch.chdir(folder)
    hashed = Counter()
    original = decoding_options.hash_file

    def hash_file(path):
        hashed[path.name] += 1
        return original(path)

    monkeypatch.setattr(decoding_options, "hash_file", hash_file)
    command.main(["--model", "model", "--max_new_tokens", "20", "--device", "cpu", *options])
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {*hashed}
    assert set(hashed.values()) == {1}


def test_another_choice_is_of_other_options(folder):
    """A folder of a model has no commit, so nothing changes. In int8 the choice of products does."""
    options = DecodingOptions(str(folder / "model"))
    assert options.pinned() is options
    in_int8 = DecodingOptions(str(folder / "model"), dtype="int8")
    assert in_int8.pinned().int8_choice is not None
    assert in_int8.pinned().pinned() == in_int8.pinned()
