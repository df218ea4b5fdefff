"""Learning rate, weight decay and the like of a run that goes on: those of its options, not of its checkpoint."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import Trainer

from .run_identity import identity_in

_OPTIONS = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon")
# How far these have lowered the rate is a part of their state.
_LOWERING = ("reduce_lr_on_plateau", "greedy")


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
    return name not in ("lr", "initial_lr") and isinstance(value, int | float | tuple) and not isinstance(value, bool)


def check_hyperparameters(state: Mapping[str, Any], settings: Mapping[str, Any], trainer: Trainer) -> None:
    """Check the `settings` of a run that goes on with a Trainer's `state`, where its checkpoint decides them.

    Raises:
        ValueError: if one differs from that of the checkpoint's run.
    """
    schedule = trainer.args.lr_scheduler_type
    if trainer.is_deepspeed_enabled:
        decided, by = _OPTIONS, "DeepSpeed"
    elif schedule in _LOWERING:
        decided, by = ("learning_rate",), f"lr_scheduler_type {schedule.value}"
    else:
        return
    there = identity_in(state).get("settings", settings)
    for name in decided:
        old, new = (found.get(name, "its default") for found in (there, settings))
        if old != new:
            raise ValueError(
                f"{name} is {new}, and was {old} in the run that goes on: {by} takes it from the checkpoint; go on "
                "with that, or start from the weights with --model_name_or_path"
            )
