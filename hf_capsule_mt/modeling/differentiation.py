"""What all hand-written backward passes share."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor


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
