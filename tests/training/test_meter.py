"""What a run says of its speed and of the parts of its loss: which tokens, pairs, processes and seconds count."""

from types import SimpleNamespace

import pytest
import torch
from tiny_marian import tiny_model, tiny_tokenizer

from hf_capsule_mt.training import meter as meter_module
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.meter import RunMeter
from hf_capsule_mt.training.trainer import TranslationTrainer

# Two sources of 3 and 2 tokens, and two targets of 2 and 1.
BATCH = {
    "input_ids": torch.tensor([[3, 4, 2], [5, 2, 0]]),
    "attention_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
    "labels": torch.tensor([[6, 2], [2, -100]]),
}


class Alike:
    """Stands in for the accelerator of three processes that have read and computed the same."""

    num_processes = 3
    device = torch.device("cpu")

    def reduce(self, value, reduction):
        return {"sum": 3 * value, "mean": value}[reduction]


@pytest.fixture
def clock(monkeypatch):
    """A clock of the meter that stands still unless a test moves it."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(meter_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.mark.parametrize(("has_mask", "speed"), [(True, 3 * 8 / 2), (False, 3 * 9 / 2)])
def test_the_speed_counts_the_tokens_of_all_processes_without_padding(clock, has_mask, speed):
    meter = RunMeter()
    names = BATCH if has_mask else ("input_ids", "labels")
    meter.add_batch({name: BATCH[name] for name in names})
    clock.now += 2
    assert meter.entry(1, Alike(), "sum") == {"tokens_per_second": round(speed)}


def test_what_was_before_the_clock_was_restarted_does_not_count(clock):
    meter = RunMeter()
    meter.add_batch(BATCH)
    clock.now += 50
    meter.restart_clock()
    meter.add_batch(BATCH)
    meter.add_batch(BATCH)
    clock.now += 4
    assert meter.entry(1, Alike(), "sum") == {"tokens_per_second": 12}
    meter.add_batch(BATCH)
    clock.now += 1
    assert meter.entry(2, Alike(), "sum") == {"tokens_per_second": 24}


@pytest.mark.parametrize(("reduction", "factor"), [("sum", 3), ("mean", 1)])
def test_losses_are_means_over_the_updates_of_an_entry(clock, reduction, factor):
    meter = RunMeter()
    meter.begin(4)
    first = {"lm_loss": torch.tensor(2.0), "bow_loss": torch.tensor(8.0), "logits": None}
    meter.add_losses(first)
    meter.add_losses({"lm_loss": torch.tensor(4.0), "bow_loss": torch.tensor(1.0)})
    clock.now += 1
    assert meter.entry(4, Alike(), reduction) == {}
    entry = meter.entry(7, Alike(), reduction)
    assert (entry["lm_loss"], entry["bow_loss"]) == (2 * factor, 3 * factor)
    # The outputs of the model stay as they are.
    assert (first["lm_loss"].item(), first["bow_loss"].item()) == (2, 8)
    meter.add_losses(first)
    clock.now += 1
    assert meter.entry(8, Alike(), reduction)["bow_loss"] == 8 * factor


def test_a_loss_without_parts_is_not_logged_twice(clock):
    meter = RunMeter()
    meter.add_losses({"lm_loss": torch.tensor(2.0)})
    clock.now += 1
    assert meter.entry(1, Alike(), "mean") == {"tokens_per_second": 0}


def test_the_pairs_are_those_of_one_run(clock):
    meter = RunMeter()
    three_words = {**BATCH, "labels": torch.tensor([[6, 7, 2], [2, -100, -100]])}
    for update in (1, 2):
        meter.add_batch(three_words)
        clock.now += 1
        meter.entry(update, Alike(), "mean")
    assert meter.pairs_per_second(8.0, Alike()) == 3 * 4 / 8
    meter.begin(0)
    meter.add_batch(three_words)
    assert meter.pairs_per_second(3.0, Alike()) == 2


@pytest.mark.parametrize("event", ["eval", "save"])
def test_the_speed_leaves_out_evaluation_and_saving(clock, tmp_path, monkeypatch, event):
    """An update takes a second here, and either of both a thousand."""
    rows = [{"input_ids": [3] * length + [2], "labels": [4, 2]} for length in range(1, 13)]
    options = {"eval_strategy": "no", "save_strategy": "no", "max_steps": 4, "logging_steps": 1, "report_to": "none"}
    options |= {f"{event}_strategy": "steps", f"{event}_steps": 1, "max_tokens_per_batch": 26}
    args = TranslationTrainingArguments(tmp_path, use_cpu=True, predict_with_generate=False, **options)
    trainer = TranslationTrainer(
        tiny_model(), args, processing_class=tiny_tokenizer(), train_dataset=rows, eval_dataset=rows
    )
    tokens = []

    def lasting(method, seconds):
        def call(self, *args, **kwargs):
            clock.now += seconds
            return method(self, *args, **kwargs)

        return call

    def counted_step(self, model, inputs, *args):
        tokens.append(int(inputs["attention_mask"].sum() + inputs["labels"].ne(-100).sum()))
        return training_step(self, model, inputs, *args)

    training_step = lasting(TranslationTrainer.training_step, 1)
    monkeypatch.setattr(TranslationTrainer, "training_step", counted_step)
    for name in ("evaluation_loop", "save_model"):
        monkeypatch.setattr(TranslationTrainer, name, lasting(getattr(TranslationTrainer, name), 1000))
    trainer.train()
    logged = [entry["tokens_per_second"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged == tokens
    assert len(set(tokens)) > 1
