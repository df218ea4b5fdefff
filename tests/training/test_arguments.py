"""Defaults of the command line, what contradicts what, and the messages that say so."""

import re

import pytest

from hf_capsule_mt.training.arguments import DataArguments, ModelArguments, TranslationTrainingArguments

HUB = {"dataset_name": "b", "source_lang": "en", "target_lang": "de"}


def training(**options):
    return TranslationTrainingArguments("run", use_cpu=True, report_to="none", **options)


def test_defaults_are_those_of_the_papers():
    args = training()
    assert args.output_dir == "run"
    assert (args.max_tokens_per_batch, args.lr_scheduler_type, args.warmup_steps) == (4096, "inverse_sqrt", 4000)
    assert (args.learning_rate, args.adam_beta2, args.adam_epsilon) == (7e-4, 0.98, 1e-9)
    assert args.predict_with_generate
    assert TranslationTrainingArguments("run", use_cpu=True).report_to == ["tensorboard"]
    assert args.report_to == []
    assert not args.disable_tqdm


@pytest.mark.parametrize(
    ("options", "metric", "greater_is_better"),
    [
        ({}, "bleu", True),
        ({"predict_with_generate": False}, "loss", False),
        ({"metric_for_best_model": "loss"}, "loss", False),
    ],
)
def test_the_best_model_is_best_in(options, metric, greater_is_better):
    args = training(**options)
    assert (args.metric_for_best_model, args.greater_is_better) == (metric, greater_is_better)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens_per_batch": -1}, "max_tokens_per_batch is -1; it must be at least 0"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps is 0; it must be at least 1"),
        ({"save_minutes": 0}, "save_minutes is 0; it must be more than 0"),
        ({"generation_num_beams": 0}, "generation_num_beams is 0; it must be at least 1"),
        ({"early_stopping_patience": 0}, "early_stopping_patience is 0; it must be at least 1"),
        ({"early_stopping_patience": 3}, "early_stopping_patience is 3; it needs .*--load_best_model_at_end"),
        ({"per_device_train_batch_size": 16}, "per_device_train_batch_size is 16, but .* max_tokens_per_batch=4096"),
        (
            {"train_sampling_strategy": "sequential"},
            "train_sampling_strategy is 'sequential', but .*_batch=4096; set that",
        ),
        (
            {"auto_find_batch_size": True},
            "auto_find_batch_size is True, but .*; leave it out, and lower that if memory",
        ),
        ({"dataloader_drop_last": True}, "dataloader_drop_last is True, but .*; leave it out: only validation would"),
        ({"dataloader_in_order": False}, "dataloader_in_order is False, but .*; leave it out: a run that goes on"),
        ({"sortish_sampler": True}, "sortish_sampler is True, but .*; leave it out: the sides of a batch"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor is 0.1: .* set label_smoothing"),
        ({"hub_model_id": "user/a b"}, "'user/a b' is not the name of a repository"),
        ({"hub_revision": "a b"}, "revision 'a b' cannot be one"),
        ({"push_to_hub": True, "bf16_full_eval": True}, "bf16_full_eval is true, and push_to_hub too: .* 16 bits"),
        (
            {"max_tokens_per_batch": 0, "train_sampling_strategy": "group_by_length"},
            "'group_by_length' and max_tokens_per_batch 0: .* cannot go on",
        ),
        ({"accelerator_config": {"even_batches": False}}, "even_batches of accelerator_config is false: in validation"),
        ({"accelerator_config": {"split_batches": True}}, "split_batches of .* is true, but .*_batch=4096, for each"),
        ({"accelerator_config": {"dispatch_batches": True}}, "dispatch_batches of accelerator_config is true"),
    ],
)
def test_contradictions(options, message):
    with pytest.raises(ValueError, match=message):
        training(**options)


def test_no_token_on_the_command_line():
    with pytest.raises(ValueError, match="hub_token is given") as error:
        training(hub_token="hf_secret")
    assert "hf_secret" not in str(error.value)


def test_batches_of_a_number_of_pairs():
    options = {"train_sampling_strategy": "sequential", "auto_find_batch_size": True, "dataloader_drop_last": True}
    assert training(max_tokens_per_batch=0, per_device_train_batch_size=16, **options).train_batch_size == 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"save_strategy": "epoch"},
            "save_strategy is 'epoch', but .* no epochs; choose steps, or no and --save_minutes",
        ),
        ({"eval_strategy": "epoch", "save_strategy": "no"}, "eval_strategy is 'epoch', but .*; choose steps$"),
        ({"logging_strategy": "epoch"}, "logging_strategy is 'epoch', but .*; choose steps$"),
    ],
)
def test_a_stream_has_no_epochs(tmp_path, options, message):
    data = {name: [str(tmp_path / "a.tsv")] for name in ("train_file", "validation_file")}
    (tmp_path / "a.tsv").touch()
    with pytest.raises(ValueError, match=message):
        training(max_steps=9, **options).check_with(DataArguments(**data, streaming=True))
    training(max_steps=9, **options).check_with(DataArguments(**data))


def test_the_best_is_saved_only_of_what_is_evaluated():
    with pytest.raises(ValueError, match="save_strategy is 'best'; it needs an --eval_strategy"):
        training(save_strategy="best", max_steps=4)
    training(save_strategy="best", eval_strategy="steps", eval_steps=1).check_with(DataArguments(**HUB))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prediction_loss_only": True}, "prediction_loss_only is true, and predict_with_generate too; .* false$"),
        ({"batch_eval_metrics": True}, "batch_eval_metrics is True and eval_do_concat_batches True, but BLEU is that"),
        ({"eval_do_concat_batches": False}, "eval_do_concat_batches False, but BLEU is that of all sentences"),
    ],
)
def test_evaluations_that_have_no_bleu(options, message):
    with pytest.raises(ValueError, match=message):
        training(**options).check_with(DataArguments(**HUB))
    training(predict_with_generate=False, **options).check_with(DataArguments(**HUB))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "neither method nor model_name_or_path"),
        ({"method": "em-routing"}, "tokenizer_name is missing; make .*train_tokenizer"),
        ({"model_name_or_path": "folder", "size": "tiny"}, "size is 'tiny', but folder has one already"),
    ],
)
def test_model_arguments_that_miss_something(options, message):
    with pytest.raises(ValueError, match=message):
        ModelArguments(**options)


def test_config_overrides_are_json_or_plain_text():
    texts = ["dropout=0.1", 'layer_aggregation_sides=["encoder"]', "activation_function=relu", "name=a=b", "none=null"]
    texts += ["yes=True", "no=False", "nothing=None", 'text="None"']
    assert ModelArguments(model_name_or_path="folder", config_overrides=texts).config_fields() == {
        "label_smoothing": 0.1,
        "dropout": 0.1,
        "layer_aggregation_sides": ["encoder"],
        "activation_function": "relu",
        "name": "a=b",
        "none": None,
        "yes": True,
        "no": False,
        "nothing": None,
        "text": "None",
    }


@pytest.mark.parametrize("value", ["[decoder]", "['decoder']", "[True]", "{a: 1}"])
def test_config_overrides_that_are_almost_json(value):
    arguments = ModelArguments(model_name_or_path="folder", config_overrides=[f"sides={value}"])
    with pytest.raises(ValueError, match=r"has .*sides=.*, whose value is not JSON; .*'sides=\[\"a\", \"b\"\]'"):
        arguments.config_fields()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either --train_file or --dataset_name"),
        ({"train_file": ["a.tsv"], "dataset_name": "b"}, "either --train_file or --dataset_name"),
        ({"dataset_name": "b", "source_lang": "en"}, "dataset_name 'b' needs source_lang and target_lang"),
        ({"train_file": ["absent.tsv"]}, "train_file names absent.tsv, which is not a file"),
        ({"train_file": ["."]}, "train_file names ., which is not a file"),
        ({"train_file": ["./test*"]}, "train_file names ./test*, which is not a file"),
        ({**HUB, "validation_file": ["c"]}, "validation_file"),
        (
            {**HUB, "train_file_weights": [1, 3]},
            "train_file_weights is [1, 3], but dataset_name 'b' is one corpus; leave",
        ),
    ],
)
def test_data_arguments(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
    with pytest.raises(ValueError, match=re.escape(message)):
        DataArguments(**options)


@pytest.mark.parametrize("schedule", ["reduce_lr_on_plateau", "greedy"])
def test_schedules_that_wait_for_a_gain_know_which_way_it_is(tmp_path, schedule):
    options = {"lr_scheduler_type": schedule, "eval_strategy": "steps", "eval_steps": 2, "use_cpu": True}

    def kwargs(**others):
        return TranslationTrainingArguments(str(tmp_path), **options, **others).lr_scheduler_kwargs

    assert kwargs() == {"mode": "max"}
    assert kwargs(metric_for_best_model="loss") == {"mode": "min"}
    assert kwargs(lr_scheduler_kwargs={"patience": 3, "mode": "min"}) == {"mode": "min", "patience": 3}


def test_schedule_free_optimizers_average_weights_themselves(tmp_path):
    with pytest.raises(ValueError, match="averages the weights itself; leave out ema_decay"):
        TranslationTrainingArguments(str(tmp_path), optim="schedule_free_adamw", ema_decay=0.9)
