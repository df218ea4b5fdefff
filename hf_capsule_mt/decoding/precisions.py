"""Products of a few rows with a weight that does not change, in the precision that an engine is made in.

Inputs and outputs are float32 in every precision, and so is all that is no product: embeddings, norms, attention,
routing and the sums of scores.

On an x86 CPU oneDNN multiplies by weights that it has rearranged beforehand, in float32, more than twice as fast as
`linear` does. Its entry points are those that `torch.compile` calls; where they are not to be had, it is `addmm`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..modeling.linear import multiplies_bfloat16
from .int8 import int8_map

Map = Callable[[Tensor], Tensor]
"""`[rows, in]` -> `[rows, out]`."""
Make = Callable[[Tensor, Tensor | None], Map]
"""Returns the map of a weight `[in, out]` and a bias `[out]`, or None."""

_SMALL_WEIGHT = 1 << 17
_SMALL_PRODUCT = 1 << 19
"""Multiplications below which a call of oneDNN costs more than it saves."""


class Product:
    """A linear map.

    Args:
        weight: `[in, out]`.
        bias: `[out]`, if there is one.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.bias = bias
        self._packed = _packed(weight)
        small = weight.numel() < _SMALL_WEIGHT
        # For a few rows it is faster in this order.
        self._plain = weight.contiguous() if self._packed is None or small else None
        self._fewest = _SMALL_PRODUCT // weight.numel() if small else 0

    def __call__(self, inputs: Tensor) -> Tensor:
        """Map `[rows, in]` to `[rows, out]`."""
        if self._packed is not None and inputs.shape[0] > self._fewest:
            return torch.ops.mkldnn._linear_pointwise(inputs, self._packed, self.bias, "none", [], "")
        return inputs @ self._plain if self.bias is None else torch.addmm(self.bias, inputs, self._plain)


def bfloat16_map(weight: Tensor, bias: Tensor | None = None) -> Map:
    """Return a linear map of a weight `[in, out]` in bfloat16, of float32 to float32.

    Where products in bfloat16 are slow, it is one in float32 of numbers that are rounded to bfloat16.
    """
    dtype = torch.bfloat16 if multiplies_bfloat16(weight.device) else torch.float32
    product = Product(weight.bfloat16().to(dtype), None if bias is None else bias.bfloat16().to(dtype))
    return lambda inputs: product(inputs.bfloat16().to(dtype)).bfloat16().float()


def int8_or_float32_map(weight: Tensor, bias: Tensor | None = None) -> Map:
    """Return a linear map of a weight `[in, out]` in int8, or in float32 where the machine has no product in int8."""
    return int8_map(weight, bias) or Product(weight, bias)


PRECISIONS: dict[str, Make] = {"float32": Product, "bfloat16": bfloat16_map, "int8": int8_or_float32_map}
"""How products are made for an engine of a `dtype`."""


def check_precision(dtype: str) -> None:
    """Raise a ValueError if an engine has no such precision."""
    if dtype not in PRECISIONS:
        raise ValueError(f"dtype is {dtype!r}; it must be one of {', '.join(PRECISIONS)}")


def precisions_on(device: torch.device) -> list[str]:
    """Return the precisions of engines on a device; none where there are no engines."""
    return [name for name in PRECISIONS if device.type == "cpu" or (device.type == "cuda" and name != "int8")]


def _packed(weight: Tensor) -> Tensor | None:
    """The weight as oneDNN wants it; None where it cannot be had."""
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        return None
    if not torch.backends.mkldnn.is_available() or not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        return None
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.t().contiguous())
        torch.ops.mkldnn._linear_pointwise(weight.new_zeros(1, weight.shape[0]), packed, None, "none", [], "")
    except (AttributeError, RuntimeError, NotImplementedError):
        return None
    return packed
