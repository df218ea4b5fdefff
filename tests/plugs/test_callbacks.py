"""Callbacks of a training run: wandb, trackio, early stopping and the progress bar, for every family."""

import functools
import io
import tempfile
from contextlib import redirect_stderr

import pytest
from plug_table import FAMILIES, SHORT, library, promised
from tiny_marian import tiny_tokenizer

from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.trainer import TranslationTrainer

PAIRS = [{"input_ids": [word, word + 1, 2], "labels": [word + 1, word, 2]} for word in range(3, 15)]


@functools.cache
def trained(family):
    """A trainer that has trained with a learning rate of 0, and what its progress bar showed."""
    with tempfile.TemporaryDirectory() as folder:
        return _train(family, folder)


def _train(family, folder):
    args = TranslationTrainingArguments(
        folder,
        run_name=family,
        report_to=["wandb", "trackio"],
        use_cpu=True,
        max_steps=5,
        learning_rate=0,
        warmup_steps=0,
        logging_steps=1,
        max_tokens_per_batch=12,
        generation_max_length=5,
        eval_strategy="steps",
        eval_steps=1,
        save_steps=1,
        load_best_model_at_end=True,
        early_stopping_patience=1,
    )
    with redirect_stderr(io.StringIO()) as shown:
        trainer = TranslationTrainer(
            FAMILIES[family](), args, processing_class=tiny_tokenizer(), train_dataset=PAIRS, eval_dataset=PAIRS[:3]
        )
        trainer.train()
    return trainer, shown.getvalue()


@promised("wandb, trackio", short=SHORT)
def test_trackers_are_told(family):
    wandb, storage = library("wandb"), library("trackio.sqlite_storage").SQLiteStorage
    trainer, _ = trained(family)
    logged = storage.get_logs("huggingface", family)
    for name, key in {"loss": "train/loss", "eval_bleu": "eval/bleu"}.items():
        values = [entry[name] for entry in trainer.state.log_history if name in entry]
        assert [entry[key] for entry in logged if key in entry] == pytest.approx(values)
        # All families log to the run that is begun first.
        assert wandb.run.summary[key] == pytest.approx(values[-1])
    assert wandb.run.settings.mode == "offline"


@promised("Early stopping, progress bar", short=SHORT)
def test_early_stopping_and_the_progress_bar(family):
    """No evaluation is better than the first, so the second is the last."""
    trainer, shown = trained(family)
    assert trainer.state.global_step == 2
    last = shown.replace("\n", "\r").rpartition("2/5 ")[2]
    assert f"BLEU={trainer.state.best_metric:.4g}" in last
    assert "tokens/s=" in last
    assert ", loss=" in last or "[loss=" in last
