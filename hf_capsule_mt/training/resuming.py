"""What tells a training run from others, in the state of each of its checkpoints, and what a resumed run must share."""

import os
import shutil
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from accelerate.utils import gather_object
from transformers import PreTrainedTokenizerBase, Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from hf_capsule_mt.data.streaming import TokenBudgetStream
from hf_capsule_mt.data.tokenizer import tokenizer_hash
from hf_capsule_mt.files import hash_text
from hf_capsule_mt.training.checkpoint_folders import (
    checkpoints,
    is_whole,
    last_checkpoint,
    missing_state,
    read_trainer_state,
    step_of,
)

LAST, AUTO = "last", "auto"
"""In place of a checkpoint: the newest whole one in the output folder, and for AUTO the start where there is none."""

_RESULTS = ("model*.safetensors*", "adapter", "trainer_state.json", "run_record.json")
# Not a matter of the data.
_ALWAYS = ("weights", "tokenizer", "optim", "averages", "adapter")
_MOMENTS = ("exp_avg", "exp_avg_sq", "momentum_buffer")


class RunIdentity(TrainerCallback, ExportableState):
    """Adds an identifier of the run and what it depends on to the `trainer_state.json` of every checkpoint."""

    def __init__(self) -> None:
        self.run = uuid4().hex
        self.fixed: dict[str, Any] = {}
        """What may not change when the run is resumed: the tokenizer, the text, and what decides the batches."""
        self.dealt_to: int | None = None
        """The number of processes at the start, on which the cut of an epoch depends."""
        self.scores: dict[str, Any] = {}
        """What decides the scores of validation."""
        self.data_began = 0
        """The update after which the data was begun again."""

    def state(self) -> dict[str, Any]:
        """Return what is saved, in the form of the Trainer."""
        return {"args": {}, "attributes": dict(vars(self))}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Make the entry that the Trainer fills; checkpoints of a plain Trainer have none."""
        state.stateful_callbacks.setdefault(type(self).__name__, self.state())


def identity_in(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a [`RunIdentity`] has put into a Trainer's state, by name; empty if there is none."""
    return ((state.get("stateful_callbacks") or {}).get(RunIdentity.__name__) or {}).get("attributes") or {}


def what_is_fixed(trainer: Trainer) -> dict[str, Any]:
    """Return what may not change when the run of a `TranslationTrainer` is resumed."""
    args, data, model = trainer.args, trainer.train_dataset, trainer.model
    batches = args.world_size * args.gradient_accumulation_steps
    shapes = (f"{name} {tuple(weight.shape)}" for name, weight in model.named_parameters())
    fixed: dict[str, Any] = {"optim": args.optim, "averages": bool(args.ema_decay), "weights": hash_text(shapes)}
    if hasattr(model, "peft_config"):
        adapter = model.peft_config["default"]
        fixed["adapter"] = f"of rank {adapter.r} for {adapter.base_model_name_or_path}"
    if isinstance(trainer.processing_class, PreTrainedTokenizerBase):
        fixed["tokenizer"] = tokenizer_hash(trainer.processing_class)
    if isinstance(data, TokenBudgetStream):
        fixed |= data.cut()
    elif isinstance(data, Sized):
        fixed |= {"pairs": len(data), "max_tokens_per_batch": args.max_tokens_per_batch}
        fixed |= {"batches_per_update": batches, "data_seed": args.seed_of_data}
        fixed |= {} if args.max_tokens_per_batch else {"pairs_per_update": batches * args.train_batch_size}
    return fixed | ({} if trainer.recorder is None else trainer.recorder.decides_batches())


def what_scores(trainer: Trainer) -> dict[str, Any]:
    """Return what decides the scores of validation."""
    names = ("metric_for_best_model", "greater_is_better", "bleu_tokenize", "generation_max_length")
    validation = {} if trainer.recorder is None else trainer.recorder.facts.validation_sha256
    return {name: getattr(trainer.args, name) for name in (*names, "generation_num_beams")} | validation


def find_checkpoint(value: str | Path | bool | None, args: Any) -> str | None:
    """Return the checkpoint that `resume_from_checkpoint` names: a folder, [`LAST`] or [`AUTO`].

    Raises:
        ValueError: if there is none, a part of its state is missing, or a later one lies beside it.
    """
    if not value:
        return None
    last = last_checkpoint(args.output_dir, with_state=not args.ignore_missing_state)
    if value in (LAST, AUTO, True):
        if last is None and value != AUTO:
            raise ValueError(f"{args.output_dir} holds no whole checkpoint to resume from.")
        return None if last is None else str(last)
    missing = [] if args.ignore_missing_state else missing_state(value)
    if missing or not is_whole(value):
        raise ValueError(f"{value} is not a whole checkpoint: it lacks {', '.join(missing) or 'trainer_state.json'}.")
    if last is not None and last.resolve().parent == Path(value).resolve().parent and _step(last) > _step(Path(value)):
        raise ValueError(f"{last} is newer than {value}. Resume from it, delete it, or name another output_dir.")
    return str(value)


def _step(checkpoint: Path) -> int:
    return read_trainer_state(checkpoint)["global_step"] if step_of(checkpoint) is None else step_of(checkpoint)


def check_same_run(checkpoint: str, here: Mapping[str, Any], there: Mapping[str, Any], ignore_data_skip: bool) -> None:
    """Raise a ValueError if a run is to continue with other batches, another text, tokenizer or optimizer."""
    if there.get("data_began") and not ignore_data_skip:
        raise ValueError(f"The run of {checkpoint} began its data again. Give --ignore_data_skip true again.")
    old = there.get("fixed") or {}
    for name in _ALWAYS if ignore_data_skip else here:
        if old and old.get(name) != here.get(name):
            remedy = "" if name in _ALWAYS else ", or begin the data again with --ignore_data_skip true"
            raise ValueError(
                f"The run of {checkpoint} had {name} {old.get(name)}, now it is {here.get(name)}. Go back{remedy}."
            )


def check_same_everywhere(identity: RunIdentity, checkpoint: str | None) -> None:
    """Raise a ValueError on every process if one has other data, another tokenizer or another checkpoint."""
    here = {**identity.fixed, "update to resume from": checkpoint and read_trainer_state(checkpoint)["global_step"]}
    first, *others = gather_object([here])
    for process, there in enumerate(others, start=1):
        for name in first:
            if there.get(name) != first[name]:
                raise ValueError(f"Process {process} has {name} {there.get(name)}, and process 0 has {first[name]}.")


def check_optimizer(trainer: Trainer) -> None:
    """Raise a ValueError if the optimizer and the schedule that were loaded belong to another model or update."""
    done, last = trainer.state.global_step, getattr(trainer.lr_scheduler, "last_epoch", None)
    is_exact = isinstance(trainer.lr_scheduler, torch.optim.lr_scheduler.LambdaLR)
    has_scaler = getattr(trainer.accelerator, "scaler", None) is not None
    if is_exact and (last > done if has_scaler else last != done):
        raise ValueError(f"scheduler.pt is of update {last}, and the checkpoint of update {done}.")
    for weight, state in trainer.optimizer.state.items():
        if any(name in state and state[name].shape != weight.shape for name in _MOMENTS):
            raise ValueError("optimizer.pt belongs to a model with other shapes.")
        if not has_scaler and "step" in state and int(state["step"]) > done:
            raise ValueError(f"optimizer.pt is of update {int(state['step'])}, and the checkpoint of update {done}.")


def check_folder_is_free(args: Any, checkpoint: str | None, start: str | None = None, *, delete: bool = True) -> None:
    """Raise a ValueError if the output folder holds another run; delete that if `args.overwrite_output_dir`.

    Args:
        args: of the run.
        checkpoint: that the run continues from. It may be in the folder.
        start: folder of the model that training starts from.
        delete: False only checks.
    """
    folder = Path(args.output_dir)
    found = [*checkpoints(folder), *(file for pattern in _RESULTS for file in folder.glob(pattern))]
    if checkpoint is not None and Path(checkpoint).resolve().parent == folder.resolve():
        return
    if not args.overwrite_output_dir:
        if any(not path.name.startswith("checkpoint-") or is_whole(path) for path in found):
            raise ValueError(
                f"{folder} holds another run. Name another folder, continue it with --resume_from_checkpoint last, or "
                "delete it with --overwrite_output_dir true."
            )
        return
    if found and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        raise ValueError(
            f"torchrun starts this run again, and {folder} would be deleted. Give --resume_from_checkpoint {AUTO}."
        )
    if start and Path(start).resolve() in [path.resolve() for path in (folder, *found)]:
        raise ValueError(f"Training starts from {start}, which would be deleted. Name another output_dir.")
    for path in found if delete else ():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
