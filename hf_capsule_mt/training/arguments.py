"""The training arguments: those of `hf-capsule-mt train`, which stand in options.py, and all of Transformers."""

import copy
import math
import os
import sys
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import PartialState
from transformers import Seq2SeqTrainingArguments

from hf_capsule_mt.errors import UserError

from .options import DataArguments, TrainingOptions


@dataclass
class TranslationTrainingArguments(TrainingOptions, Seq2SeqTrainingArguments):
    """[`Seq2SeqTrainingArguments`] with token-budget batches and the defaults of machine translation.

    Raises:
        UserError: if a value is not allowed, or contradicts another.
    """

    def __post_init__(self) -> None:
        self._set_defaults()
        self._hide_token()
        if self.use_cpu:
            # By itself the Trainer gives its time limit only to processes on GPUs.
            PartialState(cpu=True, backend=self.ddp_backend, timeout=self.ddp_timeout_delta)

        warmup_steps = self.warmup_steps
        if warmup_steps is None:
            # Transformers compares it with a number.
            self.warmup_steps = 0
        super().__post_init__()
        self.warmup_steps = warmup_steps

        self._check()
        # Pinned memory without an accelerator does nothing but warn.
        self.dataloader_pin_memory = self.dataloader_pin_memory and torch.accelerator.is_available()
        if self.dataloader_pin_memory:
            # Another copy would wait for all that the device is doing.
            self.accelerator_config.non_blocking = True

    def _set_defaults(self) -> None:
        """Give values to the options that have none, by those of others."""
        if self.max_tokens_per_batch is None:
            self.max_tokens_per_batch = 4096 if self.per_device_train_batch_size is None else 0
        if self.per_device_train_batch_size is None:
            self.per_device_train_batch_size = 8
        if self.metric_for_best_model is None:
            self.metric_for_best_model = "bleu" if self.predict_with_generate else "loss"
        self.metric_for_best_model = self.metric_for_best_model.removeprefix("eval_")

    def _hide_token(self) -> None:
        """Move the token of the Hub into the environment. `training_args.bin` would hold it."""
        if self.hub_token is not None:
            os.environ["HF_TOKEN"] = self.hub_token
            self.hub_token = None

    def _check(self) -> None:
        """Raise a UserError for values that would do something else than what they are for."""
        # A comparison with NaN is always False.
        if not 0 <= self.rdrop_alpha < math.inf:
            raise UserError(f"rdrop_alpha is {self.rdrop_alpha}. Give a number from 0 on, such as 5.")
        if not 0 <= self.ema_decay < 1:
            raise UserError(f"ema_decay is {self.ema_decay}. Give a number from 0 to below 1, such as 0.999.")
        if self.warmup_steps is None and self.optim.startswith("schedule_free"):
            raise UserError(
                f"optim {self.optim.value} warms up by itself, for a given number of updates. Give --warmup_steps."
            )
        if self.early_stopping_patience is not None and (self.eval_strategy == "no" or not self.load_best_model_at_end):
            raise UserError("early_stopping_patience needs an eval_strategy and load_best_model_at_end.")
        if self.push_to_hub and (self.bf16_full_eval or self.fp16_full_eval):
            raise UserError("Evaluation in 16 bits would round the weights that push_to_hub sends. Leave out one.")

    @property
    def seed_of_data(self) -> int:
        """What the order of the pairs follows from."""
        return self.seed if self.data_seed is None else self.data_seed

    @property
    def loader_options(self) -> dict[str, Any]:
        """Options of a loader for its worker processes."""
        context = None
        if self.dataloader_num_workers:
            context = self.dataloader_multiprocessing_context
            if context is None and sys.platform == "linux":
                # Other starts of workers than "fork" need a copy of all that workers use.
                context = "fork"

        return {
            "num_workers": self.dataloader_num_workers,
            "multiprocessing_context": context,
            "prefetch_factor": self.dataloader_prefetch_factor,
            "pin_memory": self.dataloader_pin_memory,
            "persistent_workers": self.dataloader_persistent_workers,
        }

    @property
    def needs_best(self) -> bool:
        """Whether a run cannot do without the values of `metric_for_best_model`."""
        return self.load_best_model_at_end or self.save_strategy == "best"

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """Return the number of updates of linear warm-up in a run of `num_training_steps` updates.

        Without a value of `warmup_steps` it is 500, or a tenth of a shorter run.
        """
        if self.warmup_steps is None:
            return min(500, math.ceil(num_training_steps / 10))
        return super().get_warmup_steps(num_training_steps)

    def check_with(self, data_args: DataArguments) -> None:
        """Raise a UserError if evaluation lacks data or a purpose, or a stream is to have epochs."""
        if self.eval_strategy != "no" and not data_args.validation_file and data_args.dataset_name is None:
            raise UserError(f"eval_strategy is {self.eval_strategy.value}, and there is no --validation_file.")
        if data_args.general_validation_file and not (self.load_best_model_at_end and self.predict_with_generate):
            raise UserError(
                "--general_validation_file chooses the best checkpoint. Add --validation_file, "
                "--load_best_model_at_end, and --eval_strategy steps with equal --eval_steps and --save_steps."
            )
        if data_args.streaming and "epoch" in (self.logging_strategy, self.eval_strategy, self.save_strategy):
            raise UserError("A stream has no epochs. Log, evaluate and save by steps.")


def own_arguments(args: TranslationTrainingArguments | None) -> TranslationTrainingArguments:
    """Return a copy. The trainer changes some of them, and the caller may begin another run with the same ones."""
    if args is None:
        return TranslationTrainingArguments()
    if not isinstance(args, TranslationTrainingArguments):
        raise UserError(
            f"TranslationTrainer needs TranslationTrainingArguments, and args is a {type(args).__name__}. Its "
            "arguments have the same names there."
        )
    return copy.copy(args)
