"""Losses of target words and of capsules; bag_of_words.py has that of bags."""

import torch
from torch import Tensor
from torch.nn import functional as F

from .routing import in_compute_dtype


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


def content_agreement_loss(capsules: Tensor, contents: Tensor, mask: Tensor) -> Tensor:
    """The sum over all positions of the mean squared error between capsules and contents.

    Args:
        capsules: `[B, T, d]`.
        contents: targets of the capsules, `[B, T, d]`.
        mask: `[B, T]`, True where there is a target word.
    """
    capsules, contents = in_compute_dtype(capsules, contents)
    return (capsules - contents).square().mean(-1).masked_fill(~mask, 0.0).sum()
