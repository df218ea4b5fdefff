"""From a command to the Hub and from there into processes with clean caches, by commands and by Trainers."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from elsewhere import run_elsewhere
from huggingface_hub import ModelCard
from loopback_hub import OTHER_TOKEN, TOKEN
from tiny_marian import tiny_tokenizer
from tiny_run import arguments, write_corpus
from transformers import AutoModelForSeq2SeqLM, pipeline

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration, preset_config
from hf_capsule_mt.configuration.source import source_files

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SENTENCES = ["a b c", "d", "e f g h"]
SOURCE = set(source_files(frozenset({"modeling_capsule_aggregated_marian", "modeling_sequence_classification"})))


def run_command(hub, tmp_path, name, *options, token=TOKEN, home="home", code=0):
    """Run one of our commands as a user would, and return what it printed and what it reported."""
    settings = hub.environment(tmp_path / home, token)
    process = subprocess.run(
        [sys.executable, "-m", f"hf_capsule_mt.cli.{name}", *map(str, options)],
        env={**os.environ, **settings, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        timeout=600,
        check=False,
    )
    assert process.returncode == code, process.stderr[-4000:]
    return process.stdout, process.stderr


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


ELSEWHERE = """
import sys
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
at = {"revision": commit, "trust_remote_code": True}
translator = pipeline("translation", model="user/name", device="cpu", **at)
found["translations"] = [result["translation_text"] for result in translator(sentences)]
engine = sys.modules[type(translator.model).__module__.rpartition(".")[0] + ".decoding_generation"]
found["with the engine"] = translator.model in engine._engines
tokenizer = AutoTokenizer.from_pretrained("user/name", **at)
model = AutoModelForSeq2SeqLM.from_pretrained("user/name", **at)
labels = torch.tensor([[7, 8, 2]])
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
model(input_ids=torch.tensor([[3, 4, 2]]), labels=labels).loss.backward()
optimizer.step()
model.eval().push_to_hub("user/again")
tokenizer.push_to_hub("user/again")
found["logits"] = model(input_ids=torch.tensor([[3, 4, 2]]), labels=labels).logits.tolist()
"""


def test_a_command_pushes_and_others_load(hub, checkpoint, tmp_path):
    printed, reported = run_command(
        hub, tmp_path, "push_to_hub", "--model", checkpoint, "--repo_id", "user/name", "--private"
    )
    assert "no model card" in reported
    commit = hub.repositories["user/name"].branches["main"]
    assert f'pipeline("translation", model="user/name", revision="{commit}", trust_remote_code=True)' in printed
    # The branch goes on, the pinned commit stays.
    hub.repositories["user/name"].commit("main", {"config.json": b"{}"}, "nonsense")
    here = translations(pipeline("translation", model=str(checkpoint), device="cpu")(SENTENCES))
    found = run_elsewhere(ELSEWHERE, tmp_path, hub.environment(tmp_path / "one"), sentences=SENTENCES, commit=commit)
    assert found["translations"] == here
    assert found["with the engine"]

    # What was trained and pushed there loads here, as does what was pushed first.
    again = hub.repositories["user/again"]
    assert SOURCE | {"config.json", "model.safetensors"} <= set(again.files)
    for name, data in again.files.items():
        (tmp_path / "again").mkdir(exist_ok=True)
        (tmp_path / "again" / name).write_bytes(data)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again")
    words = {"input_ids": torch.tensor([[3, 4, 2]]), "labels": torch.tensor([[7, 8, 2]])}
    assert model(**words).logits.tolist() == found["logits"]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in SENTENCES))
    options = ["--model", "user/name", "--revision", commit, "--input_file", "in", "--output_file", "out"]
    run_command(hub, tmp_path, "translate", *options, "--max_new_tokens", 7)
    assert (tmp_path / "out").read_text().splitlines() == here

    # Those who may not read it see nothing, and no token is in any output.
    for token in (None, OTHER_TOKEN):
        _, error = run_command(hub, tmp_path, "translate", *options, token=token, home="another", code=2)
        assert "user/name" in error
    everything = printed + reported + error + "".join(map(text_of, (tmp_path / "home").rglob("*")))
    assert TOKEN not in everything


def text_of(file):
    return file.read_bytes().decode(errors="replace") if file.is_file() else ""


def test_every_commit_of_a_training_run_loads(hub, tmp_path):
    corpus = write_corpus(tmp_path)
    validation = [tmp_path / "validation.source", tmp_path / "validation.target"]
    options = {"validation_file": validation, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps"}
    push = {"save_steps": 1, "push_to_hub": True, "hub_model_id": "user/run", "hub_always_push": True}
    run_command(hub, tmp_path, "train", *arguments(corpus, tmp_path / "run", **options, **push))
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
    assert re.search(r"^\* Updates: 2$", card.text, flags=re.MULTILINE)
    assert not [name for files in commits for name, data in files.items() if TOKEN.encode() in data]
    assert not [file for file in (tmp_path / "run").rglob("*") if TOKEN in text_of(file)]

    here = translations(pipeline("translation", model=str(tmp_path / "run"), device="cpu")(SENTENCES))
    code = """
from transformers import pipeline
translator = pipeline("translation", model="user/run", device="cpu", trust_remote_code=True)
found["translations"] = [result["translation_text"] for result in translator(sentences)]
"""
    found = run_elsewhere(code, tmp_path, hub.environment(tmp_path / "clean"), sentences=SENTENCES)
    assert found["translations"] == here


PLAIN_TRAINERS = """
import hf_capsule_mt
from hf_capsule_mt.training.trainer import SourceCallback
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, DataCollatorForSeq2Seq
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments
for name, callbacks in (("plain", []), ("with_callback", [SourceCallback()])):
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    data = [{"input_ids": [3, 4, 2], "labels": [5, 2]}] * 4
    args = Seq2SeqTrainingArguments(
        name, max_steps=2, save_steps=1, push_to_hub=True, hub_model_id=f"user/{name}", hub_always_push=True,
        report_to="none", use_cpu=True,
    )
    collator = DataCollatorForSeq2Seq(tokenizer, model)
    trainer = Seq2SeqTrainer(model, args, collator, data, processing_class=tokenizer, callbacks=callbacks)
    trainer.train()
    trainer.push_to_hub()
"""


def test_plain_trainers(hub, checkpoint, tmp_path):
    environment = {**os.environ, **hub.environment(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", f"folder = {str(checkpoint)!r}\n{PLAIN_TRAINERS}"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for name in ("plain", "with_callback"):
        commits = list(hub.repositories[f"user/{name}"].commits.values())[1:]
        complete = [set(files) >= SOURCE | {"config.json", "model.safetensors"} for files in commits]
        assert complete[-1]
        assert all(complete) == (name == "with_callback")
