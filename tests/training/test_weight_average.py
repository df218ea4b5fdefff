"""The average of the weights: what it is, where it is used, and that a resumed run goes on with both."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from tiny_run import arguments, files, stop_at
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_capsule_mt.cli.train import main
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.checkpoint_folders import checkpoints, step_of
from hf_capsule_mt.training.moving_average import TRAINING_WEIGHTS, WeightAverage
from hf_capsule_mt.training.trainer import TranslationTrainer

# More than the first update takes, and less than the second would.
DECAY = 0.2
SAVING = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}


def run(corpus, folder, **options):
    validation = {"validation_file": files(corpus, "validation")}
    options = {"method": "em-routing", "max_steps": 5, "learning_rate": 0.05, **validation, **SAVING, **options}
    main(arguments(corpus, folder, **options))
    return load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def averaged(corpus, tmp_path_factory):
    """A run, the weights before it and after each of its updates, and those that it saved."""
    folder, weights = tmp_path_factory.mktemp("run"), []
    step, end = TranslationTrainer.training_step, WeightAverage.on_train_end

    def record(model):
        weights.append({name: weight.detach().double() for name, weight in model.named_parameters()})

    def recorded_step(self, model, *args, **kwargs):
        record(model)
        return step(self, model, *args, **kwargs)

    def recorded_end(self, *args, **kwargs):
        record(kwargs["model"])
        end(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TranslationTrainer, "training_step", recorded_step)
        patch.setattr(WeightAverage, "on_train_end", recorded_end)
        saved = run(corpus, folder, ema_decay=DECAY)
    return folder, weights, saved


def expected_average(weights, updates):
    average = weights[0]
    for update in range(1, updates + 1):
        decay = min(DECAY, (1 + update) / (10 + update))
        average = {name: decay * value + (1 - decay) * weights[update][name] for name, value in average.items()}
    return average


def test_it_is_saved_and_the_weights_beside_it(averaged):
    folder, weights, result = averaged
    for name, expected in expected_average(weights, 5).items():
        if name in result:
            torch.testing.assert_close(result[name].double(), expected, rtol=1e-6, atol=1e-7)
    for updates in (2, 4):
        checkpoint = folder / f"checkpoint-{updates}"
        saved = load_file(checkpoint / "model.safetensors")
        training = load_file(checkpoint / TRAINING_WEIGHTS)
        for name, expected in expected_average(weights, updates).items():
            if name in training:
                torch.testing.assert_close(training[name].double(), weights[updates][name], rtol=0, atol=0)
            if name in saved:
                torch.testing.assert_close(saved[name].double(), expected, rtol=1e-6, atol=1e-7)
        assert any(not torch.equal(saved[name], training[name]) for name in saved if name in training)
        # Only what is trained is there.
        assert "model.shared.weight" in training
        assert not [name for name in training if "embed_positions" in name]
    # The result is not trained further.
    assert not (folder / TRAINING_WEIGHTS).exists()


def test_it_is_evaluated(averaged, corpus):
    """The loss in the log is that of the weights that are saved."""
    folder, _, _ = averaged
    log = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    losses = {entry["step"]: entry["eval_loss"] for entry in log if "eval_loss" in entry}
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sides = [file.read_text().splitlines() for file in files(corpus, "validation")]
    pairs = [dict(tokenizer(source, text_target=target)) for source, target in zip(*sides)]
    args = TranslationTrainingArguments(folder, predict_with_generate=False, report_to="none", use_cpu=True)
    for updates in (2, 4):
        model = AutoModelForSeq2SeqLM.from_pretrained(folder / f"checkpoint-{updates}")
        trainer = TranslationTrainer(model, args, eval_dataset=pairs, processing_class=tokenizer)
        assert trainer.evaluate()["eval_loss"] == pytest.approx(losses[updates], rel=1e-5)


@pytest.mark.parametrize(
    ("loads_best", "best", "result"), [(False, None, 1.5), (False, "c", 1.5), (True, None, 1.5), (True, "c", 2.0)]
)
def test_the_weights_of_the_best_checkpoint_are_averages_already(loads_best, best, result):
    """Without such a checkpoint the averages are put into the model."""
    model = torch.nn.Linear(1, 1, bias=False)
    average = WeightAverage(0.5)
    state = SimpleNamespace(global_step=100, best_model_checkpoint=best)
    with torch.no_grad():
        model.weight.fill_(1.0)
        average.on_train_begin(None, state, None, model=model)
        model.weight.fill_(2.0)
    average.on_step_end(None, state, None)
    with average.in_model():
        assert model.weight.item() == 1.5
    assert model.weight.item() == 2
    average.on_train_end(SimpleNamespace(load_best_model_at_end=loads_best), state, None)
    assert model.weight.item() == result
    # Training is over.
    with average.in_model():
        assert model.weight.item() == result


def test_a_resumed_run_has_the_same_weights(averaged, corpus, tmp_path, monkeypatch):
    _, _, whole = averaged
    with monkeypatch.context() as patch:
        stop_at(patch, update=3)
        with pytest.raises(KeyboardInterrupt):
            run(corpus, tmp_path, ema_decay=DECAY)
    resumed = run(corpus, tmp_path, ema_decay=DECAY, resume_from_checkpoint="last")
    assert all(torch.equal(weight, whole[name]) for name, weight in resumed.items())


def test_the_best_checkpoint_stays(corpus, tmp_path):
    options = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "ema_decay": DECAY}
    # The loss falls, so the first checkpoint has the greatest.
    saved = run(corpus, tmp_path, greater_is_better=True, max_steps=4, **options)
    assert json.loads((tmp_path / "checkpoint-4" / "trainer_state.json").read_text())["best_global_step"] == 2
    best = load_file(tmp_path / "checkpoint-2" / "model.safetensors")
    assert all(torch.equal(weight, best[name]) for name, weight in saved.items())


@pytest.mark.parametrize(
    ("learning_rate", "saved_updates", "best"),
    [(3, [1, 4], 1), (0.01, [1, 2, 3, 4], 4)],
    ids=["the loss grows", "the loss falls"],
)
def test_the_best_is_saved_if_it_is_evaluated_between_saves(corpus, tmp_path, learning_rate, saved_updates, best):
    options = {"load_best_model_at_end": True, "metric_for_best_model": "loss", "eval_steps": 1, "save_steps": 4}
    saved = run(corpus, tmp_path, learning_rate=learning_rate, max_steps=4, **options)
    assert [step_of(folder) for folder in checkpoints(tmp_path)] == saved_updates
    state = json.loads((tmp_path / "trainer_state.json").read_text())
    assert (state["best_global_step"], Path(state["best_model_checkpoint"]).name) == (best, f"checkpoint-{best}")
    best_weights = load_file(tmp_path / f"checkpoint-{best}" / "model.safetensors")
    assert all(torch.equal(weight, best_weights[name]) for name, weight in saved.items())


def test_averages_of_half_precision_weights_are_in_float32():
    """In bfloat16 a hundredth of the way to the next number would be none."""
    model = torch.nn.Linear(1, 1, bias=False, dtype=torch.bfloat16)
    average, state = WeightAverage(0.99), SimpleNamespace(global_step=10_000)
    with torch.no_grad():
        model.weight.fill_(1.0)
        average.on_train_begin(None, state, None, model=model)
        model.weight.fill_(1.0078125)
    for _ in range(100):
        average.on_step_end(None, state, None)
    with average.in_model():
        assert model.weight.item() == 1.0078125


def test_weights_with_another_order_in_memory_are_saved(tmp_path):
    model, average = torch.nn.Linear(2, 3), WeightAverage(0.5)
    model.weight = torch.nn.Parameter(torch.rand(2, 3).t())
    average.on_train_begin(None, None, None, model=model)
    average.save_training_weights(tmp_path)
    assert torch.equal(load_file(tmp_path / TRAINING_WEIGHTS)["weight"], model.weight)
