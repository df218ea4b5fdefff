"""The command `export`: programs for ONNX Runtime that translate as `generate()` does, or no folder."""

import json

import numpy as np
import pytest
import torch
from exported_models import model_of
from tiny_marian import save_tiny_marian, tiny_tokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, T5Config

from hf_capsule_mt.cli.export import main
from hf_capsule_mt.hub import exporting
from hf_capsule_mt.hub.export_programs import EncoderProgram, StepProgram, family_of
from hf_capsule_mt.hub.exporting import check_numbers, check_translation, example_source

LINES = ["a b c d e", "f", "g h c c"]


def greedy(folder, lines, limit, start, pad, eos):
    """Translations as somebody writes it who knows the names of the tensors alone."""
    onnxruntime = pytest.importorskip("onnxruntime")
    encoder, step = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("encoder", "step"))
    source = AutoTokenizer.from_pretrained(folder)(lines, padding=True, return_tensors="np")
    source = {name: source[name].astype(np.int64) for name in ("input_ids", "attention_mask")}
    read = dict(zip([output.name for output in encoder.get_outputs()], encoder.run(None, source)))
    assert {tensor.name for tensor in step.get_inputs()} == {"input_ids", *read}
    states = [output.name.replace("present", "past_key_values") for output in step.get_outputs()[1:]]
    words, ended = np.full((len(lines), 1), start), np.zeros(len(lines), dtype=bool)
    while not ended.all() and words.shape[1] <= limit:
        logits, *after = step.run(None, {"input_ids": words[:, -1:], **read})
        read.update(zip(states, after))
        following = np.where(ended, pad, logits.argmax(-1))
        words = np.concatenate([words, following[:, None]], axis=1)
        ended |= following == eos
    return words


@pytest.mark.slow
def test_onnx(tmp_path, capsys):
    pytest.importorskip("onnxscript", reason='needs onnxscript; pip install -e ".[export]"')
    folder, output = tmp_path / "model", tmp_path / "onnx"
    model_of("small-capsnmt").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    main(["--model", str(folder), "--output_dir", str(output), "--text", LINES[0]])
    translation = capsys.readouterr().out.splitlines()[-1]
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    settings = model.generation_config
    settings.forced_eos_token_id = None
    tokenizer = AutoTokenizer.from_pretrained(output)
    source = tokenizer(LINES, padding=True, return_tensors="pt")
    source = {name: source[name] for name in ("input_ids", "attention_mask")}
    wanted = model.generate(**source, num_beams=1, max_new_tokens=10)
    ends = settings.pad_token_id, settings.eos_token_id
    found = greedy(output, LINES, 10, settings.decoder_start_token_id, *ends)
    np.testing.assert_array_equal(found, wanted)
    assert translation.removeprefix("-> ").startswith(tokenizer.decode(wanted[0], skip_special_tokens=True)[:9])
    names = {file.name for file in output.iterdir()}
    assert {"encoder.onnx", "step.onnx", "config.json", "generation_config.json", "tokenizer.json"} < names
    assert not [file for file in names if file.endswith(".py")]
    assert json.loads((output / "config.json").read_text())["model_type"] == model.config.model_type


def test_refusals(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_tiny_marian(tmp_path / "model")
    T5Config().save_pretrained("t5")
    (tmp_path / "t5" / "model.safetensors").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    before = sorted(tmp_path.rglob("*"))
    for model, output in (("t5", "new"), ("model", "full"), ("nowhere/at/all", "new")):
        with pytest.raises(SystemExit, match="2"):
            main(["--model", model, "--output_dir", output])
    assert sorted(tmp_path.rglob("*")) == before


def test_a_failed_check_leaves_nothing(tmp_path, monkeypatch):
    save_tiny_marian(tmp_path / "model")
    monkeypatch.setattr(exporting, "write_program", lambda program, example, path: path.touch())
    monkeypatch.setattr(exporting, "read_program", lambda path: lambda tensors: {})
    monkeypatch.setattr(exporting, "check_numbers", _fail)
    options = ["--model", str(tmp_path / "model"), "--format", "torch", "--output_dir", str(tmp_path / "new")]
    with pytest.raises(SystemExit, match="2"):
        main(options)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("wrong", ["logits", "present.0.hidden", "sentence_state"])
def test_checks_find_differences(wrong):
    model = model_of("small-capsnmt")
    own = EncoderProgram(family_of(model)), StepProgram(family_of(model))

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


def test_a_translation_is_compared():
    model = model_of("small-rnmt")
    own = EncoderProgram(family_of(model)), StepProgram(family_of(model))
    source = example_source(model, (4,))
    words = check_translation(model, source, *own, 6)
    assert words.shape[1] <= 7

    def other(tensors):
        outputs = own[1](tensors)
        return {**outputs, "logits": -outputs["logits"]}

    with pytest.raises(ValueError, match="translate"):
        check_translation(model, source, own[0], other, 6)


def _fail(*_):
    raise ValueError("logits differ")
