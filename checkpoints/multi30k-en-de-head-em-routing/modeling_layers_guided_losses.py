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

from .modeling_ops_bag_of_words import bag_of_words_loss, bag_of_words_loss_of_scores, shares
from .modeling_ops_losses import content_agreement_loss
from .modeling_ops_routing import compute_dtype
from .modeling_layers_guided_routing import GuidedCapsules
from .modeling_layers_linear import Linear


class GuidedLosses(nn.Module):
    """The bag-of-words loss and that of bilingual content agreement, unweighted.

    Args:
        width: of the decoder's states and of the embedding.
        capsules: how many there are, and how wide.
        bow_loss: whether there is the bag-of-words loss.
        bca_loss: whether there is that of bilingual content agreement.
    """

    def __init__(self, width: int, capsules: GuidedCapsules, bow_loss: bool = True, bca_loss: bool = True) -> None:
        super().__init__()
        past, future = capsules.past * capsules.dim, capsules.future * capsules.dim
        self.names = [name for name, there in (("bow_loss", bow_loss), ("bca_loss", bca_loss)) if there]
        self.num_past = capsules.past
        if bow_loss:
            self.past_bow, self.future_bow = (Linear(size, width, bias=False) for size in (past, future))
        if bca_loss:
            self.past_bca, self.future_bca = (Linear(width, size, bias=False) for size in (past, future))

    def forward(
        self,
        states: Tensor,
        capsules: Tensor,
        labels: Tensor,
        embedding: Tensor | nn.Module,
        num_items_in_batch: Tensor | int | None = None,
    ) -> dict[str, Tensor]:
        """Compute the losses, by name, each the mean over the target words.

        Args:
            states: z `[B, T, width]`.
            capsules: PAST, then FUTURE, `[B, T, J, D]`.
            labels: target words `[B, T]`, -100 where there is none.
            embedding: of the output words, `[V, width]`; or the projection that scores them, if it is more than that.
            num_items_in_batch: what the sums are divided by, instead of the number of target words.
        """
        labels = labels.to(states.device)
        mask = labels != -100
        # Zero, not times zero: what a position without a word holds may be anything.
        capsules = capsules.masked_fill(~mask[..., None, None], 0.0)
        states = states.masked_fill(~mask[..., None], 0.0)
        past, future = (part.flatten(-2) for part in capsules.tensor_split([self.num_past], dim=2))
        items = mask.sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch, device=mask.device)
        # Of every position with a word: the words before it, those and its own, its own and those after it.
        pairs, dtype = mask.unsqueeze(1) & mask.unsqueeze(2), compute_dtype(states)
        before, until, after = (shares(members, dtype) for members in (pairs.tril(-1), pairs.tril(), pairs.triu()))
        sums = {}
        if "bow_loss" in self.names:
            words = labels.masked_fill(~mask, 0)
            # Together, the two bags have half as many products with the vocabulary to add up.
            queries, bags = torch.cat([self.past_bow(past), self.future_bow(future)]), torch.cat([before, after])
            words = words.repeat(2, 1)
            if isinstance(embedding, Tensor):
                sums["bow_loss"] = bag_of_words_loss(queries, embedding.to(states.device), words, bags)
            else:
                sums["bow_loss"] = bag_of_words_loss_of_scores(embedding(queries).to(states.device), words, bags)
        if "bca_loss" in self.names:
            with torch.autocast(states.device.type, enabled=False):
                read, unread = (bag @ states.to(dtype) for bag in (until, after))
            agreements = (past, self.past_bca, read), (future, self.future_bca, unread)
            sums["bca_loss"] = sum(
                content_agreement_loss(part, mapped(content.to(states.dtype)), mask)
                for part, mapped, content in agreements
            )
        return {name: total / items for name, total in sums.items()}
