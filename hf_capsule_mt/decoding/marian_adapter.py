"""Marian's decoder, and what this package puts into it: routed heads, aggregated layers, guided routing."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import MarianMTModel

from ..modeling.aggregation import BlockLinear, LayerAggregation, RoutedAggregation
from ..modeling.modeling_capsule_aggregated_marian import CapsuleAggregatedMarianForConditionalGeneration
from .fingerprint import check_plain
from .products import Make, Map, norm, with_products
from .transformer_decoding import DecoderLayer, TransformerAdapter, TransformerDecoding


class PostNormLayer(DecoderLayer):
    """A layer that normalises the sum of what goes into a part and what comes out of it."""

    def __call__(
        self, hidden: Tensor, sentences: TransformerDecoding, index: int, target_mask: Tensor | None
    ) -> Tensor:
        """Go through the layer."""
        attended = self.attend_to_target(hidden, sentences.targets, index, target_mask)
        hidden = self.target_norm(attended.add_(hidden))
        attended = self.attend_to_source(hidden, *sentences.source[index], sentences.source_mask)
        hidden = self.source_norm(attended.add_(hidden))
        return self.network_norm(self.feed_forward(hidden).add_(hidden))


class MarianAdapter(TransformerAdapter):
    """A copy of the decoder of a Marian model, or of one of the family of this package."""

    models = (MarianMTModel, CapsuleAggregatedMarianForConditionalGeneration)
    models_in_half = (MarianMTModel,)

    def copy(self, model: MarianMTModel) -> None:
        """Copy the decoder's weights."""
        decoder = model.model.decoder
        self.scale: float = decoder.embed_scale
        self.positions = decoder.embed_positions.weight.detach().float()
        self.layers = [PostNormLayer(layer, self.make) for layer in decoder.layers]
        # Marian itself has neither of these two.
        self.aggregate: Callable[[list[Tensor]], Tensor] | None = None
        aggregation = getattr(decoder, "aggregation", None)
        if aggregation is not None:
            self.aggregate = folded_aggregation(aggregation, self.make)
        routing = getattr(model.model, "guided_routing", None)
        if routing is not None:
            check_plain(*routing.modules())
            self.guide = (with_products(routing, self.make), self.encoder.guided_votes)

    def embed(self, tokens: Tensor, position: int | Tensor) -> Tensor:
        """Return the embeddings `[rows, d]` of tokens `[rows]` with that of their position."""
        embedded = self.embedded(tokens)
        if isinstance(position, Tensor):
            position = position.clamp(max=len(self.positions) - 1)
        return torch.add(self.positions[position], embedded, alpha=self.scale)

    def finish(self, outputs: list[Tensor]) -> Tensor:
        """Return the last layer's output, or the aggregation of all, `[rows, d]`."""
        if self.aggregate is None:
            return outputs[-1]
        return self.aggregate(outputs)


def folded_aggregation(module: LayerAggregation, make: Make) -> Callable[[list[Tensor]], Tensor]:
    """Return the aggregation of the outputs of L layers, `[rows, d]` each, to `[rows, d]`.

    A routed aggregation computes votes and activations from its `inputs`, a linear map of the layers whose output
    nothing else reads. So the votes are one linear map of the layers, and the activations another. The two weights of
    each are multiplied in float64, once, and every step multiplies once instead of twice.
    """
    aggregate = _aggregator(module.aggregator, make)
    normalise = norm(module.layer_norm)
    if module.gamma is None:
        return lambda layers: normalise(aggregate(torch.stack(layers, dim=-2)))
    gamma = module.gamma.detach().clone()

    def added(layers: list[Tensor]) -> Tensor:
        result = normalise(aggregate(torch.stack(layers, dim=-2)))
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
