# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/decoding/rows.py.
"""Rows of beams, which change places, and join those of others, whose sources may be longer or shorter."""

import torch
from torch import Tensor
from torch.nn import functional as F


def together(first: Tensor, second: Tensor, source: int | None = None, words: int = 0) -> Tensor:
    """Return the rows of both, those of `second` last; the dimension `source`, if there is one, is made `words` long.

    What is missing is filled with zeros.
    """
    if source is not None:
        first, second = _resized(first, source, words), _resized(second, source, words)
    return torch.cat([first, second])


def masks_together(
    first: Tensor | None, second: Tensor | None, shapes: tuple[torch.Size, torch.Size]
) -> tuple[Tensor | None, int]:
    """Return the mask `[sentences, words]` of the rows of both, None if it hides nothing, and the words of the longest.

    Args:
        first: `[sentences, source]` bool, True where there is a word; None where there is one everywhere.
        second: likewise.
        shapes: sentences and source words of both.
    """
    words = max(shape[1] for shape in shapes)
    if first is None and second is None and shapes[0][1] == shapes[1][1]:
        return None, words
    device = (second if first is None else first).device if first is not None or second is not None else None
    masks = [
        torch.ones(shape, dtype=torch.bool, device=device) if mask is None else mask
        for mask, shape in zip((first, second), shapes)
    ]
    mask = together(*masks, source=1, words=words)
    words = int(mask.any(0).nonzero().max()) + 1
    mask = mask[:, :words]
    return None if bool(mask.all()) else mask, words


def moved_rows(tensor: Tensor, rows: Tensor, moved: Tensor) -> Tensor:
    """Put the rows that stand elsewhere now, `rows[moved]`, at the places `moved`; return the tensor."""
    if len(moved):
        tensor[moved] = tensor[rows[moved]]
    return tensor


def reordered(states: Tensor, parents: Tensor) -> Tensor:
    """Return the states `[sentences * beams, ...]` of the beams `parents` `[sentences, beams]` of every sentence."""
    sentences, beams = parents.shape
    starts = torch.arange(0, sentences * beams, beams, device=parents.device).unsqueeze(-1)
    return states.index_select(0, (parents + starts).flatten())


def _resized(tensor: Tensor, dimension: int, size: int) -> Tensor:
    if tensor.shape[dimension] == size:
        return tensor
    return F.pad(tensor, [0, 0] * (tensor.dim() - dimension - 1) + [0, size - tensor.shape[dimension]])
