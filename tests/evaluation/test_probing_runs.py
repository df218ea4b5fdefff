"""One probing classifier: it learns, the best epoch is tested, and an interrupted run ends as if it had not been."""

import random

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments

import hf_capsule_mt  # noqa: F401 (registers the models)
from benchmarks.probing import classifiers as probing
from benchmarks.probing.classifiers import ProbingSettings, probe
from benchmarks.probing.data import ProbingData
from benchmarks.probing.encoders import AGGREGATIONS, NewEncoder, train_word_tokenizer

LEARNABLE = ProbingSettings(epochs=3, batch_size=16, learning_rate=2e-3)
SHORT = ProbingSettings(epochs=3, batch_size=8, learning_rate=1e-3)
VOCAB_SIZE = 10


def task(train=160, validation=32, test=64):
    """Is there an `a` among the words? Half of the sentences have one."""
    rng = random.Random(0)

    def examples(size):
        for number in range(size):
            words = rng.choices("bcdefg", k=rng.randint(2, 6))
            if number % 2:
                words[rng.randrange(len(words))] = "a"
            yield "yes" if number % 2 else "no", " ".join(words)

    return ProbingData(*(list(examples(size)) for size in (train, validation, test)))


def new(aggregation):
    return NewEncoder(aggregation, "tiny", VOCAB_SIZE)


SMALL_TASK = task(32, 12, 10)


def logits_on_test(checkpoint):
    tokenizer = train_word_tokenizer([sentence for _, sentence in SMALL_TASK.train], VOCAB_SIZE)
    batch = tokenizer([sentence for _, sentence in SMALL_TASK.test], padding=True, return_tensors="pt")
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    with torch.no_grad():
        return model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits


class Interrupted(Exception):
    """Takes the place of a kill."""


def interrupt(monkeypatch, method, calls):
    """Let the next runs stop when one of the Trainer's methods has been called so many times."""
    original, count = getattr(Trainer, method), 0

    def counting(*arguments, **options):
        nonlocal count
        if count == calls:
            raise Interrupted
        count += 1
        return original(*arguments, **options)

    monkeypatch.setattr(Trainer, method, counting)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_what_can_be_learned_is_learned(aggregation, tmp_path):
    result = probe(task(), new(aggregation), 1, LEARNABLE, tmp_path)
    assert result["majority_accuracy"] == 0.5
    assert result["test_accuracy"] >= 0.9
    assert result["validation_accuracy"] == max(result["validation_accuracies"])
    assert len(result["validation_accuracies"]) == 3
    assert result["sentences"] == {"tr": 160, "va": 32, "te": 64}
    assert result["labels"] == 2
    assert result["config"]["encoder_layers"] == 3
    routing = {"base": None, "simple": "simple_routing", "em": "em_routing"}[aggregation]
    assert result["config"].get("head_aggregation") == routing


def test_the_best_epoch_is_tested(tmp_path, monkeypatch):
    measured = []

    def scripted(prediction):
        measured.append(prediction.predictions)
        return {"accuracy": [0.8, 0.9, 0.7, 0.1][len(measured) - 1]}

    monkeypatch.setattr(probing, "_accuracy", scripted)
    result = probe(SMALL_TASK, new("base"), 1, SHORT, tmp_path)
    assert result["validation_accuracies"] == [0.8, 0.9, 0.7]
    assert result["validation_accuracy"] == 0.9
    assert result["test_accuracy"] == 0.1
    # An epoch has four updates; the second and the last are kept.
    assert {folder.name for folder in tmp_path.iterdir()} == {"checkpoint-8", "checkpoint-12"}
    logits = [logits_on_test(tmp_path / name) for name in ("checkpoint-8", "checkpoint-12")]
    assert not torch.allclose(*logits, atol=1e-3)
    np.testing.assert_array_equal(measured[-1], logits[0].argmax(-1))


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["base", "em"])
def test_an_interrupted_run_goes_on(aggregation, tmp_path, monkeypatch):
    expected = probe(SMALL_TASK, new(aggregation), 2, SHORT, tmp_path / "whole")
    with monkeypatch.context() as patch:
        interrupt(patch, "training_step", 6)
        with pytest.raises(Interrupted):
            probe(SMALL_TASK, new(aggregation), 2, SHORT, tmp_path / "parts")
        # Of an epoch's checkpoint only half was written.
        (tmp_path / "parts" / "checkpoint-8").mkdir()
    with monkeypatch.context() as patch:
        # The first epoch is not trained again.
        interrupt(patch, "training_step", 8)
        assert probe(SMALL_TASK, new(aggregation), 2, SHORT, tmp_path / "parts") == expected


def test_a_run_that_was_interrupted_after_training_is_only_tested(tmp_path, monkeypatch):
    expected = probe(SMALL_TASK, new("base"), 1, SHORT, tmp_path / "whole")
    with monkeypatch.context() as patch:
        interrupt(patch, "predict", 0)
        with pytest.raises(Interrupted):
            probe(SMALL_TASK, new("base"), 1, SHORT, tmp_path / "parts")
    interrupt(monkeypatch, "training_step", 0)
    assert probe(SMALL_TASK, new("base"), 1, SHORT, tmp_path / "parts") == expected


def test_a_best_checkpoint_that_has_been_moved(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt(patch, "predict", 0)
        with pytest.raises(Interrupted):
            probe(SMALL_TASK, new("base"), 1, SHORT, tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    with pytest.raises(FileNotFoundError, match=r"the best checkpoint of .*/new is not where it was written"):
        probe(SMALL_TASK, new("base"), 1, SHORT, tmp_path / "new")


def test_several_gpus(tmp_path, monkeypatch):
    """By itself a Trainer would take batches of 16 on each."""
    monkeypatch.setattr(TrainingArguments, "n_gpu", 4)
    with pytest.raises(
        ValueError, match="this process has 4 GPUs, each of which would take batches of 16; show it one"
    ):
        probe(SMALL_TASK, new("base"), 1, LEARNABLE, tmp_path)


def test_words_are_what_spaces_separate():
    tokenizer = train_word_tokenizer(["don't , stop !", "stop , STOP", "stop"], 6)
    assert tokenizer.get_vocab() == {"<pad>": 0, "<unk>": 1, "</s>": 2, "stop": 3, ",": 4, "!": 5}
    assert tokenizer("STOP , stop , 'stop'")["input_ids"] == [1, 4, 3, 4, 1]


def test_majority_accuracy():
    data = ProbingData([("a", ""), ("b", ""), ("b", "")], [("a", "")], [("a", ""), ("a", ""), ("a", ""), ("b", "")])
    assert probing.majority_accuracy(data) == 0.25


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs is 0; it must be at least 1"),
        ({"batch_size": 0}, "batch_size is 0; it must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; it must be above 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; it must be above 0"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(ValueError, match=message):
        ProbingSettings(**settings)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"aggregation": "gru"}, "aggregation is 'gru'; allowed are 'base', 'simple', 'em'"),
        ({"size": "huge"}, "size is 'huge'; allowed are 'tiny', 'base', 'big'"),
        ({"vocab_size": 3}, "vocab_size is 3; it must be at least 4"),
    ],
)
def test_new_encoders_that_cannot_be(fields, message):
    with pytest.raises(ValueError, match=message):
        NewEncoder(**{"aggregation": "base", **fields})
