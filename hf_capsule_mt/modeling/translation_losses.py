"""The output of a translation model: its loss, what that is made of, and what else there is."""

from torch import Tensor

from .ops.cross_entropy import label_smoothed_cross_entropy
from .outputs import RoutedSeq2SeqLMOutput, RoutedSeq2SeqModelOutput

_INNER = ("last_hidden_state", "guided_states", "guided_capsules")


class TranslationLosses:
    """For a model with a language model head and, if routing is guided, [`GuidedLosses`] as `guided_losses`."""

    def _with_losses(
        self,
        logits: Tensor,
        outputs: RoutedSeq2SeqModelOutput,
        labels: Tensor | None,
        num_items_in_batch: Tensor | int | None,
    ) -> RoutedSeq2SeqLMOutput:
        """The output of the model, without what only the losses read; with labels, with the loss and its parts."""
        losses = {} if labels is None else self._losses(logits, outputs, labels, num_items_in_batch)
        others = {name: value for name, value in outputs.items() if name not in _INNER}
        return RoutedSeq2SeqLMOutput(logits=logits, **losses, **others)

    def _losses(
        self,
        logits: Tensor,
        outputs: RoutedSeq2SeqModelOutput,
        labels: Tensor,
        num_items_in_batch: Tensor | int | None,
    ) -> dict[str, Tensor]:
        """The loss and its parts."""
        loss = label_smoothed_cross_entropy(logits, labels, self.config.label_smoothing, num_items_in_batch)
        losses = {"loss": loss, "lm_loss": loss}
        if self.guided_losses is None:
            return losses
        states, capsules = outputs.guided_states, outputs.guided_capsules
        parts = self.guided_losses(states, capsules, labels, self.lm_head.weight, num_items_in_batch)
        weighted = [self.guided_losses.weights[name] * part for name, part in parts.items()]
        return {**losses, **parts, "loss": sum(weighted, start=loss)}
