"""What an earlier version saved loads and translates as it did then, with this version's code and with its own."""

import json
from pathlib import Path

import pytest
import torch
from elsewhere import run_elsewhere
from transformers import AutoModelForSeq2SeqLM, pipeline

from hf_capsule_mt.configuration import CONFIGURATIONS
from hf_capsule_mt.modeling.outputs import CACHE

FOLDER = Path(__file__).parents[1] / "checkpoints"
STORED = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


def expected(name):
    return json.loads((FOLDER / name / "translations.json").read_text())


def test_there_is_one_of_every_family():
    assert sorted(config_class.model_type for config_class in CONFIGURATIONS) == STORED


@pytest.mark.parametrize("name", STORED)
def test_loads_and_translates(name):
    before = expected(name)
    model, report = AutoModelForSeq2SeqLM.from_pretrained(FOLDER / name, output_loading_info=True)
    assert not any(report.values())
    words = {"input_ids": torch.tensor([before["input_ids"]]), "decoder_input_ids": torch.tensor([[0]])}
    torch.testing.assert_close(model(**words).logits[0, 0], torch.tensor(before["logits"]), atol=1e-3, rtol=0)
    translator = pipeline("translation", model=str(FOLDER / name), device="cpu")
    for beams in (1, 4):
        results = translator(before["sentences"], num_beams=beams, batch_size=8)
        assert [result["translation_text"] for result in results] == before[f"beams_{beams}"]


@pytest.mark.skipif(CACHE == "cache", reason="the stored source has the old name of the cache")
@pytest.mark.slow
def test_with_their_own_source(tmp_path):
    sentences = {name: expected(name)["sentences"] for name in STORED}
    code = """
from transformers import pipeline
for name, lines in sentences.items():
    translator = pipeline("translation", model=f"{folder}/{name}", device="cpu", trust_remote_code=True)
    found[name] = [result["translation_text"] for result in translator(lines, num_beams=4)]
"""
    found = run_elsewhere(code, tmp_path, folder=str(FOLDER), sentences=sentences)
    assert found == {name: expected(name)["beams_4"] for name in STORED}
