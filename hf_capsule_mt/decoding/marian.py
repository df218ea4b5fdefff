"""Marian's decoder, and what this package puts into it: routed heads, aggregated layers, guided routing.

The keys and values of the source are computed once and read by all beams of a sentence. Those of the target are written
once, to a slot for each step and beam, and never moved: beams differ in the slots that they attend to, their ancestors.
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

from ..modeling.capsule_aggregated_marian import (
    CapsuleAggregatedMarianDecoder,
    CapsuleAggregatedMarianDecoderLayer,
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianModel,
)
from ..modeling.layers.head_aggregation import ResidualRoutedHeads, RoutedHeads
from .guided_routing import Guide
from .layer_aggregation import layer_aggregation
from .products import Make, Map
from .rows import masks_together, together
from .vocabulary import Vocabulary
from .weights import Norm, check_plain, norm, product, with_products

_STEPS = 32
"""Steps that there are slots for at first, and how many more there are when these are used up."""


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
        check_plain(decoder.embed_positions, kind=MarianSinusoidalPositionalEmbedding)
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
        bias = model.final_logits_bias.flatten().detach()
        self.vocabulary = Vocabulary(model.lm_head.weight.detach(), bias, make)

    def begin(self, encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> "MarianDecoding":
        """Return the decoding of sentences `[sentences, source]` from its start."""
        return MarianDecoding(self, encoded, mask, num_beams)


class DecoderLayer:
    """The weights of a decoder's layer."""

    def __init__(self, layer: MarianDecoderLayer, kind: type[MarianDecoderLayer], make: Make) -> None:
        check_plain(layer, kind=kind)
        own, cross = layer.self_attn, layer.encoder_attn
        check_plain(own, cross, kind=MarianAttention)
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

    def attend_to_self(self, hidden: Tensor, cache: Tensor, new: slice, read: slice, mask: Tensor | None) -> Tensor:
        """Write keys and values to the slots `new` of the cache, and attend to the slots `read`."""
        sentences = cache.shape[0]
        projected = self.own_projections(hidden).view(sentences, -1, 3, self.heads, cache.shape[-1])
        query, *_ = projected = projected.permute(2, 0, 3, 1, 4)
        cache[:, :, :, new] = projected[1:].transpose(0, 1)
        seen = cache[:, :, :, read]
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
        self.mask = None if mask is None or bool(mask.all()) else mask.bool()
        self.source_mask = _source_mask(self.mask, states)
        self.guided = None
        if adapter.guide is not None:
            self.guided = adapter.guide.begin(encoded, mask)
        # Keys and values of the target, a row for every sentence and more: those that left, and those to come.
        self.caches: list[Tensor] = []
        # Which slots a beam does not attend to: all but its ancestors, itself included. None where it attends to all.
        self.strangers: Tensor | None = None
        self.itself = states.new_full((num_beams, num_beams), -torch.inf).fill_diagonal_(0)
        # The slots that are read go from the start of the oldest sentence to the newest step.
        self.first, self.slots = 0, 0
        # The slots at which the sentences began; None if all of them at the first.
        self.begins: Tensor | None = None

    def step(self, words: Tensor) -> Tensor:
        """Read the next words; see [`Decoding.step`]."""
        adapter = self.adapter
        positions = self._positions()
        new = self._new_slots()
        read = slice(self.first, new.stop)
        own_mask = None if self.strangers is None else self.strangers[:, None, :, read]
        embedded = F.embedding(words.reshape(-1), adapter.words)
        hidden = torch.add(positions, embedded, alpha=adapter.scale)
        outputs = []
        for layer, cache, (keys, values) in zip(adapter.layers, self.caches, self.source):
            hidden = layer.attend_to_self(hidden, cache[: self.sentences], new, read, own_mask)
            hidden = layer.attend_to_source(hidden, keys, values, self.source_mask)
            outputs.append(hidden)
        if adapter.aggregation is not None:
            hidden = adapter.aggregation(outputs)
        if self.guided is not None:
            hidden = self.guided.route(hidden.view(self.sentences, self.num_beams, -1)).flatten(0, 1)
        return hidden

    def reorder(self, parents: Tensor) -> None:
        """Let beams go on from others; see [`Decoding.reorder`]."""
        strangers = self.strangers[:, :, self.first : self.slots]
        strangers.copy_(strangers.gather(1, parents.unsqueeze(-1).expand(-1, -1, strangers.shape[2])))

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Go on with some sentences; see [`Decoding.select`]."""
        self.sentences = len(rows)
        for index, (keys, values) in enumerate(self.source):
            self.source[index] = tuple(_moved(tensor, rows, moved)[: len(rows)] for tensor in (keys, values))
        for cache in self.caches:
            _moved(cache[:, :, :, self.first : self.slots], rows, moved)
        for name in ("mask", "source_mask", "strangers", "begins"):
            if getattr(self, name) is not None:
                setattr(self, name, getattr(self, name)[rows])
        if self.begins is not None:
            self.first = int(self.begins.min())
        if self.guided is not None:
            self.guided.select(rows)

    def admit(self, new: "MarianDecoding") -> None:
        """Go on with other sentences too; see [`Decoding.admit`]."""
        shapes = tuple((decoding.sentences, decoding.source[0][0].shape[2]) for decoding in (self, new))
        self.mask, words = masks_together(self.mask, new.mask, shapes)
        self.source_mask = _source_mask(self.mask, self.itself)
        for index, (first, second) in enumerate(zip(self.source, new.source)):
            self.source[index] = tuple(together(*pair, 2, words) for pair in zip(first, second))
        if self.guided is not None:
            self.guided.admit(new.guided)
        self._admit_targets(new.sentences)

    def _admit_targets(self, count: int) -> None:
        """Let so many sentences begin with the next slot, which attend to none before."""
        if self.begins is None:
            self.begins = torch.zeros(self.sentences, dtype=torch.long, device=self.itself.device)
        if self.strangers is None:
            self.strangers = self.itself.new_zeros(self.sentences, 1, self._room())
        strangers = self.strangers.new_full((count, *self.strangers.shape[1:]), -torch.inf)
        self.strangers = torch.cat([self.strangers, strangers])
        self.begins = torch.cat([self.begins, self.begins.new_full((count,), self.slots)])
        self.sentences += count
        if self.sentences > len(self.caches[0]):
            # More than are needed now, since sources that follow are often shorter, so that there will be more of them.
            missing = self.sentences * 3 // 2 - len(self.caches[0])
            self.caches = [torch.cat([cache, cache.new_zeros(missing, *cache.shape[1:])]) for cache in self.caches]

    def _positions(self) -> Tensor:
        """The embeddings of the next positions, `[d]` or `[sentences * beams, d]`."""
        if self.begins is None:
            return self.adapter.positions[self.slots // self.num_beams]
        steps = (self.slots - self.begins).div(self.num_beams, rounding_mode="floor")
        return self.adapter.positions[steps].repeat_interleave(self.num_beams, dim=0)

    def _room(self) -> int:
        return self.caches[0].shape[3] if self.caches else 0

    def _new_slots(self) -> slice:
        if self.slots + self.num_beams > self._room():
            self._make_room()
        new = slice(self.slots, self.slots + self.num_beams)
        if self.strangers is not None:
            self.strangers[:, :, new] = self.itself
        self.slots = new.stop
        return new

    def _make_room(self) -> None:
        """Make slots at first, then move those that are read to the front, or make more where that gains too few."""
        if not self.caches:
            keys = self.source[0][0]
            shape = self.sentences, 2, keys.shape[1], _STEPS * self.num_beams, keys.shape[3]
            self.caches = [keys.new_zeros(shape) for _ in self.source]
            if self.num_beams > 1:
                self.strangers = keys.new_full((self.sentences, self.num_beams, shape[3]), -torch.inf)
        elif 4 * self.first >= self.slots:
            used, read = self.slots - self.first, slice(self.first, self.slots)
            for cache in self.caches:
                # A copy, since the slots may overlap.
                cache[: self.sentences, :, :, :used] = cache[: self.sentences, :, :, read].clone()
            self.strangers[:, :, :used] = self.strangers[:, :, read].clone()
            self.begins -= self.first
            self.first, self.slots = 0, used
        else:
            more = self.num_beams * _STEPS
            for layer, cache in enumerate(self.caches):
                # One after the other, so that only one is there twice.
                self.caches[layer] = F.pad(cache, (0, 0, 0, more))
            if self.strangers is not None:
                self.strangers = F.pad(self.strangers, (0, more), value=-torch.inf)


def _source_mask(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """What attention adds to the scores of source words, `[sentences, 1, 1, source]`, of the dtype of `like`."""
    if mask is None:
        return None
    return like.new_zeros(mask.shape).masked_fill_(~mask, torch.finfo(like.dtype).min)[:, None, None]


def _moved(tensor: Tensor, rows: Tensor, moved: Tensor) -> Tensor:
    """Put the rows that stand elsewhere now where they belong; return the tensor."""
    if len(moved):
        tensor[moved] = tensor[rows[moved]]
    return tensor


ADAPTERS = {MarianMTModel: MarianAdapter, CapsuleAggregatedMarianForConditionalGeneration: MarianAdapter}
