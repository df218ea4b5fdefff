"""What decoders of the Transformer family share: their layers, and the sentences that they decode. And Marian's.

The keys and values of the source are computed once and read by all beams of a sentence. target_cache.py has the keys
and values of the target.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import MarianMTModel, PreTrainedModel
from transformers.utils import ModelOutput

from hf_capsule_mt.modeling.aggregation import ResidualRoutedHeads, RoutedHeads
from hf_capsule_mt.modeling.modeling_capsule_aggregated_marian import CapsuleAggregatedMarianForConditionalGeneration
from hf_capsule_mt.modeling.streams import LayerStates, Stream

from ..fingerprint import check_plain
from ..products.products import Make, Map, Product, norm, product, with_products
from .aggregation import folded_aggregation
from .base import Adapter, Decoding
from .target_cache import TargetCache, moved_rows


class DecoderLayer(ABC):
    """The weights of a decoder's layer, and its three parts. Subclasses say where their norms are.

    The parts are attention to the target (`self_attn` in Transformers), attention to the source (`encoder_attn`), and
    the feed-forward network.

    Args:
        layer: a layer of Transformers with the names of Marian's, such as `self_attn.q_proj` and `fc1`.
        make: makes the products.
    """

    def __init__(self, layer: Any, make: Make) -> None:
        to_target = layer.self_attn
        self.heads: int = to_target.num_heads
        self.target_scale: float = to_target.scaling
        self.target_projections = product(to_target.q_proj, to_target.k_proj, to_target.v_proj, make=make)
        self.target_output = _output(to_target.out_proj, make)
        self.target_norm = norm(layer.self_attn_layer_norm)
        to_source = layer.encoder_attn
        self.source_scale: float = to_source.scaling
        self.source_query = product(to_source.q_proj, make=make)
        # Keys and values of the source, which do not change from step to step.
        self.source_projections = product(to_source.k_proj, to_source.v_proj, make=make)
        self.source_output = _output(to_source.out_proj, make)
        self.source_norm = norm(layer.encoder_attn_layer_norm)
        self.inner = product(layer.fc1, make=make)
        self.outer = product(layer.fc2, make=make)
        self.activation = layer.activation_fn
        self.network_norm = norm(layer.final_layer_norm)

    @abstractmethod
    def __call__(
        self, hidden: Tensor, sentences: "TransformerDecoding", index: int, target_mask: Tensor | None
    ) -> Tensor:
        """Go through the layer, which is number `index` of the decoder.

        Args:
            hidden: states, `[sentences * beams, d]`. They are not changed.
            sentences: have the keys and values that are attended to.
            target_mask: what [`TransformerDecoding.begin_step`] returned.
        """

    def for_rows(self, rows: int) -> "DecoderLayer":
        """Return the layer with the products that are fastest for so many rows."""
        layer = copy(self)
        for name, part in vars(self).items():
            if isinstance(part, Product):
                setattr(layer, name, part.for_rows(rows))
        return layer

    def read_source(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values `[sentences, heads, source, d / heads]` of encoder states `[sentences, source, d]`."""
        sentences, length, _ = states.shape
        projected = self.source_projections(states.flatten(0, 1))
        keys_and_values = projected.view(sentences, length, 2, self.heads, -1)
        keys, values = keys_and_values.permute(2, 0, 3, 1, 4).contiguous()
        return keys, values

    def attend_to_target(self, hidden: Tensor, targets: TargetCache, index: int, mask: Tensor | None) -> Tensor:
        """Write keys and values to the new slots of layer `index` of the cache, and attend to those that are read.

        Args:
            hidden: states, `[sentences * beams, d]`.
            targets: the cache.
            index: the number of the layer.
            mask: is added to the scores, `[sentences, 1 or heads, beams, slots]`.

        Returns:
            A new tensor, `[sentences * beams, d]`.
        """
        sentences = targets.sentences
        # `[2, sentences or more, heads, slots, d / heads]`.
        cache = targets.layers[index]
        projected = self.target_projections(hidden)
        by_head = projected.view(sentences, -1, 3, self.heads, cache.shape[-1])
        # `[3, sentences, heads, beams, d / heads]`.
        by_head = by_head.permute(2, 0, 3, 1, 4)
        query = by_head[0]
        cache[:, :sentences, :, targets.new_slots] = by_head[1:]
        keys, values = cache[:, :sentences, :, targets.read_slots]
        attended = F.scaled_dot_product_attention(query, keys, values, mask, scale=self.target_scale)
        return self.target_output(attended.transpose(1, 2).reshape(hidden.shape[0], -1))

    def attend_to_source(self, hidden: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attend to the source.

        Args:
            hidden: states, `[sentences * beams, d]`.
            keys: what [`read_source`] returned, as are `values`.
            mask: is added to the scores, `[sentences, 1, 1, source]`.

        Returns:
            A new tensor, `[sentences * beams, d]`.
        """
        sentences, heads, _, width = keys.shape
        query = self.source_query(hidden).view(sentences, -1, heads, width)
        query = query.transpose(1, 2)
        attended = F.scaled_dot_product_attention(query, keys, values, mask, scale=self.source_scale)
        return self.source_output(attended.transpose(1, 2).reshape(hidden.shape[0], -1))

    def feed_forward(self, hidden: Tensor) -> Tensor:
        """Go through the feed-forward network, `[rows, d]` -> `[rows, d]`, a new tensor."""
        return self.outer(self.activation(self.inner(hidden)))


def _output(module: nn.Module, make: Make) -> Map:
    """Return the output projection or aggregation of the heads of an attention, `[rows, d]` -> `[rows, d]`."""
    if isinstance(module, RoutedHeads | ResidualRoutedHeads):
        return with_products(module, make)
    return product(module, make=make)


class PostNormLayer(DecoderLayer):
    """A layer that normalises the sum of what goes into a part and what comes out of it."""

    def __call__(
        self, hidden: Tensor, sentences: "TransformerDecoding", index: int, target_mask: Tensor | None
    ) -> Tensor:
        """Go through the layer."""
        attended = self.attend_to_target(hidden, sentences.targets, index, target_mask)
        hidden = self.target_norm(attended.add_(hidden))
        attended = self.attend_to_source(hidden, *sentences.source[index], sentences.source_mask)
        hidden = self.source_norm(attended.add_(hidden))
        return self.network_norm(self.feed_forward(hidden).add_(hidden))


class PreNormLayer(DecoderLayer):
    """A layer that normalises what goes into a part. Sums of what goes in and comes out are not normalised."""

    def __call__(
        self, hidden: Tensor, sentences: "TransformerDecoding", index: int, target_mask: Tensor | None
    ) -> Tensor:
        """Go through the layer."""
        attended = self.attend_to_target(self.target_norm(hidden), sentences.targets, index, target_mask)
        hidden = attended.add_(hidden)
        attended = self.attend_to_source(self.source_norm(hidden), *sentences.source[index], sentences.source_mask)
        hidden = attended.add_(hidden)
        return self.feed_forward(self.network_norm(hidden)).add_(hidden)


class TransformerDecoding(Decoding):
    """Sentences that a decoder of the Transformer family decodes. The arguments are those of [`Decoding`]."""

    adapter: "TransformerAdapter"

    def __init__(self, adapter: Adapter, encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> None:
        super().__init__(adapter, encoded, mask, num_beams)
        # In 16 bits where Transformers has encoded by such weights.
        states = encoded.last_hidden_state.float()
        # What each layer reads, `[sentences, source, d]`.
        of_layers = [states] * len(self.adapter.layers)
        if self.adapter.mixes_source:
            of_layers = _states_of_layers(encoded)
        # For each layer keys and values, `[sentences, heads, source, d / heads]`.
        self.source = []
        for layer, of_layer in zip(self.adapter.layers, of_layers, strict=True):
            self.source.append(layer.read_source(of_layer))
        # `[sentences, 1, 1, source]`, or None if nothing is hidden. Only a CPU knows that at once.
        self.source_mask: Tensor | None = None
        if mask is not None and not (mask.device.type == "cpu" and mask.all()):
            least = torch.finfo(states.dtype).min
            added = states.new_zeros(mask.shape)
            added.masked_fill_(mask == 0, least)
            self.source_mask = added[:, None, None]
        keys, _ = self.source[0]
        num_layers = len(self.adapter.layers)
        self.targets = TargetCache(num_layers, keys, num_beams, self.adapter.has_relative_positions)
        self._choose_products()
        # Tokens that were read: a number, or `[1]`, which is counted up, for several steps that are the same.
        self.position: int | Tensor = 0

    def reserve(self, steps: int, left: int) -> None:
        """Make room in the cache of the target."""
        self.targets.reserve(steps, left)
        if steps > 1 and isinstance(self.position, int):
            self.position = torch.full((1,), self.position, device=self.adapter.embeddings.device)

    def step(self, tokens: Tensor) -> Tensor:
        """Go through the layers, and what follows them."""
        target_mask = self.begin_step()
        states = LayerStates(self.adapter.stream)
        states.begin(self.adapter.embed(tokens.reshape(-1), self.position))
        for index, layer in enumerate(self.bound_layers):
            states.append(layer(states.next_input(), self, index, target_mask))
        hidden = self.adapter.finish(states)
        self.targets.end_step()
        self.position += 1
        return hidden if self.routed is None else self.guide(hidden)

    def begin_step(self) -> Tensor | None:
        """Return what attention to the target adds to its scores, `[sentences, 1 or heads, beams, slots]`, or None."""
        return self.targets.begin_step(self.position)

    def reorder(self, parents: Tensor) -> None:
        """Let beams attend to the tokens of others."""
        self.targets.reorder(parents)

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Keep only some sentences, in the memory of all."""
        super().select(rows, moved)
        count = len(rows)
        for index, (keys, values) in enumerate(self.source):
            keys = moved_rows(keys, rows, moved)[:count]
            values = moved_rows(values, rows, moved)[:count]
            self.source[index] = (keys, values)
        self.targets.select(rows, moved)
        self._choose_products()
        if self.source_mask is not None:
            self.source_mask = self.source_mask[rows]

    def _choose_products(self) -> None:
        """Choose the products of the layers for the number of rows that there are now."""
        rows = self.targets.sentences * self.num_beams
        self.bound_layers = [layer.for_rows(rows) for layer in self.adapter.layers]


def _states_of_layers(encoded: ModelOutput) -> list[Tensor]:
    """Return the states of the source that each layer of the decoder reads, `[sentences, source, d]` each.

    Raises:
        ValueError: if there are none. The decoder of the model refuses that too.
    """
    states = encoded.get("source_states")
    if states is None:
        raise ValueError("encoder_outputs lack source_states. Give the whole output of the encoder.")
    return [of_layer.float() for of_layer in states.unbind(1)]


class TransformerAdapter(Adapter):
    """The parts of a decoder of the Transformer family."""

    decoding = TransformerDecoding
    has_relative_positions: ClassVar[bool] = False
    """Whether attention to the target depends on the distance of two tokens."""
    layers: list[DecoderLayer]
    aggregate: Callable[[list[Tensor]], Tensor] | None = None
    """The aggregation of the outputs of all layers. Models of Transformers have none."""
    stream: Stream | None = None
    """Makes what each layer reads, at the same position. None is the plain stack."""
    mixes_source: bool = False
    """Whether each layer reads a mix of its own of the encoder's layers."""

    def copy_routing(self, model: PreTrainedModel) -> None:
        """Copy what a family of this package adds to a decoder: the aggregation of layers, and guided routing.

        An encoder makes the mixes of its layers that the decoder's layers read, once for a sentence.
        """
        aggregation = getattr(model.model.decoder, "aggregation", None)
        if aggregation is not None:
            self.aggregate = folded_aggregation(aggregation, self.make)
        stream = getattr(model.model.decoder, "stack_aggregation", None)
        if stream is not None:
            self.stream = with_products(stream, self.make)
        self.mixes_source = getattr(model.model.encoder, "source_aggregation", None) is not None
        routing = getattr(model.model, "guided_routing", None)
        if routing is not None:
            check_plain(*routing.modules())
            self.guide = (with_products(routing, self.make), self.encoder.guided_votes)

    def bias_of(self, model: PreTrainedModel) -> Tensor | None:
        """Return the sum of both biases, `[vocabulary]`, or None. M2M-100 has none, and others may have two."""
        bias = getattr(model, "final_logits_bias", None)
        if bias is None:
            return model.lm_head.bias
        if model.lm_head.bias is None:
            return bias.flatten()
        return bias.flatten() + model.lm_head.bias

    @abstractmethod
    def embed(self, tokens: Tensor, position: int | Tensor) -> Tensor:
        """Return the input of the first layer, `[rows, d]`.

        Args:
            tokens: token ids, `[rows]`, all at the same position.
            position: the number of tokens before them, or a tensor of it, `[1]`.
        """

    def finish(self, states: LayerStates) -> Tensor:
        """Return the decoder's states `[rows, d]`, given those between its layers, `[rows, d]` each."""
        if self.aggregate is None:
            return states.top()
        # Without the embeddings.
        return self.aggregate(states.states[1:])


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
        self.copy_routing(model)

    def embed(self, tokens: Tensor, position: int | Tensor) -> Tensor:
        """Return the embeddings `[rows, d]` of tokens `[rows]` with that of their position."""
        embedded = self.embeddings.index_select(0, tokens)
        return torch.add(self.positions[position], embedded, alpha=self.scale)
