"""The command `alignment_heads`."""

import json

import pytest
from tiny_marian import aligned_files, save_tiny_marian, tiny_model, tiny_tokenizer

from hf_capsule_mt.cli.alignment_heads import main
from hf_capsule_mt.evaluation.head_choice import rate_heads
from hf_capsule_mt.translation.text_translator import TextTranslator


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return aligned_files(tmp_path_factory.mktemp("text"))


@pytest.fixture
def checkpoint(tmp_path):
    return save_tiny_marian(tmp_path / "marian")


def choose(checkpoint, sources, targets, *options):
    main(["--model", str(checkpoint), "--input_file", str(sources), "--references", str(targets), *options])


def test_the_best_heads_are_stored(checkpoint, files, capsys):
    choose(checkpoint, *files, "--device", "cpu")
    printed = capsys.readouterr().out
    rated = rate_heads(
        TextTranslator(tiny_model(), tiny_tokenizer()), *(file.read_text().splitlines() for file in files)
    )
    assert printed.endswith(f"Stored with {checkpoint}: {rated[0].name}.\n")
    assert "last two layers (default)" in printed
    stored = json.loads((checkpoint / "generation_config.json").read_text())["alignment_heads"]
    assert stored == [list(head) for head in rated[0].heads]


def test_what_is_refused(checkpoint, files, capsys, tmp_path):
    sources, targets = files
    blank = tmp_path / "blank"
    blank.write_text("\n\n")
    other = tmp_path / "other"
    other.write_text("\n\n")
    for texts, model, words in (
        ((sources, targets), "name/on-the-hub", "Give --model the folder of a checkpoint"),
        ((sources, sources), checkpoint, "are the same file"),
        ((sources, tmp_path / "none"), checkpoint, "--references: there is no file"),
        ((sources, blank), checkpoint, "has 31 lines, and"),
        ((blank, other), checkpoint, f"{blank} has no sentences"),
    ):
        with pytest.raises(SystemExit, match="2"):
            choose(model, *texts, "--device", "cpu")
        assert words in " ".join(capsys.readouterr().err.split())
    assert "alignment_heads" not in json.loads((checkpoint / "generation_config.json").read_text())
