"""The checkpoints of a run, its identity, and what may not change when it resumes."""

import os
import re
import shutil
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import is_zipfile

from accelerate.utils import gather_object
from safetensors import SafetensorError, safe_open
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedTokenizerBase, Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from hf_capsule_mt.data.streaming import TokenBudgetStream
from hf_capsule_mt.data.tokenizer import tokenizer_hash
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_text, read_json

TRAINER_STATE = "trainer_state.json"
"""The file of a checkpoint that is saved last."""

_RESULTS = ("model*.safetensors*", "adapter", TRAINER_STATE, "run_record.json")
# These must be the same even if the data begins again.
_ALWAYS = ("weights", "tokenizer", "optim", "averages", "adapter")
_MOMENTS = ("exp_avg", "exp_avg_sq", "momentum_buffer")
# Fields of the Trainer's state that it and we compute with.
_NUMBER = (int, float)
_STATE_TYPES: dict[str, type | tuple[type, ...]] = {
    "global_step": int,
    "max_steps": int,
    "epoch": _NUMBER,
    "total_flos": _NUMBER,
    "num_input_tokens_seen": int,
    "best_metric": _NUMBER,
    "best_global_step": int,
    "best_model_checkpoint": str,
    "log_history": list,
    "stateful_callbacks": dict,
}
_MAY_BE_NULL = ("epoch", "best_metric", "best_global_step", "best_model_checkpoint")
_IDENTITY_TYPES: dict[str, type | tuple[type, ...]] = {
    "run": str,
    "fixed": dict,
    "dealt_to": (int, type(None)),
    "scores_began": int,
}


def step_of(checkpoint: Path) -> int | None:
    """Return the number of updates in a folder's name, `checkpoint-<step>`, None for another name."""
    match = re.fullmatch(r"checkpoint-(\d+)", checkpoint.name)
    if match is None:
        return None
    return int(match[1])


def checkpoints(run: str | Path) -> list[Path]:
    """Return the folders of a run's checkpoints, the oldest first."""
    folders = [folder for folder in Path(run).glob("checkpoint-*") if step_of(folder) is not None]
    return sorted(folders, key=step_of)


def read_trainer_state(checkpoint: str | Path) -> dict[str, Any]:
    """Return the fields in the `trainer_state.json` of a checkpoint.

    Raises:
        OSError: if there is no such file.
        ValueError: if it is no JSON, or a field that a run continues from is of another type than the Trainer writes.
    """
    file = Path(checkpoint) / TRAINER_STATE
    state = read_json(file)
    for name, expected in _STATE_TYPES.items():
        is_null = name in _MAY_BE_NULL and state.get(name) is None
        if name in state and not is_null and not isinstance(state[name], expected):
            raise UserError(f"{file} is damaged: {name} is {state[name]!r}. Continue from another checkpoint.")
    for entry in state.get("log_history", []):
        if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
            raise UserError(f"{file} is damaged: log_history has {entry!r}. Continue from another checkpoint.")
    for name, value in _identity_attributes(state, file).items():
        if name in _IDENTITY_TYPES and not isinstance(value, _IDENTITY_TYPES[name]):
            raise UserError(f"{file} is damaged: {name} is {value!r}. Continue from another checkpoint.")
    return state


def _identity_attributes(state: Mapping[str, Any], file: Path | None = None) -> dict[str, Any]:
    """Return what a [`RunIdentity`] has saved in a Trainer's state. A plain Trainer's state has nothing of it."""
    saved = state.get("stateful_callbacks", {}).get(RunIdentity.__name__, {})
    attributes = saved.get("attributes", {}) if isinstance(saved, dict) else None
    if not isinstance(attributes, dict):
        raise UserError(f"{file} is damaged: {RunIdentity.__name__} is {saved!r}. Continue from another checkpoint.")
    return attributes


def is_whole(checkpoint: str | Path) -> bool:
    """Return whether the Trainer saved a checkpoint to its end: its state comes last."""
    try:
        read_trainer_state(checkpoint)
    except (OSError, ValueError):
        return False
    return True


def missing_state(checkpoint: str | Path) -> list[str]:
    """Return the names of the files that a run needs to continue, and that a checkpoint lacks or has only a part of."""
    folder = Path(checkpoint)
    missing = []
    # DeepSpeed and FSDP save the optimizer's state in pieces.
    if not _has_whole(folder, "optimizer.pt", "global_step*", "optimizer_*", "optimizer.bin", "rank*-optimizer.pt"):
        missing.append("optimizer.pt")
    if not _has_whole(folder, "scheduler.pt", "global_step*"):
        missing.append("scheduler.pt")
    if not _has_whole(folder, "rng_state*.pth"):
        missing.append("rng_state*.pth")
    # DeepSpeed and FSDP save weights in pieces too, and a Trainer of old wrote pickles.
    if not _paths(folder, "*.safetensors", "pytorch_model*", "adapter_model*", "global_step*"):
        missing.append("model.safetensors")
    # Also those of adapters, and the training weights next to averages.
    missing += [file.name for file in sorted(folder.glob("*.safetensors")) if not _is_readable(file)]
    if not is_whole(folder):
        missing.append(TRAINER_STATE)
    return missing


def _is_readable(file: Path) -> bool:
    """Return whether a file of tensors has all the bytes that its header names."""
    try:
        with safe_open(file, "pt"):
            return True
    except (SafetensorError, OSError):
        return False


def _has_whole(folder: Path, *patterns: str) -> bool:
    """Return whether a folder has a file or a folder with one of these names, and all such files were written whole."""
    paths = _paths(folder, *patterns)
    # PyTorch writes a ZIP archive, whose table of contents is at its end.
    return bool(paths) and all(path.is_dir() or is_zipfile(path) for path in paths)


def _paths(folder: Path, *patterns: str) -> list[Path]:
    """Return what is in a folder with a name of one of these patterns."""
    return [path for pattern in patterns for path in folder.glob(pattern)]


def last_checkpoint(run: str | Path) -> Path | None:
    """Return the newest checkpoint of a run that the run can continue from, or None."""
    for folder in reversed(checkpoints(run)):
        if not missing_state(folder):
            return folder
    return None


def find_checkpoint(value: str | Path | bool | None, run: str | Path) -> str | None:
    """Return the checkpoint that `resume_from_checkpoint` names.

    Args:
        value: a folder, "last" or True for the newest complete checkpoint of the run, "auto", which allows none, or
            None to begin a run.
        run: the output folder of the run.

    Raises:
        UserError: if there is none, or a part of its state is missing or damaged.
    """
    if not value:
        return None
    if value in ("last", "auto", True):
        last = last_checkpoint(run)
        if last is not None:
            return str(last)
        if value == "auto":
            return None
        raise UserError(f"{run} holds no complete checkpoint to resume from.")
    missing = missing_state(value)
    if missing:
        raise UserError(f"{value} is not a complete checkpoint: {', '.join(missing)} is missing or damaged.")
    return str(value)


@dataclass(frozen=True)
class SavedRun:
    """What a run has to know of the checkpoint that it continues from. A new run has the defaults."""

    updates: int = 0
    log_history: list[dict[str, Any]] = field(default_factory=list)
    run: str | None = None
    """Its identifier. None in a checkpoint of a plain Trainer."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """What may not change: the tokenizer, the text, and what decides the batches. A plain Trainer saves none of it."""
    dealt_to: int | None = None
    """The number of processes that the batches of an epoch were cut for."""
    scores_began: int = 0
    """The first entry of the log whose scores compare with the later ones."""

    @classmethod
    def read(cls, checkpoint: str | Path) -> "SavedRun":
        """Return the run of a checkpoint. Raise an error as [`read_trainer_state`] does."""
        return cls.from_state(read_trainer_state(checkpoint))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "SavedRun":
        """Return the run of a Trainer's state, as [`read_trainer_state`] returns it."""
        attributes = _identity_attributes(state)
        return cls(
            updates=state.get("global_step", 0),
            log_history=state.get("log_history", []),
            run=attributes.get("run"),
            fixed=attributes.get("fixed", {}),
            dealt_to=attributes.get("dealt_to"),
            scores_began=attributes.get("scores_began", 0),
        )

    @property
    def comparable_log(self) -> list[dict[str, Any]]:
        """The entries of the log whose scores compare with the last ones."""
        return self.log_history[self.scores_began :]


class RunIdentity(TrainerCallback, ExportableState):
    """Adds an identifier of the run and what it depends on to the `trainer_state.json` of every checkpoint."""

    def __init__(self) -> None:
        self.run = uuid4().hex
        self.fixed: dict[str, Any] = {}
        """What may not change when the run is resumed: the tokenizer, the text, and what decides the batches."""
        self.dealt_to: int | None = None
        """The number of processes at the start, on which the cut of an epoch depends."""
        self.scores_began = 0
        """The entries of the log before this one have scores that do not compare with those of now."""

    def state(self) -> dict[str, Any]:
        """Return what is saved, in the form of the Trainer."""
        return {"args": {}, "attributes": dict(vars(self))}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Make the entry that the Trainer fills. Checkpoints of a plain Trainer have none."""
        state.stateful_callbacks.setdefault(type(self).__name__, self.state())

    def has_scores_of(self, saved_run: SavedRun) -> bool:
        """Return whether the scores of a saved run compare with those of this one."""
        return saved_run.fixed.get("scores", self.fixed["scores"]) == self.fixed["scores"]

    def continue_run(self, saved_run: SavedRun, world_size: int, *, begins_data: bool) -> None:
        """Become the identity of a saved run.

        Args:
            saved_run: the run. A new one changes only what depends on the number of processes.
            world_size: the number of processes of now.
            begins_data: whether the data begins again, so that it is cut for the processes of now.
        """
        if saved_run.run is not None:
            self.run = saved_run.run
        self.scores_began = saved_run.scores_began
        if not self.has_scores_of(saved_run):
            self.scores_began = len(saved_run.log_history)
        self.dealt_to = saved_run.dealt_to
        if begins_data or not self.dealt_to:
            self.dealt_to = world_size


def what_is_fixed(trainer: Trainer) -> dict[str, Any]:
    """Return what may not change when the run of a `TranslationTrainer` is resumed."""
    args = trainer.args
    model = trainer.model
    shapes = (f"{name} {tuple(weight.shape)}" for name, weight in model.named_parameters())
    fixed: dict[str, Any] = {"optim": args.optim, "averages": bool(args.ema_decay), "weights": hash_text(shapes)}
    if hasattr(model, "peft_config"):
        adapter = model.peft_config["default"]
        fixed["adapter"] = f"of rank {adapter.r} for {adapter.base_model_name_or_path}"
    if isinstance(trainer.processing_class, PreTrainedTokenizerBase):
        fixed["tokenizer"] = tokenizer_hash(trainer.processing_class)
    fixed |= _fixed_batches(trainer)
    # Scores under other values do not compare.
    names = ("metric_for_best_model", "bleu_tokenize", "generation_max_length", "generation_num_beams")
    fixed["scores"] = {name: getattr(args, name) for name in names}
    recorder = trainer.recorder
    if recorder is not None:
        fixed["scores"] |= recorder.facts.validation_sha256
        fixed["bpe_dropout"] = recorder.data_args.bpe_dropout
        fixed["train_file_weights"] = recorder.data_args.train_file_weights
        for side, digest in recorder.facts.sha256.items():
            fixed[f"SHA-256 of the {side}"] = digest
    return fixed


def _fixed_batches(trainer: Trainer) -> dict[str, Any]:
    """Return what decides which pairs are in which update."""
    args = trainer.args
    data = trainer.train_dataset
    if isinstance(data, TokenBudgetStream):
        return data.cut()
    if not isinstance(data, Sized):
        return {}
    batches = args.world_size * args.gradient_accumulation_steps
    fixed = {
        "pairs": len(data),
        "max_tokens_per_batch": args.max_tokens_per_batch,
        "batches_per_update": batches,
        "data_seed": args.seed_of_data,
    }
    if not args.max_tokens_per_batch:
        fixed["pairs_per_update"] = batches * args.train_batch_size
    return fixed


def check_same_run(checkpoint: str, current: Mapping[str, Any], saved: Mapping[str, Any], *, begins_data: bool) -> None:
    """Raise a UserError if a run is to continue with other batches, another text, tokenizer or optimizer.

    Args:
        checkpoint: the folder to name in the message.
        current: what [`what_is_fixed`] returns now.
        saved: what it returned for the saved run. It is empty in a checkpoint of a plain Trainer.
        begins_data: whether the data begins again, so that batches and text may be others.
    """
    if not saved:
        return
    names = _ALWAYS if begins_data else (*current, "data_began")
    for name in names:
        if name == "scores" or saved.get(name) == current.get(name):
            continue
        remedy = "" if name in _ALWAYS else ", or begin the data again with --ignore_data_skip"
        change = f"{checkpoint} had {name} {saved.get(name)}, now it is {current.get(name)}."
        raise UserError(f"{change} Go back{remedy}.")


def check_same_everywhere(identity: RunIdentity, update: int | None) -> None:
    """Raise a UserError on every process if one has other data, another tokenizer or another checkpoint.

    Args:
        identity: the identity on this process.
        update: the update that the run continues from, None for a new run.
    """
    facts = gather_object([{**identity.fixed, "update to resume from": update}])
    for process, others in enumerate(facts[1:], start=1):
        for name, value in facts[0].items():
            if others.get(name) != value:
                raise UserError(f"Process {process} has {name} {others.get(name)}, and process 0 has {value}.")


def check_optimizer(trainer: Trainer) -> None:
    """Raise a UserError if the optimizer and the schedule that were loaded belong to another model or update."""
    updates = trainer.state.global_step
    schedule = trainer.lr_scheduler
    # A scaler of gradients skips updates, and neither optimizer nor schedule counts those.
    counts_all = trainer.accelerator.scaler is None
    if counts_all and isinstance(schedule, LambdaLR) and schedule.last_epoch != updates:
        raise UserError(f"scheduler.pt is of update {schedule.last_epoch}, and the checkpoint of update {updates}.")
    for weight, state in trainer.optimizer.state.items():
        if any(name in state and state[name].shape != weight.shape for name in _MOMENTS):
            raise UserError("optimizer.pt belongs to a model with other shapes.")
        if counts_all and int(state.get("step", 0)) > updates:
            raise UserError(f"optimizer.pt is of update {int(state['step'])}, and the checkpoint of update {updates}.")


def claim_folder(args: Any, checkpoint: str | None, start: str | None = None, *, deletes: bool = True) -> None:
    """Make sure that the output folder is free for a run, or that of the run to continue.

    Args:
        args: training arguments. With `overwrite_output_dir` another run in `output_dir` is deleted.
        checkpoint: what the run continues from. It may be in the folder.
        start: the folder or name of the model that a new run starts from, which must not be deleted.
        deletes: whether to delete what may be deleted. Otherwise the folder is only checked.

    Raises:
        UserError: if the folder holds another run, or what the run starts from would be deleted.
    """
    folder = Path(args.output_dir)
    if checkpoint is not None and Path(checkpoint).resolve().parent == folder.resolve():
        return
    results = _paths(folder, *_RESULTS)
    if not args.overwrite_output_dir:
        # A kill in the first save leaves a folder that is no checkpoint.
        if results or any(is_whole(path) for path in checkpoints(folder)):
            raise UserError(
                f"{folder} holds another run. Name another folder, continue it with --resume_from_checkpoint last, or "
                "delete it with --overwrite_output_dir."
            )
        return
    paths = [*checkpoints(folder), *results]
    if paths and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        raise UserError(f"torchrun restarts this run, which would delete {folder}. Give --resume_from_checkpoint auto.")
    if start and Path(start).resolve() in [path.resolve() for path in (folder, *paths)]:
        raise UserError(f"Training starts from {start}, which would be deleted. Name another output_dir.")
    if deletes:
        for path in paths:
            _delete(path)


def _delete(path: Path) -> None:
    """Delete a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
