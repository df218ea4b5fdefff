"""Training that starts from NLLB: its two languages, added capsules, adapters, and the guard against forgetting."""

import json

import pytest
import tiny_multilingual
import torch
from safetensors.torch import load_file
from tiny_marian import tiny_model, tiny_tokenizer
from tiny_run import arguments
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

from hf_capsule_mt.cli.train import main
from hf_capsule_mt.configuration import method_fields
from hf_capsule_mt.decoding import generate
from hf_capsule_mt.training.build import build_model
from hf_capsule_mt.training.model_preparation import force_target_language
from hf_capsule_mt.training.options import ModelArguments

LANGUAGES = {"source_lang": "eng_Latn", "target_lang": "deu_Latn"}
START = {"size": None, "tokenizer_name": None, "config_overrides": None, "method": "em-routing"}


@pytest.fixture(scope="module")
def nllb(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nllb")
    for part in tiny_multilingual.nllb():
        part.save_pretrained(folder)
    return folder


def train(corpus, nllb, folder, **options):
    lengths = {"max_source_length": 30, "max_target_length": 30}
    main(arguments(corpus, folder, **{**START, **LANGUAGES, **lengths, "model": nllb, **options}))


@pytest.mark.parametrize("method", [None, "linear-combination", "em-routing", "head-em-routing", "gdr"])
def test_methods_change_no_logit_at_first(nllb, method):
    model = build_model(ModelArguments(model=str(nllb), method=method), None)
    for name, value in method_fields(method or "transformer").items():
        assert getattr(model.config, name) == value
    plain = AutoModelForSeq2SeqLM.from_pretrained(nllb)
    batch = {"input_ids": torch.tensor([[9, 10, 2]]), "decoder_input_ids": torch.tensor([[2, 8, 9]])}
    assert torch.equal(model.eval()(**batch).logits, plain(**batch).logits)


def test_recurrent_methods_are_refused(nllb):
    with pytest.raises(ValueError, match="cannot become rnmt"):
        build_model(ModelArguments(model=str(nllb), method="rnmt"), None)


def test_a_model_without_languages_begins_as_it_did():
    model = tiny_model()
    model.generation_config.forced_bos_token_id = 5
    force_target_language(model, tiny_tokenizer())
    assert model.generation_config.forced_bos_token_id == 5


@pytest.mark.parametrize("method", [None, "em-routing"])
def test_a_run(corpus, nllb, tmp_path, method, engine_calls):
    validation = [corpus / "validation.source", corpus / "validation.target"]
    scored = {"validation_file": validation, "eval_strategy": "steps", "eval_steps": 2}
    train(corpus, nllb, tmp_path, method=method, **scored)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert (tokenizer.src_lang, tokenizer.tgt_lang) == tuple(LANGUAGES.values())
    german = tokenizer.convert_tokens_to_ids("deu_Latn")
    assert GenerationConfig.from_pretrained(tmp_path).forced_bos_token_id == german
    # The validation was written in that language, by the engine.
    assert engine_calls
    assert all((translation.sequences[:, 1] == german).all() for translation in engine_calls[-1])
    model_type = json.loads((tmp_path / "config.json").read_text())["model_type"]
    assert model_type == ("m2m_100" if method is None else "capsule_aggregated_m2m_100")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    source = tokenizer(["a b", "c"], return_tensors="pt", padding=True)
    expected = model.generate(**source, num_beams=2, max_new_tokens=5)
    assert torch.equal(model.generate(**source, num_beams=2, max_new_tokens=5, custom_generate=generate), expected)
    if method is not None:
        # The default rates of added and of trained weights.
        assert model.model.decoder.aggregation.gamma.abs().max() > 1e-4
    before, after = load_file(nllb / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    name = "model.decoder.layers.0.fc1.weight"
    assert 0 < (before[name] - after[name]).abs().max() < 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_lang": None}, "--target_lang is missing"),
        ({"source_lang": None}, "--source_lang is missing"),
        ({"target_lang": "de"}, "--target_lang is 'de', which is no language of the model. The nearest"),
    ],
)
def test_languages_that_are_refused(corpus, nllb, tmp_path, options, message, capsys):
    with pytest.raises(SystemExit):
        train(corpus, nllb, tmp_path / "run", **options)
    assert message in capsys.readouterr().err


def test_the_legacy_behaviour_of_the_tokenizer_is_refused(corpus, nllb, tmp_path, capsys):
    model, tokenizer = tiny_multilingual.nllb()
    model.save_pretrained(tmp_path / "legacy")
    type(tokenizer)(vocab=tokenizer.get_vocab(), legacy_behaviour=True).save_pretrained(tmp_path / "legacy")
    with pytest.raises(SystemExit):
        train(corpus, tmp_path / "legacy", tmp_path / "run")
    assert "The tokenizer has legacy_behaviour" in capsys.readouterr().err


def test_an_adapter(corpus, nllb, tmp_path):
    train(corpus, nllb, tmp_path, method=None, lora_rank=2)
    adapter = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert "q_proj" in adapter["target_modules"]
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "m2m_100"
    before, after = load_file(nllb / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    changed = {name for name, weight in after.items() if not torch.equal(weight, before[name])}
    assert changed
    assert all(name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")) or ".fc" in name for name in changed)


def test_a_run_that_only_forgets_keeps_the_start(corpus, nllb, tmp_path, monkeypatch):
    from hf_capsule_mt.training import evaluating

    scores = iter([30.0, 10.0] + [1.0, 12.0] * 5)
    monkeypatch.setattr(evaluating, "bleu_metric", lambda *_: lambda prediction: {"bleu": next(scores)})
    both = [corpus / "validation.source", corpus / "validation.target"]
    guarded = {"validation_file": both, "general_validation_file": both, "eval_strategy": "steps", "eval_steps": 1}
    guarded |= {"save_strategy": "steps", "save_steps": 1, "load_best_model_at_end": True}
    with pytest.raises(SystemExit) as ended:
        train(corpus, nllb, tmp_path, **guarded)
    assert ended.value.code == 3
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert not model.model.decoder.aggregation.gamma.any()
    assert model.generation_config.forced_bos_token_id is not None
