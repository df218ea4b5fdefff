"""Losses of the models."""

import torch
from torch import Tensor
from torch.nn import functional as F


def label_smoothed_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    label_smoothing: float = 0.0,
    num_items_in_batch: Tensor | int | None = None,
) -> Tensor:
    """Cross entropy of target words, in nats, with label smoothing (Szegedy et al. 2016).

    Args:
        logits: `[batch, length, vocabulary]`; computed in float32.
        labels: `[batch, length]`; positions with -100 do not count.
        label_smoothing: the mass spread evenly over the vocabulary.
        num_items_in_batch: what the sum is divided by, instead of the number of real labels: the Trainer's count over
            all accumulation steps and processes.
    """
    labels = labels.to(logits.device)
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss = F.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), label_smoothing=label_smoothing, reduction=reduction
    )
    if num_items_in_batch is None:
        return loss
    return loss / torch.as_tensor(num_items_in_batch, device=loss.device)
