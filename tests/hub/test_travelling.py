"""Saved models load where this package is not installed: the same logits, loss and beams from at most four files.

They come from a folder or from the Hub.
"""

import ast
import json
import os
import subprocess
import sys
from inspect import getsource

import pytest
import torch
from huggingface_hub import HfApi
from loopback_hub import TOKEN
from tiny_marian import tiny_tokenizer
from transformers import AutoConfig, AutoModelForSeq2SeqLM, MarianConfig, MarianMTModel, pipeline
from transformers.dynamic_module_utils import check_imports, get_relative_imports

from hf_capsule_mt import (
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianForSequenceClassification,
    preset_config,
)

TINY = {"d_model": 16, "encoder_layers": 2, "vocab_size": 29}
SMALL = {**TINY, "decoder_layers": 1, "init_std": 0.7}
HEADS = {"head_aggregation": "em_routing", "head_aggregation_decoder_layers": None}
HEADS["head_aggregation_cross_layers"] = None
GUIDED = {"guided_routing": "gdr", "guided_capsule_dim": 4}
KINDS = {
    "em-routing": {**SMALL, **HEADS, **GUIDED, "label_smoothing": 0.1},
    "gdr": {**SMALL, "layer_aggregation": "linear", "guided_capsule_dim": 4},
    "capsnmt": {**TINY, "decoder_layers": 1, "label_smoothing": 0.1},
    "rnmt-gdr": {**TINY, "guided_capsule_dim": 4},
}
FAMILIES = ["em-routing", "capsnmt", "rnmt-gdr"]
SENTENCES = ["a b c", "d"]
BATCH = {
    "input_ids": [[3, 4, 5, 2], [6, 2, 0, 0]],
    "attention_mask": [[1, 1, 1, 1], [1, 1, 0, 0]],
    "labels": [[7, 8, 2], [9, 2, -100]],
}


def save(folder, method, **fields):
    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(preset_config(method, "tiny", **{**KINDS.get(method, SMALL), **fields}))
    model.generation_config.max_new_tokens = 4
    model.eval().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return model


def tensors():
    return {name: torch.tensor(value) for name, value in BATCH.items()}


def results(model):
    """Numbers to compare."""
    with torch.no_grad():
        output = model(**tensors())
        source = {name: value for name, value in tensors().items() if name != "labels"}
        beams = model.generate(**source, num_beams=3, num_return_sequences=2)
    return [output.loss.item(), output.logits.tolist(), beams.tolist()]


def assert_same(found, expected):
    """Compare what two processes found. Products of PyTorch's library differ by rounding with the place in memory."""
    torch.testing.assert_close(torch.tensor(found[1]), torch.tensor(expected[1]), rtol=1e-5, atol=2e-6)
    assert found[0] == pytest.approx(expected[0], rel=1e-6)
    assert found[2] == expected[2]


LOAD_AND_SAVE = """
import gc, json, multiprocessing, os, sys
# While modules are imported it looks through all of them again and again, and finds nothing.
gc.disable()
# Every import of them fails.
sys.modules.update(dict.fromkeys(["hf_capsule_mt", "accelerate", "peft", "scipy", "torchao"]))
import torch
from huggingface_hub import constants
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer
from transformers import logging, pipeline
logging.set_verbosity_error()
logging.disable_progress_bar()
gc.freeze()
gc.enable()
found = {}
trust = {"trust_remote_code": True}
def load(method):
    both.wait()
    return type(AutoModelForSeq2SeqLM.from_pretrained(f"first/{method}", **trust)).__name__
# Two processes at once, which find none of the code's files in the cache.
fork = multiprocessing.get_context("fork")
both = fork.Barrier(2)
with fork.Pool(2) as pool:
    found["at once"] = pool.map(load, ["capsnmt"] * 2, chunksize=1)
for method in methods:
    model = AutoModelForSeq2SeqLM.from_pretrained(f"first/{method}", **trust)
    base = AutoModel.from_pretrained(f"first/{method}", **trust)
    translator = pipeline("translation", model=f"first/{method}", device="cpu", **trust)
    found[method] = [results(model), type(base).__name__, translator(sentences)]
    # A model that is saved has all of its files, wherever it came from.
    os.rename(f"first/{method}", "moved")
    model.save_pretrained(f"second/{method}")
    os.rename("moved", f"first/{method}")
    translator.tokenizer.save_pretrained(f"second/{method}")
    again = AutoModelForSeq2SeqLM.from_pretrained(f"second/{method}", **trust)
    again.save_pretrained(f"third/{method}")
    translator = pipeline("translation", model=f"second/{method}", device="cpu", **trust)
    assert [results(again), type(base).__name__, translator(sentences)] == found[method]
model, report = AutoModelForSeq2SeqLM.from_pretrained("plain", output_loading_info=True)
assert not any(report.values()), report
found["plain"] = [type(model).__name__, results(model)]
try:
    AutoModelForSequenceClassification.from_pretrained("classifier")
except ValueError as error:
    found["untrusted"] = str(error)
model = AutoModelForSequenceClassification.from_pretrained("classifier", **trust)
with torch.no_grad():
    found["labels"] = model(input_ids=torch.tensor(BATCH["input_ids"][:1])).logits.tolist()

# Until here there was no Hub. What it has is loaded, trained and pushed.
constants.HF_HUB_OFFLINE = False
at = {"revision": commit, **trust}
translator = pipeline("translation", model="user/name", device="cpu", **at)
found["from the Hub"] = translator(sentences)
model = AutoModelForSeq2SeqLM.from_pretrained("user/name", **at)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
model(**tensors()).loss.backward()
optimizer.step()
model.eval().push_to_hub("user/again")
AutoTokenizer.from_pretrained("user/name", **at).push_to_hub("user/again")
found["trained"] = results(model)
with open("found.json", "w") as file:
    json.dump(found, file)
"""


@pytest.mark.slow
def test_every_family_elsewhere_and_saved_again_there(tmp_path, hub):
    models = {method: save(tmp_path / "first" / method, method) for method in FAMILIES}
    plain = save(tmp_path / "plain", "transformer", label_smoothing=0.1)
    labels = preset_config("transformer", "tiny", num_labels=5, **SMALL)
    classifier = CapsuleAggregatedMarianForSequenceClassification(labels).eval()
    classifier.save_pretrained(tmp_path / "classifier")
    HfApi(token=TOKEN).create_repo("user/name", private=True)
    files = {file.name: file.read_bytes() for file in (tmp_path / "first" / "em-routing").iterdir()}
    commit = hub.repositories["user/name"].commit("main", files, "a model")
    # The branch goes on, the pinned commit stays.
    hub.repositories["user/name"].commit("main", {"config.json": b"{}"}, "nonsense")
    names = {"methods": FAMILIES, "BATCH": BATCH, "sentences": SENTENCES, "commit": commit}
    code = [f"{name} = {value!r}\n" for name, value in names.items()]
    code += [getsource(tensors), getsource(results), LOAD_AND_SAVE]
    ours = {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **hub.environment(tmp_path / "home"), **ours}
    options = {"cwd": tmp_path, "env": environment, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    process = subprocess.run([sys.executable, "-c", "".join(code)], **options, check=False)
    assert process.returncode == 0, process.stderr[-4000:]
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["at once"] == ["CapsNMTForConditionalGeneration"] * 2
    for method, model in models.items():
        translations = pipeline("translation", model=str(tmp_path / "first" / method), device="cpu")(SENTENCES)
        assert_same(found[method][0], results(model))
        assert found[method][1:] == [type(model.model).__name__, translations], method
        names = {path.name for path in (tmp_path / "first" / method).iterdir()}
        assert {path.name for path in (tmp_path / "second" / method).iterdir()} == names
        for name in names:
            if name.endswith(".py") or name == "config.json":
                first = (tmp_path / "first" / method / name).read_bytes()
                assert (tmp_path / "second" / method / name).read_bytes() == first, (method, name)
                assert (tmp_path / "third" / method / name).read_bytes() == first, (method, name)
        # Here its class is installed.
        model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "second" / method)
        assert type(model).__module__.startswith("hf_capsule_mt.")
        assert_same(found[method][0], results(model))
    # A loss without label smoothing.
    assert found["plain"][0] == "MarianMTModel"
    expected = results(plain)
    assert_same([expected[0], *found["plain"][1][1:]], expected)
    assert "trust_remote_code=True" in found["untrusted"]
    words = torch.tensor(BATCH["input_ids"][:1])
    torch.testing.assert_close(torch.tensor(found["labels"]), classifier(input_ids=words).logits.detach())
    assert found["from the Hub"] == found["em-routing"][2]
    # What was trained and pushed there loads here.
    for name, data in hub.repositories["user/again"].files.items():
        (tmp_path / "again").mkdir(exist_ok=True)
        (tmp_path / "again" / name).write_bytes(data)
    assert {path.name for path in (tmp_path / "again").glob("*.py")} == {name for name in files if name.endswith(".py")}
    assert_same(found["trained"], results(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again")))


@pytest.mark.parametrize("method", KINDS)
def test_files(tmp_path, method):
    family = save(tmp_path, method).config.model_type
    files = {path.name: path for path in tmp_path.glob("*.py")}
    kernels = {"em_routing_kernels.py"} if method == "em-routing" else set()
    modules = {f"configuration_{family}.py", f"modeling_{family}.py", "pipeline_translation.py", *kernels}
    assert set(files) == modules
    assert sum(path.stat().st_size for path in files.values()) <= 200_000
    assert not get_relative_imports(files[f"configuration_{family}.py"])
    for name, path in files.items():
        text = path.read_text()
        compile(text, name, "exec")
        assert text.startswith("# Copyright")
        # Transformers looks for what else is to be installed, and for other files.
        needed = check_imports(path)
        assert {f"{module}.py" for module in needed} <= set(files), name
        # What is one module in a checkpoint is several in the package, so no two top-level names may be equal.
        found = []
        for node in ast.parse(text).body:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            found += [name for target in targets if (name := getattr(target, "id", None))]
            found += [alias.asname or alias.name for alias in getattr(node, "names", [])]
            found += [node.name] if hasattr(node, "name") else []
        assert len(found) == len(set(found)), [name for name in found if found.count(name) > 1]
    config = json.loads((tmp_path / "config.json").read_text())
    assert set(config["auto_map"]) == {"AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM"}
    assert config["custom_pipelines"]["translation"]["impl"] == "pipeline_translation.TranslationPipeline"
    for reference in config["auto_map"].values():
        module, name = reference.split(".")
        assert f"class {name}(" in files[f"{module}.py"].read_text()


def test_a_configuration_is_one_file(tmp_path):
    config = preset_config("em-routing", "tiny", **SMALL)
    config.to_json_file(tmp_path / "other.json")
    config.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"other.json", "config.json"}


@pytest.mark.parametrize("method", KINDS)
def test_nothing_is_trusted_unasked(tmp_path, method):
    model_type = save(tmp_path, method).config.model_type
    # Here the installed classes serve: a file that says otherwise would end this.
    for path in tmp_path.glob("*.py"):
        path.write_text("raise SystemExit('remote code was run')")
    assert AutoConfig.from_pretrained(tmp_path, trust_remote_code=True).model_type == model_type
    AutoModelForSeq2SeqLM.from_pretrained(tmp_path, trust_remote_code=True)
    assert pipeline("translation", model=str(tmp_path), device="cpu")(SENTENCES)


def test_a_plain_transformer_is_marian(tmp_path):
    model = save(tmp_path, "transformer", label_smoothing=0.1)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["MarianMTModel"]
    assert not {"auto_map", "custom_pipelines", "layer_aggregation", "guided_routing"} & set(config)
    marian = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert type(marian) is MarianMTModel
    assert results(marian)[1:] == results(model)[1:]
    # Ours takes it as it is, with its label smoothing, and from_marian adds to it.
    ours = CapsuleAggregatedMarianForConditionalGeneration.from_pretrained(tmp_path)
    assert results(ours) == results(model)
    more = CapsuleAggregatedMarianForConditionalGeneration.from_marian(str(tmp_path), layer_aggregation="em_routing")
    assert results(more)[1] == results(model)[1]
    more.save_pretrained(tmp_path / "more")
    assert json.loads((tmp_path / "more" / "config.json").read_text())["model_type"] == "capsule_aggregated_marian"
    # It is again Marian if it is saved again.
    ours.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "config.json").read_bytes() == (tmp_path / "config.json").read_bytes()
    assert AutoConfig.from_pretrained(tmp_path / "again").__class__ is MarianConfig


def test_options_of_a_push(tmp_path, monkeypatch):
    options = {"repo_id": "user/name", "create_pr": True, "max_shard_size": "1MB"}
    sent = {}
    model = save(tmp_path, "capsnmt")
    monkeypatch.setattr(type(model), "push_to_hub", lambda self, **options: sent.update(options))
    model.save_pretrained(tmp_path, push_to_hub=True, **options)
    assert sent == options
