"""The loss of a translation model, and what it is made of."""

from torch import Tensor

from .losses import label_smoothed_cross_entropy
from .outputs import RoutedSeq2SeqModelOutput


class TranslationLosses:
    """For a model with a language model head and, if routing is guided, [`GuidedLosses`] as `guided_losses`."""

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
