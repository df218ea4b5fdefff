"""Marian's decoder, and what this package puts into it: routed heads, aggregated layers, guided routing.

The keys and values of the source are computed once and read by all beams of a sentence. target_cache.py has the keys
and values of the target.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import MarianMTModel
from transformers.models.marian.modeling_marian import MarianDecoderLayer
from transformers.utils import ModelOutput

from ..modeling.aggregation import BlockLinear, LayerAggregation, ResidualRoutedHeads, RoutedAggregation, RoutedHeads
from ..modeling.modeling_capsule_aggregated_marian import CapsuleAggregatedMarianForConditionalGeneration
from .adapter import Adapter, Decoding
from .fingerprint import check_plain
from .products import Make, Map, norm, product, with_products
from .target_cache import TargetCache, moved_rows


class DecoderLayer:
    """The weights of a decoder's layer."""

    def __init__(self, layer: MarianDecoderLayer, make: Make) -> None:
        own, cross = layer.self_attn, layer.encoder_attn
        self.heads, self.scales = own.num_heads, (own.scaling, cross.scaling)
        self.own_projections = product(own.q_proj, own.k_proj, own.v_proj, make=make)
        self.own_output, self.own_norm = _output(own.out_proj, make), norm(layer.self_attn_layer_norm)
        self.query, self.source = product(cross.q_proj, make=make), product(cross.k_proj, cross.v_proj, make=make)
        self.cross_output, self.cross_norm = _output(cross.out_proj, make), norm(layer.encoder_attn_layer_norm)
        self.inner, self.outer = product(layer.fc1, make=make), product(layer.fc2, make=make)
        self.activation, self.norm = layer.activation_fn, norm(layer.final_layer_norm)

    def read_source(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values `[sentences, heads, source, d / heads]` of encoder states `[sentences, source, d]`."""
        keys_and_values = self.source(states.flatten(0, 1)).view(*states.shape[:2], 2, self.heads, -1)
        keys, values = keys_and_values.permute(2, 0, 3, 1, 4).contiguous()
        return keys, values

    def attend_to_self(self, hidden: Tensor, targets: TargetCache, layer: int, mask: Tensor | None) -> Tensor:
        """Write keys and values to the new slots of a layer of the cache, and attend to those that are read."""
        cache = targets.layers[layer][: targets.sentences]
        projected = self.own_projections(hidden).view(len(cache), -1, 3, self.heads, cache.shape[-1])
        query, *_ = projected = projected.permute(2, 0, 3, 1, 4)
        cache[:, :, :, targets.new] = projected[1:].transpose(0, 1)
        seen = cache[:, :, :, targets.read]
        attended = F.scaled_dot_product_attention(query, seen[:, 0], seen[:, 1], mask, scale=self.scales[0])
        attended = self.own_output(attended.transpose(1, 2).reshape(hidden.shape))
        return self.own_norm(attended.add_(hidden))

    def attend_to_source(self, hidden: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attend to the source, and go through the feed-forward network."""
        query = self.query(hidden).view(keys.shape[0], -1, self.heads, keys.shape[-1]).transpose(1, 2)
        attended = F.scaled_dot_product_attention(query, keys, values, mask, scale=self.scales[1])
        attended = self.cross_output(attended.transpose(1, 2).reshape(hidden.shape))
        hidden = self.cross_norm(attended.add_(hidden))
        return self.norm(self.outer(self.activation(self.inner(hidden))).add_(hidden))


def _output(module: nn.Module, make: Make) -> Map:
    """Return the output projection or aggregation of the heads of an attention, `[rows, d]` -> `[rows, d]`."""
    if isinstance(module, RoutedHeads | ResidualRoutedHeads):
        return with_products(module, make)
    return product(module, make=make)


class MarianDecoding(Decoding):
    """Sentences that Marian is decoding."""

    def __init__(self, adapter: "MarianAdapter", encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> None:
        super().__init__(adapter, encoded, mask, num_beams)
        states = encoded.last_hidden_state
        self.source = [layer.read_source(states) for layer in adapter.layers]
        self.source_mask = None
        # Only a CPU knows at once whether a mask hides nothing.
        if mask is not None and not (mask.device.type == "cpu" and mask.all()):
            hidden = states.new_zeros(mask.shape).masked_fill_(mask == 0, torch.finfo(states.dtype).min)
            self.source_mask = hidden[:, None, None]
        self.targets = TargetCache(len(adapter.layers), self.source[0][0], num_beams)
        # Tokens that were read: a number, or `[1]`, which is counted up, for several steps that are the same.
        self.position: int | Tensor = 0

    def reserve(self, steps: int, left: int) -> None:
        """Make room in the cache of the target."""
        self.targets.reserve(steps, left)
        if steps > 1 and isinstance(self.position, int):
            self.position = torch.full((1,), self.position, device=self.adapter.embeddings.device)

    def step(self, tokens: Tensor) -> Tensor:
        """Go through the layers, their aggregation and guided routing."""
        adapter, targets = self.adapter, self.targets
        hidden = self._embed(tokens.reshape(-1))
        own_mask = targets.begin_step()
        outputs = []
        for index, (layer, (keys, values)) in enumerate(zip(adapter.layers, self.source)):
            hidden = layer.attend_to_self(hidden, targets, index, own_mask)
            hidden = layer.attend_to_source(hidden, keys, values, self.source_mask)
            outputs.append(hidden)
        if adapter.aggregation is not None:
            hidden = adapter.aggregation(outputs)
        targets.end_step()
        self.position += 1
        return self.guide(hidden)

    def reorder(self, parents: Tensor) -> None:
        """Let beams attend to the tokens of others."""
        self.targets.reorder(parents)

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Keep only some sentences, in the memory of all."""
        super().select(rows, moved)
        for index, (keys, values) in enumerate(self.source):
            self.source[index] = tuple(moved_rows(tensor, rows, moved)[: len(rows)] for tensor in (keys, values))
        self.targets.select(rows, moved)
        if self.source_mask is not None:
            self.source_mask = self.source_mask[rows]

    def _embed(self, tokens: Tensor) -> Tensor:
        """Return the embeddings `[sentences * beams, d]` of tokens at their positions."""
        positions, embedded = self.adapter.positions, F.embedding(tokens, self.adapter.embeddings)
        position = self.position if isinstance(self.position, int) else self.position.clamp(max=len(positions) - 1)
        return torch.add(positions[position], embedded, alpha=self.adapter.scale)


class MarianAdapter(Adapter):
    """A copy of the decoder of a Marian model, or of one of the family of this package."""

    models = (MarianMTModel, CapsuleAggregatedMarianForConditionalGeneration)
    decoding = MarianDecoding

    def copy(self, model: MarianMTModel) -> None:
        """Copy the decoder's weights."""
        decoder = model.model.decoder
        self.scale, self.positions = decoder.embed_scale, decoder.embed_positions.weight.detach()
        self.layers = [DecoderLayer(layer, self.make) for layer in decoder.layers]
        aggregation = getattr(decoder, "aggregation", None)
        self.aggregation = None if aggregation is None else folded_aggregation(aggregation, self.make)
        routing = getattr(model.model, "guided_routing", None)
        if routing is not None:
            check_plain(*routing.modules())
            self.guide = with_products(routing, self.make), self.encoder.guided_votes

    def bias_of(self, model: MarianMTModel) -> Tensor:
        """Return the sum of both biases."""
        bias = model.final_logits_bias.flatten()
        return bias if model.lm_head.bias is None else bias + model.lm_head.bias


def folded_aggregation(module: LayerAggregation, make: Make) -> Callable[[list[Tensor]], Tensor]:
    """Return the aggregation of the outputs of L layers, `[rows, d]` each, to `[rows, d]`.

    F, which the votes W and the activations A are computed from, is linear and read by nothing else. So W F and A F
    are one map of the layers each. They are multiplied in float64, once.
    """
    aggregate = _aggregator(module.aggregator, make)
    normalise = norm(module.layer_norm)
    gamma = None if module.gamma is None else module.gamma.detach().clone()

    def aggregated(layers: list[Tensor]) -> Tensor:
        result = normalise(aggregate(torch.stack(layers, dim=-2)))
        return result if gamma is None else layers[-1] + gamma * result

    return aggregated


def _aggregator(module: nn.Module, make: Make) -> Map:
    if not isinstance(module, RoutedAggregation):
        copied = with_products(module, make)
        return lambda layers: copied(layers)[0]
    votes = _compose(module.inputs, module.votes, module.num_layers, make)
    if module.activations is None:
        return lambda layers: module.routing(votes(layers))[0]
    activations = _compose(module.inputs, module.activations, module.num_layers, make)
    return lambda layers: module.routing(votes(layers), activations(layers).sigmoid())[0]


def _compose(first: nn.Module, second: nn.Module, blocks: int, make: Make) -> Map:
    """Return the second map after the first, `[rows, L, d]` -> `[rows, L, ...]`."""
    if isinstance(first, BlockLinear) and isinstance(second, BlockLinear):
        inner, outer = first.weight.detach().double(), second.weight.detach().double()
        weight = (inner @ outer).to(first.weight.dtype)
        bias = first.bias.detach().double().unsqueeze(1) @ outer + second.bias.detach().double().unsqueeze(1)
        bias = bias.to(weight)
        return lambda layers: torch.baddbmm(bias, layers.transpose(0, 1), weight).transpose(0, 1)
    width = first.weight.shape[-1] * (blocks if isinstance(first, BlockLinear) else 1)
    (inner, inner_bias), (outer, outer_bias) = _dense(first), _dense(second)
    weight, bias = (inner @ outer).to(first.weight.dtype), (inner_bias @ outer + outer_bias).to(first.weight.dtype)
    composed = make(weight, bias)
    return lambda layers: composed(layers.reshape(-1, width)).view(layers.shape[0], blocks, -1)


def _dense(module: nn.Module) -> tuple[Tensor, Tensor]:
    """Return the weight `[in, out]` and the bias `[out]` of the map of concatenated blocks, in float64."""
    weight, bias = module.weight.detach().double(), module.bias.detach().double().flatten()
    return (torch.block_diag(*weight) if isinstance(module, BlockLinear) else weight.t()), bias
