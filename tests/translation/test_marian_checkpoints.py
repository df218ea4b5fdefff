"""Marian checkpoints in every form that lies on the Hub, in all places that take a model."""

import json
import logging
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from opus_mt import FORMS, REAL_FORMS, save_opus_mt
from safetensors.torch import load_file, save_file
from tiny_marian import tiny_tokenizer
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel, pipeline

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration, preset_config
from hf_capsule_mt.cli import analyze, distill, evaluate, train, translate
from hf_capsule_mt.loading import load_model

WEIGHTS = "pytorch_model.bin"
LINES = ["the old house is green", "two dogs see", ">>de<< a child sees two old dogs"]
AGGREGATIONS = {
    "plain": {},
    "em_routing": {"layer_aggregation": "em_routing", "num_output_capsules": 4},
    "heads": {"head_aggregation": "em_routing"},
    "gdr": {"guided_routing": "gdr"},
}


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """A folder of each form."""
    root = tmp_path_factory.mktemp("forms")
    return {form: save_opus_mt(form, root / form) for form in FORMS}


@pytest.fixture
def checkpoint(forms, tmp_path):
    """One of 2020 that a test may change."""
    return shutil.copytree(forms["2020"], tmp_path / "checkpoint")


def expected(folder, forced_end=True, **options):
    """What Marian's own class translates, in float32."""
    model, tokenizer = MarianMTModel.from_pretrained(folder).float(), AutoTokenizer.from_pretrained(folder)
    if not forced_end:
        model.generation_config.forced_eos_token_id = None
    found = [model.generate(**tokenizer(line, return_tensors="pt"), **options) for line in LINES]
    return [tokenizer.decode(tokens[0], skip_special_tokens=True) for tokens in found]


def run(command, *words):
    command.main([str(word) for word in words])


# The real ones, whose vocabularies are large, have the weights of those of 2020 and of 2022.
@pytest.mark.parametrize(
    ("aggregation", "form"),
    [(kind, form) for kind in AGGREGATIONS for form in FORMS if kind == "em_routing" or form not in REAL_FORMS],
)
def test_a_warm_start_translates_as_its_parent(forms, form, aggregation):
    folder = forms[form]
    parent = MarianMTModel.from_pretrained(folder, dtype=torch.float32)
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(folder, **AGGREGATIONS[aggregation])
    assert model.dtype == torch.float32
    assert model.generation_config.bad_words_ids == parent.generation_config.bad_words_ids
    source = AutoTokenizer.from_pretrained(folder)(LINES, return_tensors="pt", padding=True)
    for num_beams in (1, 4):
        options = {**source, "num_beams": num_beams, "max_length": 10}
        assert torch.equal(model.generate(**options), parent.generate(**options))


@pytest.mark.parametrize("form", FORMS)
def test_pipeline_and_translate(forms, form, tmp_path):
    folder, text = forms[form], tmp_path / "text"
    text.write_text("".join(f"{line}\n" for line in LINES))
    options = {"num_beams": 4, "max_new_tokens": 12}
    wanted = expected(folder, **options)
    translator = pipeline("translation", model=str(folder), device="cpu")
    assert [each["translation_text"] for each in translator(LINES, **options)] == wanted
    given = [word for name, value in options.items() for word in (f"--{name}", value)]
    run(translate, "--model", folder, "--input_file", text, "--output_file", tmp_path / "out", *given)
    # What is cut at its limit has no end there.
    assert (tmp_path / "out").read_text().splitlines() == expected(folder, forced_end=False, **options)


def test_other_commands(forms, tmp_path, capsys, monkeypatch):
    folder, source, target = forms["2022"], tmp_path / "text.en", tmp_path / "text.de"
    source.write_text("the old house is green\ntwo dogs see the house\n" * 4)
    target.write_text("das alte Haus ist grün\nzwei Hunde sehen das Haus\n" * 4)
    options = ["--use_cpu", "--max_steps", 2, "--save_strategy", "no"]
    for method in ("transformer", "em-routing"):
        fields = ["--config_overrides", "num_output_capsules=4"] if method == "em-routing" else []
        begin = ["--model", folder, "--method", method, *fields, "--train_file", source, target]
        run(train, *begin, "--output_dir", tmp_path / method, *options)
        assert load_model(tmp_path / method).dtype == torch.float32
    decoding = ["--max_new_tokens", 8, "--num_beams", 1]
    run(evaluate, "--model", folder, "--input_file", source, "--references", target, *decoding)
    new = tmp_path / "new.tsv"
    try:
        run(distill, "--model", folder, "--train_file", source, target, "--output_file", new, *decoding)
    except SystemExit:
        # Random weights may end no sentence.
        assert "cut at the limit of its length" in capsys.readouterr().err
    else:
        assert new.read_text()
    texts = ["--input_file", source, "--output_dir", tmp_path / "analysis", "--lines"]
    monkeypatch.setattr("hf_capsule_mt.analysis.routing_report.save_figure", lambda figure, path: None)
    run(analyze, "--model", tmp_path / "em-routing", *texts, *decoding)


def test_safetensors_come_first(checkpoint):
    weights = MarianMTModel.from_pretrained(checkpoint).state_dict()
    own = {name: weights[name].clone() for name in torch.load(checkpoint / WEIGHTS)}
    own["final_logits_bias"] += 7
    save_file(own, checkpoint / "model.safetensors", {"format": "pt"})
    found = CapsuleAggregatedMarianForConditionalGeneration.from_marian(checkpoint)
    assert torch.equal(found.final_logits_bias, weights["final_logits_bias"] + 7)
    assert torch.equal(load_model(checkpoint).final_logits_bias, weights["final_logits_bias"] + 7)


def test_weights_in_several_files(checkpoint, tmp_path):
    wanted = expected(checkpoint)
    weights = torch.load(checkpoint / WEIGHTS)
    names = {name: f"pytorch_model-0000{1 + place % 2}-of-00002.bin" for place, name in enumerate(weights)}
    for file in set(names.values()):
        torch.save({name: weights[name] for name in weights if names[name] == file}, checkpoint / file)
    (checkpoint / WEIGHTS).unlink()
    (checkpoint / f"{WEIGHTS}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    assert expected(checkpoint) == wanted
    assert CapsuleAggregatedMarianForConditionalGeneration.from_marian(checkpoint).dtype == torch.float32
    translator = pipeline("translation", model=str(checkpoint), device="cpu")
    assert [each["translation_text"] for each in translator(LINES)] == wanted


@pytest.mark.parametrize(("rest", "bias"), [(torch.float16, torch.float32), (torch.float32, torch.float16)])
def test_a_bias_in_another_precision(checkpoint, rest, bias):
    weights = {name: tensor.to(rest) for name, tensor in torch.load(checkpoint / WEIGHTS).items()}
    torch.save({**weights, "final_logits_bias": weights["final_logits_bias"].to(bias)}, checkpoint / WEIGHTS)
    translator = pipeline("translation", model=str(checkpoint), device="cpu")
    assert translator.model.final_logits_bias.dtype == torch.float32
    assert [each["translation_text"] for each in translator(LINES)] == expected(checkpoint)


def test_an_embedding_that_is_saved_once(checkpoint):
    weights = torch.load(checkpoint / WEIGHTS)
    for name in [name for name in weights if "embed_tokens" in name or "embed_positions" in name]:
        del weights[name]
    wanted = expected(checkpoint)
    torch.save(weights, checkpoint / WEIGHTS)
    assert expected(checkpoint) == wanted
    translator = pipeline("translation", model=str(checkpoint), device="cpu")
    assert [each["translation_text"] for each in translator(LINES)] == wanted


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_cpu_computes_in_float32_and_says_so_once(checkpoint, dtype, tmp_path, caplog):
    torch.save(
        {name: value.to(dtype) for name, value in torch.load(checkpoint / WEIGHTS).items()}, checkpoint / WEIGHTS
    )
    (tmp_path / "text").write_text("two dogs see\n")
    with caplog.at_level(logging.INFO, "hf_capsule_mt"):
        translator = pipeline("translation", model=str(checkpoint), device="cpu")
        translator(LINES)
    assert translator.model.dtype == torch.float32
    assert len([record for record in caplog.records if "float32" in record.message]) == 1
    caplog.clear()
    with caplog.at_level(logging.INFO, "hf_capsule_mt"):
        run(translate, "--model", checkpoint, "--input_file", tmp_path / "text", "--output_file", tmp_path / "out")
    assert len([record for record in caplog.records if "float32" in record.message]) == 1


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


def test_a_pickle_that_holds_more_than_tensors_is_refused(checkpoint, tmp_path, capsys):
    trace = tmp_path / "exploded"
    torch.save({"model.shared.weight": Bomb(trace)}, checkpoint / WEIGHTS)
    (tmp_path / "text").write_text("two dogs see\n")
    with pytest.raises(SystemExit) as stop:
        run(translate, "--model", checkpoint, "--input_file", tmp_path / "text")
    assert stop.value.code == 2
    assert f"error: The weights of {checkpoint} cannot be loaded" in capsys.readouterr().err
    with pytest.raises(pickle.UnpicklingError):
        pipeline("translation", model=str(checkpoint), device="cpu")
    with pytest.raises(pickle.UnpicklingError):
        CapsuleAggregatedMarianForConditionalGeneration.from_marian(checkpoint)
    assert not trace.exists()
    torch.load(checkpoint / WEIGHTS, weights_only=False)
    assert trace.exists()


def lose(folder, name):
    weights = torch.load(folder / WEIGHTS)
    del weights[name]
    torch.save(weights, folder / WEIGHTS)


def refusals(folder, tmp_path, capsys):
    """What command and pipeline say."""
    (tmp_path / "text").write_text("two dogs see\n")
    with pytest.raises(SystemExit) as stop:
        run(translate, "--model", folder, "--input_file", tmp_path / "text")
    assert stop.value.code == 2
    with pytest.raises(ValueError, match=str(folder)) as error:
        pipeline("translation", model=str(folder), device="cpu")
    return capsys.readouterr().err, str(error.value)


def test_no_random_weights(checkpoint, tmp_path, capsys):
    lost = "model.encoder.layers.0.fc1.weight"
    lose(checkpoint, lost)
    assert all(lost in message for message in refusals(checkpoint, tmp_path, capsys))
    with pytest.raises(ValueError, match=lost):
        CapsuleAggregatedMarianForConditionalGeneration.from_marian(checkpoint)


def test_no_weights_of_another_shape(checkpoint, tmp_path, capsys):
    fields = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**fields, "d_model": 8}))
    assert all("shape" in message or "size" in message for message in refusals(checkpoint, tmp_path, capsys))
    with pytest.raises(RuntimeError, match="size"):
        CapsuleAggregatedMarianForConditionalGeneration.from_marian(checkpoint)


def test_no_settings_that_nobody_chose(checkpoint, tmp_path, capsys):
    fields = json.loads((checkpoint / "config.json").read_text())
    for name in ("num_beams", "max_length", "bad_words_ids"):
        del fields[name]
    (checkpoint / "config.json").write_text(json.dumps(fields))
    assert all("generation_config.json" in message for message in refusals(checkpoint, tmp_path, capsys))


def test_no_weights_of_another_configuration(tmp_path, capsys):
    """A routed model whose config.json says that it is plain."""
    folder, fields = tmp_path / "own", {"d_model": 16, "encoder_layers": 2, "vocab_size": 29}
    AutoModelForSeq2SeqLM.from_config(preset_config("em-routing", "tiny", **fields)).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    assert any("aggregation" in name for name in load_file(folder / "model.safetensors"))
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**fields, "layer_aggregation": None}))
    assert all("aggregation" in message for message in refusals(folder, tmp_path, capsys))
