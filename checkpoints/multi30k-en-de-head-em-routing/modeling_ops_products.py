# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/ops/products.py.
"""Products of matrices, by oneDNN where torch's own choice on an x86 CPU is slower.

In float32 torch multiplies by MKL, which leaves half of what an AMD CPU can do unused; on Intel's it is the faster one.
The entry point of oneDNN is the one that `torch.compile` calls; where it is not to be had, it is `@`.
"""

import os
import platform
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

# oneDNN, and torch's side of it (ideep), keep a program of up to a megabyte for each of the last 1,024 shapes: texts
# of all lengths fill gigabytes. Both read their limit at their first product, also of those in bfloat16.
for _limit in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_limit, "128")

_SMALL_PRODUCT = 1 << 23
"""Multiplications below which a call of oneDNN costs more than it saves."""


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return left @ right.t() for `[rows, width]` and `[columns, width]`, without gradient."""
    if is_faster_by_onednn(left, right):
        return torch.ops.mkldnn._linear_pointwise(_dense(left), _dense(right), None, "none", [], "")
    return left @ right.t()


def _dense(matrix: Tensor) -> Tensor:
    """The matrix with nothing between its rows or its columns, where oneDNN is a thousand times slower."""
    return matrix if matrix.is_contiguous() or matrix.t().is_contiguous() else matrix.contiguous()


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right.t() to `total`, which may be of a higher precision."""
    if total.dtype == left.dtype and not is_faster_by_onednn(left, right):
        total.addmm_(left, right.t())
    else:
        total += product(left, right)


def is_faster_by_onednn(left: Tensor, right: Tensor) -> bool:
    """Return whether [`product`] goes another way than `@`.

    With large matrices of float32 on a CPU that is not Intel's, not compiled.
    """
    if torch.compiler.is_compiling():
        return False
    plain = left.dtype == right.dtype == torch.float32 and left.device.type == right.device.type == "cpu"
    large = left.numel() * right.shape[0] >= max(1, _SMALL_PRODUCT)
    return large and plain and _has_onednn() and not _is_intel()


def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether the device has fast products in bfloat16: on a CPU without, one takes tens of times as long.

    CPUs that oneDNN has such products for have them, on x86 those with AVX512.
    """
    return device.type != "cpu" or _cpu_multiplies_bfloat16()


@cache
def _cpu_multiplies_bfloat16() -> bool:
    try:
        return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    except AttributeError:
        return False


@cache
def _has_onednn() -> bool:
    if not torch.backends.mkldnn.is_available() or not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        return False
    try:
        torch.ops.mkldnn._linear_pointwise(torch.zeros(1, 1), torch.zeros(1, 1), None, "none", [], "")
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
