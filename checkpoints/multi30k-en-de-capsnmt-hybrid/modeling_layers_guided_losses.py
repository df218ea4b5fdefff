# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/layers/guided_losses.py.
"""Losses that teach PAST and FUTURE capsules (Zheng et al. 2019, section 3.3): the words and states before and after.

z_t has read y_<t and predicts y_t. PAST is what comes before y_t, FUTURE begins with it. Positions without a target
word neither add to a loss nor are in a bag or a mean.
"""

import torch
from torch import Tensor, nn

from .modeling_ops_bag_of_words import bag_of_words_loss, words_before, words_from, words_until
from .modeling_ops_losses import content_agreement_loss
from .modeling_ops_routing import compute_dtype
from .modeling_layers_guided_routing import GuidedCapsules
from .modeling_layers_linear import Linear


class GuidedLosses(nn.Module):
    """The bag-of-words loss and that of bilingual content agreement, those that have a weight.

    Args:
        width: of the decoder's states and of the embedding.
        capsules: how many there are, and how wide.
        bow_weight: of the bag-of-words loss.
        bca_weight: of the loss of bilingual content agreement.
    """

    def __init__(self, width: int, capsules: GuidedCapsules, bow_weight: float = 1.0, bca_weight: float = 1.0) -> None:
        super().__init__()
        past, future = capsules.past * capsules.dim, capsules.future * capsules.dim
        self.weights = {"bow_loss": bow_weight, "bca_loss": bca_weight}
        self.num_past = capsules.past
        if bow_weight:
            self.past_bow, self.future_bow = (Linear(size, width, bias=False) for size in (past, future))
        if bca_weight:
            self.past_bca, self.future_bca = (Linear(width, size, bias=False) for size in (past, future))

    def forward(
        self,
        states: Tensor,
        capsules: Tensor,
        labels: Tensor,
        embedding: Tensor,
        num_items_in_batch: Tensor | int | None = None,
    ) -> dict[str, Tensor]:
        """Compute the losses, by name, each the mean over the target words.

        Args:
            states: z `[B, T, width]`.
            capsules: PAST, then FUTURE, `[B, T, J, D]`.
            labels: target words `[B, T]`, -100 where there is none.
            embedding: of the output words, `[V, width]`.
            num_items_in_batch: what the sums are divided by, instead of the number of target words.
        """
        labels = labels.to(states.device)
        mask = labels != -100
        # Zero, not times zero: what a position without a word holds may be anything.
        capsules = capsules.masked_fill(~mask[..., None, None], 0.0)
        states = states.masked_fill(~mask[..., None], 0.0)
        past, future = (part.flatten(-2) for part in capsules.tensor_split([self.num_past], dim=2))
        items = mask.sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch, device=mask.device)
        sums = {}
        if self.weights["bow_loss"]:
            words = labels.masked_fill(~mask, 0)
            sums["bow_loss"] = self._bow(past, future, words, mask, embedding.to(states.device))
        if self.weights["bca_loss"]:
            sums["bca_loss"] = self._bca(past, future, states, mask)
        return {name: total / items for name, total in sums.items()}

    def _bow(self, past: Tensor, future: Tensor, words: Tensor, mask: Tensor, embedding: Tensor) -> Tensor:
        dtype = compute_dtype(past)
        before, after = words_before(mask, dtype), words_from(mask, dtype)
        # Together, the two bags have half as many products with the vocabulary to add up.
        queries = torch.cat([self.past_bow(past), self.future_bow(future)])
        return bag_of_words_loss(queries, embedding, words.repeat(2, 1), torch.cat([before, after]))

    def _bca(self, past: Tensor, future: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        dtype = compute_dtype(states)
        with torch.autocast(states.device.type, enabled=False):
            before, after = (shares(mask, dtype) @ states.to(dtype) for shares in (words_until, words_from))
        agreements = (past, self.past_bca, before), (future, self.future_bca, after)
        return sum(
            content_agreement_loss(capsules, mapped(contents.to(states.dtype)), mask)
            for capsules, mapped, contents in agreements
        )
