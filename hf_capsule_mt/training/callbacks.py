"""Callbacks of the trainer: what is logged, what is saved, and when a run ends."""

import math
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import ProgressCallback, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import SaveStrategy

from hf_capsule_mt.data.streaming import TokenBudgetStream
from hf_capsule_mt.decoding import only_listens

LOSS_TERMS = ("lm_loss", "bow_loss", "bca_loss", "rdrop_loss")
TOGETHER = 10
"""Several processes ask each other only at every tenth update: each question waits for the device."""
_SHOWN = {"loss": "loss", "eval_loss": "validation loss", "eval_bleu": "BLEU"}


class DivergenceError(ValueError):
    """A loss, a gradient or a weight is not finite."""

    def __init__(self, what: str, step: int) -> None:
        super().__init__(
            f"Training diverged: {what} at update {step}. Nothing of it is saved. Lower --learning_rate or raise "
            "--warmup_steps, and continue with --resume_from_checkpoint last."
        )


class LossTerms(TrainerCallback):
    """Logs the parts of the model's loss beside `loss`, if it has several.

    The Trainer keeps only the loss of a model's output, so a forward hook listens to the model.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._accelerator = trainer.accelerator
        self._sums: dict[str, Tensor] = {}
        self._logged_at = 0
        self._hook: RemovableHandle | None = None

    @only_listens
    def _listen(self, model: nn.Module, inputs: tuple, outputs: Any) -> None:
        if model.training and isinstance(outputs, Mapping):
            for name in LOSS_TERMS:
                if name in outputs:
                    self._sums[name] = self._sums.get(name, 0) + outputs[name].detach()

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Listen to the model."""
        self._sums, self._logged_at = {}, state.global_step
        self._remove_hook()
        self._hook = kwargs["model"].register_forward_hook(self._listen)

    def on_train_end(self, *args: Any, **kwargs: Any) -> None:
        """Leave the model, which could not be pickled with the hook."""
        self._remove_hook()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Add the parts to the logs, each the mean over the updates since the last log."""
        updates = state.global_step - self._logged_at
        if "loss" not in kwargs["logs"] or not updates:
            return
        sums, self._sums, self._logged_at = self._sums, {}, state.global_step
        if len(sums) < 2:
            return
        # The loss of a process is divided by the number of tokens of all processes, or by its own.
        reduction = "sum" if args.average_tokens_across_devices else "mean"
        terms = {name: self._accelerator.reduce(total, reduction).item() / updates for name, total in sums.items()}
        kwargs["logs"].update(terms)
        # The Trainer has copied the logs into its history before.
        state.log_history[-1].update(terms)

    def _remove_hook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None


def log_loss_terms(trainer: Trainer) -> None:
    """Let any Trainer log the parts of its model's loss."""
    # The first of the callbacks: loggers show what they are handed.
    trainer.callback_handler.callbacks.insert(0, LossTerms(trainer))


class TranslationProgress(ProgressCallback):
    """Shows what was logged last beside the updates, and the tokens per second of sources and targets.

    Padding does not count as tokens. Evaluating and saving do not count as time.
    """

    def __init__(self) -> None:
        super().__init__()
        self._tokens: Tensor | int = 0
        self._since = 0.0
        self._shown: dict[str, str] = {}

    def count(self, inputs: dict[str, Any]) -> None:
        """Count the tokens of a batch without waiting for the device."""
        read = inputs["attention_mask"].sum() if "attention_mask" in inputs else inputs["input_ids"].numel()
        self._tokens = self._tokens + read + inputs["labels"].ne(-100).sum()

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Make the bar."""
        super().on_train_begin(*args, **kwargs)
        self._restart()

    def on_evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Leave out the time of an evaluation."""
        super().on_evaluate(*args, **kwargs)
        self._restart()

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        """Leave out the time of saving."""
        self._restart()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Write the log above the bar, and show its numbers in the bar."""
        super().on_log(args, state, control, **kwargs)
        if self.training_bar is None:
            return
        logs: dict[str, float] = kwargs["logs"]
        self._shown |= {name: f"{logs[key]:.4g}" for key, name in _SHOWN.items() if key in logs}
        seconds, tokens = time.monotonic() - self._since, int(self._tokens) * args.world_size
        if "loss" in logs and tokens and seconds > 0:
            self._shown["tokens/s"] = f"{tokens / seconds:.0f}"
            self._restart()
        self.training_bar.set_postfix(self._shown)

    def _restart(self) -> None:
        self._tokens, self._since = 0, time.monotonic()


class RunEvents(TrainerCallback):
    """What a `TranslationTrainer` does at the events of a run."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Let a resumed run follow its own options where the Trainer takes those of the checkpoint."""
        if self._trainer.resumed_from is not None:
            state.compute_steps(args, state.max_steps)
            if self._trainer.forgets_best:
                state.best_metric = state.best_global_step = state.best_model_checkpoint = None
            self._trainer.follow_options()
        self._trainer.has_begun = True

    def on_epoch_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Tell the batch sampler the epoch before a resumed run skips batches.

        The Trainer does so afterwards, and does not reach the sampler when there are several processes.
        """
        batches = kwargs["train_dataloader"].batch_sampler
        while hasattr(batches, "batch_sampler"):
            batches = batches.batch_sampler
        if hasattr(batches, "sampler") and hasattr(batches.sampler, "set_epoch"):
            batches.sampler.set_epoch(int(state.epoch))

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Count the share of the run as the epoch of a stream, also in a run that is resumed."""
        if isinstance(self._trainer.train_dataset, TokenBudgetStream):
            state.epoch = state.global_step / state.max_steps

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Put the averaged weights of a schedule-free optimizer into the model. The next update takes them out."""
        if hasattr(kwargs["optimizer"], "eval"):
            kwargs["optimizer"].eval()

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save a checkpoint at each new best evaluation: only what was saved can be loaded at the end."""
        found = kwargs["metrics"].get(f"eval_{args.metric_for_best_model}")
        best = state.best_metric
        is_best = best is None or (found is not None and (found > best if args.greater_is_better else found < best))
        if args.load_best_model_at_end and state.global_step and is_best:
            control.should_save = True

    def on_log(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """End a run whose logged loss or gradient is not finite.

        The Trainer fetches these numbers from the device anyway. A GradScaler skips such gradients by itself.
        """
        has_scaler = getattr(self._trainer.accelerator, "scaler", None) is not None
        for name in ("loss",) if has_scaler else ("loss", "grad_norm"):
            if not math.isfinite(kwargs["logs"].get(name, 0.0)):
                raise DivergenceError(f"{name} is {kwargs['logs'][name]}", state.global_step)

    def on_push_begin(self, *args: Any, **kwargs: Any) -> None:
        """Write the model card, which goes to the Hub with the checkpoint."""
        self._trainer.create_model_card()


class StopOnSigterm(TrainerCallback):
    """Within its block, saves a checkpoint after the update in which SIGTERM came, and ends the run there.

    `enable_jit_checkpoint` of Transformers may save in the middle of an update, after the random numbers of its dropout
    are drawn. A run that continues from such a checkpoint draws others.
    """

    STATUS = 128 + signal.SIGTERM

    def __init__(self) -> None:
        self.stopped = False
        """Whether the run was ended by the signal."""
        self._received = False
        self._before: Any = None

    def __enter__(self) -> "StopOnSigterm":
        # Python lets only the main thread handle signals.
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._receive)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _receive(self, *signal_and_frame: Any) -> None:
        self._received = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask all processes, which must save together, and stop if one received the signal."""
        received = self._received
        if args.world_size > 1:
            if state.global_step % TOGETHER:
                return
            flag = torch.tensor(int(received), device=args.device)
            torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
            received = bool(flag)
        if received:
            self.stopped = control.should_save = control.should_training_stop = True
            if args.save_strategy == SaveStrategy.BEST:
                # An evaluation would decide whether to save.
                control.should_evaluate = False

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Leave out what comes at the end of an epoch: the checkpoint is saved."""
        if self.stopped:
            control.should_save = control.should_evaluate = False


class SourceCallback(TrainerCallback):
    """Lets a model's source go to the Hub with every checkpoint.

    By itself the Trainer sends only the files of a checkpoint that it knows, before training ends.
    """

    def on_push_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Write the source where the Trainer looks for it."""
        if state.is_world_process_zero:
            model = kwargs["model"]
            model.config.save_pretrained(args.output_dir)
            if hasattr(model, "complete_checkpoint"):
                model.complete_checkpoint(Path(args.output_dir))
