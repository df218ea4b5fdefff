"""The identity of a run, what may not change when it resumes, and what follows its options of now."""

from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from accelerate.utils import gather_object
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import PreTrainedTokenizerBase, Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.utils import logging

from hf_capsule_mt.data.streaming import TokenBudgetStream
from hf_capsule_mt.data.tokenizer import tokenizer_hash
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.files import hash_text

from .checkpoint_folders import identity_attributes, read_trainer_state

logger = logging.get_logger(__name__)

# These must be the same even if the data begins again.
_ALWAYS = ("adapter", "weights", "tokenizer", "optim", "averages")
_OPTIMIZER_OPTIONS = ("initial_lr", "betas", "eps", "weight_decay", "momentum")
_MOMENTS = ("exp_avg", "exp_avg_sq", "momentum_buffer")


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
        attributes = identity_attributes(state)
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


def begin_run(trainer: Trainer, checkpoint: str | None) -> None:
    """Let a `TranslationTrainer` continue with the run of a checkpoint, or begin one.

    Args:
        trainer: its identity, its log and what it counts become those of the run.
        checkpoint: the folder, or None.

    Raises:
        UserError: if the checkpoint is of another run, or processes disagree.
    """
    args = trainer.args
    saved_run = SavedRun() if checkpoint is None else SavedRun.read(checkpoint)
    trainer.resumed_from = checkpoint
    trainer.resumed_at = saved_run.updates
    trainer.begins_data = checkpoint is not None and args.ignore_data_skip
    trainer.meter.begin(saved_run.updates)

    identity = trainer.identity
    identity.fixed = what_is_fixed(trainer)
    if checkpoint is not None:
        check_same_run(checkpoint, identity.fixed, saved_run.fixed, begins_data=trainer.begins_data)
        if args.should_log:
            logger.warning(f"Resuming from {checkpoint}.")

    if trainer.begins_data and isinstance(trainer.train_dataset, Sized):
        identity.fixed["data_began"] = saved_run.updates
    identity.continue_run(saved_run, args.world_size, begins_data=trainer.begins_data)

    trainer.state.log_history = saved_run.log_history
    if not identity.has_scores_of(saved_run) and args.should_log and args.needs_best:
        logger.warning("Scores are not those of before. The best checkpoint is chosen from now on.")

    if trainer.average is not None:
        trainer.average.checkpoint = checkpoint
    check_same_everywhere(identity, None if checkpoint is None else saved_run.updates)


def what_is_fixed(trainer: Trainer) -> dict[str, Any]:
    """Return what may not change when the run of a `TranslationTrainer` is resumed."""
    args = trainer.args
    model = trainer.model
    shapes = [f"{name} {tuple(weight.shape)}" for name, weight in model.named_parameters()]

    fixed: dict[str, Any] = {"optim": args.optim, "averages": bool(args.ema_decay)}
    if hasattr(model, "peft_config"):
        # In front of the weights, whose hash says nothing to a reader of an error.
        adapter = model.peft_config["default"]
        fixed["adapter"] = f"of rank {adapter.r} for {adapter.base_model_name_or_path}"
    fixed["weights"] = hash_text(shapes)

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
        before = saved.get(name)
        now = current.get(name)
        # With other scores a run continues, and the best checkpoint is chosen from then on.
        if name == "scores" or before == now:
            continue
        remedy = "" if name in _ALWAYS else ", or begin the data again with --ignore_data_skip"
        raise UserError(f"{checkpoint} had {name} {before}, now it is {now}. Go back{remedy}.")


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


class OptimizerOptions:
    """The numbers that a resumed run takes from its own options. The checkpoint's come back with the optimizer."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._groups: list[dict[str, Any]] = []
        for group in optimizer.param_groups:
            self._groups.append({name: group[name] for name in _OPTIMIZER_OPTIONS if name in group})

    def restore(self, optimizer: Optimizer, schedule: LRScheduler) -> None:
        """Put them into an optimizer that was loaded, and the learning rates of now into it and its schedule."""
        for group, options in zip(optimizer.param_groups, self._groups):
            group.update(options)
        if type(schedule) is not LambdaLR:
            # Only a LambdaLR tells the rate of any update.
            return
        schedule.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        # Repeat the last step. Otherwise the next update, and its entry in the log, had the checkpoint's rates.
        schedule.last_epoch -= 1
        schedule.step()


def check_optimizer(trainer: Trainer) -> None:
    """Raise a UserError if the optimizer and the schedule that were loaded belong to another model or update."""
    updates = trainer.state.global_step
    schedule = trainer.lr_scheduler
    # A scaler of gradients skips updates, and neither optimizer nor schedule counts those.
    counts_all = trainer.accelerator.scaler is None
    if counts_all and isinstance(schedule, LambdaLR) and schedule.last_epoch != updates:
        raise UserError(f"scheduler.pt is of update {schedule.last_epoch}, and the checkpoint of update {updates}.")

    for weight, state in trainer.optimizer.state.items():
        for name in _MOMENTS:
            if name in state and state[name].shape != weight.shape:
                raise UserError("optimizer.pt belongs to a model with other shapes.")
        step = int(state.get("step", 0))
        if step > updates:
            raise UserError(f"optimizer.pt is of update {step}, and the checkpoint of update {updates}.")
