# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/finite_weights.py.
"""Weights that are numbers: neither NaN nor infinite."""

from collections.abc import Iterable

import torch

from .modeling_checkpoint_files import first_names


def check_finite(name: object, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Check that the `tensors` of `name`, a checkpoint or a file, hold neither NaN nor infinity.

    Raises:
        ValueError: if one does; the message has the names of the first.
    """
    broken = [tensor for tensor, values in tensors if not is_finite(values)]
    if broken:
        raise ValueError(
            f"the weights in {name} are not finite: {first_names(broken, 3)}; the training that made them diverged, "
            "or they are damaged: take an earlier checkpoint, or copy it again"
        )


def is_finite(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds neither NaN nor infinity."""
    # One on meta is sent by another process, which looks at it.
    if tensor.is_meta or not tensor.is_floating_point() or tensor.numel() == 0:
        return True
    # Extremes are not finite if anything is not; unlike `isfinite`, they make no copy.
    return bool(torch.stack(tensor.detach().aminmax()).isfinite().all())
