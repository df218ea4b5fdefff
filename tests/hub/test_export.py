"""The command `export`: programs for ONNX Runtime that translate as `generate()` does, or no folder."""

import pytest
import torch
from families import translator
from tiny_marian import save_tiny_marian
from transformers import AutoTokenizer, GenerationConfig, T5Config

from hf_capsule_mt.cli.export import main
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.hub import exporting
from hf_capsule_mt.hub.export_programs import EncoderProgram, StepProgram
from hf_capsule_mt.hub.exporting import check_numbers


def small_model(kind="capsule", **fields):
    """Its programs take less time to make."""
    return translator(f"recurrent-{kind}", vocab_size=29, encoder_layers=1, **fields)


@pytest.mark.slow
def test_a_whole_recurrent_model():
    """Of other families the page of the documentation exports one."""
    model, examples = small_model(decoder_layers=1, routing_iterations=1), []
    for rows, length in ((2, 3), (3, 7)):
        words = torch.full((rows, length), 4), torch.ones(rows, length).long(), torch.full((rows, length + 1), 5)
        examples.append(dict(zip(("input_ids", "attention_mask", "decoder_input_ids"), words)))
        examples[-1]["attention_mask"][0, 2:] = 0
    sizes = {name: dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC) for name in examples[0]} | {"use_cache": None}
    with torch.no_grad():
        program = torch.export.export(model, (), {**examples[0], "use_cache": False}, dynamic_shapes=sizes).module()
        found, wanted = (each(**examples[1], use_cache=False).logits for each in (program, model))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "output", "words"),
    [
        ("t5", "new", "t5 is of type t5. Only Marian's and models of this package that did not start"),
        ("model", "full", "full is there and not empty. Name another folder."),
        ("nowhere/at/all", "new", "nowhere/at/all"),
    ],
)
def test_refusals(tmp_path, monkeypatch, capsys, model, output, words):
    monkeypatch.chdir(tmp_path)
    save_tiny_marian(tmp_path / "model")
    T5Config().save_pretrained("t5")
    (tmp_path / "t5" / "model.safetensors").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit, match="2"):
        main(["--model", model, "--output_dir", output])
    assert words in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_what_decodes_with_the_programs_finds_the_settings(tmp_path, monkeypatch):
    """Next to the programs are the tokenizer and the settings of `generate()`, which the loop of the page reads."""
    checkpoint = save_tiny_marian(tmp_path / "model")
    monkeypatch.setattr(exporting, "write_program", lambda program, example, path: path.touch())
    monkeypatch.setattr(exporting, "read_program", lambda path: None)
    monkeypatch.setattr(exporting, "check_numbers", lambda model, original, exported: 0.0)
    exporting.export_checkpoint(checkpoint, tmp_path / "new", "torch")
    settings = GenerationConfig.from_pretrained(tmp_path / "new")
    assert settings.bad_words_ids == [[0]]
    assert settings.to_dict() == GenerationConfig.from_pretrained(checkpoint).to_dict()
    exported, original = (AutoTokenizer.from_pretrained(folder) for folder in (tmp_path / "new", checkpoint))
    assert exported.get_vocab() == original.get_vocab()


def test_a_failed_check_leaves_nothing(tmp_path, monkeypatch):
    save_tiny_marian(tmp_path / "model")
    monkeypatch.setattr(exporting, "write_program", lambda program, example, path: path.touch())
    monkeypatch.setattr(exporting, "read_program", lambda path: lambda tensors: {})
    monkeypatch.setattr(exporting, "check_numbers", _fail)
    options = ["--model", str(tmp_path / "model"), "--format", "torch", "--output_dir", str(tmp_path / "new")]
    with pytest.raises(SystemExit, match="2"):
        main(options)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [("capsule", "logits"), ("capsule", "present.0.hidden"), ("capsule", "sentence_state"), ("rnmt", "logits")],
)
def test_checks_find_differences(kind, wrong):
    model = small_model(kind)
    own = EncoderProgram(model), StepProgram(model)

    def changed(program):
        def run(tensors):
            outputs = program(tensors)
            return {
                name: tensor + 3e-4 * tensor.abs().clamp(min=1) * (name == wrong) for name, tensor in outputs.items()
            }

        return run

    with torch.no_grad():
        assert check_numbers(model, own, own) == 0
        with pytest.raises(ValueError, match=wrong):
            check_numbers(model, own, tuple(map(changed, own)))


def _fail(*_):
    raise UserError("logits differ")
