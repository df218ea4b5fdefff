"""Models, decoding, training and commands on a GPU: on CUDA or, without it, on a GPU that is pretended.

`test_pretend_gpu.py` runs these in a process of their own. On a machine with a GPU: `pytest tests/devices/on_gpu.py`.
"""

import importlib
import json
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState, PartialState
from aggregated_models import training_batch
from agreement import check_agreement, replace_everywhere
from ending_models import EVERY_KIND, LONGEST, ending, sources
from families import KINDS, translator
from safetensors.torch import load_file
from test_exactness import OPTIONS
from tiny_run import arguments, files, write_corpus

from hf_capsule_mt.cli import analyze, train, translate
from hf_capsule_mt.decoding import generate, search
from hf_capsule_mt.modeling import guided_routing, losses

# The package has the function under this name.
em_routing = importlib.import_module("hf_capsule_mt.modeling.em_routing")

HAS_CUDA = torch.cuda.is_available()
if HAS_CUDA:
    pytestmark = pytest.mark.cuda
else:
    import pretend_gpu

    pretend_gpu.install()
OF_EACH_CELL = ["marian-everything", "recurrent-capsule", "recurrent-guided_hybrid"]
NO_DROPOUT = {
    "marian": {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0},
    "recurrent": {"dropout": 0.0},
}


def _in_short(values, short):
    """Parameters of a test; those that are not in `short` are exhaustive."""
    return [pytest.param(value, marks=[] if value in short else pytest.mark.exhaustive) for value in values]


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """What accelerate finds, and the engine takes for a GPU."""
    if HAS_CUDA:
        # Or cuDNN's LSTMs and GRUs would round what they multiply to ten bits.
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
        yield torch.device("cuda")
        return
    with pretend_gpu.pretended() as found:
        monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", str(found))
        monkeypatch.setattr("transformers.training_args.is_torch_bf16_gpu_available", lambda: True)
        monkeypatch.setattr("accelerate.accelerator.is_bf16_available", lambda *given: True)
        monkeypatch.setitem(search._STEPS_TO_A_LOOK, found.type, search._STEPS_TO_A_LOOK["cuda"])
        replace_everywhere(monkeypatch, "precisions_on", lambda device: ["float32", "bfloat16"])
        # Weights are plain on a GPU, and here of a class of their own.
        replace_everywhere(monkeypatch, "check_plain", lambda *modules: None)
        _forget_devices()
        yield found
    _forget_devices()


def _forget_devices():
    AcceleratorState._reset_state()
    PartialState._reset_state()


def _to(device, batch):
    return {name: value.to(device) for name, value in batch.items()}


def _update(name, device, dtype):
    """The loss of a model without dropout and its gradients, by the weights' names."""
    model = translator(name, **NO_DROPOUT[name.partition("-")[0]]).to(device).train()
    with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
        loss = model(**_to(device, training_batch())).loss
    loss.backward()
    return loss.item(), {key: weight.grad.cpu() for key, weight in model.named_parameters() if weight.grad is not None}


def test_tensors_of_two_devices_do_not_meet(device):
    there, here = torch.zeros(3, device=device), torch.zeros(3)
    for meeting in (
        lambda: there + here,
        lambda: torch.cat([there, here]),
        lambda: here[there.long()],
        lambda: torch.nn.functional.embedding(here.long(), there[:, None]),
        lambda: torch.randn(3, device=device, generator=torch.Generator()),
        lambda: there.numpy(),
        lambda: torch.zeros(()).add_(there.sum()),
        lambda: torch.add(there.sum(), 1, out=torch.zeros(())),
    ):
        with pytest.raises((RuntimeError, TypeError)):
            meeting()
    assert (there + torch.tensor(1.0)).tolist() == [1, 1, 1]
    assert there[here.long()].device.type == device.type
    assert here.copy_(there + 2).tolist() == [2, 2, 2]


def test_what_autocast_lowers_and_raises(device):
    square = torch.ones(2, 2, device=device)
    with torch.autocast(device.type, torch.bfloat16):
        product = square @ square
        assert product.dtype == torch.bfloat16
        assert {found.dtype for found in (product.softmax(-1), product.sum(), product.exp())} == {torch.float32}
        assert (product + product).dtype == torch.bfloat16


@pytest.mark.skipif(HAS_CUDA, reason="reading is not seen on a GPU")
@pytest.mark.parametrize("name", ["marian-everything", "recurrent-guided_hybrid"])
def test_what_an_update_waits_for(name, device):
    model, batch = translator(name).to(device).train(), _to(device, training_batch())
    pretend_gpu.reads.clear()
    model(**batch).loss.backward()
    # Transformers asks whether masks hide anything, and losses which positions have a word.
    files = {Path(file).name for file, _ in pretend_gpu.reads}
    assert files <= {"masking_utils.py", "losses.py"}
    assert len(pretend_gpu.reads) <= 5


@pytest.mark.parametrize(
    "name", _in_short(KINDS, ["marian-everything", "recurrent-capsule", "recurrent-guided_hybrid"])
)
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


def test_an_update_in_pieces(device, monkeypatch):
    """Of layers' votes, additive scores and the vocabulary's scores; these models are far smaller than a piece."""
    monkeypatch.setattr(em_routing, "_ACCELERATOR_VOTE_CHUNK", 64)
    monkeypatch.setattr(guided_routing, "_ACCELERATOR_PAIR_CHUNK", 64)
    monkeypatch.setattr(losses, "_ACCELERATOR_SCORE_CHUNK", 64)
    # They take votes in no pieces.
    monkeypatch.setattr(em_routing, "_kernels", lambda device: None)
    expected, of_cpu = _update("marian-everything", torch.device("cpu"), torch.float32)
    loss, gradients = _update("marian-everything", device, torch.float32)
    assert loss == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(gradients, of_cpu, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("num_beams", _in_short([1, 4], [4]))
@pytest.mark.parametrize("name", _in_short(EVERY_KIND, [name.replace("-", "/") for name in OF_EACH_CELL]))
def test_decoding(name, num_beams, device, engine_calls):
    options = {"num_beams": num_beams, "max_new_tokens": LONGEST}
    expected = ending(name).generate(**sources(16), **options)
    model, source = ending(name).to(device), _to(device, sources(16))
    assert torch.equal(model.generate(**source, **options).cpu(), expected)
    check_agreement(model, source, engine_calls, **options)


@pytest.mark.parametrize("option", _in_short(OPTIONS, ["several", "two_ends"]))
@pytest.mark.parametrize("name", _in_short(["marian", "recurrent/capsule"], ["marian"]))
def test_options_of_decoding(name, option, device):
    options = {"max_new_tokens": 16, **OPTIONS[option]}
    expected = ending(name).generate(**sources(16), **options)
    model, source = ending(name).to(device), _to(device, sources(16))
    assert torch.equal(model.generate(**source, **options, custom_generate=generate).cpu(), expected)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


REGULARISED = {"rdrop_alpha": 1.0, "ema_decay": 0.5}


@pytest.mark.parametrize("precision", _in_short(["float32", "bfloat16"], ["bfloat16"]))
@pytest.mark.parametrize("method", _in_short(["transformer", "em-routing", "gdr", "capsnmt", "rnmt-gdr"], ["gdr"]))
def test_commands(method, precision, device, corpus, tmp_path):
    pytest.importorskip("datasets")
    validated = {"validation_file": files(corpus, "validation"), "eval_strategy": "steps", "eval_steps": 1}
    saved = {"save_strategy": "steps", "save_steps": 1, "use_cpu": None}
    options = {**REGULARISED, **validated, **saved, "bf16": precision == "bfloat16", "method": method}
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
    if method not in ("transformer", "capsnmt"):
        report = tmp_path / "report"
        analyze.main([*read, "--references", str(target), "--output_dir", str(report), "--lines", "1"])
        assert (report / "routing.json").exists()
