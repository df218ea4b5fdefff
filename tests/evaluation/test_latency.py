"""Every sentence is decoded alone, by every model in turn, to the length that is asked for."""

import pytest
import torch

from benchmarks.speed import decoders
from benchmarks.speed.latency import measure_latency
from hf_capsule_mt import preset_config
from hf_capsule_mt.decoding.precisions import PRECISIONS

SENTENCES = [([5, 6, 2], 4), ([7, 2], 1)]
CONFIGS = {
    f"capsnmt {capsules}": preset_config("capsnmt", "tiny", d_model=16, vocab_size=20, num_sentence_capsules=capsules)
    for capsules in (2, 4)
}
OPTIONS = {"num_beams": 2, "rounds": 2, "seed": 0, "device": torch.device("cpu")}


def test_turns(monkeypatch):
    decode, seen = decoders.decode, []

    def watched(model, batch, new_tokens, num_beams, **options):
        words = decode(model, batch, new_tokens, num_beams, **options)
        ids, engine = batch["input_ids"].tolist(), "custom_generate" in options
        seen.append((model.config.num_sentence_capsules, engine, ids, words.shape[1] - 1, num_beams))
        return words

    monkeypatch.setattr(decoders, "decode", watched)
    times = measure_latency(CONFIGS, SENTENCES, **OPTIONS)
    names = [name for row in CONFIGS for name in (row, *(f"{row}, engine {dtype}" for dtype in PRECISIONS))]
    assert list(times) == names
    assert all(len(found) == 4 and min(found) > 0 for found in times.values())
    turns = [(capsules, engine) for capsules in (2, 4) for engine in (False, *[True] * len(PRECISIONS))]
    rounds = [(*turn, [words], new, 2) for words, new in SENTENCES * 2 for turn in turns]
    assert seen == rounds[: len(turns)] * 3 + rounds, (
        "three times the first sentence to warm up, then all of them twice"
    )


@pytest.mark.parametrize("change", [{"rounds": 0}, {"num_beams": 0}])
def test_mistakes(change):
    with pytest.raises(ValueError, match=f"{next(iter(change))} is 0; it must be at least 1"):
        measure_latency(CONFIGS, SENTENCES, **{**OPTIONS, **change})
    with pytest.raises(ValueError, match="number of sentences is 0"):
        measure_latency(CONFIGS, [], **OPTIONS)


def test_sentences_that_are_too_long():
    configs = {"plain": preset_config("transformer", "tiny", d_model=16, vocab_size=20, max_position_embeddings=4)}
    for sentences in ([([5, 6, 7, 2], 1)], [([5, 2], 4)]):
        with pytest.raises(
            ValueError, match=r"plain has 4 positions, too few for 4 words .* max_position_embeddings=5"
        ):
            measure_latency(configs, sentences, **OPTIONS)
