"""The dtypes in which routing and recurrent states are computed."""

import torch
from torch import Tensor


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype of routing: float64 for float64, float32 for all others."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def in_compute_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors in the dtype of routing for the first of them."""
    dtype = compute_dtype(tensors[0])
    return tuple(tensor.to(dtype) for tensor in tensors)


def in_full_precision(tensor: Tensor) -> Tensor:
    """Return the tensor in the dtype of routing, if autocast is on and may have lowered it."""
    if torch.is_autocast_enabled(tensor.device.type):
        return tensor.to(compute_dtype(tensor))
    return tensor


def in_autocast_dtype(tensor: Tensor) -> Tensor:
    """Return the tensor in the dtype of autocast, if that is on."""
    device = tensor.device.type
    if torch.is_autocast_enabled(device):
        return tensor.to(torch.get_autocast_dtype(device))
    return tensor
