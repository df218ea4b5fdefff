"""What makes a run the same run: what may not change when it is resumed, and what its scores compare with."""

from types import SimpleNamespace

import pytest
import torch
from tiny_marian import tiny_model, tiny_tokenizer
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.options import DataArguments, ModelArguments
from hf_capsule_mt.training.resuming import (
    RunIdentity,
    SavedRun,
    check_optimizer,
    check_same_run,
    what_is_fixed,
)
from hf_capsule_mt.training.run_recorder import RunRecorder
from hf_capsule_mt.training.trainer import TranslationTrainer
from hf_capsule_mt.training.training_data import DataFacts

ROWS = [{"input_ids": [3, 4, 2], "labels": [4, 3, 2]}] * 6
BUDGET = {"max_tokens_per_batch": 12}
PAIRS = {"max_tokens_per_batch": 0}


@pytest.fixture(autouse=True)
def new_folder(tmp_path, monkeypatch):
    """Trainers make their output folders."""
    monkeypatch.chdir(tmp_path)


def trainer_of(model=tiny_model, rows=ROWS, data=None, facts=None, recorder=True, **options):
    args = TranslationTrainingArguments("run", report_to="none", use_cpu=True, **options)
    if recorder:
        data_args = DataArguments(["a.tsv"], **(data or {}))
        recorder = RunRecorder(ModelArguments(model="name"), data_args, facts or DataFacts(), (), 0.0, {})
    return TranslationTrainer(
        model(), args, train_dataset=rows, processing_class=tiny_tokenizer(), recorder=recorder or None
    )


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"seed": 9}, "data_seed"),
        ({"data_seed": 9}, "data_seed"),
        ({"gradient_accumulation_steps": 2}, "batches_per_update"),
        ({"max_tokens_per_batch": 24}, "max_tokens_per_batch"),
        ({**PAIRS, "per_device_train_batch_size": 2}, "pairs_per_update"),
        ({"rows": ROWS[:5]}, "pairs"),
        ({"model": lambda: tiny_model(max_position_embeddings=32)}, "weights"),
        ({"optim": "sgd"}, "optim"),
        ({"ema_decay": 0.9}, "averages"),
        ({"data": {"bpe_dropout": 0.1}}, "bpe_dropout"),
        ({"data": {"train_file_weights": [1.0, 2.0]}}, "train_file_weights"),
        ({"facts": DataFacts(sha256={"target": "b"})}, "SHA-256 of the target"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_may_not_change(changes, name):
    base = PAIRS if "per_device_train_batch_size" in changes else BUDGET
    facts = DataFacts(sha256={"target": "a"})
    before = what_is_fixed(trainer_of(facts=facts, **base))
    now = what_is_fixed(trainer_of(**{"facts": facts, **base, **changes}))
    assert {key for key in before if before[key] != now[key]} == {name}
    with pytest.raises(UserError, match=f"folder had {name} .*, now it is") as refusal:
        check_same_run("folder", now, before, begins_data=False)
    is_of_data = name not in ("weights", "optim", "averages")
    assert ("--ignore_data_skip" in str(refusal.value)) == is_of_data
    if is_of_data:
        check_same_run("folder", now, before, begins_data=True)
        return
    with pytest.raises(UserError, match=f"folder had {name}"):
        check_same_run("folder", now, before, begins_data=True)


def test_more_processes_make_other_updates(monkeypatch):
    before = what_is_fixed(trainer_of(**BUDGET))
    trainer = trainer_of(**BUDGET)
    monkeypatch.setattr(TranslationTrainingArguments, "world_size", 2)
    assert what_is_fixed(trainer)["batches_per_update"] == 2 * before["batches_per_update"]


@pytest.mark.parametrize(
    "changes",
    [
        {"metric_for_best_model": "loss"},
        {"bleu_tokenize": "char"},
        {"generation_max_length": 9},
        {"generation_num_beams": 2},
        {"facts": DataFacts(validation_sha256={"source": "a"})},
    ],
    ids=str,
)
def test_what_makes_other_scores(changes):
    """The run continues, and the best checkpoint is chosen from then on."""
    identity = RunIdentity()
    saved = SavedRun(run="a", log_history=[{"step": 1}] * 3, fixed=what_is_fixed(trainer_of(**BUDGET)), scores_began=1)
    for now, begins_at in ((trainer_of(**BUDGET), 1), (trainer_of(**BUDGET, **changes), 3)):
        identity.fixed = what_is_fixed(now)
        check_same_run("folder", identity.fixed, saved.fixed, begins_data=False)
        identity.continue_run(saved, 1, begins_data=False)
        assert (identity.run, identity.scores_began) == ("a", begins_at)


def test_a_run_of_a_plain_trainer_gets_a_name():
    identity = RunIdentity()
    identity.fixed = {"scores": {}}
    name = identity.run
    identity.continue_run(SavedRun(), 2, begins_data=False)
    assert (identity.run, identity.dealt_to) == (name, 2)
    check_same_run("folder", {"optim": "sgd"}, {}, begins_data=False)


@pytest.mark.parametrize("name", ["adapter", "weights", "tokenizer", "optim", "averages"])
def test_what_may_not_change_even_if_the_data_begins_again(name):
    saved, current = {name: "one", "pairs": 5}, {name: "another", "pairs": 6}
    with pytest.raises(UserError, match=rf"folder had {name} one, now it is another\. Go back\.$"):
        check_same_run("folder", current, saved, begins_data=True)


def optimizer_state(step=4, **moments):
    """An optimizer with one weight of two rows and three columns, and what it remembers."""
    weight = torch.nn.Parameter(torch.zeros(2, 3))
    optimizer = SGD([weight], lr=1.0)
    optimizer.state[weight] = {"step": step, "exp_avg_sq": torch.zeros(2, 3), **moments}
    return optimizer


@pytest.mark.parametrize(
    ("scheduled", "scaler", "options", "message"),
    [
        (4, None, {}, None),
        (3, None, {}, "scheduler.pt is of update 3, and the checkpoint of update 4"),
        (5, None, {}, "scheduler.pt is of update 5, and the checkpoint of update 4"),
        # Neither counts an update that a scaler of gradients skipped.
        (3, object(), {"step": 3}, None),
        (4, None, {"step": 5}, "optimizer.pt is of update 5"),
        (3, object(), {"step": 5}, "optimizer.pt is of update 5"),
        (4, None, {"exp_avg": torch.zeros(3, 2)}, "optimizer.pt belongs to a model with other shapes"),
        (4, None, {"exp_avg_sq": torch.zeros(3, 2)}, "optimizer.pt belongs to a model with other shapes"),
        (4, None, {"momentum_buffer": torch.zeros(3, 2)}, "optimizer.pt belongs to a model with other shapes"),
    ],
    ids=["same", "earlier", "later", "skipped", "later optimizer", "skipped and later", "mean", "square", "momentum"],
)
def test_the_state_of_another_update_is_refused(scheduled, scaler, options, message):
    optimizer = optimizer_state(**options)
    schedule = LambdaLR(optimizer, lambda update: 1.0)
    schedule.last_epoch = scheduled
    trainer = SimpleNamespace(
        state=SimpleNamespace(global_step=4),
        lr_scheduler=schedule,
        optimizer=optimizer,
        accelerator=SimpleNamespace(scaler=scaler),
    )
    if message is None:
        check_optimizer(trainer)
        return
    with pytest.raises(UserError, match=message):
        check_optimizer(trainer)


@pytest.mark.parametrize(
    ("processes", "device", "beginning"),
    [
        (1, "cpu", "accelerate launch --num_processes 1 --mixed_precision no -m hf_capsule_mt train"),
        (2, "cpu", "torchrun --nproc_per_node 2 -m hf_capsule_mt train"),
        (2, "cuda", "accelerate launch --num_processes 2 --mixed_precision no -m hf_capsule_mt train"),
    ],
)
def test_the_record_has_a_command_that_starts_the_run_again(processes, device, beginning, monkeypatch):
    trainer = trainer_of(**BUDGET)
    monkeypatch.setattr(TranslationTrainingArguments, "world_size", processes)
    monkeypatch.setattr(TranslationTrainingArguments, "device", torch.device(device))
    record = trainer.recorder.record(trainer, {})
    assert record["command"] == beginning
    assert record["processes"] == processes


def test_the_record_names_a_model_of_the_hub_that_the_run_began_with(tmp_path):
    trainer = trainer_of(**BUDGET)
    for name, expected in (("user/name", {"name": "user/name", "revision": "v1"}), (str(tmp_path), None)):
        args = ModelArguments(model=name, revision="v1")
        recorder = RunRecorder(args, trainer.recorder.data_args, DataFacts(), (), 0.0, {})
        assert recorder.record(trainer, {})["base_model"] == expected


@pytest.mark.parametrize("words", ["13a", "char"])
def test_the_record_says_how_bleu_cuts_words(words):
    trainer = trainer_of(**BUDGET, bleu_tokenize=words)
    assert f"|tok:{words}|" in trainer.recorder.record(trainer, {"eval_bleu": 1.0})["bleu_signature"]
    assert trainer.recorder.record(trainer, {})["bleu_signature"] is None


def test_the_record_says_in_which_precision_the_run_was():
    trainer = trainer_of(**BUDGET, bf16=True)
    record = trainer.recorder.record(trainer, {})
    assert record["mixed_precision"] == "bf16"
    assert " --mixed_precision bf16 " in record["command"]
    assert (record["kind"], record["version"]) == ("run", 2)
