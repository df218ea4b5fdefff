"""Callbacks of a Trainer: checkpoints by the clock, epochs of a stream, and what goes to the Hub with checkpoints."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_capsule_mt.files import replace_text
from hf_capsule_mt.modeling.weight_hashes import WEIGHTS_HASHES

from .weight_average import TRAINING_WEIGHTS


class SaveByTheClock(TrainerCallback):
    """Saves a checkpoint when a number of minutes has passed since training began or the last one was saved."""

    def __init__(self, minutes: float) -> None:
        self._seconds = 60 * minutes
        self._last = 0.0

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Begin to count."""
        self._last = time.monotonic()

    on_save = on_train_begin

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        """Ask for a checkpoint, if it is time."""
        is_time = [time.monotonic() - self._last >= self._seconds]
        # All processes save or none does: the first one's clock decides.
        if broadcast_object_list(is_time)[0]:
            control.should_save = True


class ShareOfRun(TrainerCallback):
    """Makes the epoch of a stream, which has none, its share of the run, also after it was resumed."""

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Count it from the first update."""
        state.epoch = state.global_step / state.max_steps


class SourceCallback(TrainerCallback):
    """Lets a model's source go to the Hub with every checkpoint that a Trainer sends there.

    By itself the Trainer sends, before training ends, only the files of a checkpoint that it knows.
    """

    def on_push_begin(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Write the source, and the hashes of the checkpoint's weights, where the Trainer will look."""
        if state.is_world_process_zero:
            kwargs["model"].config.save_pretrained(args.output_dir)
            hashes = Path(args.output_dir) / f"checkpoint-{state.global_step}" / WEIGHTS_HASHES
            if hashes.is_file():
                # Those that training goes on with stay here.
                lines = hashes.read_text().splitlines(keepends=True)
                sent = "".join(line for line in lines if not line.endswith(f"  {TRAINING_WEIGHTS}\n"))
                replace_text(Path(args.output_dir) / WEIGHTS_HASHES, sent)


class CardCallback(TrainerCallback):
    """Lets the model card go to the Hub with every checkpoint; the Trainer sends one at the end."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write

    def on_push_begin(self, *args: Any, **kwargs: Any) -> None:
        """Write the card."""
        self._write()
