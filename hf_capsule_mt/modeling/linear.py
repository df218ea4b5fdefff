"""Linear maps."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .differentiation import differentiable_once
from .initial_weights import init_unit_gain
from .onednn import is_faster_by_onednn, product


class LinearFunction(torch.autograd.Function):
    """inputs @ weight.t() + bias for inputs `[rows, in]`, with gradients, by [`product`]."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Map the rows.

        Args:
            ctx: keeps the inputs and the weight.
            inputs: `[rows, in]`.
            weight: `[out, in]`.
            bias: `[out]`, or None.

        Returns:
            `[rows, out]`.
        """
        ctx.save_for_backward(inputs, weight)
        outputs = product(inputs, weight)
        if bias is not None:
            outputs.add_(bias)
        return outputs

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients that are needed."""
        inputs, weight = ctx.saved_tensors
        needs_inputs, needs_weight, needs_bias = ctx.needs_input_grad
        grad_inputs = product(gradient, weight.t()) if needs_inputs else None
        grad_weight = product(gradient.t(), inputs.t()) if needs_weight else None
        grad_bias = gradient.sum(0) if needs_bias else None
        return grad_inputs, grad_weight, grad_bias


class Linear(nn.Linear):
    """[`torch.nn.Linear`] that uses [`product`] where that is faster."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Map `[..., in]` to `[..., out]`."""
        rows = inputs.reshape(-1, self.in_features)
        # A quantized or sharded weight has another class, and a product of its own.
        is_plain = type(self.weight) is nn.Parameter and not torch.is_autocast_enabled(inputs.device.type)
        if not is_plain or not is_faster_by_onednn(rows, self.weight):
            return super().forward(inputs)
        outputs = LinearFunction.apply(rows, self.weight, self.bias)
        return outputs.view(*inputs.shape[:-1], -1)


def use_products(module: nn.Module) -> None:
    """Turn every [`torch.nn.Linear`] in a module into a [`Linear`]."""
    for submodule in module.modules():
        if type(submodule) is nn.Linear:
            # A new module would draw random numbers again.
            submodule.__class__ = Linear


class UnitGainLinear(Linear):
    """A linear map whose outputs start as large as its inputs, because routing shrinks them."""

    def init_weights(self, std: float | None = None) -> None:
        """Draw the weights and zero the bias, unless they were loaded. `std` is for other maps."""
        init_unit_gain(self)


class GateLinear(Linear):
    """A linear map to the gates of a recurrent network, initialised as Transformers does for LSTMs."""

    def init_weights(self) -> None:
        """Draw the weights and zero the bias, unless they were loaded."""
        init.xavier_uniform_(self.weight)
        init.zeros_(self.bias)
