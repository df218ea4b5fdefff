"""Callbacks of a training run: wandb, trackio and early stopping, for every family."""

import functools
import tempfile

import pytest
from plug_table import FAMILIES, promised
from tiny_marian import tiny_tokenizer

from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.trainer import TranslationTrainer

PAIRS = [{"input_ids": [word, word + 1, 2], "labels": [word + 1, word, 2]} for word in range(3, 15)]


@functools.cache
def trained(family):
    """A trainer that has trained with a learning rate of 0, and the summary of wandb at its end.

    All families log to the run of wandb that is begun first, so the next one replaces its summary.
    """
    import wandb

    options = {"max_steps": 5, "learning_rate": 0, "warmup_steps": 0, "max_tokens_per_batch": 12}
    options |= {"logging_steps": 1, "eval_strategy": "steps", "eval_steps": 1, "save_steps": 1}
    options |= {"load_best_model_at_end": True, "early_stopping_patience": 1, "generation_max_length": 5}
    data = {"train_dataset": PAIRS, "eval_dataset": PAIRS[:3]}
    with tempfile.TemporaryDirectory() as folder:
        args = TranslationTrainingArguments(
            folder, run_name=family, report_to=["wandb", "trackio"], use_cpu=True, **options
        )
        trainer = TranslationTrainer(FAMILIES[family](), args, processing_class=tiny_tokenizer(), **data)
        trainer.train()
    return trainer, dict(wandb.run.summary)


@promised("wandb, trackio")
def test_trackers_are_told(family):
    import wandb
    from trackio.sqlite_storage import SQLiteStorage

    trainer, summary = trained(family)
    logged = SQLiteStorage.get_logs("huggingface", family)
    for name, key in {"loss": "train/loss", "eval_bleu": "eval/bleu"}.items():
        values = [entry[name] for entry in trainer.state.log_history if name in entry]
        assert [entry[key] for entry in logged if key in entry] == pytest.approx(values)
        assert summary[key] == pytest.approx(values[-1])
    assert wandb.run.settings.mode == "offline"


@promised("Early stopping")
def test_early_stopping(family):
    """No evaluation is better than the first, so the second is the last."""
    trainer, _ = trained(family)
    assert trainer.state.global_step == 2
    assert all(entry["tokens_per_second"] > 0 for entry in trainer.state.log_history if "loss" in entry)
