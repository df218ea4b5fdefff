"""The parts of a model's loss in a Trainer's logs, by name."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments

from hf_capsule_mt.decoding import only_listens

LOSS_TERMS = ("lm_loss", "bow_loss", "bca_loss", "rdrop_loss")


def log_loss_terms(trainer: Trainer) -> None:
    """Let `trainer` log the parts of its model's loss beside `loss`, where the loss has several.

    A Trainer keeps nothing of a model's output but the loss, so a forward hook listens to the model; and its loggers
    show what they are handed, so a callback before all of them adds the parts.
    """
    terms = _LossTerms(trainer)
    # add_callback would add it after the loggers.
    trainer.callback_handler.callbacks.insert(0, terms)


class _LossTerms(TrainerCallback):
    """Sums of the parts since the last log, as the Trainer keeps of the loss."""

    def __init__(self, trainer: Trainer) -> None:
        self._accelerator = trainer.accelerator
        self._sums: dict[str, Tensor] = {}
        self._logged_at = 0
        self._hook: RemovableHandle | None = None

    @only_listens
    def listen(self, model: nn.Module, inputs: tuple, outputs: Any) -> None:
        """Take the parts out of an output of the model, if it is training."""
        if not model.training or not isinstance(outputs, Mapping):
            return
        for name in LOSS_TERMS:
            if name in outputs:
                self._sums[name] = self._sums.get(name, 0) + outputs[name].detach()

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Begin to sum up, and to listen to the model, which may be another one than before."""
        self._sums, self._logged_at = {}, state.global_step
        if self._hook is not None:
            self._hook.remove()
        self._hook = kwargs["model"].register_forward_hook(self.listen)

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Leave the model, which would keep the Trainer and its optimizer, and could not be pickled."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def on_log(self, args: TrainingArguments, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Add the parts to the logs, each the mean over the updates since the last log."""
        logs: dict[str, float] = kwargs["logs"]
        updates = state.global_step - self._logged_at
        if "loss" not in logs or not updates:
            return
        sums, self._sums, self._logged_at = self._sums, {}, state.global_step
        if len(sums) < 2:
            return
        # A process's loss is divided by the number of words of all processes, or by its own.
        reduction = "sum" if args.average_tokens_across_devices else "mean"
        terms = {name: self._accelerator.reduce(total, reduction).item() / updates for name, total in sums.items()}
        logs.update(terms)
        # The Trainer has copied the logs into its history before.
        state.log_history[-1].update(terms)
