"""The training command and the folders of runs: which checkpoint it goes on from, and whose folder it takes."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file
from tiny_run import arguments, files, stop_at, write_corpus

from hf_capsule_mt.checkpoints import checkpoints, is_whole
from hf_capsule_mt.cli.train import main
from hf_capsule_mt.files import LOCK
from hf_capsule_mt.training import divergence, resuming
from hf_capsule_mt.training.divergence import DivergenceCheck, DivergenceError
from hf_capsule_mt.training.trainer import TranslationTrainer

SAVED = {"method": "transformer", "save_strategy": "steps", "save_steps": 2}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory):
    """A run of 6 updates, saved every 2."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    main(arguments(corpus, folder, "dropout=0.3", max_steps=6, **SAVED))
    return folder


@pytest.fixture
def run(finished, tmp_path, monkeypatch):
    """A copy of it, as if it had been killed after its second checkpoint."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, "run")
    shutil.rmtree("run/checkpoint-6")
    for name in ("model.safetensors", "trainer_state.json", "run_record.json", "weights.sha256"):
        Path("run", name).unlink()
    return Path("run")


def train(corpus, folder, **options):
    main(arguments(corpus, folder, "dropout=0.3", **{"max_steps": 6, **SAVED, **options}))


def error_of(capsys, corpus, folder, **options):
    with pytest.raises(SystemExit) as stop:
        train(corpus, folder, **options)
    assert stop.value.code == 2
    return capsys.readouterr().err.rpartition("error: ")[2]


def contents(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(Path(folder).rglob("*"))}


def is_finished_as(folder, other):
    """Whether both have the same weights and logged the same losses."""
    one, two = (load_file(path / "model.safetensors") for path in (folder, other))
    logs = [json.loads((path / "trainer_state.json").read_text())["log_history"] for path in (folder, other)]
    losses = [[entry["loss"] for entry in log if "loss" in entry] for log in logs]
    return losses[0] == losses[1] and all(torch.equal(one[name], two[name]) for name in two)


def test_last_is_the_newest_whole_checkpoint(corpus, run, finished):
    shutil.copytree(run / "checkpoint-2", run / "checkpoint-5")
    (run / "checkpoint-5" / "trainer_state.json").write_text('{"epoch"')
    shutil.copytree(finished / "checkpoint-6", run / "checkpoint-6")
    (run / "checkpoint-6" / "rng_state.pth").unlink()
    train(corpus, run, resume_from_checkpoint="last")
    record = json.loads((run / "run_record.json").read_text())
    assert record["training"]["resume_from_checkpoint"] == "run/checkpoint-4"
    assert is_finished_as(run, finished)


def test_from_the_last_update_there_is_none_to_make(corpus, run, finished):
    shutil.copytree(finished / "checkpoint-6", run / "checkpoint-6")
    train(corpus, run, resume_from_checkpoint="last")
    assert json.loads((run / "run_record.json").read_text())["updates"] == 6
    assert is_finished_as(run, finished)


@pytest.mark.parametrize("anew", [True, False])
def test_one_command_to_start_and_to_start_again(corpus, run, finished, anew):
    if anew:
        shutil.rmtree(run)
    train(corpus, run, resume_from_checkpoint="auto", overwrite_output_dir=True)
    record = json.loads((run / "run_record.json").read_text())
    assert record["training"]["resume_from_checkpoint"] == (None if anew else "run/checkpoint-4")
    assert is_finished_as(run, finished)
    train(corpus, run, resume_from_checkpoint="auto")
    assert is_finished_as(run, finished)


def test_it_starts_again_behind_a_kill_in_the_first_save(corpus, run, finished, capsys):
    shutil.rmtree(run / "checkpoint-4")
    (run / "checkpoint-2" / "trainer_state.json").unlink()
    (run / "checkpoint-2" / "left").touch()
    message = error_of(capsys, corpus, run)
    assert "holds another run, checkpoint-2" in message
    train(corpus, run, resume_from_checkpoint="auto")
    assert is_finished_as(run, finished)
    assert not (run / "checkpoint-2" / "left").exists()


def test_it_keeps_the_results_of_another_run(corpus, run, capsys):
    shutil.rmtree(run / "checkpoint-4")
    (run / "checkpoint-2" / "trainer_state.json").unlink()
    (run / "model.safetensors").touch()
    before = contents(run)
    message = error_of(capsys, corpus, run, resume_from_checkpoint="auto")
    assert "holds another run, checkpoint-2" in message
    assert contents(run) == before


def test_what_starts_again_does_not_overwrite_itself(corpus, run, capsys, monkeypatch):
    before = contents(run)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    message = error_of(capsys, corpus, run, overwrite_output_dir=True)
    assert "torchrun starts this run again: run/checkpoint-2 would be deleted; start it with --resume_from" in message
    assert contents(run) == before


def test_a_checkpoint_after_the_last_update(corpus, run, capsys):
    message = error_of(capsys, corpus, run, resume_from_checkpoint="last", max_steps=3)
    assert "'run/checkpoint-4', of update 4, but max_steps is 3; raise it, or name an earlier checkpoint" in message


def test_a_checkpoint_after_the_last_epoch(corpus, run, capsys, monkeypatch):
    message = error_of(capsys, corpus, run, resume_from_checkpoint="last", max_steps=-1, num_train_epochs=0.3)
    assert "'run/checkpoint-4', of update 4, but num_train_epochs 0.3 end with update 3; raise it, or" in message


def test_workers_that_stay_leave_the_random_numbers_as_they_are(corpus, tmp_path, monkeypatch):
    """Those of dropout, in the third epoch, after a kill in the first."""
    options = {"max_steps": 26, "save_steps": 4, "dataloader_num_workers": 1, "dataloader_persistent_workers": True}
    train(corpus, tmp_path / "whole", **options)
    with monkeypatch.context() as patch:
        stop_at(patch, 6)
        with pytest.raises(KeyboardInterrupt):
            train(corpus, tmp_path / "killed", **options)
    train(corpus, tmp_path / "killed", resume_from_checkpoint="last", **options)
    state = json.loads((tmp_path / "whole" / "trainer_state.json").read_text())
    assert state["epoch"] > 2
    assert is_finished_as(tmp_path / "killed", tmp_path / "whole")


def test_a_checkpoint_before_the_last(corpus, run, finished, capsys):
    """`last` would leave the branch that begins there for the one that it leaves."""
    before = contents(run)
    message = error_of(capsys, corpus, run, resume_from_checkpoint="run/checkpoint-2")
    assert "'run/checkpoint-2', of update 2, but run/checkpoint-4 has 4 and would pass for the run's newest" in message
    assert "go on from that, delete the checkpoints after 2, or name another output_dir" in message
    assert contents(run) == before
    train(corpus, "other", resume_from_checkpoint="run/checkpoint-2")
    assert is_finished_as(Path("other"), finished)
    shutil.rmtree("run/checkpoint-4")
    train(corpus, run, resume_from_checkpoint="run/checkpoint-2")
    assert is_finished_as(run, finished)


@pytest.mark.parametrize("updates", [5, 6])
def test_early_stopping_goes_on_waiting(corpus, tmp_path, monkeypatch, updates):
    """With a learning rate of 0 no evaluation is better than the first; two are waited for."""
    evaluated = {"validation_file": files(corpus, "validation"), "eval_strategy": "steps", "eval_steps": 2}
    options = {"learning_rate": 0, "early_stopping_patience": 2, "load_best_model_at_end": True, **evaluated}
    with monkeypatch.context() as patch:
        if updates == 5:
            stop_at(patch, updates)
        else:
            patch.setattr(TranslationTrainer, "_finalize_training", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            train(corpus, tmp_path, max_steps=20, **options)
    train(corpus, tmp_path, max_steps=20, resume_from_checkpoint="last", **options)
    assert json.loads((tmp_path / "run_record.json").read_text())["updates"] == 6


@pytest.mark.parametrize("patience", [1, 2])
def test_an_evaluation_at_the_start_is_none_to_wait_for(corpus, tmp_path, monkeypatch, patience):
    """Of a run that goes on; with a learning rate of 0 none is better than that of update 2."""
    evaluated = {"validation_file": files(corpus, "validation"), "eval_strategy": "steps", "eval_steps": 2}
    options = {"learning_rate": 0, "early_stopping_patience": patience, "load_best_model_at_end": True, **evaluated}
    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            train(corpus, tmp_path, max_steps=20, eval_on_start=True, **options)
    train(corpus, tmp_path, max_steps=20, eval_on_start=True, resume_from_checkpoint="last", **options)
    assert json.loads((tmp_path / "run_record.json").read_text())["updates"] == 2 + 2 * patience


def test_another_metric_begins_with_no_best(corpus, tmp_path, caplog):
    evaluated = {"validation_file": files(corpus, "validation"), "eval_strategy": "steps", "eval_steps": 2}
    options = {"early_stopping_patience": 2, "load_best_model_at_end": True, "learning_rate": 0.1, **evaluated}
    train(corpus, tmp_path, max_steps=2, **options)
    train(corpus, tmp_path, max_steps=4, resume_from_checkpoint="last", predict_with_generate=False, **options)
    assert "metric_for_best_model is 'loss', and" in caplog.text
    state = json.loads((tmp_path / "trainer_state.json").read_text())
    losses = [entry["eval_loss"] for entry in state["log_history"] if "eval_loss" in entry]
    assert (state["best_metric"], state["best_global_step"]) == (losses[1], 4)


def raise_interrupt(*args):
    raise KeyboardInterrupt


def test_a_run_that_goes_on_is_saved_as_often_as_its_command_says(corpus, run):
    train(corpus, run, save_steps=1, resume_from_checkpoint="last")
    assert [path.name for path in checkpoints(run)] == [f"checkpoint-{step}" for step in (2, 4, 5, 6)]


def test_a_run_that_was_killed_as_it_saved_for_the_first_time(corpus, run, capsys):
    """Its folder is refused both ways, by messages that do not lead to each other."""
    shutil.rmtree(run / "checkpoint-2")
    (run / "checkpoint-4" / "trainer_state.json").unlink()
    message = error_of(capsys, corpus, run, resume_from_checkpoint="last")
    assert "holds no whole checkpoint; leave it out to start the run anew, with --overwrite_output_dir true" in message
    message = error_of(capsys, corpus, run)
    assert "another run, checkpoint-4; name another folder, or delete it (--overwrite_output_dir true; " in message


def test_the_last_checkpoint_lacks_state(corpus, tmp_path, capsys):
    train(corpus, tmp_path, max_steps=2, save_only_model=True)
    message = error_of(capsys, corpus, tmp_path, resume_from_checkpoint="last")
    assert "no whole checkpoint: checkpoint-2 lacks optimizer.pt, scheduler.pt, rng_state*.pth; begin what" in message


def test_the_folder_of_a_run_is_no_checkpoint(corpus, finished, tmp_path, capsys):
    before = contents(finished)
    message = error_of(capsys, corpus, tmp_path / "other", resume_from_checkpoint=finished)
    assert f"folder of a run, not a checkpoint; name one of it, such as {finished}/checkpoint-6, or 'last'" in message
    message = error_of(capsys, corpus, tmp_path / "other", resume_from_checkpoint="last")
    assert f"'last', but {tmp_path / 'other'} holds no whole checkpoint; leave it out to start the run" in message
    assert contents(finished) == before
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_missing_state(corpus, run, capsys, monkeypatch, name):
    (run / "checkpoint-4" / name).unlink()
    monkeypatch.setattr("hf_capsule_mt.training.data.read_corpus", None)
    message = error_of(capsys, corpus, run, resume_from_checkpoint="run/checkpoint-4")
    assert f"'run/checkpoint-4', which lacks {name}: without it the run would go on from another state" in message
    monkeypatch.undo()


def test_missing_state_may_be_ignored(corpus, run, finished):
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (run / "checkpoint-4" / name).unlink()
    train(corpus, run, resume_from_checkpoint="last", ignore_missing_state=True)
    assert json.loads((run / "run_record.json").read_text())["training"]["resume_from_checkpoint"] == "run/checkpoint-4"
    assert not is_finished_as(run, finished)


def flip(file, place):
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)


def replace(old, new):
    return lambda file: file.write_text(file.read_text().replace(old, new))


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("optimizer.pt", cut),
        ("scheduler.pt", cut),
        ("rng_state.pth", cut),
        ("optimizer.pt", lambda file: flip(file, file.stat().st_size // 2)),
        ("scheduler.pt", lambda file: file.write_bytes(b"")),
        ("model.safetensors", cut),
        ("trainer_state.json", cut),
        (
            "trainer_state.json",
            replace('"global_step": 4', '"global_step": 5'),
        ),
        (
            "trainer_state.json",
            replace('"global_step"', '"clobal_step"'),
        ),
        (
            "trainer_state.json",
            replace('"max_steps": 6', '"max_steps": "6"'),
        ),
        ("trainer_state.json", lambda file: file.write_text("[" * 100_000)),
    ],
)
def test_damaged_state(corpus, run, capsys, monkeypatch, name, damage):
    """One line with the file, before data is read."""
    damage(run / "checkpoint-4" / name)
    monkeypatch.setattr("hf_capsule_mt.training.data.read_corpus", None)
    message = error_of(capsys, corpus, run, resume_from_checkpoint="run/checkpoint-4")
    assert message.count("\n") == 1
    assert "run/checkpoint-4" in message
    assert "damaged" in message or "is not valid JSON" in message
    assert "copy it again" in message or "copy or download them again" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_accumulation_steps": 2}, "whose run had batches_per_update 1, where this has 2"),
        (
            {"max_tokens_per_batch": 30},
            "go on with max_tokens_per_batch 60, or begin the data anew with",
        ),
        ({"max_tokens_per_batch": 0}, "whose run had max_tokens_per_batch 60, where this has 0"),
        ({"seed": 9}, "whose run had data_seed 42, where this has 9"),
        ({"max_source_length": 8}, "whose run had pairs 60, where this has "),
        ({"train_file": ["train.source", "other.target"]}, "whose run had SHA-256 of the target"),
        ({"bpe_dropout": 0.1}, "whose run had bpe_dropout 0.0, where this has 0.1"),
    ],
)
def test_other_batches(corpus, run, capsys, monkeypatch, options, message):
    monkeypatch.setattr("hf_capsule_mt.training.data._Loader._dropout", lambda loader: None)
    lines = (corpus / "train.target").read_text().splitlines()
    Path("other.target").write_text("\n".join(reversed(lines)) + "\n")
    shutil.copy(corpus / "train.source", "train.source")
    assert message in error_of(capsys, corpus, run, resume_from_checkpoint="last", **options)


def test_another_tokenizer(corpus, run, capsys, monkeypatch):
    """Of the same size, but with other ids; data is not read for it."""
    shutil.copytree(corpus / "tokenizer", "other")
    words = json.loads(Path("other/tokenizer.json").read_text())
    vocabulary = words["model"]["vocab"]
    one, two = list(vocabulary)[-2:]
    vocabulary[one], vocabulary[two] = vocabulary[two], vocabulary[one]
    Path("other/tokenizer.json").write_text(json.dumps(words))
    with monkeypatch.context() as patch:
        patch.setattr("hf_capsule_mt.training.data.read_corpus", None)
        message = error_of(capsys, corpus, run, resume_from_checkpoint="last", tokenizer_name="other")
    assert "'run/checkpoint-4', whose run had another tokenizer (its words have hash " in message
    assert "go on with --tokenizer_name run/checkpoint-4" in message
    train(corpus, run, resume_from_checkpoint="last", tokenizer_name="run/checkpoint-4")


@pytest.mark.parametrize("is_recorded", [True, False])
def test_another_number_of_processes(corpus, run, capsys, is_recorded):
    """Checkpoints of earlier versions show it by their random states."""
    checkpoint = run / "checkpoint-4"
    (checkpoint / "rng_state.pth").rename(checkpoint / "rng_state_0.pth")
    shutil.copy(checkpoint / "rng_state_0.pth", checkpoint / "rng_state_1.pth")
    state = json.loads((checkpoint / "trainer_state.json").read_text())
    if is_recorded:
        batches = state["stateful_callbacks"]["RunIdentity"]["attributes"]["batches"]
        batches |= {"processes": 2, "batches_per_update": 2}
    else:
        del state["stateful_callbacks"]["RunIdentity"]
    (checkpoint / "trainer_state.json").write_text(json.dumps(state))
    message = error_of(capsys, corpus, run, resume_from_checkpoint=checkpoint)
    name = "batches_per_update" if is_recorded else "processes"
    assert f"whose run had {name} 2, where this has 1: it would leave out pairs" in message
    how = "processes times --grad" if is_recorded else "--num_processes of accelerate launch, --nproc_per_node of torch"
    assert f"go on with {name} 2 ({how}" in message


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"streaming": True, "shuffle_buffer": 20, "max_source_length": 20, "max_target_length": 20},
        {"restore_callback_states_from_checkpoint": True},
    ],
)
def test_data_that_was_begun_anew(corpus, tmp_path, monkeypatch, options):
    """Behind a kill, the run goes on in the data as it was begun in the middle of the first epoch."""
    train(corpus, tmp_path / "whole", max_steps=2, **options)
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    found, training_step = [], TranslationTrainer.training_step

    def step(self, model, inputs, *args):
        found.append(inputs["labels"].tolist())
        return training_step(self, model, inputs, *args)

    monkeypatch.setattr(TranslationTrainer, "training_step", step)
    options = {**options, "max_steps": 14, "resume_from_checkpoint": "last"}
    train(corpus, tmp_path / "whole", ignore_data_skip=True, max_tokens_per_batch=70, **options)
    whole, found[:] = found[:], []
    assert len(whole) == 12
    with monkeypatch.context() as patch:
        stop_at(patch, 11)
        with pytest.raises(KeyboardInterrupt):
            train(corpus, tmp_path / "killed", ignore_data_skip=True, max_tokens_per_batch=70, **options)
    assert found == whole[:9]
    found.clear()
    train(corpus, tmp_path / "killed", max_tokens_per_batch=70, **options)
    assert found == whole[8:]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_checkpoint_of_an_earlier_version(corpus, run, finished, is_known):
    state = json.loads((run / "checkpoint-4" / "trainer_state.json").read_text())
    attributes = state["stateful_callbacks"].pop("RunIdentity")["attributes"]
    if is_known:
        kept = {name: attributes[name] for name in ("run", "settings", "batches")}
        state["stateful_callbacks"]["RunIdentity"] = {"args": {}, "attributes": kept}
    (run / "checkpoint-4" / "trainer_state.json").write_text(json.dumps(state))
    train(corpus, run, resume_from_checkpoint="last")
    assert is_finished_as(run, finished)


def test_a_fresh_run_in_the_folder_of_another(corpus, finished, run, capsys):
    before = contents(finished)
    message = error_of(capsys, corpus, finished, learning_rate=0.1)
    assert f"{finished} holds another run, checkpoint-2: learning_rate is the default there and 0.1 here; " in message
    message = error_of(capsys, corpus, finished)
    assert "of the same settings; name another folder, go on with that run (--resume_from_checkpoint last; " in message
    assert "holds another run, checkpoint-2: " in error_of(
        capsys, corpus, run, resume_from_checkpoint=finished / "checkpoint-4", weight_decay=0.1
    )
    assert contents(finished) == before


def test_a_run_is_overwritten_whole(corpus, run):
    (run / "notes.txt").write_text("mine")
    train(corpus, run, overwrite_output_dir=True, max_steps=1, save_strategy="no")
    assert checkpoints(run) == []
    assert json.loads((run / "run_record.json").read_text())["updates"] == 1
    assert (run / "notes.txt").read_text() == "mine"
    assert not (run / "_lock").exists()


def test_two_runs_at_once(corpus, run, capsys, monkeypatch):
    before = contents(run)
    monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
    with FileLock(run / LOCK):
        assert "another process works in run; wait for it, or name another folder" in error_of(
            capsys, corpus, run, resume_from_checkpoint="last"
        )
    assert contents(run) == {**before, run / LOCK: b""}


def test_a_checkpoint_is_checked_once(corpus, run, monkeypatch):
    """Its state may be as large as the model twice."""
    read = []
    monkeypatch.setattr(resuming, "_check_whole", lambda file: read.append(file.name))
    train(corpus, run, resume_from_checkpoint="last")
    assert sorted(read) == ["optimizer.pt", "rng_state.pth", "scheduler.pt"]


def test_divergence(corpus, tmp_path, capsys):
    """The weights of the last checkpoint are finite, and there is no model."""
    options = {"save_steps": 1, "lr_scheduler_type": "constant", "warmup_steps": 0, "max_grad_norm": 0}
    message = error_of(capsys, corpus, tmp_path, learning_rate=1e30, optim="sgd", **options)
    assert "error" not in message
    assert "training diverged: update 2 has loss " in message
    assert "at learning rate 1e+30; nothing is saved of it, and --resume_from_checkpoint last goes on from " in message
    assert "/checkpoint-1, the last good checkpoint. Lower --learning_rate" in message
    assert not [*tmp_path.glob("*.safetensors"), *tmp_path.glob("run_record.json")]
    [checkpoint] = checkpoints(tmp_path)
    assert all(tensor.isfinite().all() for tensor in load_file(checkpoint / "model.safetensors").values())


def test_after_divergence_a_run_goes_on_with_a_lower_learning_rate(corpus, run, capsys):
    assert "training diverged: update 6 has" in error_of(
        capsys, corpus, run, resume_from_checkpoint="last", learning_rate=1e30, max_grad_norm=0
    )
    lower = {"learning_rate": 0.5, "weight_decay": 0.25, "adam_beta1": 0.8, "adam_epsilon": 1e-7}
    train(corpus, run, resume_from_checkpoint="last", max_steps=8, lr_scheduler_type="constant", **lower)
    log = json.loads((run / "trainer_state.json").read_text())["log_history"]
    assert [entry["learning_rate"] for entry in log if "loss" in entry][4:] == [0.5] * 4
    group = torch.load(run / "checkpoint-8" / "optimizer.pt")["param_groups"][0]
    assert (group["weight_decay"], group["betas"], group["eps"]) == (0.25, (0.8, 0.98), 1e-7)


def test_a_learning_rate_that_a_checkpoint_decides(corpus, tmp_path, capsys):
    evaluated = {"validation_file": files(corpus, "validation"), "eval_strategy": "steps", "eval_steps": 2}
    options = {"lr_scheduler_type": "reduce_lr_on_plateau", "predict_with_generate": False, **evaluated}
    train(corpus, tmp_path, max_steps=2, **options)
    message = error_of(capsys, corpus, tmp_path, resume_from_checkpoint="last", learning_rate=0.5, **options)
    assert "learning_rate is 0.5, and was its default in the run that goes on: lr_scheduler_type reduce" in message
    changes = (
        ({"predict_with_generate": True}, "metric_for_best_model is bleu, and was loss in the run that goes on"),
        ({"lr_scheduler_kwargs": '{"patience": 3}'}, "lr_scheduler_kwargs is {'mode': 'min', 'patience': 3}, and was"),
        ({"lr_scheduler_type": "greedy"}, "lr_scheduler_type is greedy, and was reduce_lr_on_plateau in the run"),
        ({"lr_scheduler_type": "linear"}, "lr_scheduler_type is linear, and was reduce_lr_on_plateau in the run"),
    )
    for change, message in changes:
        found = error_of(capsys, corpus, tmp_path, resume_from_checkpoint="last", **{**options, **change})
        assert message in found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optim": "adafactor"}, "optim is adafactor, and was its default in the run that goes on: the state of one"),
        ({"lr_scheduler_type": "reduce_lr_on_plateau"}, "lr_scheduler_type is reduce_lr_on_plateau, and was its"),
    ],
)
def test_another_optimizer_or_kind_of_schedule(corpus, run, capsys, options, message):
    evaluated = {"validation_file": files(corpus, "validation"), "eval_strategy": "steps", "eval_steps": 2}
    options |= {"predict_with_generate": False, **evaluated}
    assert message in error_of(capsys, corpus, run, resume_from_checkpoint="last", **options)


def test_weights_that_are_not_finite_are_not_saved(corpus, tmp_path, capsys, monkeypatch):
    """As an update of finite gradients may make them."""
    step = torch.optim.SGD.step

    def overflow(self, *args, **kwargs):
        step(self, *args, **kwargs)
        self.param_groups[0]["params"][0].data.fill_(torch.inf)

    monkeypatch.setattr(torch.optim.SGD, "step", overflow)
    message = error_of(capsys, corpus, tmp_path, optim="sgd", save_steps=1)
    assert "training diverged: after update 1 model." in message
    assert "is not finite; nothing is saved of it, and no checkpoint was saved before" in message
    assert not [*tmp_path.rglob("*.safetensors")]


def test_the_grace_of_a_gradient_scaler():
    """It skips such updates, and lowers its scale, until one is finite."""

    class Trainer:
        accelerator = type("", (), {"scaler": object()})
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
        state = type("", (), {"global_step": 7})
        args = type("", (), {"output_dir": "nowhere"})

    check = DivergenceCheck()

    def update(norm):
        check.add(torch.tensor(1.0))
        check.check(Trainer, torch.tensor(norm))

    for _ in range(2):
        for _ in range(divergence.GRACE):
            update(torch.inf)
        update(1.0)
    for _ in range(divergence.GRACE):
        update(torch.nan)
    with pytest.raises(DivergenceError, match=r"update 8 has loss 1 and gradient norm nan at learning rate 0\.5"):
        update(torch.nan)


def stop_in(monkeypatch, update):
    """The next run receives SIGTERM in the update after `update` updates."""
    training_step = TranslationTrainer.training_step

    def asked_to_end(self, *args, **kwargs):
        if self.state.global_step == update:
            os.kill(os.getpid(), signal.SIGTERM)
        return training_step(self, *args, **kwargs)

    monkeypatch.setattr(TranslationTrainer, "training_step", asked_to_end)


def test_sigterm(corpus, finished, tmp_path, monkeypatch, capsys):
    """The checkpoint is that of the update in which it came; the run goes on from there as if nothing had been."""
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        stop_in(patch, 2)
        with pytest.raises(SystemExit) as stop:
            train(corpus, tmp_path / "run", save_strategy="no")
    assert stop.value.code == 143
    assert f"stopped by SIGTERM after update 3: {tmp_path}/run/checkpoint-3 is saved; go on" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
    assert [folder.name for folder in checkpoints(tmp_path / "run")] == ["checkpoint-3"]
    assert not (tmp_path / "run" / "model.safetensors").exists()
    train(corpus, tmp_path / "run", resume_from_checkpoint="last")
    assert is_finished_as(tmp_path / "run", finished)


def evaluated(corpus):
    """Options with which the first checkpoint stays the best: nothing is learnt."""
    options = {"learning_rate": 0, "predict_with_generate": False, "save_steps": 1, "save_total_limit": 1}
    return {**options, "validation_file": files(corpus, "validation"), "eval_strategy": "steps", "eval_steps": 1}


@pytest.mark.parametrize("save_strategy", ["steps", "best"])
def test_sigterm_saves_what_is_not_the_best(corpus, tmp_path, monkeypatch, capsys, save_strategy):
    stop_in(monkeypatch, 2)
    with pytest.raises(SystemExit):
        train(corpus, tmp_path, **evaluated(corpus), save_strategy=save_strategy)
    assert f"{tmp_path}/checkpoint-3 is saved; go on with" in capsys.readouterr().err
    assert [folder.name for folder in checkpoints(tmp_path)] == ["checkpoint-1", "checkpoint-3"]
    assert all(is_whole(folder) for folder in checkpoints(tmp_path))


def test_sigterm_ends_no_epoch(corpus, tmp_path, monkeypatch, capsys):
    """The grace time is for the checkpoint, and what resumes evaluates where a whole run does."""
    saved = []
    save_checkpoint = TranslationTrainer._save_checkpoint
    monkeypatch.setattr(TranslationTrainer, "_save_checkpoint", lambda *args: saved.append(1) or save_checkpoint(*args))
    monkeypatch.setattr(TranslationTrainer, "evaluate", None)
    stop_in(monkeypatch, 2)
    with pytest.raises(SystemExit):
        train(corpus, tmp_path, **evaluated(corpus) | {"eval_strategy": "epoch"}, save_strategy="epoch")
    assert saved == [1]
    assert f"{tmp_path}/checkpoint-3 is saved" in capsys.readouterr().err


def test_sigterm_says_what_is_not_saved(corpus, tmp_path, monkeypatch, capsys):
    stop_in(monkeypatch, 2)
    monkeypatch.setattr(TranslationTrainer, "_save_checkpoint", lambda *args: None)
    with pytest.raises(SystemExit):
        train(corpus, tmp_path)
    assert f"{tmp_path}/checkpoint-3 is not saved; go on from an earlier one with --res" in capsys.readouterr().err


def test_the_best_and_the_last_are_kept(corpus, tmp_path):
    train(corpus, tmp_path, **evaluated(corpus), max_steps=3)
    assert [folder.name for folder in checkpoints(tmp_path)] == ["checkpoint-1", "checkpoint-3"]
    assert json.loads((tmp_path / "run_record.json").read_text())["training"]["save_total_limit"] == 1


def test_ctrl_c(corpus, tmp_path, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(TranslationTrainer, "training_step", interrupt)
    with pytest.raises(SystemExit) as stop:
        train(corpus, tmp_path / "run")
    assert stop.value.code == 130
    assert capsys.readouterr().err.rpartition("\r")[2].endswith("interrupted\n")
