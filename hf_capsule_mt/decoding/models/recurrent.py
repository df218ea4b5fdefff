"""The decoders of RNMT, a conditional GRU with attention, and of CapsNMT, LSTMs that read the state of the sentence."""

import torch
from torch import Tensor
from transformers.utils import ModelOutput

from hf_capsule_mt.modeling.additive_scores import additive_scores
from hf_capsule_mt.modeling.modeling_caps_nmt import CapsNMTForConditionalGeneration
from hf_capsule_mt.modeling.modeling_rnmt import RNMTForConditionalGeneration
from hf_capsule_mt.modeling.word_masks import word_mask

from ..products.products import Map, norm, with_products
from .base import Adapter, Decoding


class _Recurrent(Decoding):
    """Sentences whose decoder has only states. The arguments are those of [`Decoding`]."""

    states: Tensor
    """`[sentences * beams, ...]`."""
    sentence_state: Tensor | None
    """`[sentences, d]`, for decoders that read it."""

    def reorder(self, parents: Tensor) -> None:
        """Copy the states of the beams that others continue."""
        sentences, beams = parents.shape
        first_rows = torch.arange(0, sentences * beams, beams, device=parents.device).unsqueeze(-1)
        rows = (parents + first_rows).flatten()
        self.states.copy_(self.states.index_select(0, rows))

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Keep only some states."""
        super().select(rows, moved)
        of_sentences = self.states.unflatten(0, (-1, self.num_beams))
        self.states = of_sentences[rows].flatten(0, 1)
        if self.sentence_state is not None:
            self.sentence_state = self.sentence_state[rows]

    def embed(self, tokens: Tensor) -> Tensor:
        """Return embeddings `[sentences * beams, d]` of tokens `[sentences, beams]`.

        The state of the sentence is added if there is one.
        """
        embedded = self.adapter.embedded(tokens) * self.adapter.scale
        if self.sentence_state is not None:
            embedded = embedded + self.sentence_state.unsqueeze(1)
        return embedded.flatten(0, 1)


class RNMTDecoding(_Recurrent):
    """Sentences that RNMT is decoding."""

    def __init__(self, adapter: "RNMTAdapter", encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> None:
        super().__init__(adapter, encoded, mask, num_beams)
        # Both are `[sentences, source, d]`.
        self.keys = encoded.attention_keys
        self.values = encoded.last_hidden_state
        self.sentence_state = encoded.sentence_state if adapter.reads_sentence_state else None
        # `[sentences, source]`, True where there is a token, or None.
        self.mask = word_mask(mask, self.values)
        first = adapter.decoder.first_state(self.values, self.mask)
        self.states = first.repeat_interleave(num_beams, dim=0)

    def step(self, tokens: Tensor) -> Tensor:
        """Go through both GRUs, with attention between them."""
        decoder = self.adapter.decoder
        recurrence = decoder.recurrence
        step = recurrence.step
        embedded = self.embed(tokens)
        between = step.first(recurrence.from_words(embedded), self.states)
        context = self._attend(step.attention.query(between))
        after = step.second(step.from_context(context), between)
        self.states.copy_(after)
        parts = [embedded, self.guide(after), context]
        read = decoder.readout(torch.cat(parts, dim=-1))
        return read.tanh_()

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Keep only some states and sources."""
        super().select(rows, moved)
        self.keys = self.keys[rows]
        self.values = self.values[rows]
        if self.mask is not None:
            self.mask = self.mask[rows]

    def _attend(self, queries: Tensor) -> Tensor:
        """Return the contexts of queries, both `[sentences * beams, d]`, as [`AdditiveAttention`] does."""
        queries = queries.view(-1, self.num_beams, queries.shape[1])
        scores = additive_scores(queries, self.keys, self.adapter.score)
        scores = scores.squeeze(-1)
        if self.mask is None:
            weights = scores.softmax(-1)
        else:
            missing = ~self.mask.unsqueeze(1)
            lowest = torch.finfo(scores.dtype).min
            weights = scores.masked_fill(missing, lowest).softmax(-1)
            weights = weights.masked_fill(missing, 0.0)
        contexts = weights @ self.values
        return contexts.flatten(0, 1)


class RNMTAdapter(Adapter):
    """A copy of the decoder of an RNMT model, the hybrid and guided ones included."""

    models = (RNMTForConditionalGeneration,)
    decoding = RNMTDecoding

    def copy(self, model: RNMTForConditionalGeneration) -> None:
        """Copy the decoder's weights."""
        self.scale: float = model.config.d_model**0.5
        self.reads_sentence_state: bool = model.config.sentence_aggregation is not None
        self.decoder = with_products(model.model.decoder, self.make)
        # `[1, d]`.
        attention = self.decoder.recurrence.step.attention
        self.score = attention.score.detach().clone().unsqueeze(0)
        if self.decoder.guided_routing is not None:
            self.guide = (self.decoder.guided_routing, self.encoder.guided_votes)


class CapsNMTDecoding(_Recurrent):
    """Sentences that CapsNMT is decoding."""

    def __init__(self, adapter: "CapsNMTAdapter", encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> None:
        super().__init__(adapter, encoded, mask, num_beams)
        self.sentence_state = encoded.sentence_state
        sentences, width = self.sentence_state.shape
        # The hidden and the cell state of every layer.
        self.states = self.sentence_state.new_zeros(sentences * num_beams, len(adapter.layers), 2, width)

    def step(self, tokens: Tensor) -> Tensor:
        """Go through the LSTMs."""
        layer_input = self.embed(tokens)
        states = []
        for (gates, normalise), before in zip(self.adapter.layers, self.states.unbind(1)):
            # As in the step of [`LSTM`].
            hidden, cell = before.unbind(1)
            gated = gates(torch.cat([layer_input, hidden], dim=1))
            write, keep, candidate, read = gated.chunk(4, dim=-1)
            kept = keep.sigmoid() * cell
            cell = torch.addcmul(kept, write.sigmoid(), candidate.tanh())
            hidden = read.sigmoid() * cell.tanh()
            states += [hidden, cell]
            layer_input = normalise(layer_input + hidden)
        self.states.copy_(torch.stack(states, dim=1).view_as(self.states))
        return layer_input


class CapsNMTAdapter(Adapter):
    """A copy of the decoder of a CapsNMT model."""

    models = (CapsNMTForConditionalGeneration,)
    decoding = CapsNMTDecoding

    def copy(self, model: CapsNMTForConditionalGeneration) -> None:
        """Copy the decoder's weights."""
        self.scale: float = model.config.d_model**0.5
        # For each layer the map to its four gates, and its norm.
        self.layers: list[tuple[Map, Map]] = []
        for layer in model.model.decoder.layers:
            # The gates of the input and the hidden state, side by side, as one product.
            lstm = layer.lstm
            weight = torch.cat([lstm.weight_ih_l0.detach(), lstm.weight_hh_l0.detach()], dim=1)
            bias = (lstm.bias_ih_l0 + lstm.bias_hh_l0).detach()
            gates = self.make(weight.t(), bias)
            self.layers.append((gates, norm(layer.layer_norm)))
