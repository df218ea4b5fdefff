"""Defaults of the command line, and what contradicts what."""

import pytest

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
