"""The end of a training run that is asked to end by SIGTERM, as clusters ask before they kill."""

import signal
import threading
from types import FrameType
from typing import Any

from accelerate import Accelerator
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import SaveStrategy

STATUS = 128 + signal.SIGTERM
"""Exit status of a run that was stopped so."""


class StopOnSigterm(TrainerCallback):
    """Within its block, lets a run save a checkpoint after the update in which SIGTERM came, and end there.

    With several processes, all end after the same update, whichever of them received the signal.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self.stopped = False
        """Whether the run has ended so."""
        self._accelerator = accelerator
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

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for a checkpoint and the end, if a process has received the signal."""
        if self._asked(args):
            self.stopped = True
            control.should_save = control.should_training_stop = True
            if args.save_strategy == SaveStrategy.BEST:
                # An evaluation would decide whether to save.
                control.should_evaluate = False

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Leave out what comes at the end of an epoch, if this one was broken off; else save its evaluation too."""
        if self.stopped and state.epoch % 1:
            control.should_save = control.should_evaluate = False
        elif self.stopped:
            control.should_save |= control.should_evaluate

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._received = True

    def _asked(self, args: TrainingArguments) -> bool:
        if args.world_size == 1:
            return self._received
        if self._received:
            self._accelerator.set_trigger()
        return self._accelerator.check_trigger()
