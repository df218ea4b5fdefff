"""The aggregation of a stack's layers, its linear maps folded into one where there is nothing between them.

What the votes W and the activations A are computed from, F, is linear and read by nothing else, so W F and A F are one
map of the layers. They are multiplied in float64, once.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..modeling.aggregation import BlockLinear, LayerAggregation, RoutedAggregation
from .decoder_weights import check_plain, norm, with_products
from .precisions import Make, Map


def layer_aggregation(module: LayerAggregation, make: Make) -> Callable[[list[Tensor]], Tensor]:
    """Return the aggregation of the outputs of L layers, `[rows, d]` each, to `[rows, d]`; `make` makes products."""
    check_plain(module, kind=LayerAggregation)
    aggregate = _aggregator(module.aggregator, make)
    normalise = norm(module.layer_norm)
    gamma = None if module.gamma is None else module.gamma.detach().clone()

    def aggregated(layers: list[Tensor]) -> Tensor:
        result = normalise(aggregate(torch.stack(layers, dim=-2)))
        return result if gamma is None else layers[-1] + gamma * result

    return aggregated


def _aggregator(module: nn.Module, make: Make) -> Map:
    if type(module) is RoutedAggregation:
        return _folded(module, make)
    copied = with_products(module, make)
    return lambda layers: copied(layers)[0]


def _folded(module: RoutedAggregation, make: Make) -> Map:
    check_plain(module, kind=RoutedAggregation)
    votes = _compose(module.inputs, module.votes, module.num_layers, make)
    if module.activations is None:
        return lambda layers: module.routing(votes(layers))[0]
    activations = _compose(module.inputs, module.activations, module.num_layers, make)
    return lambda layers: module.routing(votes(layers), activations(layers).sigmoid())[0]


def _compose(first: nn.Module, second: nn.Module, blocks: int, make: Make) -> Map:
    """`[rows, L, d]` -> `[rows, L, ...]`: the second map of the first."""
    for module in (first, second):
        check_plain(module, kind=BlockLinear if isinstance(module, BlockLinear) else nn.Linear)
    if isinstance(first, BlockLinear) and isinstance(second, BlockLinear):
        return _compose_blocks(first, second)
    width = first.weight.shape[-1] * (blocks if isinstance(first, BlockLinear) else 1)
    (inner, inner_bias), (outer, outer_bias) = _dense(first), _dense(second)
    weight, bias = (inner @ outer).to(first.weight.dtype), (inner_bias @ outer + outer_bias).to(first.weight.dtype)
    product = make(weight, bias)
    return lambda layers: product(layers.reshape(-1, width)).view(layers.shape[0], blocks, -1)


def _compose_blocks(first: BlockLinear, second: BlockLinear) -> Map:
    inner, outer = first.weight.detach().double(), second.weight.detach().double()
    weight = (inner @ outer).to(first.weight.dtype)
    bias = (first.bias.detach().double().unsqueeze(1) @ outer + second.bias.detach().double().unsqueeze(1)).to(weight)
    return lambda layers: torch.baddbmm(bias, layers.transpose(0, 1), weight).transpose(0, 1)


def _dense(module: nn.Module) -> tuple[Tensor, Tensor]:
    """The weight `[in, out]` and the bias `[out]` of the map of concatenated blocks, in float64."""
    weight, bias = module.weight.detach().double(), module.bias.detach().double().flatten()
    return (torch.block_diag(*weight) if isinstance(module, BlockLinear) else weight.t()), bias
