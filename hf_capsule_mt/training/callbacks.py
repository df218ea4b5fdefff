"""Callbacks of the trainer: what is logged, what is saved, and when a run ends."""

import math
import signal
import threading
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ProgressCallback
from transformers.trainer_utils import SaveStrategy

from hf_capsule_mt.data.streaming import TokenBudgetStream
from hf_capsule_mt.errors import UserError


class DivergenceError(UserError):
    """A loss, a gradient or a weight is not finite."""

    def __init__(self, what: str, step: int) -> None:
        super().__init__(
            f"Training diverged: {what} at update {step}. Nothing of it is saved. Lower --learning_rate or raise "
            "--warmup_steps, and continue with --resume_from_checkpoint last."
        )


class RunEvents(TrainerCallback):
    """What a `TranslationTrainer` does at the events of a run."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Let a resumed run follow its own options where the Trainer takes those of the checkpoint."""
        if self._trainer.resumed_from is not None:
            state.compute_steps(args, state.max_steps)
            self._trainer.follow_options()
            if self._trainer.identity.scores_began == len(state.log_history):
                # The best score so far does not compare with those that come.
                state.best_metric = None
                state.best_global_step = None
                state.best_model_checkpoint = None

    def on_epoch_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Tell the batch sampler the epoch before a resumed run skips batches.

        The Trainer does so afterwards, and does not reach the sampler when there are several processes.
        """
        batches = kwargs["train_dataloader"].batch_sampler
        while hasattr(batches, "batch_sampler"):
            batches = batches.batch_sampler
        sampler = getattr(batches, "sampler", None)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(int(state.epoch))

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Count the share of the run as the epoch of a stream, also in a run that is resumed."""
        if isinstance(self._trainer.train_dataset, TokenBudgetStream):
            state.epoch = state.global_step / state.max_steps

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Save a checkpoint at each new best evaluation, and stop after too many evaluations that are not better."""
        self._trainer.meter.restart_clock()
        name = f"eval_{args.metric_for_best_model}"
        score = kwargs["metrics"].get(name)
        if not args.load_best_model_at_end or score is None:
            return

        if _is_better(score, state.best_metric, args) and not self._trainer.has_forgotten:
            # Only what was saved can be loaded at the end.
            control.should_save = True
            return

        patience = args.early_stopping_patience
        if patience is not None and self._evaluations_since_best(name) >= patience:
            control.should_training_stop = True

    def _evaluations_since_best(self, name: str) -> int:
        """Return how many evaluations with a score `name` came after the best one, also before a run was resumed.

        A run that is resumed may evaluate its checkpoint again. That is one evaluation. Transformers'
        `EarlyStoppingCallback` counts two, and takes a checkpoint that lost too much on general texts for a better one.
        """
        best_update = self._trainer.state.best_global_step or 0
        updates = set()
        for entry in self._trainer.comparable_log:
            if name in entry and entry["step"] > best_update:
                updates.add(entry["step"])
        return len(updates)

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        """Leave the time of saving out of the speed."""
        self._trainer.meter.restart_clock()

    def on_log(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """End a run whose logged loss or gradient is not finite.

        The Trainer fetches these numbers from the device anyway. A GradScaler skips such gradients by itself.
        """
        has_scaler = getattr(self._trainer.accelerator, "scaler", None) is not None
        names = ("loss",) if has_scaler else ("loss", "grad_norm")
        for name in names:
            value = kwargs["logs"].get(name, 0.0)
            if not math.isfinite(value):
                raise DivergenceError(f"{name} is {value}", state.global_step)

    def on_push_begin(self, *args: Any, **kwargs: Any) -> None:
        """Write the model card, which goes to the Hub with the checkpoint."""
        self._trainer.create_model_card()


def _is_better(score: float, best: float | None, args: TrainingArguments) -> bool:
    """Return whether a score is better than the best one so far, as every score is where there is none."""
    if best is None:
        return True
    return score > best if args.greater_is_better else score < best


class NamedBars(ProgressCallback):
    """Progress bars that say what they count."""

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Name the bar of updates."""
        super().on_train_begin(args, state, control, **kwargs)
        if self.training_bar is not None:
            self.training_bar.set_description("Training")

    def on_prediction_step(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Name the bar of batches that are evaluated."""
        super().on_prediction_step(args, state, control, **kwargs)
        if self.prediction_bar is not None:
            self.prediction_bar.set_description("Evaluating", refresh=False)


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
        # None is a handler that Python did not set.
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _receive(self, *signal_and_frame: Any) -> None:
        self._received = True

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask all processes, which must save together, and stop if one received the signal."""
        received = self._received
        if args.world_size > 1:
            # Each question waits for the device.
            if state.global_step % 10:
                return
            flag = torch.tensor(int(received), device=args.device)
            torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
            received = bool(flag)

        if received:
            self.stopped = True
            control.should_save = True
            control.should_training_stop = True
            if args.save_strategy == SaveStrategy.BEST:
                # An evaluation would decide whether to save.
                control.should_evaluate = False

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Leave out what comes at the end of an epoch: the checkpoint is saved."""
        if self.stopped:
            control.should_save = False
            control.should_evaluate = False


class SourceCallback(TrainerCallback):
    """Lets a model's source go to the Hub with every checkpoint.

    By itself the Trainer sends only the files of a checkpoint that it knows, before training ends.
    """

    def on_push_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Write the source where the Trainer looks for it."""
        if state.is_world_process_zero:
            model = kwargs["model"]
            config = model.config
            if hasattr(model, "write_source"):
                config = model.write_source(Path(args.output_dir))
            config.save_pretrained(args.output_dir)
