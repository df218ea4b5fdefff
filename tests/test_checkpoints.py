"""Checkpoints of a run, and what every command says of one that cannot be used."""

import json
import re
import shutil
import subprocess
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_marian import save_tiny_marian, tiny_tokenizer
from tiny_run import arguments, small, write_corpus
from transformers import AutoModelForSeq2SeqLM

from benchmarks.speed.train import compare_with_plain
from hf_capsule_mt import METHODS, preset_config
from hf_capsule_mt.analysis.demo_answer import answer
from hf_capsule_mt.checkpoints import (
    check_folder,
    checkpoints,
    count_parameters,
    last_checkpoint,
    load_tokenizer,
)
from hf_capsule_mt.cli import analyze, average_checkpoints, distill, push_to_hub, train, translate
from hf_capsule_mt.saving import explained_saving
from hf_capsule_mt.trainer_state import missing_state
from hf_capsule_mt.weights import verify_weights

CHECKPOINT = Path(__file__).parent / "checkpoints" / "capsule_aggregated_marian"
WEIGHTS = "model.safetensors"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
DAMAGED = "the weights in {folder}{file} are damaged: "
MISFIT = "the weights in {folder} do not fit its configuration: "


def test_the_last_checkpoint_that_is_whole(tmp_path):
    assert last_checkpoint(tmp_path / "absent") is None
    for name, state in (("checkpoint-9", "{}"), ("checkpoint-10", "{}"), ("checkpoint-11", '{"a'), ("best", "{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text(state)
        for file in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
            (tmp_path / name / file).touch()
    (tmp_path / "checkpoint-12").mkdir()
    assert [folder.name for folder in checkpoints(tmp_path)] == [f"checkpoint-{step}" for step in (9, 10, 11, 12)]
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    # A run cannot go on from it.
    (tmp_path / "checkpoint-10" / "optimizer.pt").unlink()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-9"
    assert last_checkpoint(tmp_path, with_state=False) == tmp_path / "checkpoint-10"


def test_the_state_of_several_processes(tmp_path):
    for file in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth"):
        (tmp_path / file).touch()
    assert missing_state(tmp_path) == []
    assert missing_state(tmp_path, processes=1) == ["rng_state.pth"]
    assert missing_state(tmp_path, processes=2) == ["rng_state_1.pth"]


def options_of(command, folder, text, output):
    files = ["--train_file", text, text.with_suffix(".de")]
    return {
        translate: ["--model", folder, "--input_file", text, "--output_file", output],
        distill: ["--model", folder, *files, "--output_file", f"{output}.tsv"],
        analyze: ["--model", folder, "--input_file", text, "--output_dir", output],
        train: ["--model_name_or_path", folder, *files, "--output_dir", output, "--use_cpu", "--max_steps", "1"],
        average_checkpoints: ["--checkpoints", CHECKPOINT, folder, "--output_dir", output],
        push_to_hub: ["--model", folder, "--repo_id", "user/name"],
    }[command]


def remove(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def cut(name):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-40])


def edit(**fields):
    def spoil(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **fields}))

    return spoil


def lose_a_tensor(folder):
    tensors = load_file(folder / WEIGHTS)
    del tensors["model.encoder.layers.1.fc1.weight"]
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def break_a_weight(folder):
    tensors = load_file(folder / WEIGHTS)
    tensors["model.encoder.layers.1.fc1.weight"][0, 3] = torch.nan
    tensors["model.encoder.layers.1.fc1.bias"][1] = -torch.inf
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


LOADING = (translate, distill, analyze, train, push_to_hub)
EVERY = (*LOADING, average_checkpoints)
MISTAKES = {
    "a cut config": (cut("config.json"), "{folder}/config.json is not valid JSON: ", EVERY),
    "a cut generation config": (
        cut("generation_config.json"),
        "{folder}/generation_config.json is not valid JSON: ",
        EVERY,
    ),
    "no config": (remove("config.json"), "{folder} holds no config (config.json); name the folder", EVERY),
    "no tokenizer": (remove(*TOKENIZER), "{folder} holds no tokenizer (tokenizer_config.json or", LOADING),
    "a cut tokenizer": (cut("tokenizer.json"), "{folder}/tokenizer.json is not valid JSON: ", LOADING),
    "half a tokenizer": (remove("tokenizer.json"), "the tokenizer in {folder} cannot be loaded: ", LOADING),
    "no weights": (remove(WEIGHTS), "{folder} holds no weights (*.safetensors); copy them", EVERY),
    "cut weights": (cut(WEIGHTS), DAMAGED, EVERY),
    "another vocabulary": (edit(vocab_size=30), MISFIT, (translate, distill, analyze, push_to_hub)),
    "a tensor less": (lose_a_tensor, MISFIT + "model.encoder.layers.1.fc1.weight", (translate, analyze, push_to_hub)),
    "weights that diverged": (break_a_weight, "the weights in {folder}{file} are not finite: model.encoder", EVERY),
    "another routing": (edit(layer_aggregation=None), MISFIT + "model.", (translate, push_to_hub)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_commands_say_of_a_broken_checkpoint(tmp_path, capsys, mistake):
    spoil, message, commands = MISTAKES[mistake]
    folder, text = shutil.copytree(CHECKPOINT, tmp_path / "checkpoint"), tmp_path / "text.en"
    spoil(folder)
    for file in (text, text.with_suffix(".de")):
        file.write_text("a b\n")
    before = sorted(tmp_path.rglob("*"))
    for command in commands:
        with pytest.raises(SystemExit) as exit_:
            command.main([str(word) for word in options_of(command, folder, text, tmp_path / "output")])
        assert exit_.value.code == 2
        _, _, shown = capsys.readouterr().err.rpartition("error: ")
        file = f"/{WEIGHTS}" if command is average_checkpoints else ""
        assert shown.startswith(message.format(folder=folder, file=file)), command.__name__
        assert sorted(tmp_path.rglob("*")) == before


def test_weights_are_verified(tmp_path, capsys):
    """A flipped bit of a weight is a weight."""
    folder, text = tmp_path / "saved", tmp_path / "text.en"
    text.write_text("a b\n")
    AutoModelForSeq2SeqLM.from_pretrained(CHECKPOINT).save_pretrained(folder, max_shard_size="40KB")
    load_tokenizer(CHECKPOINT).save_pretrained(folder)
    subprocess.run(["sha256sum", "--check", "--quiet", "weights.sha256"], cwd=folder, check=True)
    words = [str(word) for word in options_of(translate, folder, text, tmp_path / "output")]
    translate.main([*words, "--verify"])
    shard = sorted(folder.glob("*.safetensors"))[1]
    content = bytearray(shard.read_bytes())
    content[-8] ^= 1
    shard.write_bytes(content)
    translate.main(words)
    for command, more in ((translate, ["--verify"]), (push_to_hub, [])):
        words = options_of(command, folder, text, tmp_path / "other")
        with pytest.raises(SystemExit):
            command.main([*map(str, words), *more])
        assert f"{shard} is not what was saved: its SHA-256 is another; copy or" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError, match=r"capsule_aggregated_marian holds no weights.sha256, which save_pretr"):
        verify_weights(CHECKPOINT)
    (folder / "adapter_config.json").touch()
    with pytest.raises(OSError, match=r"saved holds an adapter, adapter_config.json, with which other weights"):
        verify_weights(folder)
    (folder / "adapter_config.json").unlink()
    shard.unlink()
    with pytest.raises(FileNotFoundError, match=f"saved lacks {shard.name}, which weights.sha256 names; copy it again"):
        verify_weights(folder)


@pytest.mark.parametrize("line", ["", "\n", f"{'0' * 64} *{WEIGHTS}\n", f"{'0' * 64}  ../{WEIGHTS}\n"])
def test_a_damaged_list_of_hashes(tmp_path, capsys, line):
    """It would verify nothing, or files elsewhere."""
    folder = shutil.copytree(CHECKPOINT, tmp_path / "saved")
    (folder / "weights.sha256").write_text(line)
    damaged = f"{folder}/weights.sha256 is damaged: its lines must be a SHA-256"
    with pytest.raises(OSError, match=re.escape(damaged)):
        verify_weights(folder)
    with pytest.raises(SystemExit):
        push_to_hub.main(list(map(str, options_of(push_to_hub, folder, tmp_path, tmp_path))))
    assert damaged in capsys.readouterr().err


def test_a_shard_that_is_missing(tmp_path):
    AutoModelForSeq2SeqLM.from_pretrained(CHECKPOINT).save_pretrained(tmp_path, max_shard_size="40KB")
    check_folder(tmp_path, "config", "weights")
    lost = next(tmp_path.glob("model-00002-*"))
    lost.unlink()
    with pytest.raises(FileNotFoundError, match=f"lacks {lost.name}, which model.safetensors.index.json names"):
        check_folder(tmp_path, "weights")


def test_a_word_whose_id_would_take_gigabytes(tmp_path):
    for name in TOKENIZER:
        shutil.copy(CHECKPOINT / name, tmp_path / name)
    check_folder(tmp_path, "tokenizer")
    file = tmp_path / "tokenizer.json"
    fields = json.loads(file.read_text())
    fields["model"]["vocab"]["</s>"] = 2**31 - 1
    file.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=rf"^{file} is damaged: '</s>' is word 2147483647; allowed are ids up to"):
        check_folder(tmp_path, "tokenizer")


def test_the_weights_of_others_may_have_more_than_is_used(tmp_path):
    """Such as what an older version of a model had."""
    weights = save_tiny_marian(tmp_path / "marian") / WEIGHTS
    tensors = load_file(weights)
    save_file({**tensors, "old": tensors["final_logits_bias"].clone()}, weights, {"format": "pt"})
    (tmp_path / "text").write_text("a b\n")
    translate.main(["--model", str(tmp_path / "marian"), "--input_file", str(tmp_path / "text"), "--num_beams", "1"])


@pytest.mark.parametrize("method", METHODS)
def test_parameters_are_those_of_the_file(method, tmp_path):
    """Tied ones are there once and sinusoids are not; Marian's bias is no parameter."""
    model = AutoModelForSeq2SeqLM.from_config(small_config(method))
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / WEIGHTS)
    saved = sum(tensor.numel() for name, tensor in tensors.items() if name != "final_logits_bias")
    assert count_parameters(model) == count_parameters(AutoModelForSeq2SeqLM.from_pretrained(tmp_path)) == saved


def small_config(method):
    fields = {name: int(value) for name, value in (field.split("=") for field in small(method))}
    return preset_config(method, "tiny", vocab_size=len(tiny_tokenizer()), **fields)


def test_card_record_benchmark_and_explorer_agree(tmp_path):
    train.main(arguments(write_corpus(tmp_path), tmp_path / "run", save_strategy="no"))
    counted = json.loads((tmp_path / "run" / "run_record.json").read_text())["parameters"]
    assert f"{counted:,} parameters" in (tmp_path / "run" / "README.md").read_text()
    work = {
        "max_tokens": 96,
        "batch_size": 1,
        "num_beams": 1,
        "new_tokens": 1,
        "rounds": 1,
        "warmup_rounds": 0,
        "seed": 0,
    }
    others = {"vocab_size": len(tiny_tokenizer()), "device": "cpu", "dtype": "float32"}
    compared = compare_with_plain(small_config("em-routing"), Namespace(**work, **others))
    assert compared["parameters"] == counted > compared["plain_parameters"]
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run"), load_tokenizer(tmp_path / "run")
    assert answer(lambda name: loaded, "run", "a b").architecture.endswith(f" {counted:,} parameters.")


def test_a_failed_save_leaves_the_weights_that_were_there(tmp_path):
    for name in ("model.safetensors", "model-00001-of-00002.safetensors"):
        (tmp_path / name).write_bytes(b"old")

    def save():
        for number in (1, 2):
            (tmp_path / f"model-0000{number}-of-00002.safetensors").write_bytes(b"new")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"cannot be saved: .*No space left"), explained_saving(tmp_path):
        save()
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
