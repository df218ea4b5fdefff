"""No pickle is loaded, no remote code is run unasked, and no token is shown or written."""

import contextlib
import json
import pickle
import re
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi, constants
from loopback_hub import TOKEN
from tiny_marian import save_tiny_marian, tiny_tokenizer
from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel, pipeline

import hf_capsule_mt
from hf_capsule_mt import (
    CapsNMTForConditionalGeneration,
    CapsuleAggregatedMarianForConditionalGeneration,
    RNMTForConditionalGeneration,
    preset_config,
)
from hf_capsule_mt.checkpoints import load_weights
from hf_capsule_mt.cli import train, translate

SOURCES = sorted(Path(hf_capsule_mt.__file__).parent.rglob("*.py"))
MODEL_CLASSES = {
    "capsule_aggregated_marian": CapsuleAggregatedMarianForConditionalGeneration,
    "caps_nmt": CapsNMTForConditionalGeneration,
    "rnmt": RNMTForConditionalGeneration,
}
CONVERTED = ("MarianMTModel", "AutoTokenizer")
SMALL = {"d_model": 16, "encoder_layers": 1, "vocab_size": 29}


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


def plant(folder):
    """Replace a checkpoint's weights by a pickle, and return the file that appears if somebody loads it."""
    trace = folder.parent / "exploded"
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb(trace)))
    return trace


every_family = pytest.mark.parametrize("ours", ["em-routing", "capsnmt", "rnmt"], indirect=True)


@pytest.fixture
def ours(request, tmp_path):
    folder = tmp_path / "ours"
    config = preset_config(getattr(request, "param", "em-routing"), "tiny", **SMALL)
    AutoModelForSeq2SeqLM.from_config(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def marian(tmp_path):
    return save_tiny_marian(tmp_path / "marian")


def test_the_bomb_works(tmp_path):
    """Or the tests below would show nothing."""
    pickle.loads(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert (tmp_path / "exploded").exists()


@every_family
def test_weights_in_a_pickle_are_not_loaded(ours):
    trace = plant(ours)
    for load in (AutoModelForSeq2SeqLM, MODEL_CLASSES[AutoConfig.from_pretrained(ours).model_type]):
        with pytest.raises(OSError, match=r"model\.safetensors"):
            load.from_pretrained(ours)
    assert not trace.exists()


@every_family
def test_nor_when_they_are_honest(ours):
    """Torch's restricted unpickler would take these."""
    weights = AutoModelForSeq2SeqLM.from_pretrained(ours).state_dict()
    (ours / "model.safetensors").unlink()
    torch.save(weights, ours / "pytorch_model.bin")
    with pytest.raises(OSError, match=r"model\.safetensors"):
        AutoModelForSeq2SeqLM.from_pretrained(ours)
    model = AutoModelForSeq2SeqLM.from_pretrained(ours, use_safetensors=False)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def test_how_to_convert_weights(marian, tmp_path, capsys):
    model = MarianMTModel.from_pretrained(marian)
    (marian / "model.safetensors").unlink()
    torch.save(model.state_dict(), marian / "pytorch_model.bin")
    parts = (f"{name}.from_pretrained({str(marian)!r}).save_pretrained(FOLDER)" for name in CONVERTED)
    message = f"if you trust whoever made it, convert it: {'; '.join(parts)}"
    with pytest.raises(OSError, match=re.escape(message)):
        CapsuleAggregatedMarianForConditionalGeneration.from_marian(str(marian))
    (tmp_path / "in").write_text("a b\n")
    arguments = ["--model", marian, "--input_file", tmp_path / "in"]
    assert f"holds no weights (*.safetensors); it holds pytorch_model.bin; {message}" in fails(
        translate, arguments, capsys
    )
    MarianMTModel.from_pretrained(str(marian)).save_pretrained(tmp_path / "converted")
    AutoTokenizer.from_pretrained(str(marian)).save_pretrained(tmp_path / "converted")
    arguments[1] = tmp_path / "converted"
    translate.main([str(argument) for argument in arguments])
    CapsuleAggregatedMarianForConditionalGeneration.from_marian(str(tmp_path / "converted"))


def fails(command, arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        command.main([str(argument) for argument in arguments])
    assert exit_.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("name", ["ours", "marian"])
def test_commands_load_no_pickle(name, request, tmp_path, capsys):
    folder = request.getfixturevalue(name)
    trace = plant(folder)
    (tmp_path / "in").write_text("a b\n")
    assert "holds no weights (*.safetensors)" in fails(
        translate, ["--model", folder, "--input_file", tmp_path / "in"], capsys
    )
    files = [tmp_path / "in", tmp_path / "in"]
    options = ["--output_dir", tmp_path / "run", "--use_cpu", "--max_steps", 1]
    assert "safetensors" in fails(train, ["--model_name_or_path", folder, "--train_file", *files, *options], capsys)
    assert not trace.exists()


@pytest.fixture
def stranger(tmp_path):
    """A checkpoint of a type that Transformers does not know, with code of its own."""
    folder = save_tiny_marian(tmp_path / "stranger")
    trace = tmp_path / "exploded"
    code = f"from pathlib import Path\nPath({str(trace)!r}).touch()\n"
    (folder / "configuration_own.py").write_text(code)
    config = (folder / "config.json").read_text().replace('"model_type": "marian"', '"model_type": "own"')
    references = (
        '{"auto_map": {"AutoConfig": "configuration_own.Own", "AutoModelForSeq2SeqLM": "configuration_own.Own"},'
    )
    (folder / "config.json").write_text(config.replace("{", references, 1))
    return folder, trace


def test_commands_run_no_remote_code(stranger, tmp_path, capsys, monkeypatch):
    folder, trace = stranger
    # Nobody is asked either.
    monkeypatch.setattr("builtins.input", lambda *prompt: "y")
    (tmp_path / "in").write_text("a b\n")
    error = fails(translate, ["--model", folder, "--input_file", tmp_path / "in"], capsys)
    assert "trust_remote_code" in error
    files = [tmp_path / "in", tmp_path / "in"]
    options = ["--output_dir", tmp_path / "run", "--use_cpu", "--max_steps", 1]
    fails(train, ["--model_name_or_path", folder, "--train_file", *files, *options], capsys)
    assert not trace.exists()


def _in_config(folder, code):
    return "config.json", {"task_specific_params": {"translation": code}}


def _in_generation_config(folder, code):
    return "generation_config.json", code


def _as_pipeline(folder, code):
    return "config.json", {"custom_pipelines": {"translation": {"impl": "evil.Pipeline", "pt": "AutoModel"}}}


def _as_tokenizer(folder, code):
    return "tokenizer_config.json", {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["evil.Own", "evil.Own"]}}


def _as_kernel(folder, code):
    return "config.json", {"attn_implementation": "somebody/evil"}


@pytest.mark.parametrize("door", [_in_config, _in_generation_config, _as_pipeline, _as_tokenizer, _as_kernel])
def test_the_pipeline_runs_no_code_of_a_checkpoint(door, marian, tmp_path):
    trace = tmp_path / "exploded"
    code = f"from pathlib import Path\nPath({str(trace)!r}).touch()\ndef generate(model, **_): return None\n"
    (marian / "custom_generate").mkdir()
    for file in (marian / "custom_generate" / "generate.py", marian / "evil.py"):
        file.write_text(code)
    name, fields = door(marian, {"custom_generate": str(marian), "trust_remote_code": True})
    settings = json.loads((marian / name).read_text())
    (marian / name).write_text(json.dumps({**settings, **fields}))
    with contextlib.suppress(ValueError, ImportError):
        pipeline("translation", model=str(marian), trust_remote_code=False)("a b")
    assert not trace.exists()


def test_no_source_trusts_remote_code_or_unpickles():
    for path in SOURCES:
        # What is in code marks is for the user to decide.
        code = re.sub(r'""".*?"""', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not re.search(r"trust_remote_code\W{1,4}True(?!\)')", code) or path.name == "push_to_hub.py", path
        # Tensors alone, of a run of one's own that goes on.
        code = code.replace('torch.load(file, map_location="meta", mmap=True, weights_only=True)', "")
        assert not re.search(r"\b(pickle|torch\.load|weights_only)\b", code), path


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "user/a b"], "not the name of a repository"),
        (["--model", "user/name", "--revision", "a..b"], "revision 'a..b' cannot be one"),
        (["--model", "FOLDER", "--revision", "main"], "is a folder, which has none"),
    ],
)
def test_impossible_names(options, message, ours, tmp_path, capsys):
    (tmp_path / "in").write_text("a\n")
    options = [ours if option == "FOLDER" else option for option in options]
    assert message in fails(translate, [*options, "--input_file", tmp_path / "in"], capsys)


def test_impossible_revision_of_a_checkpoint_to_train(ours, tmp_path, capsys):
    options = ["--train_file", __file__, __file__, "--output_dir", tmp_path / "run", "--model_revision", "a b"]
    assert "revision 'a b' cannot be one" in fails(train, ["--model_name_or_path", ours, *options], capsys)


def load_ours(folder, **options):
    return AutoModelForSeq2SeqLM.from_pretrained(folder, **options)


def load_checked(folder, **options):
    return load_weights(AutoModelForSeq2SeqLM, folder, **options)


def warm_start(folder, **options):
    return CapsuleAggregatedMarianForConditionalGeneration.from_marian(folder, **options)


@pytest.mark.parametrize(
    ("name", "load"), [("ours", load_ours), ("ours", load_checked), ("marian", load_checked), ("marian", warm_start)]
)
def test_a_configuration_names_no_weights(name, load, request):
    """Transformers would load them in the place of those that have been checked."""
    folder = request.getfixturevalue(name)
    config = json.loads((folder / "config.json").read_text())
    for named in ("adapter_model.bin", "x.safetensors.index.json"):
        (folder / "config.json").write_text(json.dumps({**config, "transformers_weights": named}))
        with pytest.raises(OSError, match=f"names weights of its own: transformers_weights is '{named}'. Do not trust"):
            load(folder)


def test_the_index_of_a_variant(ours):
    index = {"metadata": {}, "weight_map": {"lm_head.weight": "../outside.safetensors"}}
    (ours / "model.safetensors.index.fp16.json").write_text(json.dumps(index))
    for load in (load_ours, load_checked):
        with pytest.raises(OSError, match=r"fp16.json names '../outside.safetensors'; weights must be files beside it"):
            load(ours, variant="fp16")


def test_an_index_leads_to_no_other_format(ours):
    """Transformers would unpickle what it names."""
    weights = AutoModelForSeq2SeqLM.from_pretrained(ours).state_dict()
    torch.save(weights, ours / "pytorch_model.bin")
    (ours / "model.safetensors").rename(ours / "unused.safetensors")
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "pytorch_model.bin")}
    (ours / "model.safetensors.index.json").write_text(json.dumps(index))
    for load in (load_ours, load_checked):
        with pytest.raises(OSError, match=r"index.json names 'pytorch_model.bin'; weights must be in safetensors. Do"):
            load(ours)


@pytest.mark.parametrize(
    ("name", "load"), [("ours", load_ours), ("ours", load_checked), ("marian", load_checked), ("marian", warm_start)]
)
def test_an_adapter_beside_a_model(name, load, request):
    """With PEFT, Transformers would add it to the weights that have been checked."""
    folder = request.getfixturevalue(name)
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "somebody/else"}))
    with pytest.raises(OSError, match=r"holds an adapter, adapter_config.json, with which other weights are loaded"):
        load(folder)


@pytest.mark.parametrize("load", [load_ours, load_checked])
def test_an_adapter_on_the_hub_leads_to_no_other_weights(load, ours, hub, tmp_path, monkeypatch):
    """With PEFT, Transformers would take those of the base that it names, past the revision."""
    pytest.importorskip("peft")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    files = {file.name: file.read_bytes() for file in ours.iterdir()}
    base = json.dumps({"base_model_name_or_path": str(ours)}).encode()
    HfApi(token=TOKEN).create_repo("user/name")
    repository = hub.repositories["user/name"]
    commit = repository.commit("main", files, "a model")
    load("user/name", revision=commit)
    commit = repository.commit("main", {**files, "adapter_config.json": base}, "and an adapter")
    with pytest.raises(OSError, match=r"user/name holds an adapter, adapter_config.json, with which other weights are"):
        load("user/name", revision=commit)


@pytest.mark.parametrize("damage", ["[1]", '"x"', "{", '{"base_model_name_or_path": null}'])
def test_a_damaged_adapter(damage, tmp_path):
    (tmp_path / "adapter_config.json").write_text(damage)
    with pytest.raises(OSError, match=r"adapter_config.json is damaged: base_model_name_or_path is None, which must"):
        CapsuleAggregatedMarianForConditionalGeneration.from_pretrained(tmp_path)
