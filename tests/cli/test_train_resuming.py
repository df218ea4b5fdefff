"""The training command and the folders of runs: which checkpoint it goes on from, and whose folder it takes."""

import json
import math
import os
import shutil
import signal
import threading
import zipfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file
from tiny_run import SMALL, arguments, files, stop_at
from transformers import TrainerControl, TrainerState

from hf_capsule_mt.cli.train import main
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import LOCK
from hf_capsule_mt.training.callbacks import DivergenceError, RunEvents, StopOnSigterm
from hf_capsule_mt.training.checkpoint_folders import (
    checkpoints,
    claim_folder,
    find_checkpoint,
    is_whole,
    last_checkpoint,
    missing_state,
    read_trainer_state,
)
from hf_capsule_mt.training.resuming import RunIdentity, SavedRun
from hf_capsule_mt.training.trainer import TranslationTrainer

SAVED = {"method": "transformer", "save_strategy": "steps", "save_steps": 2}


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
    for name in ("model.safetensors", "trainer_state.json", "run_record.json"):
        Path("run", name).unlink(missing_ok=True)
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
    # The command of the card starts a run.
    assert "--output_dir run" in (run / "README.md").read_text()
    assert "resume_from_checkpoint" not in (run / "README.md").read_text()
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


def test_a_folder_with_a_kill_in_the_first_save(corpus, run, finished):
    """What is left of a checkpoint is no run."""
    shutil.rmtree(run / "checkpoint-4")
    (run / "checkpoint-2" / "trainer_state.json").unlink()
    train(corpus, run, resume_from_checkpoint="auto")
    assert is_finished_as(run, finished)


@pytest.mark.parametrize("options", [{}, {"resume_from_checkpoint": "auto"}])
def test_a_folder_with_another_run(corpus, run, capsys, monkeypatch, options):
    """It is refused before data is read, which can take hours."""
    monkeypatch.setattr("hf_capsule_mt.cli.train.load_data", None)
    for folder in checkpoints(run):
        (folder / "trainer_state.json").unlink()
    (run / "model.safetensors").touch()
    before = contents(run)
    assert "holds another run" in error_of(capsys, corpus, run, **options)
    assert contents(run) == before


@pytest.mark.parametrize(
    ("options", "environment"),
    [({}, "1"), ({"model": "run/checkpoint-2", "method": None, "size": None, "config_overrides": None}, "0")],
)
def test_what_must_not_be_overwritten(corpus, run, capsys, monkeypatch, options, environment):
    """The run that torchrun starts again, and the model that training starts from."""
    before = contents(run)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", environment)
    assert "which would" in error_of(capsys, corpus, run, overwrite_output_dir=True, **options)
    assert contents(run) == before


def test_workers_that_stay_leave_the_random_numbers_as_they_are(corpus, tmp_path, monkeypatch):
    """Those of dropout, in the third epoch, after a kill in the first."""
    options = {"max_steps": 14, "save_steps": 2, "dataloader_num_workers": 1, "dataloader_persistent_workers": True}
    options["max_tokens_per_batch"] = 120
    train(corpus, tmp_path / "whole", **options)
    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            train(corpus, tmp_path / "killed", **options)
    train(corpus, tmp_path / "killed", resume_from_checkpoint="last", **options)
    state = json.loads((tmp_path / "whole" / "trainer_state.json").read_text())
    assert state["epoch"] > 2
    assert is_finished_as(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.parametrize("eval_on_start", [False, True])
def test_early_stopping_goes_on_waiting(corpus, tmp_path, monkeypatch, eval_on_start):
    """With a learning rate of 0 no evaluation is better than the first; three are waited for.

    Evaluating the checkpoint again, when the run is resumed, does not count.
    """
    evaluated = {"validation_file": files(corpus, "validation"), "eval_strategy": "steps", "eval_steps": 2}
    options = {"learning_rate": 0, "early_stopping_patience": 3, "load_best_model_at_end": True, **evaluated}
    with monkeypatch.context() as patch:
        stop_at(patch, 5)
        with pytest.raises(KeyboardInterrupt):
            train(corpus, tmp_path, max_steps=20, **options)
    options["eval_on_start"] = eval_on_start
    train(corpus, tmp_path, max_steps=20, resume_from_checkpoint="last", **options)
    assert json.loads((tmp_path / "run_record.json").read_text())["updates"] == 8


def test_a_resumed_run_saves_as_often_as_it_is_told_now(corpus, run):
    train(corpus, run, resume_from_checkpoint="last", save_steps=1)
    assert [folder.name for folder in checkpoints(run)] == [f"checkpoint-{update}" for update in (2, 4, 5, 6)]


@pytest.mark.parametrize("start", ["run", "run/checkpoint-2"])
def test_what_a_run_starts_from_is_not_deleted(run, start):
    args = SimpleNamespace(output_dir="run", overwrite_output_dir=True)
    with pytest.raises(UserError, match=r"Training starts from .*, which would be deleted"):
        claim_folder(args, None, start)
    assert is_whole("run/checkpoint-2")


def test_a_checkpoint_of_elsewhere_does_not_open_a_folder_with_another_run(run):
    args = SimpleNamespace(output_dir="run", overwrite_output_dir=False)
    with pytest.raises(UserError, match="holds another run"):
        claim_folder(args, "elsewhere/checkpoint-2")
    claim_folder(args, "run/checkpoint-2")
    # Also under other names of the same folder.
    claim_folder(args, Path("run/checkpoint-2").resolve())
    args.output_dir = Path("run").resolve()
    claim_folder(args, "run/checkpoint-2")


def test_a_run_that_is_started_again_before_its_first_checkpoint(tmp_path, monkeypatch):
    """There is nothing that it could delete."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    claim_folder(SimpleNamespace(output_dir=tmp_path, overwrite_output_dir=True), None)


def test_another_run_is_only_deleted_when_the_data_is_read(corpus, run, capsys):
    before = contents(run)
    wrong = {"train_file": ["missing.source", "missing.target"], "overwrite_output_dir": True}
    assert "missing.source" in error_of(capsys, corpus, run, **wrong)
    assert contents(run) == before


def test_the_random_numbers_of_every_process_are_whole(run):
    checkpoint = run / "checkpoint-4"
    for rank in range(2):
        shutil.copy(checkpoint / "rng_state.pth", checkpoint / f"rng_state_{rank}.pth")
    assert missing_state(checkpoint) == []
    damage(checkpoint / "rng_state_1.pth", "cut")
    assert missing_state(checkpoint) == ["rng_state*.pth"]


@pytest.mark.parametrize(
    "fields",
    [
        {"max_steps": "9"},
        {"max_steps": None},
        {"total_flos": "1"},
        {"num_input_tokens_seen": 1.5},
        {"best_global_step": "2"},
        {"best_model_checkpoint": 2},
        {"stateful_callbacks": {"RunIdentity": {"attributes": {"run": 3}}}},
        {"stateful_callbacks": {"RunIdentity": {"attributes": {"dealt_to": "2"}}}},
    ],
    ids=str,
)
def test_a_value_of_another_type_is_no_state(fields, tmp_path):
    (tmp_path / "trainer_state.json").write_text(json.dumps(fields))
    with pytest.raises(UserError, match="is damaged: "):
        read_trainer_state(tmp_path)


def zip_file(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data", "")


@pytest.mark.parametrize(
    ("folders", "archives"),
    [
        (["global_step4"], []),
        (["optimizer_0", "pytorch_model_fsdp_0"], ["scheduler.pt"]),
        (["pytorch_model_fsdp_0"], ["optimizer.bin", "scheduler.pt"]),
        (["pytorch_model_fsdp_0"], ["rank0-of-2-optimizer.pt", "scheduler.pt"]),
        ([], ["optimizer.pt", "scheduler.pt", "pytorch_model.bin"]),
        ([], ["optimizer.pt", "scheduler.pt", "adapter_model.bin"]),
    ],
    ids=["DeepSpeed", "FSDP in pieces", "FSDP", "FSDP of each process", "pickles", "a pickled adapter"],
)
def test_the_state_of_runs_on_accelerators(folders, archives, tmp_path):
    """Each of its parts is needed."""
    for name in folders:
        (tmp_path / name).mkdir()
    for name in (*archives, "rng_state_0.pth"):
        zip_file(tmp_path / name)
    (tmp_path / "trainer_state.json").write_text("{}")
    assert missing_state(tmp_path) == []
    for name in (*archives, *folders):
        part = tmp_path / name
        part.rename(tmp_path / f"hidden-{name}")
        assert missing_state(tmp_path) != []
        (tmp_path / f"hidden-{name}").rename(part)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "model-00001-of-2.safetensors", "adapter", "trainer_state.json", "run_record.json"]
)
def test_a_result_is_that_of_another_run(name, tmp_path):
    """Other files stay."""
    args = SimpleNamespace(output_dir=tmp_path, overwrite_output_dir=False)
    (tmp_path / "notes.txt").touch()
    claim_folder(args, None)
    if name == "adapter":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).touch()
    with pytest.raises(UserError, match="holds another run"):
        claim_folder(args, None)
    args.overwrite_output_dir = True
    claim_folder(args, None)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_where_there_is_nothing_to_continue_from(tmp_path):
    assert find_checkpoint("auto", tmp_path) is None
    assert find_checkpoint(None, tmp_path) is None
    for value in ("last", True):
        with pytest.raises(UserError, match="holds no complete checkpoint to resume from"):
            find_checkpoint(value, tmp_path)


def test_a_weight_that_a_checkpoint_lacks_is_told(corpus, run, caplog):
    file = run / "checkpoint-4" / "model.safetensors"
    weights = load_file(file)
    del weights["model.encoder.layers.0.fc1.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    train(corpus, run, resume_from_checkpoint="last")
    assert "missing keys" in caplog.text


def test_in_another_thread_no_signal_is_waited_for():
    """Python lets only the main thread handle signals."""
    before = signal.getsignal(signal.SIGTERM)
    found = []

    def use():
        with StopOnSigterm() as stop:
            found.append((stop.stopped, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert found == [(False, before)]


def test_a_run_may_not_say_how_many_processes_it_had(tmp_path):
    identity = {"attributes": {"run": "a", "dealt_to": None}}
    (tmp_path / "trainer_state.json").write_text(json.dumps({"stateful_callbacks": {"RunIdentity": identity}}))
    assert SavedRun.read(tmp_path) == SavedRun(run="a", dealt_to=None)


def test_values_that_a_run_does_not_have_yet(run):
    file = run / "checkpoint-4" / "trainer_state.json"
    names = ("epoch", "best_metric", "best_global_step", "best_model_checkpoint")
    file.write_text(json.dumps(json.loads(file.read_text()) | dict.fromkeys(names)))
    assert is_whole(run / "checkpoint-4")


@pytest.mark.parametrize(("begins_data", "dealt_to"), [(False, 4), (True, 2)])
def test_data_that_begins_again_is_dealt_to_the_processes_of_now(begins_data, dealt_to):
    identity = RunIdentity()
    identity.fixed = {"scores": {}}
    identity.continue_run(SavedRun(dealt_to=4), 2, begins_data=begins_data)
    assert identity.dealt_to == dealt_to


STATE = ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "model.safetensors"]


def damage(file, kind):
    if kind == "missing":
        file.unlink()
    else:
        content = file.read_bytes()
        file.write_bytes(content[: len(content) // 2] if kind == "cut" else b"")


@pytest.mark.parametrize("kind", ["missing", "empty", "cut"])
@pytest.mark.parametrize("name", STATE)
def test_a_part_of_the_state_is_missing_or_damaged(corpus, run, capsys, name, kind):
    damage(run / "checkpoint-4" / name, kind)
    message = error_of(capsys, corpus, run, resume_from_checkpoint="run/checkpoint-4")
    shown = "rng_state*.pth" if name == "rng_state.pth" else name
    assert message == f"run/checkpoint-4 is not a complete checkpoint: {shown} is missing or damaged.\n"
    assert last_checkpoint(run) == run / "checkpoint-2"


@pytest.mark.parametrize(
    "fields",
    [
        {"global_step": "4"},
        {"global_step": None},
        {"epoch": "one"},
        {"log_history": {}},
        {"log_history": [4]},
        {"log_history": [{"loss": 1.0}]},
        {"best_metric": []},
        {"stateful_callbacks": []},
        {"stateful_callbacks": {"RunIdentity": []}},
        {"stateful_callbacks": {"RunIdentity": {"attributes": []}}},
        {"stateful_callbacks": {"RunIdentity": {"attributes": {"fixed": 4}}}},
        {"stateful_callbacks": {"RunIdentity": {"attributes": {"scores_began": "4"}}}},
    ],
    ids=str,
)
def test_a_state_with_values_of_other_types(corpus, run, capsys, fields):
    file = run / "checkpoint-4" / "trainer_state.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    assert "trainer_state.json is missing or damaged" in error_of(
        capsys, corpus, run, resume_from_checkpoint="run/checkpoint-4"
    )
    with pytest.raises(UserError, match="is damaged: "):
        read_trainer_state(run / "checkpoint-4")


@pytest.mark.parametrize("change", ["smaller moments", "another update", "another schedule"])
def test_the_optimizer_of_another_run(corpus, run, capsys, change):
    """Moments of another shape would end in a segmentation fault."""
    file = run / "checkpoint-4" / ("scheduler.pt" if change == "another schedule" else "optimizer.pt")
    state = torch.load(file)
    if change == "smaller moments":
        state["state"][0]["exp_avg"] = state["state"][0]["exp_avg"][:1]
    elif change == "another update":
        state["state"][0]["step"] += 100
    else:
        state["last_epoch"] += 100
    torch.save(state, file)
    assert f"{file.name} " in error_of(capsys, corpus, run, resume_from_checkpoint="last")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"gradient_accumulation_steps": 2}, "batches_per_update"),
        ({"max_tokens_per_batch": 30}, "max_tokens_per_batch"),
        ({"seed": 9}, "data_seed"),
        ({"max_source_length": 8}, "pairs"),
        ({"train_file": ["train.source", "other.target"]}, "SHA-256 of the target"),
        ({"optim": "adafactor"}, "optim"),
        ({"ema_decay": 0.9}, "averages"),
        ({"ema_decay": 0.9, "ignore_data_skip": True}, "averages"),
    ],
)
def test_another_run(corpus, run, capsys, options, name):
    shutil.copy(corpus / "train.source", "train.source")
    Path("other.target").write_text((corpus / "train.target").read_text().replace("a", "b"))
    assert f"had {name} " in error_of(capsys, corpus, run, resume_from_checkpoint="last", **options)


def test_another_tokenizer(corpus, run, capsys):
    """It has the same words, and other settings for splitting a text."""
    shutil.copytree(corpus / "tokenizer", "other")
    words = json.loads(Path("other/tokenizer.json").read_text())
    words["normalizer"] = {"type": "Lowercase"}
    Path("other/tokenizer.json").write_text(json.dumps(words))
    assert "had tokenizer" in error_of(capsys, corpus, run, resume_from_checkpoint="last", tokenizer_name="other")
    train(corpus, run, resume_from_checkpoint="last", tokenizer_name="run/checkpoint-4")


def test_another_stream_of_the_same_size(corpus, tmp_path, capsys):
    options = {"streaming": True, "shuffle_buffer": 20, "max_source_length": 20, "max_target_length": 20}
    texts = [tmp_path / name for name in ("a.source", "a.target")]
    for text, file in zip(texts, files(corpus, "train")):
        shutil.copy(file, text)
    train(corpus, tmp_path / "run", max_steps=2, train_file=texts, **options)
    texts[0].write_text(texts[0].read_text().replace("a", "b"))
    assert "checkpoint-2 had" in error_of(
        capsys, corpus, tmp_path / "run", resume_from_checkpoint="last", train_file=texts, **options
    )


@pytest.mark.parametrize("change", [{"d_model": 32}, {"layer_aggregation": "em_routing"}])
def test_another_model(corpus, run, capsys, change):
    overrides = [*SMALL, "dropout=0.3", *(f"{name}={value}" for name, value in change.items())]
    message = error_of(capsys, corpus, run, resume_from_checkpoint="last", config_overrides=overrides)
    assert "run/checkpoint-4" in message


@pytest.mark.parametrize(
    "options", [{}, {"streaming": True, "shuffle_buffer": 20, "max_source_length": 20, "max_target_length": 20}]
)
def test_data_that_is_begun_again(corpus, tmp_path, monkeypatch, capsys, options):
    train(corpus, tmp_path / "run", max_steps=2, **options)
    found, training_step = [], TranslationTrainer.training_step

    def step(self, model, inputs, *args):
        found.append(inputs["labels"].tolist())
        return training_step(self, model, inputs, *args)

    monkeypatch.setattr(TranslationTrainer, "training_step", step)
    options = {**options, "max_tokens_per_batch": 70}
    train(corpus, tmp_path / "new", max_steps=4, **options)
    new_run = list(found)
    found.clear()
    options["resume_from_checkpoint"] = "last"
    train(corpus, tmp_path / "run", ignore_data_skip=True, max_steps=6, **options)
    assert len(found) == 4
    if options.get("streaming"):
        # The pass that was begun is over, and the next one has another order.
        assert found != new_run
        train(corpus, tmp_path / "run", max_steps=8, **options)
        assert len(found) == 6
    else:
        assert found == new_run
        assert "had data_began 2" in error_of(capsys, corpus, tmp_path / "run", max_steps=8, **options)


@pytest.mark.parametrize(
    "options", [{}, {"streaming": True, "shuffle_buffer": 20, "max_source_length": 20, "max_target_length": 20}]
)
def test_a_new_run_has_no_data_to_begin_again(corpus, tmp_path, options):
    """The option may be given from the first command on."""
    for begins_again, updates in ((True, 2), (False, 4)):
        how = {"resume_from_checkpoint": "auto", "ignore_data_skip": begins_again}
        train(corpus, tmp_path, max_steps=updates, **options, **how)
    assert read_trainer_state(tmp_path)["global_step"] == 4


def test_a_checkpoint_of_a_plain_trainer(corpus, run, finished):
    state = json.loads((run / "checkpoint-4" / "trainer_state.json").read_text())
    del state["stateful_callbacks"]["RunIdentity"]
    (run / "checkpoint-4" / "trainer_state.json").write_text(json.dumps(state))
    train(corpus, run, resume_from_checkpoint="last")
    assert is_finished_as(run, finished)


def test_two_runs_at_once(corpus, run, capsys, monkeypatch):
    before = contents(run)
    monkeypatch.setattr("hf_capsule_mt.files.GRACE", 0)
    with FileLock(run / LOCK):
        assert "works in run" in error_of(capsys, corpus, run, resume_from_checkpoint="last")
    assert contents(run) == {**before, run / LOCK: b""}


def test_divergence(corpus, tmp_path, capsys):
    """The weights of the last checkpoint are finite, and there is no model, although no loss was looked at."""
    options = {"save_steps": 1, "lr_scheduler_type": "constant", "warmup_steps": 0, "max_grad_norm": 0}
    options |= {"learning_rate": 1e30, "optim": "sgd", "logging_steps": 100}
    assert "Training diverged" in error_of(capsys, corpus, tmp_path, **options)
    assert not [*tmp_path.glob("*.safetensors"), *tmp_path.glob("run_record.json")]
    [checkpoint] = [folder for folder in checkpoints(tmp_path) if is_whole(folder)]
    assert all(tensor.isfinite().all() for tensor in load_file(checkpoint / "model.safetensors").values())


def test_after_divergence_a_run_goes_on_with_a_lower_learning_rate(corpus, run, capsys):
    assert "Training diverged" in error_of(
        capsys, corpus, run, resume_from_checkpoint="last", learning_rate=1e30, max_grad_norm=0
    )
    lower = {"learning_rate": 0.5, "weight_decay": 0.25, "adam_beta1": 0.8, "adam_epsilon": 1e-7}
    train(corpus, run, resume_from_checkpoint="last", max_steps=8, lr_scheduler_type="constant", **lower)
    log = json.loads((run / "trainer_state.json").read_text())["log_history"]
    assert [entry["learning_rate"] for entry in log if "loss" in entry][4:] == [0.5] * 4
    group = torch.load(run / "checkpoint-8" / "optimizer.pt")["param_groups"][0]
    assert (group["weight_decay"], group["betas"], group["eps"]) == (0.25, (0.8, 0.98), 1e-7)


def stop_in(monkeypatch, update):
    """The next run receives SIGTERM in the update after `update` updates."""
    training_step = TranslationTrainer.training_step

    def asked_to_end(self, *args, **kwargs):
        if self.state.global_step == update:
            os.kill(os.getpid(), signal.SIGTERM)
        return training_step(self, *args, **kwargs)

    monkeypatch.setattr(TranslationTrainer, "training_step", asked_to_end)


@pytest.mark.parametrize("save_strategy", ["no", "best"])
def test_sigterm(corpus, finished, tmp_path, monkeypatch, capsys, caplog, save_strategy):
    """The checkpoint is that of the update in which it came; the run goes on from there as if nothing had been."""
    before = signal.getsignal(signal.SIGTERM)
    evaluated = {"validation_file": files(corpus, "validation"), "eval_strategy": "steps", "eval_steps": 1}
    with monkeypatch.context() as patch:
        stop_in(patch, 2)
        with pytest.raises(SystemExit) as stop:
            train(corpus, tmp_path / "run", save_strategy=save_strategy, **evaluated if save_strategy == "best" else {})
    assert stop.value.code == 143
    message = "Stopped by SIGTERM at update 3. Continue with --resume_from_checkpoint last.\n"
    assert capsys.readouterr().err.endswith(message)
    assert signal.getsignal(signal.SIGTERM) is before
    assert checkpoints(tmp_path / "run")[-1].name == "checkpoint-3"
    assert not (tmp_path / "run" / "model.safetensors").exists()
    state = read_trainer_state(tmp_path / "run" / "checkpoint-3")
    assert state["global_step"] == 3
    scores = {entry["step"]: entry["eval_bleu"] for entry in state["log_history"] if "eval_bleu" in entry}
    # The evaluation of the last update is left out, and the best one is that of an earlier one.
    assert list(scores) == ([1, 2] if save_strategy == "best" else [])
    assert state["best_global_step"] == (max(scores, key=scores.get) if scores else None)
    train(corpus, tmp_path / "run", resume_from_checkpoint="last")
    assert f"Resuming from {tmp_path}/run/checkpoint-3" in caplog.text
    if save_strategy == "no":
        assert is_finished_as(tmp_path / "run", finished)
    else:
        # Evaluation drew random numbers, so dropout is not that of the other run.
        assert read_trainer_state(tmp_path / "run")["global_step"] == 6


@pytest.mark.parametrize("place", ["here", "on another process"])
def test_all_processes_stop_if_one_is_asked_to(place, monkeypatch):
    """They ask each other in every tenth update."""
    operations = {torch.distributed.ReduceOp.MAX: max, torch.distributed.ReduceOp.MIN: min}
    other = int(place == "on another process")
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda flag, op: flag.fill_(operations[op](int(flag), other)))
    args = SimpleNamespace(world_size=2, device=torch.device("cpu"), save_strategy="steps")
    stopped = {}
    with StopOnSigterm() as stop:
        if place == "here":
            os.kill(os.getpid(), signal.SIGTERM)
        for update in (7, 10):
            control = TrainerControl()
            stop.on_step_end(args, TrainerState(global_step=update), control)
            stopped[update] = (control.should_save, control.should_training_stop)
    assert stopped == {7: (False, False), 10: (True, True)}


def test_at_the_end_of_an_epoch_nothing_comes_behind_the_last_checkpoint():
    args = SimpleNamespace(world_size=1, save_strategy="epoch")
    for asked in (False, True):
        control = TrainerControl()
        with StopOnSigterm() as stop:
            if asked:
                os.kill(os.getpid(), signal.SIGTERM)
            stop.on_step_end(args, TrainerState(global_step=1), control)
        assert (stop.stopped, control.should_save) == (asked, asked)
        control.should_save = control.should_evaluate = True
        stop.on_epoch_end(args, TrainerState(), control)
        assert (control.should_save, control.should_evaluate) == (not asked, not asked)


def after_an_evaluation(metrics, patience):
    """Whether a run saves, and whether it stops, that waits for a score since its start, and forgot too much since."""
    log = [{"step": step, "eval_bleu": 1.0} for step in (0, 2, 2, 4)]
    state = TrainerState(best_global_step=None, best_metric=None)
    meter = SimpleNamespace(restart_clock=lambda: None)
    trainer = SimpleNamespace(meter=meter, has_forgotten=True, comparable_log=log, state=state)
    args = SimpleNamespace(metric_for_best_model="bleu", load_best_model_at_end=True, greater_is_better=True)
    args.early_stopping_patience = patience
    control = TrainerControl()
    RunEvents(trainer).on_evaluate(args, state, control, metrics=metrics)
    return control.should_save, control.should_training_stop


def test_the_evaluation_of_the_start_is_not_waited_for():
    assert after_an_evaluation({"eval_bleu": 1.0}, patience=2) == (False, True)
    assert after_an_evaluation({"eval_bleu": 1.0}, patience=3) == (False, False)


def test_an_evaluation_without_the_score_decides_nothing():
    """As that of one of several data sets."""
    assert after_an_evaluation({"eval_other_bleu": 1.0}, patience=1) == (False, False)


@pytest.mark.parametrize("scaler", [None, object()], ids=["no scaler", "scaler"])
@pytest.mark.parametrize("logs", [{"loss": math.nan}, {"loss": 1.0, "grad_norm": math.inf}, {"loss": 1.0}], ids=str)
def test_what_is_logged_must_be_finite(logs, scaler):
    """A scaler of gradients skips an update whose gradient is not."""
    events = RunEvents(SimpleNamespace(accelerator=SimpleNamespace(scaler=scaler)))
    is_ended = math.isnan(logs["loss"]) or (scaler is None and "grad_norm" in logs)
    with pytest.raises(DivergenceError, match="at update 3") if is_ended else nullcontext():
        events.on_log(None, TrainerState(global_step=3), None, logs=logs)


def test_ctrl_c(corpus, tmp_path, monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(TranslationTrainer, "training_step", interrupt)
    with pytest.raises(SystemExit) as stop:
        train(corpus, tmp_path / "run")
    assert stop.value.code == 130
    assert capsys.readouterr().err.rpartition("\r")[2].endswith("interrupted\n")
