"""Products of a few rows with a weight that does not change, in the precision of an engine.

Inputs and outputs are float32 in every precision. So is everything that is not a product: embeddings, norms, attention,
routing and the sums of scores.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.m2m_100.modeling_m2m_100 import M2M100ScaledWordEmbedding
from transformers.models.mbart.modeling_mbart import MBartScaledWordEmbedding

from hf_capsule_mt.modeling.linear import GateLinear, Linear, UnitGainLinear, has_onednn

from ..fingerprint import with_shared_weights
from .int8 import SMALL_WEIGHT, Int8Choice, Int8Product, Map, RowProduct, int8_choice

Make = Callable[[Tensor, Tensor | None], Map]
"""Returns the map of a weight `[in, out]` and a bias `[out]`, or None."""

_SMALL_PRODUCT = 1 << 19
"""Multiplications below which a call of oneDNN costs more than it saves."""
_TOKEN_EMBEDDINGS = (nn.Embedding, M2M100ScaledWordEmbedding, MBartScaledWordEmbedding)
"""Classes of embeddings that map tokens to rows of their weights, times a scale if they have one."""


def plain_map(weight: Tensor, bias: Tensor | None = None) -> Map:
    """Return a linear map in the precision of its weight. The arguments are those of [`Product`].

    On an x86 CPU oneDNN multiplies by a rearranged weight, twice as fast as `addmm` does. PyTorch calls oneDNN by these
    private names in compiled models. `has_onednn` tries them.
    """
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16) or not has_onednn():
        return _addmm(weight, bias)
    if weight.numel() < SMALL_WEIGHT:
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


def int8_map(weight: Tensor, bias: Tensor | None = None, choice: Int8Choice | None = None) -> Map:
    """Return a map in int8. Where the machine has no product in int8, it is float32, and a warning says so once.

    Args:
        weight: `[in, out]`.
        bias: `[out]`, or None.
        choice: how it is computed. None: as it is fastest here.
    """
    choice = choice or int8_choice()
    bias = None if bias is None else bias.float()
    if choice.is_float32:
        return plain_map(weight.float(), bias)
    if choice.is_by_rows:
        return RowProduct(weight, bias, choice.reduces_range)
    in_float32 = None
    if choice.rows_in_float32(weight):
        in_float32 = _addmm(weight.float(), bias)
    return Int8Product(weight, bias, choice, in_float32)


HALVES = (torch.float16, torch.bfloat16)
"""The dtypes of 16 bits."""


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
