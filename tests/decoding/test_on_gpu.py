"""Models, decoding, training and commands on CUDA; without it, models whose tensors have a device but no numbers."""

import importlib
import json

import pytest
import torch
from aggregated_models import training_batch
from agreement import check_agreement
from ending_models import LONGEST, ending, sources
from families import translator
from safetensors.torch import load_file
from test_exactness import OPTIONS
from tiny_run import arguments, files

from hf_capsule_mt.cli import analyze, train, translate
from hf_capsule_mt.decoding import generate
from hf_capsule_mt.modeling import additive_scores, losses

# The package has the function under this name.
em_routing = importlib.import_module("hf_capsule_mt.modeling.em_routing")

OF_EACH_CELL = ["marian-everything", "recurrent-capsule", "recurrent-guided_hybrid"]
NO_DROPOUT = {
    "marian": {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0},
    "recurrent": {"dropout": 0.0},
}


@pytest.fixture
def device(monkeypatch):
    # Or cuDNN's LSTMs and GRUs would round what they multiply to ten bits.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    return torch.device("cuda")


@pytest.mark.parametrize("name", [*OF_EACH_CELL, "marian-heads_and_layers_em"])
def test_every_tensor_is_on_the_device_of_the_model(name, monkeypatch):
    """Operations on tensors of two devices fail. A meta tensor has neither numbers nor autocast."""
    enabled, truth = torch.is_autocast_enabled, torch.Tensor.__bool__
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind != "meta" and enabled(kind))
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda tensor: tensor.is_meta or truth(tensor))
    autocast = torch.autocast
    monkeypatch.setattr(
        torch, "autocast", lambda kind, **options: autocast("cpu" if kind == "meta" else kind, **options)
    )
    meta = torch.device("meta")
    with pytest.raises(RuntimeError, match="device"):
        torch.zeros(3, device=meta) + torch.zeros(3)
    model = translator(name, encoder_layers=1, decoder_layers=1).to(meta).train()
    model(**_to(meta, training_batch()), output_routing=True).loss.backward()


def _to(device, batch):
    return {name: value.to(device) for name, value in batch.items()}


def _update(name, device, dtype):
    """The loss of a model without dropout and its gradients, by the weights' names."""
    model = translator(name, **NO_DROPOUT[name.partition("-")[0]]).to(device).train()
    with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
        loss = model(**_to(device, training_batch())).loss
    loss.backward()
    return loss.item(), {key: weight.grad.cpu() for key, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.cuda
@pytest.mark.parametrize("name", OF_EACH_CELL)
def test_an_update(name, device):
    expected, of_cpu = _update(name, torch.device("cpu"), torch.float32)
    loss, gradients = _update(name, device, torch.float32)
    assert loss == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(gradients, of_cpu, rtol=1e-3, atol=1e-4)
    for dtype in (torch.bfloat16, torch.float16):
        loss, gradients = _update(name, device, dtype)
        assert loss == pytest.approx(expected, rel=3e-2)
        assert gradients.keys() == of_cpu.keys()
        assert all(gradient.isfinite().all() for gradient in gradients.values())


@pytest.mark.cuda
def test_an_update_in_pieces(device, monkeypatch):
    """Of layers' votes, additive scores and the vocabulary's scores; these models are far smaller than a piece."""
    monkeypatch.setattr(em_routing, "_ACCELERATOR_VOTE_CHUNK", 64)
    monkeypatch.setattr(additive_scores, "_ACCELERATOR_PAIR_CHUNK", 64)
    monkeypatch.setattr(losses, "_ACCELERATOR_SCORE_CHUNK", 64)
    # They take votes in no pieces.
    monkeypatch.setattr(em_routing, "_kernels", lambda device: None)
    expected, of_cpu = _update("marian-everything", torch.device("cpu"), torch.float32)
    loss, gradients = _update("marian-everything", device, torch.float32)
    assert loss == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(gradients, of_cpu, rtol=1e-3, atol=1e-4)


@pytest.mark.cuda
@pytest.mark.parametrize("name", [name.replace("-", "/") for name in OF_EACH_CELL])
def test_decoding(name, device, engine_calls):
    options = {"num_beams": 4, "max_new_tokens": LONGEST}
    expected = ending(name).generate(**sources(16), **options)
    model, source = ending(name).to(device), _to(device, sources(16))
    assert torch.equal(model.generate(**source, **options).cpu(), expected)
    check_agreement(model, source, engine_calls, **options)


@pytest.mark.cuda
@pytest.mark.parametrize("option", ["several", "two_ends"])
def test_options_of_decoding(option, device):
    options = {"max_new_tokens": 16, **OPTIONS[option]}
    expected = ending("marian").generate(**sources(16), **options)
    model, source = ending("marian").to(device), _to(device, sources(16))
    assert torch.equal(model.generate(**source, **options, custom_generate=generate).cpu(), expected)


REGULARISED = {"rdrop_alpha": 1.0, "ema_decay": 0.5}


@pytest.mark.cuda
def test_commands(device, corpus, tmp_path):
    validated = {"validation_file": files(corpus, "validation"), "eval_strategy": "steps", "eval_steps": 1}
    saved = {"save_strategy": "steps", "save_steps": 1, "use_cpu": None}
    options = {**REGULARISED, **validated, **saved, "bf16": True, "method": "gdr"}
    run, resumed = tmp_path / "run", tmp_path / "resumed"
    train.main(arguments(corpus, run, **options))
    log = json.loads((run / "trainer_state.json").read_text())["log_history"]
    assert sum("eval_bleu" in entry for entry in log) == 2
    train.main(arguments(corpus, resumed, **options, resume_from_checkpoint=run / "checkpoint-1"))
    once, again = (load_file(folder / "model.safetensors") for folder in (run, resumed))
    torch.testing.assert_close(once, again, rtol=1e-4, atol=1e-5)

    source, target = files(corpus, "validation")
    read = ["--model", str(run), "--input_file", str(source)]
    for name, options in {"there": [], "on_cpu": ["--device", "cpu"]}.items():
        translate.main([*read, "--max_new_tokens", "8", "--output_file", str(tmp_path / name), *options])
    assert (tmp_path / "there").read_text() == (tmp_path / "on_cpu").read_text()
    report = tmp_path / "report"
    analyze.main([*read, "--references", str(target), "--output_dir", str(report), "--lines", "1"])
    assert (report / "routing.json").exists()
