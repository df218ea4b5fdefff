"""Warnings of settings that a run can have, and hardly anybody wants."""

import torch
from torch import nn
from transformers.utils import logging

from hf_capsule_mt.modeling.linear import multiplies_bfloat16

from .arguments import TranslationTrainingArguments
from .hyperparameters import WITHOUT_WARMUP

logger = logging.get_logger(__name__)


def warn_of_half_precision(model: nn.Module) -> None:
    """Warn of weights in 16 bits, which most updates are too small for."""
    found = {each.dtype for each in model.parameters() if each.requires_grad and each.itemsize == 2}
    if found:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in found)
        logger.warning(
            f"the weights are in {names}, in which most updates are lost or far off; load the model with "
            "dtype=torch.float32, and give bf16=True or fp16=True to compute in 16 bits"
        )


def warn_of_slow_products(mixed_precision: str, device: torch.device) -> None:
    """Warn of mixed precision in bfloat16 on a CPU that has no such products."""
    if mixed_precision == "bf16" and not multiplies_bfloat16(device):
        logger.warning(
            "mixed precision is bf16, and this CPU has no fast products in bfloat16: an update takes several times as "
            "long as in float32; leave out --bf16, or --mixed_precision of accelerate launch"
        )


def warn_of_warmup(args: TranslationTrainingArguments, num_training_steps: int) -> None:
    """Warn if a schedule has no warm-up and one is given, or the run ends before it does."""
    warmup_steps, schedule = args.get_warmup_steps(num_training_steps), args.lr_scheduler_type
    if warmup_steps > 0 and schedule in WITHOUT_WARMUP:
        logger.warning(
            f"warmup_steps is {warmup_steps}, but lr_scheduler_type {schedule.value} has no warm-up: the learning rate "
            f"is {args.learning_rate} from the first update on; set warmup_steps to 0, or choose constant_with_warmup "
            "or inverse_sqrt"
        )
    elif warmup_steps >= num_training_steps:
        logger.warning(
            f"warmup_steps is {warmup_steps}, but the run has {num_training_steps} updates: it ends before the "
            f"learning rate reaches {args.learning_rate}; lower warmup_steps for a run this short"
        )
