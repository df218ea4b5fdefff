"""Products in int8: weights of integers, how this CPU multiplies them fastest, and how another process did."""

import logging
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from hf_capsule_mt.errors import UserError

logger = logging.getLogger(__name__)

Map = Callable[[Tensor], Tensor]
"""`[rows, in]` -> `[rows, out]`."""

SMALL_WEIGHT = 1 << 17
"""Numbers of a weight that is kept twice, because that costs little memory."""
_FLOAT32_ROWS = 8
"""Rows up to which a small weight may be multiplied in float32, although others are in int8."""
_CHEAP_PRODUCT = 1 << 18
"""Multiplications above which int8 is faster, although it has to find the scale of its input."""
_LARGEST = 127
"""The largest number that a weight becomes in int8. The smallest is -127."""
_FEW = 4
"""Rows for which int8 is timed for few."""
_MANY = 128
"""Rows for which it is timed for many."""
_LIMIT = 24
"""Where many rows begin."""
_NARROW = 512
"""Outputs for which int8 is timed for narrow weights."""
_WIDE = 16384
"""Outputs for which it is timed for wide weights."""
_WIDTH = 4096
"""Where wide weights begin. Only vocabularies are so wide."""
_FLOAT32 = "float32"
"""The backend where there is no product in int8."""
_BY_ROWS = "qlinear"
"""The backend where PyTorch has no quantized tensors: [`RowProduct`]."""
_SMALLEST_SCALE = torch.finfo(torch.float32).tiny
_SMALLEST_ROW = 1e-30
"""A row is scaled as if it had a number so large. The inverse of a much smaller one is infinite."""
_SCALED_NUMBERS = 1 << 18
"""Products that are scaled while a core's cache holds them."""
_OTHER_CPU = "Continue on a CPU and with a PyTorch like those before, or start again with another output."
_PACKING = RLock()
"""Held while weights are packed. PyTorch's backend and the filters of warnings belong to the whole process."""


def _renew_lock() -> None:
    global _PACKING
    _PACKING = RLock()


# The thread that holds the lock does not exist in a forked process, so nobody would ever release it there.
# Windows has no fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class Int8Product:
    """A linear map in int8: weights with one scale a row, activations with one scale a call, sums in int32.

    Activations are asymmetric uint8. The bias is float32. Only integers are kept of the weight, and they are packed
    when they are first multiplied: the layers of an encoder hardly ever get few rows, and those of a decoder often get
    no others. A small weight is also kept in float32, for products that take less time than finding a scale.

    Args:
        weight: `[in, out]`.
        bias: `[out]`, or None.
        choice: the backends, and what activations become.
        in_float32: the same map in float32, if [`Int8Choice.rows_in_float32`] says that it is needed.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, choice: "Int8Choice", in_float32: Map | None = None
    ) -> None:
        self._outputs = weight.shape[1]
        is_wide = self._outputs >= _WIDTH
        self._backend_for_few = choice.backend(is_wide, many=False)
        self._backend_for_many = choice.backend(is_wide, many=True)
        self._reduces_range = choice.reduces_range
        self._most_float32_rows = choice.rows_in_float32(weight)
        self._in_float32 = in_float32
        self._unpacked: tuple[Tensor, Tensor | None] | None = (_quantized_tensor(weight.t()), bias)
        self._packed: dict[str, Any] = {}

    def __call__(self, inputs: Tensor) -> Tensor:
        """Map `[rows, in]` to `[rows, out]`."""
        if inputs.shape[0] <= self._most_float32_rows:
            return self._in_float32(inputs)
        backend = self._backend_for_few if inputs.shape[0] < _LIMIT else self._backend_for_many
        packed = self._packed.get(backend)
        if packed is None:
            packed = self._pack(backend)
        try:
            return torch.ops.quantized.linear_dynamic(inputs, packed, self._reduces_range)
        except RuntimeError:
            if inputs.isfinite().all():
                raise
            # Values that are not finite have no range, and the engine refuses them at the end.
            return inputs.new_full((inputs.shape[0], self._outputs), torch.nan)

    def _pack(self, backend: str) -> Any:
        with _PACKING:
            # Another thread may have packed it in the meantime.
            if backend not in self._packed:
                if self._unpacked is None:
                    other = next(iter(self._packed.values()))
                    self._packed[backend] = _pack(*torch.ops.quantized.linear_unpack(other), backend)
                else:
                    self._packed[backend] = _pack(*self._unpacked, backend)
                    self._unpacked = None
            return self._packed[backend]


class RowProduct:
    """A linear map in int8 without quantized tensors: weights and activations with one scale a row, sums in int32.

    What a row becomes does not depend on the other rows. Activations are symmetric. oneDNN takes one scale for all of
    them, so it multiplies integers, and each row is scaled afterwards. These are private names that `torch.compile`
    calls.

    Args:
        weight: `[in, out]`.
        bias: `[out]`, or None.
        reduces_range: whether activations have 7 bits.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, reduces_range: bool) -> None:
        self._largest = 63 if reduces_range else _LARGEST
        # Signed activations take a hundred times as long. With this zero point they are positive.
        self._zero_point = 64 if reduces_range else 128
        integers, scales = quantized(weight.t().float())
        # In another order of memory the weight is read wrongly.
        self._weight = torch.ops.onednn.qlinear_prepack(integers.contiguous(), None)
        self._scales = (scales / self._largest).clamp_(min=_SMALLEST_SCALE)
        self._zeros = torch.zeros(len(scales), dtype=torch.int32)
        self._bias = bias

    def __call__(self, inputs: Tensor) -> Tensor:
        """Map `[rows, in]` to `[rows, out]`."""
        largest = inputs.abs().amax(1, keepdim=True).clamp_(min=_SMALLEST_ROW)
        integers = (inputs * (self._largest / largest)).round_().to(torch.int8)
        products = self._products(self._shifted(integers))
        # The scores of a vocabulary are larger than the cache.
        rows_at_a_time = max(1, _SCALED_NUMBERS // products.shape[1])
        for part, scales in zip(products.split(rows_at_a_time), largest.split(rows_at_a_time), strict=True):
            part.mul_(scales)
            if self._bias is not None:
                part.add_(self._bias)
        return products

    def _shifted(self, integers: Tensor) -> Tensor:
        """Add the zero point to integers in int8, in place, and return them as uint8."""
        if self._zero_point == 128:
            # It is the bit of the sign. No other way to uint8 is as fast.
            return integers.view(torch.uint8).bitwise_xor_(128)
        return integers.add_(self._zero_point).view(torch.uint8)

    def _products(self, activations: Tensor) -> Tensor:
        """Multiply shifted integers `[rows, in]`. The sums of each output are multiplied by its scale."""
        return torch.ops.onednn.qlinear_pointwise(
            activations,
            1.0,
            self._zero_point,
            self._weight,
            self._scales,
            self._zeros,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )


def quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return a weight `[out, in]` as int8, and the scales `[out]` in float32 that it is to be multiplied by."""
    # A row of zeros would be divided by zero.
    scales = weight.abs().amax(1).div(_LARGEST).clamp(min=_SMALLEST_SCALE)
    integers = (weight / scales.unsqueeze(1)).round().clamp(-_LARGEST, _LARGEST)
    return integers.to(torch.int8), scales


def _quantized_tensor(weight: Tensor) -> Tensor:
    """Return a weight `[out, in]` as PyTorch's tensor of integers with a scale for each row."""
    integers, scales = quantized(weight.float())
    zeros = torch.zeros(len(scales), dtype=torch.long)
    with _PACKING, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch will remove quantized tensors. Then [`RowProduct`] takes over.
        # It rounds to the same integers again.
        multiples = integers * scales.unsqueeze(1)
        return torch.quantize_per_channel(multiples, scales.double(), zeros, axis=0, dtype=torch.qint8)


def _pack(weight: Tensor, bias: Tensor | None, backend: str) -> Any:
    """Return a quantized weight `[out, in]` with its bias as a backend multiplies it."""
    with _PACKING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = torch.backends.quantized.engine
        torch.backends.quantized.engine = backend
        try:
            return torch.ops.quantized.linear_prepack(weight, bias)
        finally:
            torch.backends.quantized.engine = before


@dataclass(frozen=True)
class Int8Choice:
    """How products in int8 are computed. With another choice some translations have other words.

    Args:
        few_rows: the backend for a few rows. It is "float32" where the machine has no product in int8. It is "qlinear"
            for all rows and weights where PyTorch has no quantized tensors.
        many_rows: the one for many rows.
        few_rows_wide: the one for a few rows, and weights as wide as a vocabulary.
        many_rows_wide: the one for many rows, and wide weights.
        reduces_range: whether activations have 7 bits.
        float32_rows: rows up to which small weights are multiplied in float32. Older outputs do
            not say it, and had none.
    """

    few_rows: str
    many_rows: str
    few_rows_wide: str
    many_rows_wide: str
    reduces_range: bool
    float32_rows: int = 0

    def backend(self, wide: bool, many: bool) -> str:
        """Return the backend for rows and weights."""
        if wide:
            return self.many_rows_wide if many else self.few_rows_wide
        return self.many_rows if many else self.few_rows

    @property
    def is_float32(self) -> bool:
        """Whether there is no product in int8, so that all are in float32."""
        return self.few_rows == _FLOAT32

    @property
    def is_by_rows(self) -> bool:
        """Whether products are those of [`RowProduct`]."""
        return self.few_rows == _BY_ROWS

    def rows_in_float32(self, weight: Tensor) -> int:
        """Return up to how many rows a weight is multiplied in float32."""
        if weight.numel() >= SMALL_WEIGHT:
            return 0
        return min(self.float32_rows, _CHEAP_PRODUCT // weight.numel())

    def check(self) -> None:
        """Raise a UserError if this CPU or this PyTorch cannot compute as another process did."""
        backends = {self.backend(wide, many) for wide in (False, True) for many in (False, True)}
        missing = [backend for backend in sorted(backends) if not _has(backend)]
        if missing:
            raise UserError(
                f"Earlier translations used int8 products of {missing[0]}. This CPU or this PyTorch has none. "
                f"{_OTHER_CPU}"
            )
        if backends != {_FLOAT32} and _reduces_range() and not self.reduces_range:
            raise UserError(f"Earlier translations used int8 products with 8 bits. This CPU lacks VNNI. {_OTHER_CPU}")


def int8_choice() -> Int8Choice:
    """Return the fastest products in int8 of this CPU. They are timed once in a process."""
    few_rows = _backend(wide=False, many=False)
    return Int8Choice(
        few_rows=few_rows,
        many_rows=_backend(wide=False, many=True),
        few_rows_wide=_backend(wide=True, many=False),
        many_rows_wide=_backend(wide=True, many=True),
        reduces_range=_reduces_range(),
        float32_rows=0 if few_rows == _BY_ROWS else _FLOAT32_ROWS,
    )


def _backend(wide: bool, many: bool) -> str:
    return _fastest_backend(wide, many) if _int8_backends() else _backend_without_quantized_tensors()


def _has(backend: str) -> bool:
    if backend == _BY_ROWS:
        return _multiplies_by_rows()
    return backend == _FLOAT32 or backend in _int8_backends()


@cache
def _int8_backends() -> tuple[str, ...]:
    """Return implementations of quantized tensors, FBGEMM's ("x86") and oneDNN's, as far as they work here."""
    return tuple(backend for backend in ("x86", "onednn") if _works(backend))


@cache
def _backend_without_quantized_tensors() -> str:
    if _multiplies_by_rows():
        logger.info("int8: %s, because this PyTorch has no products of quantized tensors", _BY_ROWS)
        return _BY_ROWS
    logger.warning("This machine has no product in int8 that works. Products are computed in float32.")
    return _FLOAT32


@cache
def _multiplies_by_rows() -> bool:
    # On other CPUs oneDNN has no fast product of integers.
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        return False
    # The largest sums show whether two products of 8 bits overflow.
    weight = torch.ones(64, 16, dtype=torch.float32)
    weight[:, 1::2] = -1
    inputs = torch.ones(2, 64, dtype=torch.float32)
    inputs[1] = -1
    try:
        product = RowProduct(weight, None, _reduces_range())(inputs)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return torch.allclose(product, inputs @ weight)


def _works(backend: str) -> bool:
    identity = torch.eye(16, dtype=torch.float32)
    try:
        packed = _pack(_quantized_tensor(identity), None, backend)
        product_with_itself = torch.ops.quantized.linear_dynamic(identity, packed, _reduces_range())
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return torch.allclose(product_with_itself, identity, atol=0.02)


@cache
def _reduces_range() -> bool:
    """Whether activations have 7 bits: without VNNI sums of two products of 8 bits do not fit in the 16 they get."""
    # `torch.cpu.get_capabilities()` says it only in the newest PyTorch.
    has_vnni = getattr(torch.cpu, "_is_vnni_supported", None)
    return has_vnni is None or not has_vnni()


@cache
def _fastest_backend(wide: bool, many: bool) -> str:
    """Return the backend with the least CPU time. On some machines FBGEMM takes ten times as long for many rows."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(_WIDE if wide else _NARROW, 512, dtype=torch.float32, generator=generator)
    inputs = torch.randn(_MANY if many else _FEW, 512, dtype=torch.float32, generator=generator)

    def seconds(backend: str) -> float:
        packed = _pack(_quantized_tensor(weight), None, backend)
        times = []
        for _ in range(7):
            start = time.process_time()
            torch.ops.quantized.linear_dynamic(inputs, packed, _reduces_range())
            times.append(time.process_time() - start)
        return min(times)

    best = min(_int8_backends(), key=seconds)
    rows = "many" if many else "few"
    width = "wide" if wide else "narrow"
    logger.info("int8, %s rows, %s weights: %s", rows, width, best)
    return best
