# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/layers/conditional_gru.py.
"""A conditional GRU with additive attention (Bahdanau et al. 2015; the two steps a word are those of dl4mt)."""

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from .modeling_ops_routing import compute_dtype, in_full_precision
from .modeling_ops_scan import Tensors, scan_words
from .modeling_layers_linear import GateLinear, UnitGainLinear


class GRUStep(nn.Module):
    """One step of [`torch.nn.GRUCell`], given what its gates get of the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_hidden = GateLinear(width, 3 * width)

    def forward(self, from_inputs: Tensor, hidden: Tensor) -> Tensor:
        """The state `[batch, width]` after `hidden`; `from_inputs` is `[batch, 3 * width]`."""
        # In bfloat16 a gate that keeps all but a little keeps all.
        from_inputs, hidden = in_full_precision(from_inputs), in_full_precision(hidden)
        reset, keep, candidate = from_inputs.chunk(3, dim=-1)
        reset_by_hidden, keep_by_hidden, candidate_by_hidden = self.from_hidden(hidden).chunk(3, dim=-1)
        keep = (keep + keep_by_hidden).sigmoid()
        candidate = (candidate + (reset + reset_by_hidden).sigmoid() * candidate_by_hidden).tanh()
        return keep * hidden + (1 - keep) * candidate


class AdditiveAttention(nn.Module):
    """A mean of values, weighted by softmax(v . tanh(W q + k_s)) of a query and the keys (Bahdanau et al. 2015)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = UnitGainLinear(width, width, bias=False)
        self.score = nn.Parameter(torch.empty(width))

    def init_weights(self) -> None:
        """Draw v with unit gain, unless it was loaded."""
        init.normal_(self.score, mean=0.0, std=self.score.shape[0] ** -0.5)

    def forward(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Attend.

        Args:
            query: `[batch, d]`.
            keys: `[batch, source, d]`.
            values: `[batch, source, d]`.
            mask: `[batch, source]` bool, True where there is a word; None for everywhere.

        Returns:
            The mean `[batch, d]`, zero for a sentence without words, and the weights `[batch, source]`.
        """
        scores = (self.query(query).unsqueeze(1) + keys).tanh() @ self.score
        scores = scores.to(compute_dtype(scores))
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1)
        if mask is not None:
            # Without a word, softmax would spread over the padding.
            weights = weights.masked_fill(~mask, 0.0)
        weights = weights.to(values.dtype)
        return (weights.unsqueeze(1) @ values).squeeze(1), weights


class ConditionalGRUStep(GradientCheckpointingLayer):
    """One word: s' = GRU_1(u, s); a = attention(s', h); the next state is GRU_2(a, s').

    Args:
        width: d, of words, states, keys and values.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = GRUStep(width)
        self.attention = AdditiveAttention(width)
        self.from_context = GateLinear(width, 3 * width)
        self.second = GRUStep(width)

    def forward(
        self, from_word: Tensor, state: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, real: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read a word.

        Args:
            from_word: what the gates of GRU_1 get of it, `[batch, 3 * d]`.
            state: `[batch, d]`, before it.
            keys: as in [`AdditiveAttention.forward`], with `values` and `mask`.
            values: see `keys`.
            mask: see `keys`.
            real: `[batch]` bool, False where padding is read, which leaves the state as it is; None for nowhere.

        Returns:
            The state after it, what was attended to `[batch, d]`, and the weights `[batch, source]`.
        """
        between = self.first(from_word, state)
        context, weights = self.attention(between, keys, values, mask)
        after = self.second(self.from_context(context), between)
        if real is not None:
            after = torch.where(real.unsqueeze(-1), after, state)
        return after, context, weights


class ConditionalGRU(nn.Module):
    """The words of a target, one after the other: what is attended to depends on the state, so nothing can be fused.

    Args:
        width: d, of words, states, keys and values.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.from_words = GateLinear(width, 3 * width)
        self.step = ConditionalGRUStep(width)

    def forward(
        self,
        words: Tensor,
        state: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        real: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read words `[batch, target, d]`.

        Args:
            words: what is read.
            state: `[batch, d]`, before the first.
            keys: as in [`AdditiveAttention.forward`], with `values` and `mask`.
            values: see `keys`.
            mask: see `keys`.
            real: `[batch, target]` bool, True where there is a word; everywhere by default.

        Returns:
            The states after each word and what was attended to `[batch, target, d]`, and the weights `[batch, 1,
            target, source]`, as of one head. After the last word, whatever padding follows, the state stays.
        """
        read = (self.from_words(words), *(() if real is None else (real,)))
        source = (keys, values, *(() if mask is None else (mask,)))
        _, (states, contexts, weights) = scan_words(self.step, self._read_word, (state,), read, source)
        return states, contexts, weights.unsqueeze(1)

    def _read_word(self, states: Tensors, word: Tensors, source: Tensors) -> tuple[Tensors, Tensors]:
        (from_word, *real), (keys, values, *mask) = word, source
        outputs = self.step(from_word, *states, keys, values, *(mask or [None]), *(real or [None]))
        return outputs[:1], outputs
