"""What the loggers, the optimizer and the schedule of a run need; Transformers looks for it when data has been read."""

import torch
from transformers import Seq2SeqTrainer, TrainingArguments, get_scheduler
from transformers.integrations import get_available_reporting_integrations
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from hf_capsule_mt.modeling.checkpoint_files import one_line

# It is not told whether this one is there.
_UNKNOWN = {"flyte"}


def check_available(args: TrainingArguments) -> None:
    """Check what needs no model.

    Raises:
        ValueError: if a logger or an optimizer is not installed or unknown, or the schedule lacks an option of its own.
    """
    _check_loggers(args)
    try:
        Seq2SeqTrainer.get_optimizer_cls_and_kwargs(args)
    except ImportError as error:
        raise ValueError(f"optim is {args.optim.value!r}: {one_line(error)}") from error
    except ValueError:
        # Some are made with the model.
        pass
    _check_schedule(args)


def _check_loggers(args: TrainingArguments) -> None:
    there = {*get_available_reporting_integrations(), *_UNKNOWN}
    for name in args.report_to:
        if name not in INTEGRATION_TO_CALLBACK:
            known = ", ".join(sorted(INTEGRATION_TO_CALLBACK))
            raise ValueError(f"report_to has {name!r:.80}; allowed are {known}, all and none")
        if name not in there:
            raise ValueError(f"report_to has {name!r}, which is not installed here; install it, or leave it out")


def _check_schedule(args: TrainingArguments) -> None:
    schedule, options = args.lr_scheduler_type, args.lr_scheduler_kwargs
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=args.learning_rate)
    steps = {"num_warmup_steps": 1, "num_training_steps": 10}
    try:
        get_scheduler(schedule, optimizer, **steps, scheduler_specific_kwargs=dict(options or {}))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"lr_scheduler_type is {schedule.value!r} and lr_scheduler_kwargs {options!r:.200}: {one_line(error)}"
        ) from error
