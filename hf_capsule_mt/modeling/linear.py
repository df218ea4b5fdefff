"""Linear maps, and the matrix products in them, by oneDNN where that is faster."""

import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .initial_weights import init_unit_gain
from .numerics import differentiable_once

_SMALL_PRODUCT = 1 << 23
"""Multiplications below which a call of oneDNN costs more than it saves."""


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right.t() for `[rows, width]` and `[columns, width]`, without gradient."""
    if is_faster_by_onednn(left, right):
        return _onednn_product(_dense(left), _dense(right))
    return left @ right.t()


def _onednn_product(left: Tensor, right: Tensor) -> Tensor:
    """Call oneDNN. Only `torch.compile` does that by a public name, so `has_onednn` tries this private one first."""
    return torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")


def _dense(matrix: Tensor) -> Tensor:
    """Return the matrix without gaps between rows or columns. With gaps oneDNN is a thousand times slower."""
    if matrix.is_contiguous() or matrix.t().is_contiguous():
        return matrix
    return matrix.contiguous()


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right.t() to `total`, which may be of a higher precision."""
    if total.dtype == left.dtype and not is_faster_by_onednn(left, right):
        total.addmm_(left, right.t())
    else:
        total += product(left, right)


def is_faster_by_onednn(left: Tensor, right: Tensor) -> bool:
    """Return whether [`product`] uses oneDNN: for large float32 matrices on a CPU other than Intel's, not compiled."""
    if torch.compiler.is_compiling():
        return False
    if left.dtype != torch.float32 or right.dtype != torch.float32:
        return False
    if left.device.type != "cpu" or right.device.type != "cpu":
        return False
    multiplications = left.numel() * right.shape[0]
    return multiplications >= max(1, _SMALL_PRODUCT) and has_onednn() and not _is_intel()


@cache
def has_onednn() -> bool:
    """Return whether the product of oneDNN that `torch.compile` calls works."""
    if not torch.backends.mkldnn.is_available() or not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        return False
    try:
        # The decoder engine reorders weights, by another private name.
        weight = torch.ops.mkldnn._reorder_linear_weight(torch.zeros(1, 1, dtype=torch.float32))
        _onednn_product(torch.zeros(1, 1, dtype=torch.float32), weight)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return True


@cache
def _is_intel() -> bool:
    """Return whether MKL is at its fastest here."""
    try:
        processor = Path("/proc/cpuinfo").read_text()
    except OSError:
        processor = platform.processor()
    return "GenuineIntel" in processor


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
