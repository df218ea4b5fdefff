# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/ops/float32_attention.py.
"""Attention in float32 where a CPU autocasts all else."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode


def float32_attention(device: torch.device) -> AbstractContextManager:
    """Compute `scaled_dot_product_attention` in float32 meanwhile, if this device is a CPU that autocasts.

    Without AMX its backward pass takes several times as long in bfloat16.
    """
    if device.type != "cpu" or torch.compiler.is_compiling() or not torch.is_autocast_enabled("cpu"):
        return nullcontext()
    return _Float32Attention()


class _Float32Attention(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not scaled_dot_product_attention:
            return func(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            return func(*map(_to_float32, args), **{name: _to_float32(value) for name, value in kwargs.items()})


def _to_float32(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
