"""From a command to the Hub and from there into processes with clean caches, by commands and by Trainers."""

import json
import logging
import re
from contextlib import nullcontext
from importlib import import_module

import pytest
import tiny_run
import torch
from huggingface_hub import HfApi, ModelCard, constants
from loopback_hub import OTHER_TOKEN, TOKEN
from tiny_marian import tiny_tokenizer
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    pipeline,
)

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration, preset_config
from hf_capsule_mt.loading import commit_of
from hf_capsule_mt.training.callbacks import SourceCallback

pytestmark = pytest.mark.slow

SENTENCES = ["a b c", "d", "e f g h"]
SOURCE = {
    "configuration_capsule_aggregated_marian.py",
    "em_routing_kernels.py",
    "modeling_capsule_aggregated_marian.py",
    "pipeline_translation.py",
}


@pytest.fixture
def run_command(hub, tmp_path, monkeypatch, capsys, caplog):
    """Run one of our commands as somebody with that token and home, and return what it printed and what it reported."""

    def run(name, *options, token=TOKEN, home="home", code=0):
        caplog.clear()
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / home))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        if token:
            monkeypatch.setenv("HF_TOKEN", token)
        with nullcontext() if code == 0 else pytest.raises(SystemExit, match=f"^{code}$"):
            import_module(f"hf_capsule_mt.cli.{name}").main([*map(str, options)])
        printed, reported = capsys.readouterr()
        return printed, reported + caplog.text

    return run


def translations(results):
    return [result["translation_text"] for result in results]


@pytest.fixture
def checkpoint(tmp_path):
    torch.manual_seed(0)
    small = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 29, "init_std": 0.7}
    model = CapsuleAggregatedMarianForConditionalGeneration(preset_config("em-routing", "tiny", **small))
    model.generation_config.max_new_tokens = 7
    model.save_pretrained(tmp_path / "checkpoint")
    tiny_tokenizer().save_pretrained(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_a_command_pushes_and_others_load(hub, checkpoint, tmp_path, run_command):
    printed, reported = run_command("push_to_hub", "--model", checkpoint, "--repo_id", "user/name", "--private")
    assert "no model card" in reported
    commit = hub.repositories["user/name"].branches["main"]
    assert f'pipeline("translation", model="user/name", revision="{commit}", trust_remote_code=True)' in printed
    # The branch goes on, the pinned commit stays.
    hub.repositories["user/name"].commit("main", {"config.json": b"{}"}, "nonsense")
    here = translations(pipeline("translation", model=str(checkpoint), device="cpu")(SENTENCES))
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in SENTENCES))
    options = ["--model", "user/name", "--revision", commit, "--input_file", "in", "--output_file", "out"]
    run_command("translate", *options, "--max_new_tokens", 7)
    assert (tmp_path / "out").read_text().splitlines() == here

    # Those who may not read it see nothing, and no token is in any output.
    for token in (None, OTHER_TOKEN):
        _, error = run_command("translate", *options, token=token, home="another", code=2)
        assert "user/name" in error
    everything = printed + reported + error + "".join(map(text_of, (tmp_path / "home").rglob("*")))
    assert TOKEN not in everything


def text_of(file):
    return file.read_bytes().decode(errors="replace") if file.is_file() else ""


def test_every_commit_of_a_training_run_loads(hub, corpus, tmp_path, run_command):
    validation = tiny_run.files(corpus, "validation")
    options = {"validation_file": validation, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps"}
    push = {"save_steps": 1, "push_to_hub": True, "hub_model_id": "user/run", "hub_always_push": True, "ema_decay": 0.5}
    run_command("train", *tiny_run.arguments(corpus, tmp_path / "run", **options, **push))
    repository = hub.repositories["user/run"]
    commits = list(repository.commits.values())[1:]
    # The Trainer sends one while the next update's writes over it, so either may have nothing to send, or fail.
    *before, last = repository.messages[1:]
    assert before
    assert all(message.startswith("Training in progress, step ") for message in before)
    assert last == "End of training"
    for files in commits:
        assert SOURCE | {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    card = ModelCard(repository.files["README.md"].decode())
    assert card.data.eval_results[0].metric_type == "bleu"
    assert 'model="user/run"' in card.text
    assert re.search(r"^\| Updates \| 2 \|$", card.text, flags=re.MULTILINE)
    assert not [name for files in commits for name, data in files.items() if TOKEN.encode() in data]
    assert not [file for file in (tmp_path / "run").rglob("*") if TOKEN in text_of(file)]


def train_plainly(name, folder, callbacks):
    """Two updates by Transformers' own Trainer, each pushed."""
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    data = [{"input_ids": [3, 4, 2], "labels": [5, 2]}] * 4
    push = {"push_to_hub": True, "hub_model_id": f"user/{name}", "hub_always_push": True}
    args = Seq2SeqTrainingArguments(name, max_steps=2, save_steps=1, report_to="none", use_cpu=True, **push)
    collator = DataCollatorForSeq2Seq(tokenizer, model)
    trainer = Seq2SeqTrainer(model, args, collator, data, processing_class=tokenizer, callbacks=callbacks)
    trainer.train()
    trainer.push_to_hub()


@pytest.mark.parametrize("callbacks", [[], [SourceCallback()]], ids=["plain", "with_callback"])
def test_plain_trainers(hub, checkpoint, tmp_path, monkeypatch, callbacks):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    train_plainly("run", checkpoint, callbacks)
    commits = list(hub.repositories["user/run"].commits.values())[1:]
    complete = [set(files) >= SOURCE | {"config.json", "model.safetensors"} for files in commits]
    assert complete[-1]
    assert all(complete) == bool(callbacks)


def test_what_is_loaded_from_the_hub_is_pinned(hub, checkpoint, tmp_path, monkeypatch, run_command, caplog):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home"))
    HfApi(token=TOKEN).create_repo("user/name")
    files = {file.name: file.read_bytes() for file in checkpoint.iterdir()}
    commit = hub.repositories["user/name"].commit("main", files, "a model")
    assert re.fullmatch("[0-9a-f]{40}", commit)
    assert commit_of("user/name") == commit_of("user/name", "main") == commit
    (tmp_path / "text").write_text("a b c\n")
    (tmp_path / "reference").write_text("d\n")
    texts = ["--input_file", "text", "--references", "reference"]
    run_command("evaluate", "--model", "user/name", *texts, "--max_new_tokens", 4, "--output_file", "record.json")
    assert json.loads((tmp_path / "record.json").read_text())["translation"]["revision"] == commit
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    # Nobody needs a warning that offline the Hub is not asked.
    caplog.clear()
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "handlers", [caplog.handler])
    assert commit_of("user/name") == commit
    assert commit_of(checkpoint) is None
    assert not caplog.records
