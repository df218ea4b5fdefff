"""Pushing a checkpoint to a Hub: what arrives, what stays as it was, and what is said when it fails."""

import json

import pytest
import torch
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import HTTPError
from huggingface_hub.utils import _http
from loopback_hub import TOKEN
from tiny_marian import save_tiny_marian, tiny_tokenizer

from hf_capsule_mt import (
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianModel,
    preset_config,
)
from hf_capsule_mt.hub.push import files_to_push, push_checkpoint

SMALL = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 29}
CARD = "---\nlanguage: [en, de]\nlicense: apache-2.0\n---\n\n# USER/NAME\n"


def save(folder, model_class=CapsuleAggregatedMarianForConditionalGeneration, **fields):
    torch.manual_seed(0)
    model = model_class(preset_config("em-routing", "tiny", **{**SMALL, **fields}))
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    (folder / "README.md").write_text(CARD)
    # What a training run leaves, and nobody else is to see.
    for name in ("optimizer.pt", "training_args.bin", "trainer_state.json", "events.out.tfevents.1"):
        (folder / name).write_text("secret")
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def large_checkpoint(tmp_path_factory):
    """Its weights are sent in several parts."""
    return save(tmp_path_factory.mktemp("large"), d_model=64)


def client(token=TOKEN):
    return HfApi(token=token)


def push(hub, folder, repo_id="user/name", token=TOKEN, **options):
    return push_checkpoint(folder, repo_id, api=client(token), **options)


@pytest.mark.parametrize("name", ["checkpoint", "large_checkpoint"])
def test_what_arrives(hub, request, name, tmp_path):
    folder = request.getfixturevalue(name)
    pushed = push(hub, folder)
    repository = hub.repositories["user/name"]
    assert pushed.oid == repository.branches["main"]
    assert pushed.commit_url.endswith(f"/user/name/commit/{pushed.oid}")
    assert repository.messages == ["initial commit", "Upload CapsuleAggregatedMarianForConditionalGeneration"]
    assert not repository.private
    sent = set(repository.files) - {".gitattributes"}
    assert sent == {file.name for file in folder.iterdir() if file.read_bytes() != b"secret"}
    for file in sent - {"README.md", "tokenizer_config.json"}:
        assert repository.files[file] == (folder / file).read_bytes(), file
    assert repository.files["README.md"].decode() == CARD.replace("USER/NAME", "user/name")
    # And back, through the same client and a clean cache.
    file = hf_hub_download("user/name", "model.safetensors", revision=pushed.oid, cache_dir=tmp_path)
    with open(file, "rb") as downloaded:
        assert downloaded.read() == (folder / "model.safetensors").read_bytes()


def test_files_of_an_earlier_model_are_deleted_and_others_stay(hub, checkpoint):
    client().create_repo("user/name")
    repository = hub.repositories["user/name"]
    stale = ["model-00001-of-00002.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "modeling_old.py"]
    stale += ["special_tokens_map.json", "added_tokens.json", "adapter_config.json", "source.spm", "tokenizer.model"]
    others = ["picture.png", "onnx/model.safetensors", "tools/train.py"]
    repository.commit("main", {name: name.encode() for name in [*stale, *others, "config.json"]}, "an older model")
    before = repository.branches["main"]
    push(hub, checkpoint)
    assert not set(stale) & set(repository.files)
    for name in others:
        assert repository.files[name] == name.encode()
    assert json.loads(repository.files["config.json"])["model_type"] == "capsule_aggregated_marian"
    # What was is not lost.
    assert set(repository.commits[before]) == {*stale, *others, "config.json"}


def test_a_plain_marian_model(hub, tmp_path):
    save_tiny_marian(tmp_path)
    push(hub, tmp_path)
    files = hub.repositories["user/name"].files
    assert json.loads(files["config.json"])["model_type"] == "marian"
    assert not [name for name in files if name.endswith(".py")]


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr(_http.time, "sleep", lambda seconds: None)


def test_a_connection_cut_for_good(hub, checkpoint, large_checkpoint, no_waiting):
    push(hub, checkpoint)
    repository = hub.repositories["user/name"]
    before = repository.branches["main"], dict(repository.files)
    hub.uploads_to_cut = 1000
    with pytest.raises((OSError, RuntimeError, HTTPError)):
        push(hub, large_checkpoint)
    assert (repository.branches["main"], repository.files) == before
    hub.uploads_to_cut = 0
    push(hub, large_checkpoint)
    assert repository.files["model.safetensors"] == (large_checkpoint / "model.safetensors").read_bytes()


def test_somebody_else_at_the_same_time(hub, checkpoint, monkeypatch):
    api = client()
    model_info = api.model_info

    def and_then_another(*args, **kwargs):
        info = model_info(*args, **kwargs)
        repository = hub.repositories["user/name"]
        repository.commit("main", {**repository.files, "theirs": b""}, "theirs")
        return info

    monkeypatch.setattr(api, "model_info", and_then_another)
    with pytest.raises(OSError, match="412"):
        push_checkpoint(checkpoint, "user/name", api=api)
    assert "theirs" in hub.repositories["user/name"].files


def test_another_branch_and_who_sees_it(hub, checkpoint):
    push(hub, checkpoint, revision="other")
    assert "model.safetensors" in hub.repositories["user/name"].commits[hub.repositories["user/name"].branches["other"]]
    with pytest.raises(ValueError, match="is public"):
        push(hub, checkpoint, private=True)


def test_a_model_without_its_head_is_pushed(tmp_path):
    assert "model.safetensors" in files_to_push(save(tmp_path, CapsuleAggregatedMarianModel, layer_aggregation=None))


def test_broken_checkpoints_are_not_sent(hub, tmp_path):
    config = json.loads((save(tmp_path) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "encoder_layers": 3}))
    with pytest.raises((ValueError, OSError), match="cannot be loaded"):
        push(hub, tmp_path)
    assert not hub.repositories
    assert not hub.requests
