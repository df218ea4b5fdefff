"""Losses of PAST and FUTURE capsules (Zheng et al. 2019)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from .linear import Linear
from .losses import bag_of_words_loss, bag_of_words_loss_of_scores, content_agreement_loss, shares
from .numerics import compute_dtype

READ_BY_LOSSES = (r"^guided_losses\.",)
"""Names of weights that only losses read. A model without these losses lacks them."""


class GuidedLosses(nn.Module):
    """The bag-of-words loss and the bilingual content agreement loss, not yet weighted. One of weight 0 is left out."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        width = config.d_model
        self.num_past = config.num_past_capsules
        past = config.num_past_capsules * config.guided_capsule_dim
        future = config.num_future_capsules * config.guided_capsule_dim
        self.names = []
        if config.bow_loss_weight > 0:
            self.names.append("bow_loss")
        if config.bca_loss_weight > 0:
            self.names.append("bca_loss")
        if "bow_loss" in self.names:
            self.past_bow = Linear(past, width, bias=False)
            self.future_bow = Linear(future, width, bias=False)
        if "bca_loss" in self.names:
            self.past_bca = Linear(width, past, bias=False)
            self.future_bca = Linear(width, future, bias=False)

    def forward(
        self,
        states: Tensor,
        capsules: Tensor,
        labels: Tensor,
        embedding: Tensor | nn.Module,
        num_items_in_batch: Tensor | int | None = None,
    ) -> dict[str, Tensor]:
        """Compute the losses.

        Args:
            states: z, `[B, T, width]`.
            capsules: PAST, then FUTURE, `[B, T, J, D]`.
            labels: token ids `[B, T]`, -100 for padding.
            embedding: the output embedding `[V, width]`, or a projection that computes scores.
            num_items_in_batch: what the sums are divided by, the number of target tokens by default.

        Returns:
            The losses by name, of those in `names`.
        """
        labels = labels.to(states.device)
        mask = labels != -100
        # Padding may hold anything, even NaN.
        is_padding = ~mask
        capsules = capsules.masked_fill(is_padding[..., None, None], 0.0)
        states = states.masked_fill(is_padding[..., None], 0.0)
        past_capsules, future_capsules = capsules.tensor_split([self.num_past], dim=2)
        past = past_capsules.flatten(-2)
        future = future_capsules.flatten(-2)
        bags = _Bags.of(mask, compute_dtype(states))
        sums = {}
        if "bow_loss" in self.names:
            token_ids = labels.masked_fill(is_padding, 0)
            sums["bow_loss"] = self._bag_of_words(past, future, token_ids, bags, embedding)
        if "bca_loss" in self.names:
            sums["bca_loss"] = self._agreement(past, future, states, mask, bags)
        items = mask.sum()
        if num_items_in_batch is not None:
            items = torch.as_tensor(num_items_in_batch, device=mask.device)
        return {name: total / items for name, total in sums.items()}

    def _bag_of_words(
        self,
        past: Tensor,
        future: Tensor,
        token_ids: Tensor,
        bags: "_Bags",
        embedding: Tensor | nn.Module,
    ) -> Tensor:
        """PAST predicts the tokens before a position, and FUTURE those from it on."""
        # Both together need only one pass over the vocabulary.
        queries = torch.cat([self.past_bow(past), self.future_bow(future)])
        both_bags = torch.cat([bags.before, bags.after])
        token_ids = token_ids.repeat(2, 1)
        device = past.device
        if isinstance(embedding, Tensor):
            return bag_of_words_loss(queries, embedding.to(device), token_ids, both_bags)
        scores = embedding(queries).to(device)
        return bag_of_words_loss_of_scores(scores, token_ids, both_bags)

    def _agreement(
        self,
        past: Tensor,
        future: Tensor,
        states: Tensor,
        mask: Tensor,
        bags: "_Bags",
    ) -> Tensor:
        """PAST is near the mean state until a position, and FUTURE near that from it on."""
        with torch.autocast(states.device.type, enabled=False):
            translated = bags.until @ states.to(bags.until.dtype)
            untranslated = bags.after @ states.to(bags.after.dtype)
        past_content = self.past_bca(translated.to(states.dtype))
        past_loss = content_agreement_loss(past, past_content, mask)
        future_content = self.future_bca(untranslated.to(states.dtype))
        future_loss = content_agreement_loss(future, future_content, mask)
        return past_loss + future_loss


class _Bags(NamedTuple):
    """Shares of the tokens of a target in the bag of every position, `[B, T, T]` each.

    Attributes:
        before: of the tokens before the position.
        until: of these and its own.
        after: of its own and those after it.
    """

    before: Tensor
    until: Tensor
    after: Tensor

    @classmethod
    def of(cls, mask: Tensor, dtype: torch.dtype) -> "_Bags":
        """Return equal shares for the tokens of a mask `[B, T]`."""
        pairs = mask.unsqueeze(1) & mask.unsqueeze(2)
        before = shares(pairs.tril(-1), dtype)
        until = shares(pairs.tril(), dtype)
        after = shares(pairs.triu(), dtype)
        return cls(before, until, after)
