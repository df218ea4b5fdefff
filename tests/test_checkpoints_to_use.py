"""The models of checkpoints/ translate real sentences, are small, and claim no more than the study's records."""

import re
from pathlib import Path

import pytest
import torch
import yaml
from safetensors import safe_open
from transformers import pipeline

import hf_capsule_mt  # noqa: F401
from benchmarks.studies.results import read_results
from benchmarks.studies.study import read_study
from hf_capsule_mt.decoding.generation import _log_once

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in (ROOT / "checkpoints").glob("*/config.json"))
LARGEST = 6_000_000
SENTENCES = {
    "a dog runs through the snow .": ("hund", "schnee"),
    "two young women are sitting on a bench .": ("zwei", "frauen", "bank"),
    "a man in a red shirt plays the guitar .": ("mann", "roten", "gitarre"),
}


@pytest.fixture(params=FOLDERS, ids=lambda folder: folder.name)
def folder(request):
    return request.param


def test_there_are_some():
    assert FOLDERS


def test_it_translates_with_the_engine(folder, caplog):
    _log_once.cache_clear()
    with caplog.at_level("INFO", logger="hf_capsule_mt.decoding.generation"):
        found = pipeline("translation", model=str(folder))(list(SENTENCES))
    assert "Transformers decodes" not in caplog.text
    for translation, words in zip(found, SENTENCES.values(), strict=True):
        text = translation["translation_text"]
        assert all(word in text.split() for word in words), text


def test_it_is_small_and_whole(folder):
    [file] = folder.glob("*.safetensors")
    assert file.stat().st_size <= LARGEST
    with safe_open(file, "pt") as weights:
        assert {weights.get_tensor(name).dtype for name in weights.keys()} == {torch.bfloat16}  # noqa: SIM118
    assert {"README.md", "tokenizer.json", "generation_config.json"} <= {each.name for each in folder.iterdir()}
    assert not list(folder.glob("*.py"))


def test_its_card_has_the_scores_of_its_row(folder):
    """But for what rounding to bfloat16 changes."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    [model] = yaml.safe_load(card.split("---")[1])["model-index"]
    claimed = {
        result["dataset"]["split"].partition(".")[0]: metric["value"]
        for result in model["results"]
        for metric in result["metrics"]
        if metric["type"] == "bleu"
    }
    table = (ROOT / "checkpoints" / "README.md").read_text(encoding="utf-8")
    [row] = re.findall(rf"^\| `{folder.name}` \| `(.*?)` \|", table, re.MULTILINE)
    study = read_study(ROOT / "benchmarks" / "studies" / "does_routing_pay.yaml")
    results = read_results(study, ROOT / "benchmarks" / "records" / "does_routing_pay.jsonl")
    [result] = [result for result in results if result.row.name == row]
    assert claimed == pytest.approx({test.name: result.bleu(test.name)[0] for test in study.tests}, abs=0.3)
