"""What routing, losses and recurrent states share: the dtype in which they are computed, and one derivative."""

from collections.abc import Callable
from functools import wraps
from typing import Any

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


def differentiable_once(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the backward pass of a [`torch.autograd.Function`] that cannot itself be differentiated.

    PyTorch's own `once_differentiable` does not see which tensors the forward pass saved. The second derivative of a
    model would then lack the terms of this function without a word. Here it is an error.

    These functions have no `setup_context`, so that `torch.func` refuses them. With it `torch.func.grad` would be
    right, but the gradient of a gradient would lack the same terms.

    Args:
        backward: a function of the context, and of the gradients of the outputs.

    Returns:
        A function of the same arguments, which raises RuntimeError if PyTorch would differentiate it.
    """

    @wraps(backward)
    def backward_once(ctx: Any, *gradients: Tensor) -> Any:
        # PyTorch records what a backward pass does only for `create_graph=True`.
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "The routing and the losses of hf-capsule-mt can be differentiated only once. Leave out "
                "create_graph=True."
            )
        with torch.no_grad():
            return backward(ctx, *gradients)

    return backward_once
