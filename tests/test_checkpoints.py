"""Checkpoints of a run, and the number of a model's parameters."""

import ctypes
import json
import os
import stat
import warnings
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_marian import save_tiny_marian, tiny_model, tiny_tokenizer
from tiny_run import arguments, small
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
from transformers.utils import logging

import hf_capsule_mt  # noqa: F401
from benchmarks.training.train import compare_with_plain
from hf_capsule_mt import METHODS, preset_config
from hf_capsule_mt.cli import train, translate
from hf_capsule_mt.decoding.generation import logger
from hf_capsule_mt.loading import check_decodes, count_parameters, load_model
from hf_capsule_mt.training.averaging import average_checkpoints
from hf_capsule_mt.training.checkpoint_folders import checkpoints, last_checkpoint
from hf_capsule_mt.training.moving_average import TRAINING_WEIGHTS

WEIGHTS = "model.safetensors"


def test_the_last_checkpoint_that_is_whole(tmp_path):
    assert last_checkpoint(tmp_path / "absent") is None
    for name, state in (("checkpoint-9", "{}"), ("checkpoint-10", "{}"), ("checkpoint-11", '{"a'), ("best", "{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trainer_state.json").write_text(state)
        for file in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
            torch.save({}, tmp_path / name / file)
        save_file({"weight": torch.zeros(1)}, tmp_path / name / WEIGHTS)
    (tmp_path / "checkpoint-12").mkdir()
    assert [folder.name for folder in checkpoints(tmp_path)] == [f"checkpoint-{step}" for step in (9, 10, 11, 12)]
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    # A run cannot go on from it.
    (tmp_path / "checkpoint-10" / "optimizer.pt").unlink()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-9"


def test_the_weights_of_others_may_have_more_than_is_used(tmp_path, capsys):
    """Such as what an older version of a model had."""
    weights = save_tiny_marian(tmp_path / "marian") / WEIGHTS
    (tmp_path / "text").write_text("a b\n")
    command = ["--model", str(tmp_path / "marian"), "--input_file", str(tmp_path / "text"), "--num_beams", "1"]
    translate.main(command)
    expected = capsys.readouterr().out
    assert expected.strip()
    tensors = load_file(weights)
    save_file({**tensors, "old": tensors["final_logits_bias"].clone()}, weights, {"format": "pt"})
    translate.main(command)
    assert capsys.readouterr().out == expected


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


def test_card_record_and_benchmark_agree(corpus, tmp_path):
    train.main(arguments(corpus, tmp_path / "run", save_strategy="no"))
    counted = json.loads((tmp_path / "run" / "run_record.json").read_text())["parameters"]
    assert f"{counted:,} parameters" in (tmp_path / "run" / "README.md").read_text()
    work = {"max_tokens": 96, "batch_size": 1, "num_beams": 1, "new_tokens": 1}
    work |= {"rounds": 1, "warmup_rounds": 0, "seed": 0}
    others = {"vocab_size": len(tiny_tokenizer()), "device": "cpu", "dtype": "float32"}
    compared = compare_with_plain(small_config("em-routing"), Namespace(**work, **others))
    assert compared["parameters"] == counted > compared["plain_parameters"]
    assert count_parameters(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run")) == counted


@pytest.fixture
def group_reads():
    """New files may be read by the group of their owner, not by others."""
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_whoever_may_read_other_files_may_read_weights(group_reads, corpus, tmp_path):
    """By themselves safetensors are only for their owner, as a server with a user of its own is not."""
    AutoModelForSeq2SeqLM.from_config(small_config("em-routing")).save_pretrained(tmp_path / "saved")
    start = save_tiny_marian(tmp_path / "start")
    options = {"model": start, "method": None, "size": None, "config_overrides": None, "tokenizer_name": None}
    options |= {"max_source_length": 32, "max_target_length": 32, "save_strategy": "steps", "save_steps": 1}
    train.main(arguments(corpus, tmp_path / "run", **options, ema_decay=0.5))
    run_checkpoints = checkpoints(tmp_path / "run")
    average_checkpoints(run_checkpoints, tmp_path / "average")
    folders = [tmp_path / "saved", tmp_path / "run", *run_checkpoints, tmp_path / "average"]
    modes = {}
    for file in (file for folder in folders for file in folder.iterdir() if file.is_file()):
        modes[str(file.relative_to(tmp_path))] = oct(stat.S_IMODE(file.stat().st_mode))
    assert modes == dict.fromkeys(modes, "0o640")
    assert {"saved/model.safetensors", "run/model.safetensors", "average/model.safetensors"} < modes.keys()
    assert {f"run/checkpoint-1/{name}" for name in (WEIGHTS, TRAINING_WEIGHTS)} < modes.keys()


def without_rights_of_root(function, *args):
    """Call a function in a thread that may not read what its user may not read. Linux gives each thread its rights."""

    def run():
        if os.geteuid() == 0:
            header = (ctypes.c_uint32 * 2)(0x20080522, 0)
            nothing = (ctypes.c_uint32 * 6)()
            assert ctypes.CDLL(None).capset(header, nothing) == 0
        return function(*args)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


def test_weights_that_may_not_be_read(tmp_path):
    folder = save_tiny_marian(tmp_path / "marian")
    (folder / WEIGHTS).chmod(0)
    with pytest.raises(PermissionError, match=rf"Permission denied: '{folder / WEIGHTS}'"):
        without_rights_of_root(load_model, folder)
    (folder / WEIGHTS).chmod(0o600)
    without_rights_of_root(load_model, folder)


ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in (ROOT / "checkpoints").glob("*/config.json"))
LARGEST = 6_000_000
SENTENCES = {
    "Where did you buy that coat?": ("Wo", "Mantel", "gekauft?"),
    "Two men are sitting on a bench.": ("Zwei", "Männer", "Bank."),
    "two men are sitting on a bench": ("Männer", "Bank"),
}
CAPITALS = {"WHERE IS MY BOOK?": ("WO", "BUCH?")}
FRENCH = {"Where did you buy that coat?": ("acheté", "manteau"), "two men are sitting on a bench": ("hommes", "banc")}


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request):
    return request.param


def test_there_are_some():
    assert FOLDERS


def test_it_translates_with_the_engine(folder, caplog):
    logger.info_once.cache_clear()
    with caplog.at_level("INFO", logger="hf_capsule_mt.decoding.generation"):
        # The card of the smallest model says that capitals are too much for it.
        german = SENTENCES if "rnmt" in folder.name else SENTENCES | CAPITALS
        sentences = FRENCH if "en-fr" in folder.name else german
        found = pipeline("translation", model=str(folder))(list(sentences))
    assert "Transformers decodes" not in caplog.text
    for translation, words in zip(found, sentences.values(), strict=True):
        text = translation["translation_text"]
        assert all(word in text.split() for word in words), text


def test_a_limit_of_the_caller_is_the_only_one(folder, caplog):
    """Transformers warns of two, and without any it writes 20 tokens and warns."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder)
    source = AutoTokenizer.from_pretrained(folder)("It is late.", return_tensors="pt")
    logging.enable_propagation()

    with warnings.catch_warnings(action="error"):
        short = model.generate(**source, num_beams=1, min_length=21, max_new_tokens=20)
        long = model.generate(**source, num_beams=1, min_length=41)

    logging.disable_propagation()
    assert caplog.text == ""
    assert short.shape[1] == 21
    assert 41 <= long.shape[1] <= 534


def test_it_is_small_and_whole(folder):
    [file] = folder.glob("*.safetensors")
    assert file.stat().st_size <= LARGEST
    with safe_open(file, "pt") as weights:
        assert {weights.get_tensor(name).dtype for name in weights.keys()} == {torch.bfloat16}  # noqa: SIM118
    assert {"README.md", "tokenizer.json", "generation_config.json"} <= {each.name for each in folder.iterdir()}
    assert not list(folder.glob("*.py"))


def test_its_card_has_the_scores_that_were_measured(folder):
    [model] = yaml.safe_load((folder / "README.md").read_text(encoding="utf-8").split("---")[1])["model-index"]
    claimed = {
        (result["dataset"]["split"], metric["type"]): metric["value"]
        for result in model["results"]
        for metric in result["metrics"]
    }
    file = ROOT / "benchmarks" / "tatoeba" / "tatoeba_models.jsonl"
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    records = {line["test"]: line["record"]["scores"] for line in lines if line["model"] == folder.name}
    assert claimed == {
        (test, name): round(found["score"], 2) for test, scores in records.items() for name, found in scores.items()
    }


@pytest.mark.parametrize("limit", [{"max_length": 30}, {"max_new_tokens": 30}])
def test_checking_that_a_model_decodes_says_nothing(caplog, limit):
    model = tiny_model()
    model.generation_config.update(**limit)
    before = model.generation_config.to_dict()
    logging.enable_propagation()
    check_decodes(model)
    logging.disable_propagation()
    assert caplog.text == ""
    assert model.generation_config.to_dict() == before
