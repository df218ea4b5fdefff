"""Products of a few rows with a weight that does not change, in the precision of an engine.

Inputs and outputs are float32 in every precision. So is everything that is not a product: embeddings, norms, attention,
routing and the sums of scores.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from ..modeling.linear import has_onednn, multiplies_bfloat16
from .int8 import int8_map

Map = Callable[[Tensor], Tensor]
"""`[rows, in]` -> `[rows, out]`."""
Make = Callable[[Tensor, Tensor | None], Map]
"""Returns the map of a weight `[in, out]` and a bias `[out]`, or None."""

_SMALL_WEIGHT = 1 << 17
_SMALL_PRODUCT = 1 << 19
"""Multiplications below which a call of oneDNN costs more than it saves."""


class Product:
    """A linear map. On an x86 CPU oneDNN multiplies by a rearranged weight, twice as fast as `linear` does.

    Args:
        weight: `[in, out]`.
        bias: `[out]`, if there is one.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.bias, self._packed = bias, None
        if weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16) and has_onednn():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.t().contiguous())
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

    Where products in bfloat16 are slow, it multiplies float32 numbers that are rounded to bfloat16.
    """
    dtype = torch.bfloat16 if multiplies_bfloat16(weight.device) else torch.float32
    product = Product(weight.bfloat16().to(dtype), None if bias is None else bias.bfloat16().to(dtype))
    return lambda inputs: product(inputs.bfloat16().to(dtype)).bfloat16().float()


PRECISIONS: dict[str, Make] = {
    "float32": Product,
    "bfloat16": bfloat16_map,
    # Float32 where the machine has no product in int8.
    "int8": lambda weight, bias=None: int8_map(weight, bias) or Product(weight, bias),
}
"""How products are made for an engine of a `dtype`."""


def check_precision(dtype: str) -> None:
    """Raise a ValueError if an engine has no such precision."""
    if dtype not in PRECISIONS:
        raise ValueError(f"dtype is {dtype!r}. It must be one of {', '.join(PRECISIONS)}.")


def precisions_on(device: torch.device) -> list[str]:
    """Return the precisions of engines on a device; none where there are no engines."""
    return [name for name in PRECISIONS if device.type == "cpu" or (device.type == "cuda" and name != "int8")]
