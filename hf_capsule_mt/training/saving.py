"""How a `TranslationTrainer` saves: whole checkpoints of finite weights, averages if there are any, and a card."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import Seq2SeqTrainer

from hf_capsule_mt.data.streaming import state_file
from hf_capsule_mt.files import replace_text
from hf_capsule_mt.modeling.portable_model import allow_readers

from .callbacks import DivergenceError
from .checkpoint_folders import TRAINER_STATE, step_of
from .model_preparation import all_finite
from .moving_average import WeightAverage
from .run_recorder import RunRecorder


class SavingTrainer(Seq2SeqTrainer):
    """The part of a `TranslationTrainer` that saves."""

    recorder: RunRecorder | None
    """Writes the card. Without one it is the Trainer's own."""
    _average: WeightAverage | None
    _stream_state: str | None
    """Where a stream is behind the last batch."""

    def save_model(self, output_dir: str | None = None, *args: Any, **kwargs: Any) -> None:
        """Save the model as the Trainer does, unless its weights are not finite."""
        folder = Path(output_dir or self.args.output_dir)
        is_checkpoint = step_of(folder) is not None
        if hasattr(self.optimizer, "eval"):
            # Schedule-free optimizers put the weights to use into the model.
            self.optimizer.eval()
        if is_checkpoint and self.args.should_save:
            # The state is saved last. With it a checkpoint is complete.
            (folder / TRAINER_STATE).unlink(missing_ok=True)
        with self._averages_in_model():
            self._check_finite()
            super().save_model(output_dir, *args, **kwargs)
        if self.args.should_save:
            # Models of Transformers and adapters leave them to their owner.
            allow_readers(folder.glob("*model*.safetensors"))
        if is_checkpoint and self._average is not None and self.args.should_save:
            self._average.save_training_weights(folder)
        if is_checkpoint and self._stream_state is not None:
            folder.mkdir(parents=True, exist_ok=True)
            replace_text(state_file(folder, self.args.process_index), self._stream_state)

    def save_without_push(self) -> None:
        """Save the model in the output folder, and leave the Hub alone."""
        pushes = self.args.push_to_hub
        self.args.push_to_hub = False
        try:
            self.save_model()
        finally:
            self.args.push_to_hub = pushes

    def _averages_in_model(self) -> Any:
        """Return a block in which the model has the averages of its weights, if it has any."""
        return nullcontext() if self._average is None else self._average.in_model()

    def _check_finite(self) -> None:
        """Raise an error on every process if a weight, or a part of one, is not finite on some process."""
        is_finite = all_finite(self.model, self.args.device)
        if self.args.world_size > 1:
            is_finite = self.accelerator.gather(is_finite.int()).all()
        if not is_finite:
            raise DivergenceError("a weight is not finite", self.state.global_step)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        # The Trainer would warn of tied weights, which are saved once, and of sinusoids, which are not saved. It has no
        # public method for that.
        unsaved = set(getattr(self.model, "all_tied_weights_keys", None) or ())
        unsaved.update(self.model._keys_to_ignore_on_save or ())
        if load_result.unexpected_keys or set(load_result.missing_keys) - unsaved:
            super()._issue_warnings_after_load(load_result)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, torch.Tensor] | None = None) -> None:
        # The only method that gets what FSDP gathers: tied weights under each of their names.
        if state_dict is not None:
            tied = self.model.all_tied_weights_keys
            state_dict = {name: weight for name, weight in state_dict.items() if name not in tied}
        super()._save(output_dir, state_dict)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write `README.md` into the output folder."""
        if self.recorder is None:
            super().create_model_card(*args, **kwargs)
        elif self.is_world_process_zero():
            self.recorder.model_card(self).save(Path(self.args.output_dir) / "README.md")


@contextmanager
def explained_full_disk(folder: str) -> Iterator[None]:
    """Raise an OSError that names the folder if PyTorch cannot write a file there."""
    try:
        yield
    except RuntimeError as error:
        if "inline_container" not in str(error):
            raise
        # PyTorch only says that a position is unexpected.
        raise OSError(f"{folder} cannot be written. Its disk is full.") from error
