"""The options of decoding, which say what the files of a model are."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from tiny_marian import save_tiny_teacher

from hf_capsule_mt.cli import distill, translate
from hf_capsule_mt.decoding.products import int8
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.generation import model_options as decoding_options
from hf_capsule_mt.translation.generation.model_options import DecodingOptions
from hf_capsule_mt.translation.text_translator import TextTranslator


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


@pytest.mark.skipif(not int8._int8_backends(), reason="this machine has no product in int8")
def test_loading_chooses_nothing_for_the_process(folder, int8_choices):
    """The next model, such as a pipeline's, computes in its own way. Decoding has the choice of its options."""
    own = int8.int8_choice()
    other = replace(own, float32_rows=1)
    options = DecodingOptions(str(folder / "model"), dtype="int8", int8_choice=other)

    translator = TextTranslator(*options.load(torch.device("cpu")))
    translator.decode(translator.reader.prepare("g h").sentences, **options.generate_options())

    assert int8.int8_choice() == own
    assert int8_choices == [other]


def test_products_that_this_machine_lacks_are_refused_before_weights_are_read(tmp_path):
    choice = replace(int8.int8_choice(), few_rows="mps")
    with pytest.raises(UserError, match="used int8 products of mps"):
        DecodingOptions(str(tmp_path), dtype="int8", int8_choice=choice).load(torch.device("cpu"))
