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
_OTHER_CPU = "Continue on a CPU like the one before, or start again with another output."
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
        in_float32: the same map in float32, if [`float32_rows`] says that it is needed.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, in_float32: Map | None) -> None:
        self._outputs = weight.shape[1]
        is_wide = self._outputs >= _WIDTH
        self._backend_for_few = _backend(is_wide, many=False)
        self._backend_for_many = _backend(is_wide, many=True)
        self._reduces_range = _reduces_range() if _used_choice is None else _used_choice.reduces_range
        self._most_float32_rows = float32_rows(weight)
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


def is_possible() -> bool:
    """Return whether the machine has a product in int8. A warning says so once if not."""
    return _backend(wide=False, many=False) != _FLOAT32


def quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return a weight `[out, in]` as int8, and the scales `[out]` in float32 that it is to be multiplied by."""
    # A row of zeros would be divided by zero.
    smallest = torch.finfo(torch.float32).tiny
    scales = weight.abs().amax(1).div(_LARGEST).clamp(min=smallest)
    integers = (weight / scales.unsqueeze(1)).round().clamp(-_LARGEST, _LARGEST)
    return integers.to(torch.int8), scales


def _quantized_tensor(weight: Tensor) -> Tensor:
    """Return a weight `[out, in]` as PyTorch's tensor of integers with a scale for each row."""
    integers, scales = quantized(weight.float())
    zeros = torch.zeros(len(scales), dtype=torch.long)
    with _PACKING, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch will remove quantized tensors. Then products are float32.
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
        few_rows: the backend for a few rows. It is "float32" where the machine has no product in int8.
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


_used_choice: Int8Choice | None = None


def int8_choice() -> Int8Choice:
    """Return how this process computes products in int8: as it was told, or with the fastest backends."""
    if _used_choice is not None:
        return _used_choice
    return Int8Choice(
        few_rows=_backend(wide=False, many=False),
        many_rows=_backend(wide=False, many=True),
        few_rows_wide=_backend(wide=True, many=False),
        many_rows_wide=_backend(wide=True, many=True),
        reduces_range=_reduces_range(),
        float32_rows=_FLOAT32_ROWS,
    )


def use_int8_choice(choice: Int8Choice) -> None:
    """Compute products in int8 as another process does. Engines that exist already stay as they are.

    Raises:
        UserError: if this CPU cannot.
    """
    global _used_choice
    backends = {choice.backend(wide, many) for wide in (False, True) for many in (False, True)}
    missing = sorted(backends - {_FLOAT32, *_int8_backends()})
    if missing:
        raise UserError(f"Earlier translations used int8 products of {missing[0]}. This CPU has none. {_OTHER_CPU}")
    if backends != {_FLOAT32} and _reduces_range() and not choice.reduces_range:
        raise UserError(f"Earlier translations used int8 products with 8 bits. This CPU lacks VNNI. {_OTHER_CPU}")
    _used_choice = choice


def _backend(wide: bool, many: bool) -> str:
    if _used_choice is not None:
        return _used_choice.backend(wide, many)
    return _fastest_backend(wide, many) if _int8_backends() else _FLOAT32


@cache
def _int8_backends() -> tuple[str, ...]:
    """Return PyTorch's implementations of int8, FBGEMM's ("x86") and oneDNN's, as far as they work here."""
    working = tuple(backend for backend in ("x86", "onednn") if _works(backend))
    if not working:
        logger.warning("This machine has no product in int8 that works. Products are computed in float32.")
    return working


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


def float32_rows(weight: Tensor) -> int:
    """Return up to how many rows a weight is multiplied in float32."""
    if weight.numel() >= SMALL_WEIGHT:
        return 0
    most_rows = _FLOAT32_ROWS if _used_choice is None else _used_choice.float32_rows
    return min(most_rows, _CHEAP_PRODUCT // weight.numel())


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
