"""Defaults of the command line, and what contradicts what."""

import dataclasses

import pytest

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.training.arguments import DataArguments, ModelArguments, TranslationTrainingArguments


def training(**options):
    return TranslationTrainingArguments("run", use_cpu=True, report_to="none", **options)


def test_defaults_are_those_of_the_papers():
    args = training()
    assert (args.max_tokens_per_batch, args.lr_scheduler_type, args.warmup_steps) == (4096, "inverse_sqrt", 4000)
    assert (args.learning_rate, args.adam_beta2, args.adam_epsilon) == (7e-4, 0.98, 1e-9)
    assert args.predict_with_generate
    assert TranslationTrainingArguments("run", use_cpu=True).report_to == ["tensorboard"]


@pytest.mark.parametrize(
    ("options", "tokens", "pairs"),
    [
        ({"per_device_train_batch_size": 8}, 0, 8),
        ({"max_tokens_per_batch": 0}, 0, 8),
        ({"max_tokens_per_batch": 100, "per_device_train_batch_size": 16}, 100, 16),
    ],
)
def test_batches_of_tokens_or_of_pairs(options, tokens, pairs):
    args = training(**options)
    assert (args.max_tokens_per_batch, args.train_batch_size) == (tokens, pairs)


@pytest.mark.parametrize(
    ("options", "metric", "greater_is_better"),
    [
        ({}, "bleu", True),
        ({"predict_with_generate": False}, "loss", False),
        ({"metric_for_best_model": "eval_loss"}, "loss", False),
    ],
)
def test_the_best_model_is_best_in(options, metric, greater_is_better):
    args = training(**options)
    assert (args.metric_for_best_model, args.greater_is_better) == (metric, greater_is_better)


def test_a_stream_has_no_epochs():
    data = {"train_file": ["a.tsv"], "validation_file": ["a.tsv"]}
    with pytest.raises(ValueError, match="A stream has no epochs"):
        training(max_steps=9, save_strategy="epoch").check_with(DataArguments(**data, streaming=True))
    training(max_steps=9, save_strategy="epoch").check_with(DataArguments(**data))
    with pytest.raises(ValueError, match="no --validation_file"):
        training(eval_strategy="epoch").check_with(DataArguments(["a.tsv"]))


def test_config_overrides_are_json_or_plain_text():
    texts = ["dropout=0.1", 'layer_aggregation_sides=["encoder"]', "activation_function=relu", "name=a=b", "none=null"]
    texts += ["yes=True", "nothing=None", 'text="None"']
    expected = {"dropout": 0.1, "layer_aggregation_sides": ["encoder"], "activation_function": "relu", "name": "a=b"}
    expected |= {"none": None, "yes": True, "nothing": None, "text": "None", "label_smoothing": 0.1}
    assert ModelArguments(model="folder", config_overrides=texts).config_fields() == expected


@pytest.mark.parametrize(("updates", "warmup"), [(20, 2), (21, 3), (100_000, 500)])
def test_warmup_by_the_length_of_the_run(updates, warmup):
    args = training(warmup_steps=None)
    assert args.get_warmup_steps(updates) == warmup
    # Ablations and searches copy arguments in this way.
    assert dataclasses.replace(args, learning_rate=1e-3).get_warmup_steps(updates) == warmup


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rdrop_alpha": -5}, "rdrop_alpha is -5"),
        ({"rdrop_alpha": float("nan")}, "rdrop_alpha is nan"),
        ({"rdrop_alpha": float("inf")}, "rdrop_alpha is inf"),
        ({"ema_decay": 2.0}, "ema_decay is 2.0"),
        ({"ema_decay": 1.0}, "ema_decay is 1.0"),
        ({"ema_decay": -0.1}, "ema_decay is -0.1"),
        ({"warmup_steps": None, "optim": "schedule_free_adamw"}, "Give --warmup_steps"),
    ],
)
def test_values_that_would_spoil_a_run_without_a_word(options, message):
    with pytest.raises(UserError, match=message):
        training(**options)


def test_a_data_seed_of_0_is_one(tmp_path):
    options = {"seed": 5, "report_to": "none", "use_cpu": True}
    assert TranslationTrainingArguments(str(tmp_path), **options).seed_of_data == 5
    assert TranslationTrainingArguments(str(tmp_path), data_seed=0, **options).seed_of_data == 0
