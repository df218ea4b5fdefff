"""Who is timed when, on what, and what follows from the seconds."""

import dataclasses

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, MarianMTModel

from benchmarks.speed import speed
from benchmarks.speed.speed import Workload, compare_with_plain, decoding_batches, training_batches
from hf_capsule_mt import preset_config
from hf_capsule_mt.modeling import CapsuleAggregatedMarianForConditionalGeneration as AggregatedMarian
from hf_capsule_mt.records import Rates

CPU = torch.device("cpu")
WORKLOAD = Workload(max_tokens=200, batch_size=3, num_beams=2, new_tokens=5, rounds=3, warmup_rounds=1, seed=7)
SMALL = {
    "vocab_size": 40,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "max_position_embeddings": 128,
}


def small_config(method, **overrides):
    return preset_config(method, "tiny", **{**SMALL, **overrides})


def test_plain_config_is_the_same_model_without_ours():
    config = small_config("em-routing", dropout=0.25)
    plain = speed.plain_config(config)
    assert plain.model_type == "marian"
    assert not hasattr(plain, "layer_aggregation")
    theirs, ours = plain.to_dict(), config.to_dict()
    assert {name for name in theirs if theirs[name] != ours.get(name)} <= {"model_type", "architectures"}
    # With no aggregation the two are one model.
    ours = AggregatedMarian(small_config("transformer", dropout=0.25)).state_dict()
    theirs = MarianMTModel(plain).state_dict()
    assert {name: tensor.shape for name, tensor in ours.items()} == {n: t.shape for n, t in theirs.items()}


def test_plain_rnmt():
    config = preset_config("rnmt-gdr", "tiny", vocab_size=40, d_model=16, sentence_aggregation="capsule")
    plain = speed.plain_config(config)
    assert plain.to_dict() == preset_config("rnmt", "tiny", vocab_size=40, d_model=16).to_dict()


def test_memory_is_measured_on_long_sentences():
    workload = dataclasses.replace(WORKLOAD, max_tokens=1024)
    batch = speed.memory_batch(workload, 40, CPU)
    assert {tensor.shape for tensor in batch.values()} == {(8, 128)}
    assert batch["attention_mask"].all()
    assert len(speed.memory_batch(dataclasses.replace(WORKLOAD, max_tokens=96), 40, CPU)["labels"]) == 1


@pytest.mark.slow
@pytest.mark.exhaustive
def test_guided_routing_adds_less_than_a_quarter_to_the_memory_of_an_update():
    """At B = 8, S = T = 128 and the size of `base`, the vocabulary apart: what is added is more of a smaller whole."""
    config = preset_config("gdr", "base", vocab_size=4000)
    workload = dataclasses.replace(WORKLOAD, max_tokens=1024)
    batch, sizes = speed.memory_batch(workload, config.vocab_size, CPU), []
    for each in (speed.plain_config(config), config):
        model = AutoModelForSeq2SeqLM.from_config(each)
        sizes.append(speed.update_memory(model, speed.make_trainer(model, torch.float32), batch))
    assert sizes[1] < 1.25 * sizes[0]


def test_models_take_turns_and_the_warm_up_does_not_count(monkeypatch):
    clock, log = [0.0], []
    for name in ("perf_counter", "process_time"):
        monkeypatch.setattr(speed.time, name, lambda: clock[0])

    def spend(name, seconds):
        def run(batch):
            log.append((name, batch))
            clock[0] += seconds * batch

        return run

    pairs = speed.take_turns([spend("plain", 1.0), spend("method", 2.0)], [5, 1, 3], CPU)
    assert log == [("plain", 5), ("method", 5), ("plain", 1), ("method", 1), ("plain", 3), ("method", 3)]
    assert pairs == [(5.0, 10.0), (1.0, 2.0), (3.0, 6.0)]
    assert speed._rates(pairs, [5, 6, 12], warmup_rounds=1) == Rates([6.0, 4.0], [3.0, 2.0])
    assert Rates([6.0, 4.0], [3.0, 3.0]).ratios == [0.5, 0.75]


def test_training_batches():
    batches = training_batches(WORKLOAD, 40, CPU)
    assert len(batches) == 4
    for batch in batches:
        longest = max(batch["input_ids"].shape[1], batch["labels"].shape[1])
        assert WORKLOAD.max_tokens / 2 < len(batch["labels"]) * longest <= WORKLOAD.max_tokens
        torch.testing.assert_close(batch["attention_mask"], (batch["input_ids"] != 0).long())
        words = torch.cat([batch["input_ids"][batch["attention_mask"] == 1], batch["labels"][batch["labels"] >= 0]])
        assert 3 <= words.min() <= words.max() < 40
    again = training_batches(WORKLOAD, 40, CPU)
    other = training_batches(dataclasses.replace(WORKLOAD, seed=8), 40, CPU)
    assert all(torch.equal(one["labels"], two["labels"]) for one, two in zip(batches, again))
    assert not all(torch.equal(one["labels"], two["labels"]) for one, two in zip(batches, other))


def test_drawn_lengths_are_like_those_of_sentences():
    sources, targets = torch.tensor(speed._draw_lengths(4000, torch.Generator().manual_seed(0))).unbind(1)
    for lengths in (sources, targets):
        assert lengths.median().item() == pytest.approx(24, abs=1)
        assert lengths.float().mean().item() == pytest.approx(27, abs=1)
        assert 4 <= lengths.min() <= lengths.max() <= 96
    assert torch.stack([sources, targets]).float().corrcoef()[0, 1] > 0.9


def test_every_translation_has_the_length_asked_for():
    model = MarianMTModel(speed.plain_config(small_config("transformer")))
    # A model that would rather stop at once.
    model.final_logits_bias[:, model.config.eos_token_id] = 50.0
    decode = speed._decoder(model, torch.float32, WORKLOAD)
    batches = decoding_batches(WORKLOAD, 40, CPU)
    assert len(batches) == 4
    for batch in batches:
        output = decode(batch)
        assert output.shape == (3, 1 + 5)
        assert not (output[:, 1:] == model.config.eos_token_id).any()


def test_a_training_turn_is_a_full_update():
    torch.manual_seed(0)
    model = MarianMTModel(speed.plain_config(small_config("transformer")))
    before = {name: weight.clone() for name, weight in model.named_parameters() if weight.requires_grad}
    update = speed.make_trainer(model.eval(), torch.float32)
    assert model.training
    update(training_batches(WORKLOAD, 40, CPU)[0])
    after = dict(model.named_parameters())
    # A key's bias shifts all scores of a query alike: its gradient is rounding.
    unmoved = {name for name, weight in before.items() if torch.equal(weight, after[name])}
    assert all(name.endswith("k_proj.bias") for name in unmoved)
    assert all(weight.grad is None for weight in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_comparison(dtype):
    comparison = compare_with_plain(small_config("linear-combination"), WORKLOAD, CPU, dtype)
    assert comparison.parameters - comparison.plain_parameters == (2 + 3) * 16 + 2 * (16 + 16)
    # Weights and two means of each, at least; what has more parameters has more of them.
    assert comparison.plain_memory > 3 * 4 * comparison.plain_parameters
    assert comparison.memory > comparison.plain_memory
    for rates in (comparison.training, comparison.decoding):
        assert len(rates.plain) == len(rates.method) == WORKLOAD.rounds
        assert min(rates.plain + rates.method) > 0


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_comparison_on_cuda():
    comparison = compare_with_plain(small_config("em-routing"), WORKLOAD, torch.device("cuda"), torch.bfloat16)
    assert len(comparison.training.ratios) == len(comparison.decoding.ratios) == WORKLOAD.rounds
    assert comparison.memory > comparison.plain_memory > 12 * comparison.plain_parameters


@pytest.mark.parametrize(
    ("field", "value", "least"),
    [("max_tokens", 95, 96), ("batch_size", 0, 1), ("rounds", 0, 1), ("new_tokens", 0, 1), ("warmup_rounds", -1, 0)],
)
def test_numbers_too_small(field, value, least):
    with pytest.raises(ValueError, match=f"{field} is {value}; it must be at least {least}"):
        dataclasses.replace(WORKLOAD, **{field: value})
