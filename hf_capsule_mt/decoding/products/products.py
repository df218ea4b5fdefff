"""Products of a few rows with a weight that does not change, in the precision of an engine.

Inputs and outputs are float32 in every precision. So is everything that is not a product: embeddings, norms, attention,
routing and the sums of scores.
"""

import logging
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from threading import RLock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.m2m_100.modeling_m2m_100 import M2M100ScaledWordEmbedding
from transformers.models.mbart.modeling_mbart import MBartScaledWordEmbedding

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.modeling.linear import GateLinear, Linear, UnitGainLinear, has_onednn

from ..fingerprint import with_shared_weights

logger = logging.getLogger(__name__)

Map = Callable[[Tensor], Tensor]
"""`[rows, in]` -> `[rows, out]`."""
Make = Callable[[Tensor, Tensor | None], Map]
"""Returns the map of a weight `[in, out]` and a bias `[out]`, or None."""

_SMALL_WEIGHT = 1 << 17
"""Numbers of a weight that is kept in both orders, because that costs little memory."""
_SMALL_PRODUCT = 1 << 19
"""Multiplications below which a call of oneDNN costs more than it saves."""
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
_TOKEN_EMBEDDINGS = (nn.Embedding, M2M100ScaledWordEmbedding, MBartScaledWordEmbedding)
"""Classes of embeddings that map tokens to rows of their weights, times a scale if they have one."""
_FLOAT32 = "float32"
"""The backend where there is no product in int8."""
_OTHER_CPU = "Continue on a CPU like the one before, or start again with another output."
_PACKING = RLock()
"""Held while weights are packed. PyTorch's backend and the filters of warnings belong to the whole process."""


def _renew_lock() -> None:
    global _PACKING
    _PACKING = RLock()


# The thread that holds the lock does not exist in a forked process, so nobody would ever release it there.
os.register_at_fork(after_in_child=_renew_lock)


def plain_map(weight: Tensor, bias: Tensor | None = None) -> Map:
    """Return a linear map in the precision of its weight. The arguments are those of [`Product`].

    On an x86 CPU oneDNN multiplies by a rearranged weight, twice as fast as `addmm` does. PyTorch calls oneDNN by these
    private names in compiled models. `has_onednn` tries them.
    """
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16) or not has_onednn():
        return _addmm(weight, bias)
    if weight.numel() < _SMALL_WEIGHT:
        return Product(weight, bias)
    return _packed_map(weight, bias)


class Product:
    """A linear map by a small weight, which is kept in two orders. One of them is faster for a few rows.

    Args:
        weight: `[in, out]`, in float32 or bfloat16.
        bias: `[out]`, or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._of_few = _addmm(weight, bias)
        self._of_many = _packed_map(weight, bias)
        self._most_few_rows = _SMALL_PRODUCT // weight.numel()

    def for_rows(self, rows: int) -> Map:
        """Return the map that is faster for so many rows."""
        return self._of_few if rows <= self._most_few_rows else self._of_many

    def __call__(self, inputs: Tensor) -> Tensor:
        """Map `[rows, in]` to `[rows, out]`."""
        return self.for_rows(inputs.shape[0])(inputs)


def _addmm(weight: Tensor, bias: Tensor | None) -> Map:
    """Return the map of a weight `[in, out]` that is not rearranged."""
    # No function of Python runs when they are called, a hundred times for a short sentence.
    if bias is None:
        return partial(torch.mm, mat2=weight.contiguous())
    return partial(torch.addmm, bias, mat2=weight.contiguous())


def _packed_map(weight: Tensor, bias: Tensor | None) -> Map:
    """Return the map of a weight `[in, out]` that is rearranged."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.t().contiguous())
    # The names of PyTorch's arguments.
    options = {"W": packed, "B": bias, "attr": "none", "scalars": [], "algorithm": ""}
    return partial(torch.ops.mkldnn._linear_pointwise, **options)


@cache
def multiplies_bfloat16(device: torch.device) -> bool:
    """Return whether the device has fast products in bfloat16. On x86 these are CPUs with AVX512.

    Without them a product takes tens of times as long.
    """
    if device.type != "cpu":
        return True
    # `torch.backends` says it of no CPU.
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


class HalfProduct:
    """A linear map by a weight in 16 bits, which is not copied. It rounds what it multiplies, but not what comes out.

    So two tokens seldom have the same score, which they often have in 16 bits.

    Args:
        weight: `[in, out]`, in float16 or bfloat16.
        bias: `[out]`, or None.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = weight
        self._bias = None if bias is None else bias.float()

    def __call__(self, inputs: Tensor) -> Tensor:
        """Map `[rows, in]` to `[rows, out]`, both in float32."""
        rounded = inputs.to(self._weight.dtype)
        # T5 in float16 has some weights in float32.
        if rounded.device.type == "cuda" and rounded.dtype in HALVES:
            product = torch.mm(rounded, self._weight, out_dtype=torch.float32)
        else:
            # PyTorch has no such product in 16 bits on a CPU. There this class only stands in for a GPU in tests.
            product = rounded.float() @ self._weight.float()
        return product if self._bias is None else product.add_(self._bias)


def bfloat16_map(weight: Tensor, bias: Tensor | None = None) -> Map:
    """Return a map in bfloat16. Where products in bfloat16 are slow, it multiplies rounded float32 numbers."""
    if weight.device.type == "cuda":
        return HalfProduct(weight.bfloat16(), bias)
    dtype = torch.bfloat16 if multiplies_bfloat16(weight.device) else torch.float32
    rounded_bias = None if bias is None else bias.bfloat16().to(dtype)
    multiply = plain_map(weight.bfloat16().to(dtype), rounded_bias)
    return lambda inputs: multiply(inputs.bfloat16().to(dtype)).bfloat16().float()


class Int8Product:
    """A linear map in int8: weights with one scale a row, activations with one scale a call, sums in int32.

    Activations are asymmetric uint8. The bias is float32. Only integers are kept of the weight, and they are packed
    when they are first multiplied: the layers of an encoder hardly ever get few rows, and those of a decoder often get
    no others. A small weight is also kept in float32, for products that take less time than finding a scale.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._outputs = weight.shape[1]
        is_wide = self._outputs >= _WIDTH
        self._backend_for_few = _backend(is_wide, many=False)
        self._backend_for_many = _backend(is_wide, many=True)
        self._reduces_range = _reduces_range() if _used_choice is None else _used_choice.reduces_range
        self._most_float32_rows = _float32_rows(weight)
        self._in_float32 = _addmm(weight.float(), bias) if self._most_float32_rows else None
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


def int8_map(weight: Tensor, bias: Tensor | None = None) -> Map:
    """Return a map in int8. Where the machine has no product in int8, it is float32, and a warning says so once."""
    bias = None if bias is None else bias.float()
    if _backend(wide=False, many=False) == _FLOAT32:
        return plain_map(weight.float(), bias)
    return Int8Product(weight, bias)


def multiplies_as_they_are(weights: torch.dtype, device: torch.device) -> bool:
    """Return whether products of a device with weights in 16 bits are fast, so that they need not become float32."""
    if device.type == "cuda":
        return weights in HALVES
    return weights == torch.bfloat16 and multiplies_bfloat16(device)


def make_of(dtype: str, weights: torch.dtype, device: torch.device) -> Make:
    """Return what makes the products of an engine.

    Args:
        dtype: a key of `PRECISIONS`. If it is "float32", weights in 16 bits are multiplied as they are.
        weights: the dtype of the model's weights.
        device: that of the model.
    """
    if weights not in HALVES or dtype == "int8":
        return PRECISIONS[dtype]
    if device.type == "cuda" and (dtype == "float32" or weights == torch.bfloat16):
        return HalfProduct
    return bfloat16_map


HALVES = (torch.float16, torch.bfloat16)
"""The dtypes of 16 bits."""
PRECISIONS: dict[str, Make] = {"float32": plain_map, "bfloat16": bfloat16_map, "int8": int8_map}
"""How products are made for an engine of a `dtype`."""


def precisions_on(device: torch.device) -> list[str]:
    """Return the precisions of engines on a device, or none if there are no engines."""
    if device.type == "cpu":
        return list(PRECISIONS)
    if device.type == "cuda":
        return [name for name in PRECISIONS if name != "int8"]
    return []


def product(*linears: nn.Linear, make: Make) -> Map:
    """Return linear maps as one, with their outputs side by side, in the precision of `make`."""
    return joined([(linear.weight, linear.bias) for linear in linears], make)


def joined(parts: Sequence[tuple[Tensor, Tensor | None]], make: Make) -> Map:
    """Return weights `[out, in]`, with biases `[out]` or without, as one map whose outputs are side by side."""
    weights = [weight.detach() for weight, _ in parts]
    # One is not copied.
    joined_weight = (weights[0] if len(weights) == 1 else torch.cat(weights)).t()
    if all(bias is None for _, bias in parts):
        return make(joined_weight, None)
    biases = []
    for weight, bias in parts:
        if bias is None:
            bias = weight.new_zeros(len(weight))
        biases.append(bias.detach())
    return make(joined_weight, torch.cat(biases))


class _Linear(nn.Module):
    # T5 asks for the dtype of a weight, if it is a tensor.
    weight: None = None

    def __init__(self, linear: nn.Linear, make: Make) -> None:
        super().__init__()
        self._product = product(linear, make=make)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self._product(inputs.flatten(0, -2))
        return rows.view(*inputs.shape[:-1], -1)


def with_products(module: nn.Module, make: Make) -> nn.Module:
    """Return a copy of a plain module that shares its weights. Its linear maps have the precision of `make`."""
    copied = with_shared_weights(module)
    # Lists, because modules are replaced while they are walked through.
    for parent in list(copied.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in (nn.Linear, Linear, UnitGainLinear, GateLinear):
                setattr(parent, name, _Linear(child, make))
    return copied


class _Embedding(nn.Module):
    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.weight = embedding.weight
        self._scale = getattr(embedding, "embed_scale", 1.0)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.weight).float() * self._scale


def in_float32(module: nn.Module) -> nn.Module:
    """Let a module with weights in 16 bits, whose linear maps are products, compute the rest in float32.

    The rows of embeddings are converted when they are read. Everything else is small.

    Args:
        module: what [`with_products`] returned. It is changed.
    """
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in _TOKEN_EMBEDDINGS:
                setattr(parent, name, _Embedding(child))
    for part in module.modules():
        if isinstance(part, _Embedding):
            continue
        for name, parameter in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(parameter.detach().float(), requires_grad=False))
        for name, buffer in list(part.named_buffers(recurse=False)):
            if buffer.is_floating_point():
                setattr(part, name, buffer.float())
    return module


def norm(module: nn.LayerNorm) -> Map:
    """Return a copy of a LayerNorm, which maps `[..., d]`."""
    weight = module.weight.detach().clone().float()
    bias = module.bias.detach().clone().float()
    return partial(torch.layer_norm, normalized_shape=weight.shape, weight=weight, bias=bias, eps=module.eps)


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


def _float32_rows(weight: Tensor) -> int:
    """Return up to how many rows a weight is multiplied in float32."""
    if weight.numel() >= _SMALL_WEIGHT:
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
