"""Learning rates and the like: that of what is added to a model; and of a run that goes on, those of its options."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import PreTrainedModel, Trainer, TrainingArguments

from hf_capsule_mt.modeling.warm_start import added_weights

from .run_identity import identity_in

_OPTIONS = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon")
_ADDED = "added_learning_rate"
# How far these have lowered the rate is a part of their state, and so is what they lower it by.
LOWERING = ("reduce_lr_on_plateau", "greedy")
WITHOUT_WARMUP = ("constant", *LOWERING)
# Numbers in the groups of an optimizer that are its state; the last four of schedule-free ones.
_STATE = ("lr", "initial_lr", "k", "weight_sum", "lr_max", "scheduled_lr")


def needs_best(args: TrainingArguments) -> bool:
    """Return whether a run cannot do without the values of `args.metric_for_best_model`."""
    return args.load_best_model_at_end or args.save_strategy == "best" or args.lr_scheduler_type in LOWERING


def check_added_rate(trainer: Trainer, has_optimizer: bool) -> None:
    """Check that what is added to the model of a trainer can have a rate of its own.

    Raises:
        ValueError: if nothing is, or the trainer does not make the optimizer itself.
    """
    by = "DeepSpeed" if trainer.is_deepspeed_enabled else "the caller" if has_optimizer else None
    if by is not None:
        raise ValueError(f"{_ADDED} is {trainer.args.added_learning_rate}, but {by} makes the optimizer; leave it out")
    check_is_added(trainer.model, trainer.args.added_learning_rate)


def check_is_added(model: PreTrainedModel, rate: float) -> None:
    """Raise a ValueError if nothing is added to a model that could have a rate of its own."""
    if not added_weights(model):
        raise ValueError(f"{_ADDED} is {rate}, but nothing is added to a plain model; leave it out")


def set_added_rate(optimizer: Optimizer, model: PreTrainedModel, rate: float) -> None:
    """Give the weights that are added to a parent's a learning rate of their own, in groups of their own.

    Raises:
        ValueError: if the optimizer has none of them.
    """
    names = added_weights(model)
    added = {id(weight) for name, weight in model.named_parameters() if name in names}
    if not any(id(weight) in added for group in optimizer.param_groups for weight in group["params"]):
        raise ValueError(
            f"{_ADDED} is {rate}, but the optimizer has none of the added weights: they are frozen, or FSDP has made "
            "one with others of them; leave it out, or set fsdp_version to 2"
        )
    groups = []
    for group in optimizer.param_groups:
        for is_added, lr in ((False, group["lr"]), (True, rate)):
            weights = [weight for weight in group["params"] if (id(weight) in added) == is_added]
            groups += [{**group, "params": weights, "lr": lr}] if weights else []
    optimizer.param_groups[:] = groups


@contextmanager
def own_hyperparameters(optimizer: Optimizer, schedule: Any) -> Iterator[None]:
    """Let the states of both be loaded within the block, and keep the numbers that they were made with."""
    numbers = [
        {name: value for name, value in group.items() if _is_kept(name, value)} for group in optimizer.param_groups
    ]
    rates = list(getattr(schedule, "base_lrs", []))
    yield
    for group, own in zip(optimizer.param_groups, numbers):
        group.update(own)
    if type(schedule) is LambdaLR:
        schedule.base_lrs = rates
        for group, rate, factor in zip(optimizer.param_groups, rates, schedule.lr_lambdas):
            group.update(initial_lr=rate, lr=rate * factor(schedule.last_epoch))
        # What the Trainer logs.
        schedule._last_lr = [group["lr"] for group in optimizer.param_groups]


def _is_kept(name: str, value: Any) -> bool:
    # Switches, such as fused, go with the tensors of the state.
    return name not in _STATE and isinstance(value, int | float | tuple) and not isinstance(value, bool)


def check_hyperparameters(state: Mapping[str, Any], settings: Mapping[str, Any], trainer: Trainer) -> None:
    """Check the `settings` of a run that goes on with a Trainer's `state`, where its checkpoint decides them.

    Raises:
        ValueError: if one differs from that of the checkpoint's run.
    """
    there = identity_in(state).get("settings", settings)
    if (_ADDED in there) != (_ADDED in settings):
        old, new = (found.get(_ADDED, "not given") for found in (there, settings))
        raise ValueError(
            f"{_ADDED} is {new}, and was {old} in the run that goes on, by which its optimizer's state is ordered; go "
            "on with that, or start from the weights with --model_name_or_path"
        )
    _check_same("optim", there, settings, "the state of one is nothing to another")
    schedule = trainer.args.lr_scheduler_type
    if schedule in LOWERING or there.get("lr_scheduler_type") in LOWERING:
        _check_same("lr_scheduler_type", there, settings, "the state of one is nothing to the other")
    if trainer.is_deepspeed_enabled:
        decided, by = _OPTIONS, "DeepSpeed"
    elif schedule in LOWERING:
        decided = ("learning_rate", _ADDED, "metric_for_best_model", "greater_is_better", "lr_scheduler_kwargs")
        by = f"lr_scheduler_type {schedule.value}"
    else:
        return
    for name in decided:
        _check_same(name, there, settings, f"{by} takes it from the checkpoint")


def _check_same(name: str, there: Mapping[str, Any], here: Mapping[str, Any], reason: str) -> None:
    old, new = (found.get(name, "its default") for found in (there, here))
    if old != new:
        raise ValueError(
            f"{name} is {new}, and was {old} in the run that goes on: {reason}; go on with that, or start from the "
            "weights with --model_name_or_path"
        )
