"""Products in int8: weights with one scale a row, activations with one scale a call, sums in int32.

PyTorch has two implementations, FBGEMM's ("x86") and oneDNN's. Which one is faster depends on the machine and the
sizes: on some machines FBGEMM takes ten times as long for many rows. So both are timed at the first use.
"""

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

LARGEST = 127
"""The largest number that a weight becomes; the smallest is -127."""
_FEW, _MANY, _LIMIT = 4, 128, 24
"""Rows that are timed, and where many begin."""
_NARROW, _WIDE, _WIDTH = 512, 16384, 4096
"""Outputs that are timed, and where wide weights begin: those of vocabularies."""
_ROUNDS = 7
_PACKING = Lock()


def quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return a weight `[out, in]` as int8, and the scales `[out]` in float32 that it is to be multiplied by."""
    scales = weight.abs().amax(1).div(LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
    return (weight / scales.unsqueeze(1)).round().clamp(-LARGEST, LARGEST).to(torch.int8), scales


def int8_map(weight: Tensor, bias: Tensor | None = None) -> Callable[[Tensor], Tensor] | None:
    """Return the linear map of a weight `[in, out]` and a bias `[out]`, of float32 `[rows, in]` to `[rows, out]`.

    Activations are asymmetric uint8, with a scale and a zero point for all rows of a call. The bias is float32.

    Returns:
        The map; None where the machine has no implementation, which is logged as a warning, once.
    """
    if not _implementations():
        return None
    engines = [_fastest(weight.shape[1] >= _WIDTH, many) for many in (False, True)]
    packed = {engine: _pack(weight.t(), bias, engine) for engine in dict.fromkeys(engines)}
    few, many = (packed[engine] for engine in engines)
    multiply, reduce_range = torch.ops.quantized.linear_dynamic, _reduces_range()

    def multiplied(inputs: Tensor) -> Tensor:
        try:
            return multiply(inputs, few if inputs.shape[0] < _LIMIT else many, reduce_range)
        except RuntimeError:
            if inputs.isfinite().all():
                raise
            # What is no number has no range.
            return inputs.new_full((inputs.shape[0], weight.shape[1]), torch.nan)

    return multiplied


def _pack(weight: Tensor, bias: Tensor | None, engine: str) -> Any:
    integers, scales = quantized(weight.float())
    # The engine and what is warned of are the process's.
    with _PACKING, _engine(engine), warnings.catch_warnings():
        # That quantized tensors will go is why there is a fallback.
        warnings.simplefilter("ignore")
        zeros = torch.zeros(len(scales), dtype=torch.long)
        tensor = torch._make_per_channel_quantized_tensor(integers.contiguous(), scales.double(), zeros, 0)
        return torch.ops.quantized.linear_prepack(tensor, bias)


@contextmanager
def _engine(name: str) -> Iterator[None]:
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


@cache
def _implementations() -> tuple[str, ...]:
    """The engines that work."""
    found = tuple(engine for engine in ("x86", "onednn") if _works(engine))
    if not found:
        logger.warning("This machine has no product in int8 that works. Products are computed in float32.")
    return found


def _works(engine: str) -> bool:
    try:
        identity = torch.eye(16, dtype=torch.float32)
        packed = _pack(identity, None, engine)
        found = torch.ops.quantized.linear_dynamic(identity, packed, _reduces_range())
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    return torch.allclose(found, identity, atol=0.02)


@cache
def _reduces_range() -> bool:
    """Whether activations have 7 bits: without VNNI sums of two products of 8 bits do not fit in the 16 they get."""
    return not getattr(torch.cpu, "_is_vnni_supported", lambda: False)()


@cache
def _fastest(wide: bool, many: bool) -> str:
    """The faster engine on this machine."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(_WIDE if wide else _NARROW, 512, dtype=torch.float32, generator=generator)
    inputs = torch.randn(_MANY if many else _FEW, 512, dtype=torch.float32, generator=generator)
    best = min(_implementations(), key=lambda engine: _seconds(_pack(weight, None, engine), inputs))
    logger.info("int8, %s rows, %s weights: %s", "many" if many else "few", "wide" if wide else "narrow", best)
    return best


def _seconds(packed: Any, inputs: Tensor) -> float:
    """The least time of a product, as CPU time, which a busy machine does not change."""
    times = []
    for _ in range(_ROUNDS):
        start = time.process_time()
        torch.ops.quantized.linear_dynamic(inputs, packed, _reduces_range())
        times.append(time.process_time() - start)
    return min(times)
