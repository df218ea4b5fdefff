"""The script that writes a model to try out: it is rounded, and its card has its own scores."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tiny_marian import tiny_model, tiny_tokenizer
from tiny_study import STORED, study_of_two, write_study
from transformers import AutoModelForSeq2SeqLM

from hf_capsule_mt import CapsuleAggregatedMarianForConditionalGeneration
from hf_capsule_mt.records import RunRecord, read, write

sys.path.insert(0, str(Path(__file__).parents[2] / "model_cards"))
import publish

sys.path.pop(0)


@pytest.fixture
def row(tmp_path):
    run = tmp_path / "runs" / "plain" / "seed1"
    model = CapsuleAggregatedMarianForConditionalGeneration.from_marian(tiny_model())
    model.save_pretrained(run)
    tiny_tokenizer().save_pretrained(run)
    record = read(RunRecord, STORED / "multi30k_transformer-3000_run_record.json")
    write(replace(record, config=model.config.to_diff_dict()), run / "run_record.json")
    for language, text in (("en", "a b c d e\ng h\n"), ("de", "b a c d e\nh g\n")):
        (tmp_path / f"test.{language}").write_text(text)
    return run.parent


def test_publish(row, tmp_path, monkeypatch):
    study = study_of_two(tmp_path)
    monkeypatch.setattr(publish, "STUDY", write_study(tmp_path / "two.yaml", study))
    monkeypatch.setattr(publish, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["publish.py", str(row), "small"])
    publish.main()
    written = tmp_path / "small"
    assert {str(weight.dtype) for weight in load_file(written / "model.safetensors").values()} == {"torch.bfloat16"}
    assert AutoModelForSeq2SeqLM.from_pretrained(written).dtype == torch.float32
    assert {"tokenizer.json", "weights.sha256"} <= {file.name for file in written.iterdir()}
    card = (written / "README.md").read_text()
    assert "| test | BLEU |" in card
    assert "license_name: non-commercial" in card
    assert f'model="{tmp_path.name}/small"' in card
    assert "revision" not in card
    assert str(tmp_path) not in (written / "config.json").read_text()


def test_a_run_of_another_study(row, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(publish, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["publish.py", str(row.with_name("elsewhere")), "small"])
    with pytest.raises(SystemExit):
        publish.main()
    assert "elsewhere is no row of does_routing_pay.yaml" in capsys.readouterr().err
