"""The checkpoints of a run, its identity, and what may not change when it resumes."""

import os
import re
import shutil
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any
from uuid import uuid4

from accelerate.utils import gather_object
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


def step_of(checkpoint: Path) -> int | None:
    """Return the number of updates in a folder's name, `checkpoint-<step>`, None for another name."""
    match = re.fullmatch(r"checkpoint-(\d+)", checkpoint.name)
    return int(match[1]) if match else None


def checkpoints(run: str | Path) -> list[Path]:
    """Return the folders of a run's checkpoints, the oldest first."""
    return sorted((folder for folder in Path(run).glob("checkpoint-*") if step_of(folder) is not None), key=step_of)


def read_trainer_state(checkpoint: str | Path) -> dict[str, Any]:
    """Return the fields in the `trainer_state.json` of a checkpoint."""
    return read_json(Path(checkpoint) / TRAINER_STATE)


def is_whole(checkpoint: str | Path) -> bool:
    """Return whether the Trainer saved a checkpoint to its end: its state comes last."""
    try:
        read_trainer_state(checkpoint)
    except (OSError, ValueError):
        return False
    return True


def missing_state(checkpoint: str | Path) -> list[str]:
    """Return the names of the files that a run needs to continue and a checkpoint lacks."""
    # DeepSpeed and FSDP save the optimizer's state in pieces.
    pieces = ("global_step*", "optimizer_*", "optimizer.bin", "rank*-optimizer.pt")
    wanted = [("optimizer.pt", *pieces), ("scheduler.pt", "global_step*"), ("rng_state*.pth",)]
    missing = [names[0] for names in wanted if not any(file for name in names for file in Path(checkpoint).glob(name))]
    return missing if is_whole(checkpoint) else [*missing, TRAINER_STATE]


def last_checkpoint(run: str | Path) -> Path | None:
    """Return the newest checkpoint of a run that the run can continue from, or None."""
    return next((folder for folder in reversed(checkpoints(run)) if not missing_state(folder)), None)


def find_checkpoint(value: str | Path | bool | None, run: str | Path) -> str | None:
    """Return the checkpoint that `resume_from_checkpoint` names.

    It is a folder, "last" or True for the newest complete checkpoint of the run, or "auto", which allows none.

    Raises:
        UserError: if there is none, or a part of its state is missing.
    """
    if not value:
        return None
    if value in ("last", "auto", True):
        last = last_checkpoint(run)
        if last is None and value != "auto":
            raise UserError(f"{run} holds no complete checkpoint to resume from.")
        return None if last is None else str(last)
    if missing := missing_state(value):
        raise UserError(f"{value} is not a complete checkpoint: it lacks {', '.join(missing)}.")
    return str(value)


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


def identity_in(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a [`RunIdentity`] in a Trainer's state. Without one they are empty."""
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
    # Scores under other values do not compare.
    names = ("metric_for_best_model", "bleu_tokenize", "generation_max_length", "generation_num_beams")
    fixed["scores"] = {name: getattr(args, name) for name in names}
    if (recorder := trainer.recorder) is not None:
        fixed["scores"] |= recorder.facts.validation_sha256
        fixed |= {name: getattr(recorder.data_args, name) for name in ("bpe_dropout", "train_file_weights")}
        fixed |= {f"SHA-256 of the {side}": digest for side, digest in recorder.facts.sha256.items()}
    return fixed


def check_same_run(checkpoint: str, here: Mapping[str, Any], there: Mapping[str, Any], begins_data: bool) -> None:
    """Raise a UserError if a run is to continue with other batches, another text, tokenizer or optimizer."""
    for name in _ALWAYS if begins_data else (*here, "data_began"):
        if there and name != "scores" and there.get(name) != here.get(name):
            remedy = "" if name in _ALWAYS else ", or begin the data again with --ignore_data_skip"
            raise UserError(f"{checkpoint} had {name} {there.get(name)}, now it is {here.get(name)}. Go back{remedy}.")


def check_same_everywhere(identity: RunIdentity, checkpoint: str | None) -> None:
    """Raise a UserError on every process if one has other data, another tokenizer or another checkpoint."""
    here = {**identity.fixed, "update to resume from": checkpoint and read_trainer_state(checkpoint)["global_step"]}
    first, *others = gather_object([here])
    for process, there in enumerate(others, start=1):
        for name in first:
            if there.get(name) != first[name]:
                raise UserError(f"Process {process} has {name} {there.get(name)}, and process 0 has {first[name]}.")


def check_optimizer(trainer: Trainer) -> None:
    """Raise a UserError if the optimizer and the schedule that were loaded belong to another model or update."""
    done, last = trainer.state.global_step, getattr(trainer.lr_scheduler, "last_epoch", None)
    # A scaler of gradients skips updates.
    if isinstance(trainer.lr_scheduler, LambdaLR) and trainer.accelerator.scaler is None and last != done:
        raise UserError(f"scheduler.pt is of update {last}, and the checkpoint of update {done}.")
    for weight, state in trainer.optimizer.state.items():
        if any(name in state and state[name].shape != weight.shape for name in _MOMENTS):
            raise UserError("optimizer.pt belongs to a model with other shapes.")
        if trainer.accelerator.scaler is None and int(state.get("step", 0)) > done:
            raise UserError(f"optimizer.pt is of update {int(state['step'])}, and the checkpoint of update {done}.")


def claim_folder(args: Any, checkpoint: str | None, start: str | None = None, *, deletes: bool = True) -> None:
    """Raise a UserError if the output folder holds another run, or delete that if `args.overwrite_output_dir`.

    The run continues from `checkpoint`, which may be in the folder, or starts from the model in `start`. Without
    `deletes` the folder is only checked.
    """
    folder = Path(args.output_dir)
    found = [*checkpoints(folder), *(file for pattern in _RESULTS for file in folder.glob(pattern))]
    if checkpoint is not None and Path(checkpoint).resolve().parent == folder.resolve():
        return
    if not args.overwrite_output_dir:
        if any(step_of(path) is None or is_whole(path) for path in found):
            raise UserError(
                f"{folder} holds another run. Name another folder, continue it with --resume_from_checkpoint last, or "
                "delete it with --overwrite_output_dir."
            )
        return
    if found and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
        raise UserError(f"torchrun restarts this run, which would delete {folder}. Give --resume_from_checkpoint auto.")
    if start and Path(start).resolve() in [path.resolve() for path in (folder, *found)]:
        raise UserError(f"Training starts from {start}, which would be deleted. Name another output_dir.")
    for path in found if deletes else ():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
