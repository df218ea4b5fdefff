# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/layers/linear.py.
"""Linear maps, their initial weights, and those of word embeddings."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import initialization as init

from .modeling_ops_products import is_faster_by_onednn, product


class LinearFunction(torch.autograd.Function):
    """inputs @ weight.t() + bias for inputs `[rows, in]`, with gradients, by [`product`]."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Map the rows."""
        ctx.save_for_backward(inputs, weight)
        outputs = product(inputs, weight)
        return outputs if bias is None else outputs.add_(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Compute what is wanted."""
        inputs, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        of_inputs = product(gradient, weight.t()) if wanted[0] else None
        of_weight = product(gradient.t(), inputs.t()) if wanted[1] else None
        return of_inputs, of_weight, gradient.sum(0) if wanted[2] else None


class Linear(nn.Linear):
    """[`torch.nn.Linear`], by [`product`] where that is faster."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Map `[..., in]` to `[..., out]`."""
        rows = inputs.reshape(-1, self.in_features)
        autocast = torch.is_autocast_enabled(inputs.device.type)
        if autocast or type(self.weight) is not nn.Parameter or not is_faster_by_onednn(rows, self.weight):
            return super().forward(inputs)
        return LinearFunction.apply(rows, self.weight, self.bias).view(*inputs.shape[:-1], -1)


def use_products(module: nn.Module) -> None:
    """Make every [`torch.nn.Linear`] in a module a [`Linear`], with its weights."""
    for part in module.modules():
        if type(part) is nn.Linear:
            part.__class__ = Linear


def init_unit_gain(linear: nn.Linear) -> None:
    """Draw weights whose outputs are as large as the inputs, and zero the bias, unless they were loaded."""
    init.normal_(linear.weight, mean=0.0, std=linear.in_features**-0.5)
    if linear.bias is not None:
        init.zeros_(linear.bias)


class UnitGainLinear(Linear):
    """A linear map whose outputs start as large as its inputs, for routing shrinks what it is given."""

    def init_weights(self, std: float | None = None) -> None:
        """Draw the weights and zero the bias, unless they were loaded; `std`, a model's own, is for other maps."""
        init_unit_gain(self)


class GateLinear(Linear):
    """Linear map of a vector to the gates of a recurrent network, initialised as Transformers does for LSTMs."""

    def init_weights(self) -> None:
        """Draw the weights and zero the bias, unless they were loaded."""
        init.xavier_uniform_(self.weight)
        init.zeros_(self.bias)


def init_words(words: nn.Embedding, width: int) -> None:
    """Draw words that have unit variance once they are multiplied by sqrt(width), unless they were loaded."""
    init.normal_(words.weight, mean=0.0, std=width**-0.5)
    # The slice does not carry the mark of what was loaded.
    if words.padding_idx is not None and not getattr(words.weight, "_is_hf_initialized", False):
        init.zeros_(words.weight[words.padding_idx])
