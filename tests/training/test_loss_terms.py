"""The parts of the loss in the logs, and as the loggers show them."""

import pickle

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_marian import tiny_tokenizer
from transformers import AutoModelForSeq2SeqLM, DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments
from transformers.utils import logging

from hf_capsule_mt import preset_config
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.meter import RunMeter
from hf_capsule_mt.training.trainer import TranslationTrainer

LINES = ["a b c d e f", "g", "h i", "j k l m", "n o p", "q", "r s t u v", "w x"]
TINY = {"d_model": 16, "encoder_layers": 1, "vocab_size": 29}
TERMS = ("lm_loss", "bow_loss", "bca_loss")
WEIGHTS = {"bow_loss_weight": 0.5, "bca_loss_weight": 2, "guided_capsule_dim": 4}


def train(folder, method="gdr", weights=WEIGHTS, dropout=0, model_init=False, resume=None, **options):
    """Train in the order of the lines, and return what was logged of the loss; twice, if models are made anew."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    config = preset_config(method, "tiny", **TINY, **weights, dropout=dropout)
    model = AutoModelForSeq2SeqLM.from_config(config)
    fields = {"max_steps": 4, "logging_steps": 1, "optim": "sgd", "learning_rate": 0.1, "warmup_steps": 0}
    fields |= {"save_strategy": "no", "report_to": "none", "use_cpu": True, "train_sampling_strategy": "sequential"}
    fields |= {"lr_scheduler_type": "constant", "per_device_train_batch_size": 4, **options}
    data = [dict(tokenizer(line, text_target=line)) for line in LINES]
    fields |= {"max_tokens_per_batch": 0, "predict_with_generate": False}
    trainer = TranslationTrainer(
        None if model_init else model,
        TranslationTrainingArguments(str(folder), **fields),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model),
        train_dataset=data,
        eval_dataset=data,
        processing_class=tokenizer,
        model_init=(lambda: AutoModelForSeq2SeqLM.from_config(config)) if model_init else None,
    )
    if model_init:
        trainer.train()
    trainer.train(resume)
    pickle.dumps(trainer.model)
    return [entry for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize(("method", "model_init"), [("rnmt-gdr", False), ("gdr", True)])
def test_the_terms_add_up_to_the_loss(method, model_init, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "events"))
    options = {"eval_strategy": "steps", "eval_steps": 1, "report_to": "none" if model_init else "tensorboard"}
    history = train(tmp_path, method, model_init=model_init, **options)
    assert len(history) == 4
    for entry in history:
        lm, bow, bca = (entry[name] for name in TERMS)
        assert min(lm, bow, bca) > 0
        assert entry["loss"] == pytest.approx(lm + 0.5 * bow + 2 * bca, rel=1e-5)
    assert history[-1]["bow_loss"] < history[0]["bow_loss"]
    if not model_init:
        events = EventAccumulator(str(tmp_path / "events"))
        events.Reload()
        for name in ("loss", *TERMS):
            shown = [event.value for event in events.Scalars(f"train/{name}")]
            assert shown == pytest.approx([entry[name] for entry in history])


def test_they_are_means_over_updates_and_sums_over_accumulated_batches(tmp_path):
    single = train(tmp_path)
    for options in ({"logging_steps": 2}, {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}):
        entries = train(tmp_path, **options)
        step = len(single) // len(entries)
        for name in TERMS:
            expected = [sum(one[name] for one in single[i : i + step]) / step for i in range(0, 4, step)]
            assert [entry[name] for entry in entries] == pytest.approx(expected, rel=1e-5)


def test_they_are_means_over_the_updates_of_a_run_that_is_resumed(tmp_path):
    whole = train(tmp_path, save_strategy="steps", save_steps=3)
    resumed = train(tmp_path, save_strategy="steps", save_steps=3, resume=tmp_path / "checkpoint-3")
    for name in ("loss", *TERMS):
        assert [entry[name] for entry in resumed] == [entry[name] for entry in whole]


@pytest.mark.parametrize("method", ["em-routing", "rnmt-gdr"])
def test_rdrop_makes_two_passes(method, tmp_path):
    weights = WEIGHTS if method == "rnmt-gdr" else {}
    options = {"gradient_accumulation_steps": 2, "weights": weights, "max_steps": 2}
    once = train(tmp_path / "once", method, **options)
    alike = train(tmp_path / "alike", method, rdrop_alpha=5.0, **options)
    # Without dropout the passes do not differ.
    assert [entry["loss"] for entry in alike] == pytest.approx([entry["loss"] for entry in once], rel=1e-5)
    assert [entry["rdrop_loss"] for entry in alike] == pytest.approx([0, 0], abs=1e-9)
    for entry in train(tmp_path / "different", method, dropout=0.3, rdrop_alpha=5.0, **options):
        parts = {"lm_loss": 1, "rdrop_loss": 5, "bow_loss": 0.5, "bca_loss": 2}
        assert entry["rdrop_loss"] > 1e-6
        assert entry["loss"] == pytest.approx(sum(weight * entry.get(name, 0) for name, weight in parts.items()))


def test_label_smoothing_of_transformers_is_that_of_the_model(tmp_path):
    """It leaves the other parts of the loss as they are."""
    options = {"max_steps": 1}
    expected = train(tmp_path, weights={**WEIGHTS, "label_smoothing": 0.1}, **options)[0]["loss"]
    assert train(tmp_path, label_smoothing_factor=0.1, **options)[0]["loss"] == expected
    made = train(tmp_path, label_smoothing_factor=0.1, model_init=True, **options)[-1]
    assert made["loss"] == pytest.approx(sum(weight * made[name] for name, weight in zip(TERMS, (1, 0.5, 2))))


def test_a_plain_trainer_that_smooths_labels_itself_is_told_what_it_loses(tmp_path, caplog):
    """It gives the model no labels, so the losses of capsules are left out."""
    # Another test may have been told.
    logging.warning_once.cache_clear()
    tokenizer = tiny_tokenizer()
    model = AutoModelForSeq2SeqLM.from_config(preset_config("rnmt-gdr", "tiny", **TINY))
    args = Seq2SeqTrainingArguments(
        str(tmp_path), max_steps=1, label_smoothing_factor=0.1, save_strategy="no", report_to="none", use_cpu=True
    )
    data = [dict(tokenizer(line, text_target=line)) for line in LINES]
    Seq2SeqTrainer(model, args, train_dataset=data, data_collator=DataCollatorForSeq2Seq(tokenizer, model)).train()
    assert "label_smoothing and the losses of capsules have no effect" in caplog.text


def test_a_meter_keeps_no_graph():
    """Otherwise the activations of all batches would stay in memory until the next entry of the log."""
    meter = RunMeter()
    loss = torch.ones(1, requires_grad=True) * 2
    for _ in range(2):
        meter.add_losses({"lm_loss": loss, "bow_loss": loss})
    assert not any(total.requires_grad for total in meter._losses.values())
