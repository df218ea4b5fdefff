"""Marian's decoder, and what this package puts into it: routed heads, aggregated layers, guided routing.

The keys and values of the source are computed once and read by all beams of a sentence; for those of the target see
target_cache.py.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import MarianMTModel
from transformers.models.marian.modeling_marian import (
    MarianAttention,
    MarianDecoder,
    MarianDecoderLayer,
    MarianModel,
    MarianSinusoidalPositionalEmbedding,
)
from transformers.utils import ModelOutput

from ..modeling.aggregation import ResidualRoutedHeads, RoutedHeads
from ..modeling.modeling_capsule_aggregated_marian import (
    CapsuleAggregatedMarianDecoder,
    CapsuleAggregatedMarianDecoderLayer,
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianModel,
    Positions,
)
from .decoder_weights import Norm, check_attention, check_plain, norm, product, with_products
from .folded_aggregation import layer_aggregation
from .guided_decoding import Guide
from .precisions import Make, Map
from .rows import masks_together, moved_rows, together
from .target_cache import TargetCache
from .vocabulary import Vocabulary


class MarianAdapter:
    """A copy of the decoder of a Marian model, or of one of the family of this package.

    Args:
        model: with a language model head.
        make: makes its products.

    Raises:
        UnsupportedModelError: if a module is not what its class says.
    """

    def __init__(self, model: MarianMTModel, make: Make) -> None:
        ours = isinstance(model, CapsuleAggregatedMarianForConditionalGeneration)
        body, decoder = model.model, model.model.decoder
        check_plain(model, kind=CapsuleAggregatedMarianForConditionalGeneration if ours else MarianMTModel)
        check_plain(body, kind=CapsuleAggregatedMarianModel if ours else MarianModel)
        check_plain(decoder, kind=CapsuleAggregatedMarianDecoder if ours else MarianDecoder)
        check_plain(decoder.embed_tokens, kind=nn.Embedding)
        check_plain(decoder.embed_positions, kind=Positions if ours else MarianSinusoidalPositionalEmbedding)
        check_plain(model.lm_head, kind=nn.Linear)
        self.encoder = body.encoder
        self.words, self.scale = decoder.embed_tokens.weight.detach(), decoder.embed_scale
        self.positions = decoder.embed_positions.weight.detach()
        kind = CapsuleAggregatedMarianDecoderLayer if ours else MarianDecoderLayer
        self.layers = [DecoderLayer(layer, kind, make) for layer in decoder.layers]
        aggregation = decoder.aggregation if ours else None
        self.aggregation = None if aggregation is None else layer_aggregation(aggregation, make)
        self.guide = None
        if ours and body.guided_routing is not None:
            self.guide = Guide(body.guided_routing, self.encoder.guided_votes, make)
        bias = model.final_logits_bias.flatten()
        if model.lm_head.bias is not None:
            bias = bias + model.lm_head.bias
        self.vocabulary = Vocabulary(model.lm_head.weight, bias, make)

    def begin(self, encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> "MarianDecoding":
        """Return the decoding of sentences `[sentences, source]` from its start."""
        return MarianDecoding(self, encoded, mask, num_beams)


class DecoderLayer:
    """The weights of a decoder's layer."""

    def __init__(self, layer: MarianDecoderLayer, kind: type[MarianDecoderLayer], make: Make) -> None:
        check_plain(layer, kind=kind)
        own, cross = layer.self_attn, layer.encoder_attn
        check_plain(own, cross, kind=MarianAttention)
        check_attention(own, cross)
        self.heads = own.num_heads
        self.own_projections = product(own.q_proj, own.k_proj, own.v_proj, make=make)
        self.own_output, self.own_norm = _output(own.out_proj, make), norm(layer.self_attn_layer_norm)
        self.query, self.source = product(cross.q_proj, make=make), product(cross.k_proj, cross.v_proj, make=make)
        self.cross_output, self.cross_norm = _output(cross.out_proj, make), norm(layer.encoder_attn_layer_norm)
        self.inner, self.outer, self.activation = (
            product(layer.fc1, make=make),
            product(layer.fc2, make=make),
            layer.activation_fn,
        )
        self.norm: Norm = norm(layer.final_layer_norm)

    def read_source(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values `[sentences, heads, source, d / heads]` of encoder states `[sentences, source, d]`."""
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
        attended = F.scaled_dot_product_attention(query, seen[:, 0], seen[:, 1], mask)
        attended = self.own_output(attended.transpose(1, 2).reshape(hidden.shape))
        return self.own_norm(attended.add_(hidden))

    def attend_to_source(self, hidden: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attend to the source, and go through the feed-forward network."""
        query = self.query(hidden).view(keys.shape[0], -1, self.heads, keys.shape[-1]).transpose(1, 2)
        attended = F.scaled_dot_product_attention(query, keys, values, mask)
        attended = self.cross_output(attended.transpose(1, 2).reshape(hidden.shape))
        hidden = self.cross_norm(attended.add_(hidden))
        return self.norm(self.outer(self.activation(self.inner(hidden))).add_(hidden))


def _output(module: nn.Module, make: Make) -> Map:
    """Output projection or aggregation of the heads of an attention, `[rows, d]` -> `[rows, d]`: memory of its own."""
    if type(module) in (RoutedHeads, ResidualRoutedHeads):
        check_plain(module, kind=type(module))
        return with_products(module, make)
    return product(module, make=make)


class MarianDecoding:
    """Sentences that Marian is decoding.

    Args:
        adapter: of the model.
        encoded: output of the encoder.
        mask: `[sentences, source]`, 1 where there is a word; everywhere by default.
        num_beams: of every sentence.
    """

    def __init__(self, adapter: MarianAdapter, encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> None:
        states = encoded.last_hidden_state
        self.adapter, self.num_beams, self.sentences = adapter, num_beams, states.shape[0]
        self.source = [layer.read_source(states) for layer in adapter.layers]
        # Whether it hides nothing is known at once on a CPU alone.
        hides = mask is not None and not (mask.device.type == "cpu" and bool(mask.all()))
        self.mask = mask.bool() if hides else None
        self.source_mask = _source_mask(self.mask, states)
        self.guided = None
        if adapter.guide is not None:
            self.guided = adapter.guide.begin(encoded, mask)
        self.targets = TargetCache(len(adapter.layers), self.source[0][0], num_beams)
        # Words that were read: a number, or `[sentences]`, which is counted up, for several steps that are the same.
        self.position: int | Tensor = 0

    def reserve(self, steps: int, left: int) -> None:
        """Make room for so many steps; see [`Decoding.reserve`]."""
        self.targets.reserve(steps, left)
        if steps > 1:
            self._have_a_position_each()

    def step(self, words: Tensor) -> Tensor:
        """Read the next words; see [`Decoding.step`]."""
        adapter, targets = self.adapter, self.targets
        hidden = self._embed(words.reshape(-1))
        own_mask = targets.begin_step()
        outputs = []
        for index, (layer, (keys, values)) in enumerate(zip(adapter.layers, self.source)):
            hidden = layer.attend_to_self(hidden, targets, index, own_mask)
            hidden = layer.attend_to_source(hidden, keys, values, self.source_mask)
            outputs.append(hidden)
        if adapter.aggregation is not None:
            hidden = adapter.aggregation(outputs)
        if self.guided is not None:
            hidden = self.guided.route(hidden.view(self.sentences, self.num_beams, -1)).flatten(0, 1)
        targets.end_step()
        self.position += 1
        return hidden

    def reorder(self, parents: Tensor) -> None:
        """Let beams go on from others; see [`Decoding.reorder`]."""
        self.targets.reorder(parents)

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Go on with some sentences; see [`Decoding.select`]."""
        self.sentences = len(rows)
        for index, (keys, values) in enumerate(self.source):
            self.source[index] = tuple(moved_rows(tensor, rows, moved)[: len(rows)] for tensor in (keys, values))
        self.targets.select(rows, moved)
        for name in ("mask", "source_mask", "position"):
            if isinstance(getattr(self, name), Tensor):
                setattr(self, name, getattr(self, name)[rows])
        if self.guided is not None:
            self.guided.select(rows)

    def admit(self, new: "MarianDecoding") -> None:
        """Go on with other sentences too; see [`Decoding.admit`]."""
        shapes = tuple((decoding.sentences, decoding.source[0][0].shape[2]) for decoding in (self, new))
        self.mask, words = masks_together(self.mask, new.mask, shapes)
        self.source_mask = _source_mask(self.mask, self.adapter.words)
        for index, (first, second) in enumerate(zip(self.source, new.source)):
            self.source[index] = tuple(together(*pair, 2, words) for pair in zip(first, second))
        if self.guided is not None:
            self.guided.admit(new.guided)
        self._have_a_position_each()
        self.position = torch.cat([self.position, self.position.new_zeros(new.sentences)])
        self.targets.admit(new.sentences)
        self.sentences += new.sentences

    def _embed(self, words: Tensor) -> Tensor:
        """The embeddings `[sentences * beams, d]` of words at their positions."""
        positions, embedded = self.adapter.positions, F.embedding(words, self.adapter.words)
        if isinstance(self.position, int):
            return torch.add(positions[self.position], embedded, alpha=self.adapter.scale)
        # Sentences that are finished may be at none.
        each = positions[self.position.clamp(max=len(positions) - 1)].repeat_interleave(self.num_beams, dim=0)
        return torch.add(each, embedded, alpha=self.adapter.scale)

    def _have_a_position_each(self) -> None:
        if isinstance(self.position, int):
            self.position = torch.full((self.sentences,), self.position, device=self.adapter.words.device)


def _source_mask(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """What attention adds to the scores of source words, `[sentences, 1, 1, source]`, of the dtype of `like`."""
    if mask is None:
        return None
    return like.new_zeros(mask.shape).masked_fill_(~mask, torch.finfo(like.dtype).min)[:, None, None]


ADAPTERS = {MarianMTModel: MarianAdapter, CapsuleAggregatedMarianForConditionalGeneration: MarianAdapter}
