"""The fit of an exponent, and who is timed on what."""

import numpy as np
import pytest
import torch
from tiny_run import SMALL

from benchmarks.speed import time_by_length
from benchmarks.speed.time_by_length import fit_exponent, measure_time_by_length, medians_of
from hf_capsule_mt import preset_config
from hf_capsule_mt.json_fields import parse_override
from hf_capsule_mt.records import Measurement

FIELDS = {**dict(map(parse_override, SMALL)), "vocab_size": 20}


def test_exponents():
    lengths = [32, 64, 128, 300]
    assert fit_exponent(lengths, [5 * length**1.5 for length in lengths]) == pytest.approx(1.5)
    times = [0.1, 0.3, 0.35, 1.0]
    slope, _ = np.polyfit(np.log(lengths), np.log(times), 1)
    assert fit_exponent(lengths, times) == pytest.approx(slope)
    with pytest.raises(ValueError, match="two lengths or more, not 1"):
        fit_exponent([32], [1.0])


@pytest.fixture
def configs():
    capsnmt = preset_config("capsnmt", "tiny", d_model=16, vocab_size=20)
    return {
        "transformer": preset_config("transformer", "tiny", **FIELDS, max_position_embeddings=10),
        "capsnmt": capsnmt,
    }


def measure(configs, lengths, **changes):
    options = {"batch_size": 2, "rounds": 2, "seed": 0, "device": torch.device("cpu"), **changes}
    return list(measure_time_by_length(configs, lengths, **options))


def test_all_are_timed_on_the_same_words(configs, monkeypatch):
    decoded, trained = [], []
    decode, make_trainer = time_by_length.decode, time_by_length.make_trainer

    def watched_decode(model, batch, new_tokens, num_beams):
        words = decode(model, batch, new_tokens, num_beams)
        decoded.append((type(model).__name__, tuple(batch["input_ids"].shape), words.shape[1] - 1, model.training))
        return words

    def watched_trainer(model):
        update = make_trainer(model)
        return lambda batch: (trained.append((batch["input_ids"].sum().item(), model.training)), update(batch))

    monkeypatch.setattr(time_by_length, "decode", watched_decode)
    monkeypatch.setattr(time_by_length, "make_trainer", watched_trainer)
    found = measure(configs, [4, 8])
    once = [(row, kind, length) for length in (4, 8) for kind in ("training", "decoding") for row in configs]
    assert [(one.row, one.kind, one.length) for one in found] == once * 2
    assert min(one.seconds for one in found) > 0
    # One round more than is counted, and as many words as the source has.
    assert len(decoded) == 2 * 2 * 3
    assert {(shape, new) for _, shape, new, _ in decoded} == {((2, 4), 4), ((2, 8), 8)}
    assert not any(training for *_, training in decoded)
    assert all(training for _, training in trained)
    sums = [words for words, _ in trained]
    assert sums[::2] == sums[1::2], "the models take turns on the same words"


def test_medians():
    found = [Measurement("a", "training", 4, seconds) for seconds in (1.0, 9.0, 2.0)]
    assert medians_of([*found, Measurement("b", "training", 4, 3.0)]) == {
        ("training", "a", 4): 2.0,
        ("training", "b", 4): 3.0,
    }


def test_mistakes(configs):
    with pytest.raises(ValueError, match=r"transformer has 10 positions, .* max_position_embeddings=11"):
        measure(configs, [10])
    with pytest.raises(ValueError, match="rounds is 0"):
        measure(configs, [4], rounds=0)
    with pytest.raises(ValueError, match="lengths is 0"):
        measure(configs, [0, 4])
