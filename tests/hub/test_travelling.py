"""Saved models load where this package is not installed: the same logits, loss and beams from at most four files.

They come from a folder or from the Hub.
"""

import ast
import json
import os
import subprocess
import sys

import elsewhere
import pytest
import torch
from elsewhere import BATCH, results
from huggingface_hub import HfApi
from loopback_hub import TOKEN
from tiny_marian import tiny_tokenizer
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    pipeline,
)
from transformers.dynamic_module_utils import check_imports, get_relative_imports

from hf_capsule_mt import (
    CapsuleAggregatedM2M100Config,
    CapsuleAggregatedM2M100ForConditionalGeneration,
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianForSequenceClassification,
    preset_config,
    simple_routing,
)
from hf_capsule_mt.modeling.aggregation import COMBINATIONS, LayerAttention
from hf_capsule_mt.modeling.routing import ROUTINGS, RoutingAlgorithm
from hf_capsule_mt.modeling.streams import STREAMS, Stream

TINY = {"d_model": 16, "encoder_layers": 2, "vocab_size": 29}
SMALL = {**TINY, "decoder_layers": 1, "init_std": 0.7}
HEADS_AND_WIDTHS = {"attention_heads": 2, "ffn_dim": 16}
HEADS = {"head_aggregation": "em_routing", "head_aggregation_decoder_layers": None}
HEADS["head_aggregation_cross_layers"] = None
GUIDED = {"guided_routing": "gdr", "guided_capsule_dim": 4}
M2M100 = {**SMALL, "pad_token_id": 0, "max_position_embeddings": 40}
M2M100 |= {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in HEADS_AND_WIDTHS.items()}
KINDS = {
    "em-routing": {**SMALL, **HEADS, **GUIDED, "label_smoothing": 0.1},
    # Heads are routed without layers.
    "head-em-routing": SMALL,
    "gdr": {**SMALL, "layer_aggregation": "linear", "guided_capsule_dim": 4},
    "source-em-routing": SMALL,
    "dlcl": SMALL,
    "mhc": SMALL,
    "m2m100-em-routing": {**M2M100, **HEADS, **GUIDED, "layer_aggregation": "em_routing", "label_smoothing": 0.1},
    "capsnmt": {**TINY, "decoder_layers": 1, "label_smoothing": 0.1},
    "rnmt-gdr": {**TINY, "guided_capsule_dim": 4},
}
FAMILIES = [
    "em-routing",
    "head-em-routing",
    "source-em-routing",
    "mhc",
    "dlcl",
    "m2m100-em-routing",
    "capsnmt",
    "rnmt-gdr",
]
SENTENCES = ["a b c", "d"]


def configuration(method, **fields):
    fields = {**KINDS.get(method, SMALL), **fields}
    return CapsuleAggregatedM2M100Config(**fields) if "m2m100" in method else preset_config(method, "tiny", **fields)


def save(folder, method, **fields):
    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(configuration(method, **fields))
    model.generation_config.max_new_tokens = 4
    model.eval().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return model


def assert_same(found, expected):
    """Compare what two processes found. Products of PyTorch's library differ by rounding with the place in memory."""
    torch.testing.assert_close(torch.tensor(found[1]), torch.tensor(expected[1]), rtol=1e-5, atol=2e-6)
    assert found[0] == pytest.approx(expected[0], rel=1e-6)
    assert found[2] == expected[2]


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
    task = {"methods": FAMILIES, "sentences": SENTENCES, "commit": commit}
    (tmp_path / "task.json").write_text(json.dumps(task))
    ours = {"HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **hub.environment(tmp_path / "home"), **ours}
    options = {"cwd": tmp_path, "env": environment, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    process = subprocess.run([sys.executable, elsewhere.__file__], **options, check=False)
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
    kernels = {"em_routing_kernels.py"} if "em-routing" in method else set()
    modules = {f"configuration_{family}.py", f"modeling_{family}.py", "pipeline_translation.py", *kernels}
    assert set(files) == modules
    assert sum(path.stat().st_size for path in files.values()) <= 230_000
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
    assert config["custom_pipelines"]["translation"]["impl"] == "pipeline_translation.SentenceTranslationPipeline"
    for reference in config["auto_map"].values():
        module, name = reference.split(".")
        assert f"class {name}(" in files[f"{module}.py"].read_text()


@pytest.mark.parametrize("method", ["transformer", "head-em-routing", "rnmt-gdr"])
def test_a_save_that_is_interrupted_leaves_a_whole_configuration(tmp_path, method, monkeypatch):
    model = save(tmp_path / "whole", method)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(model), "state_dict", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.save_pretrained(tmp_path / "cut")
    expected = (tmp_path / "whole" / "config.json").read_bytes()
    assert (tmp_path / "cut" / "config.json").read_bytes() == expected
    assert type(model.config) is type(preset_config(method, "tiny"))
    for path in (tmp_path / "whole").glob("*.py"):
        assert (tmp_path / "cut" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("method", KINDS)
def test_an_edited_configuration_still_names_the_files(tmp_path, method):
    save(tmp_path / "model", method)
    file = tmp_path / "model" / "config.json"
    before = json.loads(file.read_text())
    config = AutoConfig.from_pretrained(tmp_path / "model")
    config.label_smoothing = 0.25
    config.save_pretrained(tmp_path / "model")
    assert json.loads(file.read_text()) == {**before, "label_smoothing": 0.25}
    # Nothing that Transformers reads, or a copy of the fields, asks for remote code.
    assert not {"auto_map", "custom_pipelines", "source_references"} & set(config.to_dict())
    # Elsewhere there are no such files.
    config.save_pretrained(tmp_path / "other")
    assert not {"auto_map", "custom_pipelines"} & set(json.loads((tmp_path / "other" / "config.json").read_text()))


def halves(votes, num_iterations=3, mask=None, return_all_coefficients=False):
    return simple_routing(votes / 2, num_iterations, mask, return_all_coefficients)


def test_a_routing_that_is_not_carried_is_named(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(ROUTINGS, "halves", RoutingAlgorithm(halves))
    save(tmp_path / "ours", "em-routing", layer_aggregation="dynamic_routing")
    assert not caplog.records
    save(tmp_path / "own", "transformer", head_aggregation="halves")
    (warning,) = caplog.records
    assert "does not carry the head_aggregation 'halves' of test_travelling" in warning.getMessage()
    assert "--import" in warning.getMessage()
    assert (tmp_path / "own" / "modeling_capsule_aggregated_marian.py").is_file()


class LargestLayer(LayerAttention):
    def forward(self, layers, output_routing=False):
        return layers.amax(-2), None


def test_an_aggregation_that_is_not_carried_is_named(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(COMBINATIONS, "maxpool", LargestLayer)
    save(tmp_path / "ours", "linear-combination")
    assert not caplog.records
    save(tmp_path / "own", "transformer", layer_aggregation="maxpool")
    (warning,) = caplog.records
    assert "does not carry the layer_aggregation 'maxpool' of test_travelling" in warning.getMessage()
    AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "own")
    monkeypatch.delitem(COMBINATIONS, "maxpool")
    names = "linear, dynamic, attention, dynamic_routing, simple_routing, em_routing"
    with pytest.raises(
        ValueError, match=rf"There is no layer_aggregation 'maxpool'. Use one of {names}\..*from_pretrained.*--import"
    ):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "own")


class LastLayer(Stream):
    def __init__(self, config, num_layers, side):
        super().__init__()


def test_a_stream_that_is_not_carried_is_named(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(STREAMS, "last", LastLayer)
    # It is another thing at another place.
    monkeypatch.setitem(COMBINATIONS, "hyper-connections", LargestLayer)
    save(tmp_path / "ours", "hyper-connections")
    assert not caplog.records
    save(tmp_path / "own", "pre-norm-transformer", layer_aggregation="last", layer_aggregation_place="layers")
    (warning,) = caplog.records
    assert "does not carry the layer_aggregation 'last' of test_travelling" in warning.getMessage()
    AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "own")
    monkeypatch.delitem(STREAMS, "last")
    with pytest.raises(ValueError, match=r"no layer_aggregation for .* 'last'. Use one of linear, .*--import"):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "own")


def test_code_for_attention_of_a_stranger_is_refused(tmp_path):
    save(tmp_path, "capsnmt")
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**fields, "attn_implementation": "owner/name"}))
    with pytest.raises(ValueError, match="attn_implementation 'owner/name', a repository with code"):
        AutoConfig.from_pretrained(tmp_path)


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


def test_a_plain_model_of_the_second_family_is_m2m100(tmp_path):
    torch.manual_seed(0)
    model = CapsuleAggregatedM2M100ForConditionalGeneration(CapsuleAggregatedM2M100Config(**M2M100)).eval()
    model.generation_config.max_new_tokens = 4
    model.save_pretrained(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("m2m_100", ["M2M100ForConditionalGeneration"])
    assert not {"auto_map", "custom_pipelines", "layer_aggregation", "guided_routing"} & set(config)
    plain, report = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    assert type(plain) is M2M100ForConditionalGeneration
    assert results(plain) == results(model)
    more = CapsuleAggregatedM2M100ForConditionalGeneration.from_m2m100(str(tmp_path), layer_aggregation="em_routing")
    assert results(more)[1:] == results(model)[1:]
    # The model without its head is another class.
    model.model.save_pretrained(tmp_path / "body")
    config = json.loads((tmp_path / "body" / "config.json").read_text())
    assert config["architectures"] == ["M2M100Model"]
    assert AutoConfig.from_pretrained(tmp_path / "body").__class__ is M2M100Config
