"""Decoders of the same weights: they write the same, and take turns."""

from dataclasses import replace

import pytest
import torch
from test_speed import CPU, WORKLOAD, small_config
from tiny_marian import tiny_model

from benchmarks.speed import decoders
from benchmarks.speed.decoders import GENERATE, compare_decoders, ctranslate2_decoder
from benchmarks.speed.speed import compare_with_plain
from hf_capsule_mt import preset_config
from hf_capsule_mt.decoding.precisions import PRECISIONS

ENGINES = [f"engine {dtype}" for dtype in PRECISIONS]
BATCH = {"input_ids": torch.tensor([[3, 4, 5, 6, 2], [7, 8, 2, 0, 0]])}
BATCH["attention_mask"] = (BATCH["input_ids"] != 0).long()


@pytest.mark.parametrize("num_beams", [1, 3])
def test_all_write_the_same(num_beams):
    pytest.importorskip("ctranslate2")
    model = tiny_model()
    assert model.config.pad_token_id == 0
    found = decoders.decoders(model, num_beams)
    assert list(found) == [GENERATE, *ENGINES, "CTranslate2 float32", "CTranslate2 int8"]
    words = found[GENERATE](BATCH, 6)
    assert words.shape == (2, 7)
    assert len(set(words.flatten().tolist())) > 2
    assert torch.equal(found["engine float32"](BATCH, 6), words)
    assert ctranslate2_decoder(model, num_beams, "float32")(BATCH, 6) == words[:, 1:].tolist()
    assert [len(row) for row in found["CTranslate2 int8"](BATCH, 6)] == [6, 6]


def test_those_of_every_family(monkeypatch):
    monkeypatch.setattr(decoders, "find_spec", lambda name: None)
    for method, first in (
        ("linear-combination", f"plain {GENERATE}"),
        ("rnmt", f"plain {GENERATE}"),
        ("capsnmt", GENERATE),
    ):
        config = preset_config(method, "tiny", d_model=16, vocab_size=40)
        found = compare_decoders(config, WORKLOAD, CPU, memory_length=4)
        assert list(found.rates) == list(dict.fromkeys([first, GENERATE, *ENGINES]))
        assert all(len(rates) == WORKLOAD.rounds and min(rates) > 0 for rates in found.rates.values())
        assert found.memory.keys() == found.rates.keys()
        assert min(found.memory.values()) > 0


def test_too_few_positions():
    config = preset_config("transformer", "tiny", d_model=16, vocab_size=40, max_position_embeddings=130)
    with pytest.raises(ValueError, match=r"the capsule_aggregated_marian has 130 positions, too few for 200 words"):
        compare_decoders(config, WORKLOAD, CPU, memory_length=200)
    with pytest.raises(ValueError, match="too few for 200 words"):
        compare_with_plain(config, replace(WORKLOAD, new_tokens=200), CPU)
    # Those of the sources, which are random, and of the batch by which memory is measured.
    config = preset_config("transformer", "tiny", d_model=16, vocab_size=40, max_position_embeddings=64)
    for compare, words in ((compare_decoders, 95), (compare_with_plain, 127)):
        with pytest.raises(ValueError, match=f"has 64 positions, too few for {words} words"):
            compare(config, WORKLOAD, CPU)


def test_ctranslate2_has_no_capsules():
    config = small_config("em-routing")
    model = decoders.AutoModelForSeq2SeqLM.from_config(config).eval()
    assert [name for name in decoders.decoders(model, 1) if name.startswith("CTranslate2")] == []


def test_what_the_engine_cannot_decode_is_no_row():
    model = tiny_model().to(torch.bfloat16)
    assert not decoders._is_known_to_the_engine(model)
