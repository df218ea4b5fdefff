"""Defaults of the command line, and what contradicts what."""

import dataclasses
import os
import re
import sys
from contextlib import nullcontext
from datetime import timedelta

import pytest
import torch

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.training import arguments as arguments_module
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.options import DataArguments, ModelArguments

BEST = {
    "load_best_model_at_end": True,
    "eval_strategy": "steps",
    "eval_steps": 2,
    "save_strategy": "steps",
    "save_steps": 2,
}


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


@pytest.mark.parametrize("name", ["logging_strategy", "eval_strategy", "save_strategy"])
def test_a_stream_has_no_epochs(name):
    data = {"train_file": ["a.tsv"], "validation_file": ["a.tsv"]}
    args = training(max_steps=9, **{name: "epoch"})
    with pytest.raises(ValueError, match="A stream has no epochs"):
        args.check_with(DataArguments(**data, streaming=True))
    args.check_with(DataArguments(**data))
    training(max_steps=9).check_with(DataArguments(**data, streaming=True))


def test_evaluation_needs_validation_data():
    with pytest.raises(ValueError, match="no --validation_file"):
        training(eval_strategy="epoch").check_with(DataArguments(["a.tsv"]))


def test_config_overrides_are_json_or_plain_text():
    texts = ["dropout=0.1", 'layer_aggregation_sides=["encoder"]', "activation_function=relu", "name=a=b", "none=null"]
    texts += ["yes=True", "nothing=None", 'text="None"']
    expected = {"dropout": 0.1, "layer_aggregation_sides": ["encoder"], "activation_function": "relu", "name": "a=b"}
    expected |= {"none": None, "yes": True, "nothing": None, "text": "None", "label_smoothing": 0.1}
    assert ModelArguments(model="folder", config_overrides=texts).config_fields() == expected


@pytest.mark.parametrize("value", ["[encoder", "{encoder", " [encoder"])
def test_lists_and_objects_are_json(value):
    with pytest.raises(UserError, match="Write lists as JSON"):
        ModelArguments(model="folder", config_overrides=[f"sides={value}"]).config_fields()


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
        ({"early_stopping_patience": 3}, "needs an eval_strategy and load_best_model_at_end"),
        ({"early_stopping_patience": 3, "eval_strategy": "steps", "eval_steps": 2}, "load_best_model_at_end"),
        (
            {"early_stopping_patience": 3, "load_best_model_at_end": True, "save_strategy": "no"},
            "needs an eval_strategy",
        ),
        ({"push_to_hub": True, "bf16_full_eval": True}, "Leave out one"),
        ({"push_to_hub": True, "fp16_full_eval": True}, "Leave out one"),
    ],
)
def test_values_that_would_spoil_a_run_without_a_word(options, message):
    with pytest.raises(UserError, match=message):
        training(**options)


def test_a_data_seed_of_0_is_one(tmp_path):
    options = {"seed": 5, "report_to": "none", "use_cpu": True}
    assert TranslationTrainingArguments(str(tmp_path), **options).seed_of_data == 5
    assert TranslationTrainingArguments(str(tmp_path), data_seed=0, **options).seed_of_data == 0


@pytest.mark.parametrize(
    "options",
    [
        {"rdrop_alpha": 0, "ema_decay": 0},
        {"warmup_steps": 5, "optim": "schedule_free_adamw"},
        {"early_stopping_patience": 3, **BEST},
        {"bf16_full_eval": True},
        {"push_to_hub": True},
    ],
    ids=str,
)
def test_values_that_are_allowed(options):
    training(**options)


@pytest.mark.parametrize("options", [{}, {"method": "gdr"}, {"tokenizer_name": "folder"}], ids=str)
def test_a_new_model_needs_a_method_and_a_tokenizer(options):
    with pytest.raises(UserError, match="Give --method and --tokenizer_name to train from scratch"):
        ModelArguments(**options)
    ModelArguments(method="gdr", tokenizer_name="folder")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "name", "size": "tiny"}, "name has a size already"),
        ({"model": "name", "method": "gdr", "lora_rank": 2}, "without --method"),
        ({"method": "transformer", "tokenizer_name": "folder", "lora_rank": 2}, "an adapter for --model"),
    ],
)
def test_options_of_a_model_that_contradict_each_other(options, message):
    with pytest.raises(UserError, match=message):
        ModelArguments(**options)
    ModelArguments(model="name", method="transformer", lora_rank=2)


def test_a_revision_is_that_of_the_model():
    assert ModelArguments(model="name", revision="v1").tokenizer() == ("name", "v1")
    assert ModelArguments(model="name", revision="v1", tokenizer_name="other").tokenizer() == ("other", "main")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Give either"),
        ({"train_file": ["a.tsv"], "dataset_name": "name"}, "Give either"),
    ],
    ids=str,
)
def test_data_that_is_missing_or_contradicts(options, message):
    with pytest.raises(UserError, match=message):
        DataArguments(**options)
    DataArguments(train_file=["a.tsv"], streaming=True, bpe_dropout=0.1)
    DataArguments(dataset_name="name")


@pytest.mark.parametrize(
    ("options", "is_refused"),
    [
        (BEST, False),
        ({**BEST, "predict_with_generate": False}, True),
        ({**BEST, "load_best_model_at_end": False}, True),
    ],
    ids=["best", "no BLEU", "not the best"],
)
def test_general_validation_data_chooses_by_bleu(options, is_refused):
    data = DataArguments(["a.tsv"], validation_file=["a.tsv"], general_validation_file=["b.tsv"])
    with pytest.raises(UserError, match="chooses the best") if is_refused else nullcontext():
        training(**options).check_with(data)


@pytest.mark.parametrize(
    ("options", "is_needed"), [({}, False), ({"save_strategy": "best"}, True), (BEST, True)], ids=str
)
def test_who_needs_the_best_score(options, is_needed):
    assert training(**options).needs_best == is_needed


def test_options_of_workers_reach_the_loader():
    given = {"num_workers": 2, "prefetch_factor": 3, "persistent_workers": True}
    args = training(**{f"dataloader_{name}": value for name, value in given.items()})
    assert given.items() <= args.loader_options.items()
    assert args.loader_options["multiprocessing_context"] == ("fork" if sys.platform == "linux" else None)
    assert args.loader_options["pin_memory"] == torch.accelerator.is_available()
    other = training(dataloader_num_workers=2, dataloader_multiprocessing_context="spawn")
    assert other.loader_options["multiprocessing_context"] == "spawn"
    assert training().loader_options["multiprocessing_context"] is None
    assert not training(dataloader_pin_memory=False).loader_options["pin_memory"]
    # Also where nobody asks for a CPU, and there is nothing else.
    anywhere = TranslationTrainingArguments("run", report_to="none")
    assert anywhere.loader_options["pin_memory"] == torch.accelerator.is_available()


def test_a_token_moves_into_the_environment(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "of before")
    assert training(hub_token="of now").hub_token is None
    assert os.environ["HF_TOKEN"] == "of now"


def test_defaults_of_data_and_of_evaluation():
    data = DataArguments(["a.tsv"])
    assert (data.max_source_length, data.max_target_length, data.shuffle_buffer) == (256, 256, 100_000)
    assert data.bpe_dropout == 0
    args = training()
    assert (args.generation_max_length, args.generation_num_beams, args.bleu_tokenize) == (128, 1, "13a")
    assert (args.max_general_loss, args.rdrop_alpha, args.ema_decay, args.gradient_accumulation_steps) == (1, 0, 0, 1)


def test_processes_on_cpus_have_their_backend_and_their_time_limit(monkeypatch):
    def ask(**options):
        raise UserError(f"asked for {options}")

    monkeypatch.setattr(arguments_module, "PartialState", ask)
    expected = {"cpu": True, "backend": "gloo", "timeout": timedelta(seconds=7)}
    with pytest.raises(UserError, match=re.escape(f"asked for {expected}")):
        training(ddp_backend="gloo", ddp_timeout=7)
    TranslationTrainingArguments("run", report_to="none")
