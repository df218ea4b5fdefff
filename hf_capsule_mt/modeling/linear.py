"""Linear maps, their initial weights, and matrix products by oneDNN where that is faster."""

import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .differentiation import differentiable_once

_SMALL_PRODUCT = 1 << 23
"""Multiplications below which a call of oneDNN costs more than it saves."""


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right.t() for `[rows, width]` and `[columns, width]`, without gradient."""
    if is_faster_by_onednn(left, right):
        return torch.ops.mkldnn._linear_pointwise(_dense(left), _dense(right), None, "none", [], "")
    return left @ right.t()


def _dense(matrix: Tensor) -> Tensor:
    """Return the matrix without gaps between rows or columns. With gaps oneDNN is a thousand times slower."""
    return matrix if matrix.is_contiguous() or matrix.t().is_contiguous() else matrix.contiguous()


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
    plain = left.dtype == right.dtype == torch.float32 and left.device.type == right.device.type == "cpu"
    large = left.numel() * right.shape[0] >= max(1, _SMALL_PRODUCT)
    return large and plain and has_onednn() and not _is_intel()


@cache
def has_onednn() -> bool:
    """Return whether the product of oneDNN that `torch.compile` calls works."""
    if not torch.backends.mkldnn.is_available() or not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        return False
    try:
        weight = torch.ops.mkldnn._reorder_linear_weight(torch.zeros(1, 1, dtype=torch.float32))
        torch.ops.mkldnn._linear_pointwise(torch.zeros(1, 1, dtype=torch.float32), weight, None, "none", [], "")
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return True


@cache
def _is_intel() -> bool:
    try:
        processor = Path("/proc/cpuinfo").read_text()
    except OSError:
        processor = platform.processor()
    return "GenuineIntel" in processor


class LinearFunction(torch.autograd.Function):
    """inputs @ weight.t() + bias for inputs `[rows, in]`, with gradients, by [`product`]."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Map the rows."""
        ctx.save_for_backward(inputs, weight)
        outputs = product(inputs, weight)
        return outputs if bias is None else outputs.add_(bias)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients that are needed."""
        inputs, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        of_inputs = product(gradient, weight.t()) if wanted[0] else None
        of_weight = product(gradient.t(), inputs.t()) if wanted[1] else None
        return of_inputs, of_weight, gradient.sum(0) if wanted[2] else None


class Linear(nn.Linear):
    """[`torch.nn.Linear`] that uses [`product`] where that is faster."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Map `[..., in]` to `[..., out]`."""
        rows = inputs.reshape(-1, self.in_features)
        autocast = torch.is_autocast_enabled(inputs.device.type)
        if autocast or type(self.weight) is not nn.Parameter or not is_faster_by_onednn(rows, self.weight):
            return super().forward(inputs)
        return LinearFunction.apply(rows, self.weight, self.bias).view(*inputs.shape[:-1], -1)


def use_products(module: nn.Module) -> None:
    """Turn every [`torch.nn.Linear`] in a module into a [`Linear`]."""
    for part in module.modules():
        if type(part) is nn.Linear:
            part.__class__ = Linear


def init_unit_gain(linear: nn.Linear) -> None:
    """Draw weights that keep the size of the inputs, and zero the bias, unless they were loaded."""
    init.normal_(linear.weight, mean=0.0, std=linear.in_features**-0.5)
    if linear.bias is not None:
        init.zeros_(linear.bias)


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


def init_words(words: nn.Embedding, width: int) -> None:
    """Draw embeddings that have unit variance after multiplication by sqrt(width), unless they were loaded."""
    init.normal_(words.weight, mean=0.0, std=width**-0.5)
    # A slice lacks the mark of loaded weights.
    if words.padding_idx is not None and not getattr(words.weight, "_is_hf_initialized", False):
        init.zeros_(words.weight[words.padding_idx])
