"""The aggregation of a decoder's layers, with fewer products than the model has."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from hf_capsule_mt.modeling.aggregation import BlockLinear, LayerAggregation, RoutedAggregation

from ..products.products import Make, Map, norm, with_products


def folded_aggregation(module: LayerAggregation, make: Make) -> Callable[[list[Tensor]], Tensor]:
    """Return the aggregation of the outputs of L layers, `[rows, d]` each, to `[rows, d]`.

    A routed aggregation computes votes and activations from its `inputs`, a linear map of the layers whose output
    nothing else reads. So the votes are one linear map of the layers, and the activations another. The two weights of
    each are multiplied in float64, once, and every step multiplies once instead of twice.
    """
    aggregate = _aggregator(module.aggregator, make)
    normalise = norm(module.layer_norm)
    if module.gamma is None:
        return lambda layers: normalise(aggregate(module.input_capsules(layers)))
    gamma = module.gamma.detach().clone()

    def added(layers: list[Tensor]) -> Tensor:
        result = normalise(aggregate(module.input_capsules(layers)))
        return layers[-1] + gamma * result

    return added


def _aggregator(module: nn.Module, make: Make) -> Map:
    """Return the map of the layers' outputs `[rows, L, d]` to one vector, `[rows, d]`."""
    if not isinstance(module, RoutedAggregation):
        copied = with_products(module, make)
        return lambda layers: copied(layers)[0]
    votes = _compose(module.inputs, module.votes, module.num_layers, make)
    if module.activations is None:
        return lambda layers: module.routing(votes(layers))[0]
    activations = _compose(module.inputs, module.activations, module.num_layers, make)
    return lambda layers: module.routing(votes(layers), activations(layers).sigmoid())[0]


def _compose(first: nn.Module, second: nn.Module, blocks: int, make: Make) -> Map:
    """Return the second map after the first, `[rows, L, d]` -> `[rows, L, ...]`, for L `blocks`.

    Args:
        first: a [`BlockLinear`], with a map of its own for each block, or a linear map of all blocks side by side.
        second: the same.
        blocks: the number of layers.
        make: makes the products.
    """
    if isinstance(first, BlockLinear) and isinstance(second, BlockLinear):
        return _compose_blocks(first, second)
    width = first.weight.shape[-1]
    if isinstance(first, BlockLinear):
        width *= blocks
    inner_weight, inner_bias = _dense(first)
    outer_weight, outer_bias = _dense(second)
    dtype = first.weight.dtype
    weight = inner_weight @ outer_weight
    bias = inner_bias @ outer_weight + outer_bias
    composed = make(weight.to(dtype), bias.to(dtype))

    def of_layers(layers: Tensor) -> Tensor:
        rows = layers.shape[0]
        return composed(layers.reshape(-1, width)).view(rows, blocks, -1)

    return of_layers


def _compose_blocks(first: BlockLinear, second: BlockLinear) -> Map:
    """Return the second map after the first, where both have a map of their own for each block."""
    inner_weight = first.weight.detach().double()
    inner_bias = first.bias.detach().double().unsqueeze(1)
    outer_weight = second.weight.detach().double()
    outer_bias = second.bias.detach().double().unsqueeze(1)
    dtype = first.weight.dtype
    weight = (inner_weight @ outer_weight).to(dtype)
    bias = (inner_bias @ outer_weight + outer_bias).to(dtype)

    def of_layers(layers: Tensor) -> Tensor:
        by_block = layers.transpose(0, 1)
        return torch.baddbmm(bias, by_block, weight).transpose(0, 1)

    return of_layers


def _dense(module: nn.Module) -> tuple[Tensor, Tensor]:
    """Return the weight `[in, out]` and the bias `[out]` of the map of blocks side by side, in float64."""
    weight = module.weight.detach().double()
    bias = module.bias.detach().double().flatten()
    if isinstance(module, BlockLinear):
        return torch.block_diag(*weight), bias
    return weight.t(), bias
