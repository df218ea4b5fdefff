"""Counts what a run reads, and sums the parts of its loss, without a wait for the device."""

import time
from collections.abc import Mapping
from typing import Any

import torch
from accelerate import Accelerator

LOSS_TERMS = ("lm_loss", "bow_loss", "bca_loss", "rdrop_loss")
_IGNORED = -100


class RunMeter:
    """The tokens, pairs and losses of this process. Sums stay on the device until they are logged."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, update: int) -> None:
        """Count from the start of a run, or from the `update` that it continues from."""
        self._pairs = 0
        self._begin_entry(update)

    def _begin_entry(self, update: int) -> None:
        """Count for the next entry of the log, which has the mean of the updates after `update`."""
        self._logged_at = update
        self._losses: dict[str, torch.Tensor] = {}
        self.restart_clock()

    def restart_clock(self) -> None:
        """Start to measure the speed. Evaluation and saving do not count."""
        self._tokens: torch.Tensor | int = 0
        self._started = time.monotonic()

    def add_batch(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Count a batch: `input_ids` `[pairs, source]`, `labels` `[pairs, target]`, perhaps `attention_mask`."""
        labels = inputs["labels"]
        mask = inputs.get("attention_mask")
        source_tokens = inputs["input_ids"].numel() if mask is None else mask.sum()
        self._tokens = self._tokens + source_tokens + labels.ne(_IGNORED).sum()
        self._pairs += labels.shape[0]

    def add_losses(self, outputs: Mapping[str, Any]) -> None:
        """Add the parts of a batch's loss that a model returns."""
        for name in LOSS_TERMS:
            if name not in outputs:
                continue
            loss = outputs[name].detach()
            if name in self._losses:
                # A new tensor: the first sum is the model's own output.
                loss = self._losses[name] + loss
            self._losses[name] = loss

    def entry(self, update: int, accelerator: Accelerator, loss_reduction: str) -> dict[str, float]:
        """Return the mean losses, if there are several, and the speed since the last entry, and begin a new one.

        Args:
            update: the update after which this is logged.
            accelerator: sums over processes.
            loss_reduction: "sum" if each process divides its loss by the tokens of all processes, else "mean".

        Returns:
            Nothing if there was no update since the last entry.
        """
        updates = update - self._logged_at
        if updates == 0:
            return {}

        logged = {}
        if len(self._losses) > 1:
            for name, total in self._losses.items():
                logged[name] = accelerator.reduce(total, loss_reduction).item() / updates
        seconds = time.monotonic() - self._started
        logged["tokens_per_second"] = round(int(self._tokens) * accelerator.num_processes / seconds)

        self._begin_entry(update)
        return logged

    def pairs_per_second(self, seconds: float, accelerator: Accelerator) -> float:
        """Return the pairs of all processes a second, in the `seconds` since the start of the run."""
        pairs = torch.tensor(self._pairs, device=accelerator.device)
        return round(accelerator.reduce(pairs, "sum").item() / seconds, 3)
