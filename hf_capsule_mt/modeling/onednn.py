"""Matrix products by oneDNN, where that is faster."""

import platform
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

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
