"""Who is timed when, on what, and what follows from the seconds."""

import json
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from tiny_marian import tiny_model, tiny_tokenizer

from benchmarks.common import workload
from benchmarks.common.tables import GENERATE
from benchmarks.decoding import __main__ as decoding
from benchmarks.decoding import decode
from benchmarks.decoding.decoding_tables import file_report
from benchmarks.decoding.page import render_page
from benchmarks.training import __main__ as training
from benchmarks.training import growth
from hf_capsule_mt import preset_config
from hf_capsule_mt.decoding.precision import PRECISIONS

ROOT = Path(__file__).parents[2]
SMALL = ["d_model=16", "encoder_layers=2", "decoder_layers=3", "encoder_ffn_dim=24", "decoder_ffn_dim=24"]
WORKLOAD = {"max_tokens": 200, "batch_size": 3, "num_beams": 2, "new_tokens": 5}
WORKLOAD |= {"rounds": 3, "warmup_rounds": 1, "seed": 7}
ENGINES = [f"engine {dtype}" for dtype in PRECISIONS]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


def work(**changes):
    others = {"vocab_size": 40, "device": "cpu", "dtype": "float32", "memory_length": None, "size": "tiny"}
    return Namespace(**{**WORKLOAD, **others, "config_overrides": SMALL, "methods": ["transformer"], **changes})


def config_of(method, **changes):
    return workload.configs_of_rows(work(methods=[method], **changes), 128)[method]


def test_a_plain_model_is_the_same_model_without_ours():
    config = config_of("em-routing")
    plain = workload.plain_config(config)
    assert plain.model_type == "marian"
    theirs, ours = plain.to_dict(), config.to_dict()
    assert {name for name in theirs if theirs[name] != ours.get(name)} <= {"model_type", "architectures"}
    config = preset_config("rnmt-gdr", "tiny", vocab_size=40, d_model=16, sentence_aggregation="capsule")
    assert workload.plain_config(config).to_dict() == preset_config("rnmt", "tiny", vocab_size=40, d_model=16).to_dict()


def test_batches():
    batches = workload.training_batches(work())
    assert len(batches) == 4
    for batch in batches:
        longest = max(batch["input_ids"].shape[1], batch["labels"].shape[1])
        assert 100 < len(batch["labels"]) * longest <= 200
        words = torch.cat([batch["input_ids"][batch["attention_mask"] == 1], batch["labels"][batch["labels"] >= 0]])
        assert 3 <= words.min() <= words.max() < 40
    again, other = workload.training_batches(work()), workload.training_batches(work(seed=8))
    assert all(torch.equal(one["labels"], two["labels"]) for one, two in zip(batches, again, strict=True))
    assert not all(torch.equal(one["labels"], two["labels"]) for one, two in zip(batches, other, strict=True))
    sources, targets = torch.tensor(workload._draw_lengths(4000, torch.Generator().manual_seed(0))).unbind(1)
    assert sources.median().item() == pytest.approx(24, abs=1)
    assert torch.stack([sources, targets]).float().corrcoef()[0, 1] > 0.9


@pytest.mark.parametrize("device", DEVICES)
def test_memory(device):
    def allocate(mebibytes):
        return torch.empty(mebibytes, 2**20, dtype=torch.uint8, device=device)

    def three():
        first = allocate(20)
        del first
        return allocate(8), allocate(16)

    assert workload.peak_memory(three, device) == pytest.approx(24 * 2**20, abs=4096)
    weight = torch.ones(1024, 1024, device=device, requires_grad=True)

    def update(times):
        loss = weight
        for _ in range(times):
            loss = loss.tanh()
        loss.sum().backward()
        weight.grad = None

    small, large = (workload.peak_memory(lambda times=times: update(times), device) for times in (4, 8))
    # Every output of tanh is kept for its gradient.
    assert large - small == pytest.approx(4 * 4 * 2**20, abs=4096)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_all_decoders_write_the_same(num_beams):
    batch = {"input_ids": torch.tensor([[3, 4, 5, 6, 2], [7, 8, 2, 0, 0]])}
    batch["attention_mask"] = (batch["input_ids"] != 0).long()
    found = decode.decoders(tiny_model(), num_beams)
    assert list(found) == [GENERATE, *ENGINES, "CTranslate2 float32", "CTranslate2 int8"]
    words = found[GENERATE](batch, 6)
    assert words.shape == (2, 7)
    assert torch.equal(found["engine float32"](batch, 6), words)
    assert found["CTranslate2 float32"](batch, 6) == words[:, 1:].tolist()
    assert [len(row) for row in found["CTranslate2 int8"](batch, 6)] == [6, 6]


def run(tmp_path, capsys, command, *options):
    """The record of a command, and what it prints."""
    small = ["--size", "tiny", "--vocab_size", "40", "--device", "cpu", "--config_overrides", "d_model=16"]
    small = [] if command == "trained" else small[2:] if command == "latency" else small
    small = ["--size", "tiny", *small[2:]] if command == "latency" else small
    package = training if command in training.COMMANDS else decoding
    package.main([command, *small, *map(str, options), "--output_file", str(tmp_path / "record.json")])
    return json.loads((tmp_path / "record.json").read_text()), capsys.readouterr().out


def test_training_and_decoding_are_recorded(tmp_path, capsys):
    few = ["--rounds", 1, "--batch_size", 1, "--max_new_tokens", 2]
    found, printed = run(
        tmp_path, capsys, "train", "--methods", "linear-combination", "--max_tokens_per_batch", 96, *few
    )
    assert found["results"]["linear-combination"]["parameters"] > 0
    assert "| linear-combination |" in printed
    with pytest.raises(ValueError, match="different plain models"):
        run(tmp_path, capsys, "train", "--methods", "rnmt", "gdr")
    methods = ["transformer", "rnmt", "capsnmt"]
    found, printed = run(tmp_path, capsys, "decode", "--methods", *methods, "--memory_length", 4, *few)
    assert list(found["decoders"]["capsnmt"]["rates"]) == [GENERATE, *ENGINES]
    assert list(found["decoders"]["rnmt"]["memory"]) == [f"plain {GENERATE}", GENERATE, *ENGINES]
    assert "times as fast" in printed.lower()
    assert "| capsnmt | engine int8 |" in printed


def test_growth(tmp_path, capsys):
    lengths = ["--lengths", 4, 8, "--fit_from", 4, "--rounds", 1, "--figure_file", tmp_path / "growth.png"]
    found, printed = run(tmp_path, capsys, "growth", *lengths)
    assert len(found["measurements"]) == 2 * 2 * 2
    assert set(found["exponents"]) == {"training", "decoding"}
    assert "| exponent |" in printed
    assert (tmp_path / "growth.png").stat().st_size > 1000
    assert growth.fit_exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2)


def test_latency_and_trained_models(tmp_path, capsys):
    # A machine with a GPU may lack what these import.
    from translated_lines import translate_lines

    from hf_capsule_mt.evaluation.scores import score_translations

    lines = ["a b c d e", "g h", "i j k"]
    tiny_model().save_pretrained(tmp_path / "model")
    tiny_tokenizer().save_pretrained(tmp_path / "model")
    expected = translate_lines(tiny_model(), tiny_tokenizer(), lines, num_beams=2)
    references = [*expected[:2], "q r s"]
    for name, text in (("source", lines), ("reference", references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in text))
    files = ["--tokenizer_name", tmp_path / "model", "--input_file", tmp_path / "source", "--methods", "transformer"]
    found, printed = run(tmp_path, capsys, "latency", *files, "--num_sentences", 2)
    assert found["sentences"] == len(found["seconds"]["transformer"]) == 2
    assert "| transformer, engine float32 |" in printed
    texts = ["--input_file", tmp_path / "source", "--references", tmp_path / "reference"]
    texts += ["--num_beams", 2, "--rounds", 2]
    found, printed = run(tmp_path, capsys, "trained", "--models", f"plain={tmp_path / 'model'}", *texts)
    names = [*ENGINES, "CTranslate2 float32", "CTranslate2 int8"]
    assert list(found["models"]["plain"]) == names
    score = score_translations(expected, [references], tokenize="none", metrics=("bleu",))["bleu"]["score"]
    assert found["models"]["plain"]["engine float32"]["bleu"]["score"] == score > 0
    assert f"| plain | engine float32 | {score:.2f} |" in printed == file_report(found) + "\n"


def test_the_page_of_decoders_is_made_from_the_records():
    """If not: python -m benchmarks.decoding page benchmarks/decoding/README.md"""
    page = ROOT / "benchmarks" / "decoding" / "README.md"
    assert render_page(page) == page.read_text(encoding="utf-8")
