"""The decoders of RNMT, a conditional GRU with attention, and of CapsNMT, LSTMs that read the state of the sentence."""

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.utils import ModelOutput

from ..modeling.guided_routing import additive_scores
from ..modeling.modeling_caps_nmt import CapsNMTForConditionalGeneration
from ..modeling.modeling_rnmt import RNMTForConditionalGeneration
from ..modeling.recurrent import LSTM
from ..modeling.routing import mean_over_words, word_mask
from .adapter import Adapter, Guide
from .decoder_weights import norm, product
from .precisions import Make, Map


class RNMTAdapter(Adapter):
    """A copy of the decoder of an RNMT model, the hybrid and guided ones included."""

    models = (RNMTForConditionalGeneration,)

    def copy(self, model: RNMTForConditionalGeneration) -> None:
        """Copy the decoder's weights."""
        decoder, make = model.model.decoder, self.make
        step = decoder.recurrence.step
        self.config, self.scale = model.config, model.config.d_model**0.5
        self.start = product(decoder.start, make=make)
        self.from_words = product(decoder.recurrence.from_words, make=make)
        self.first = product(step.first.from_hidden, make=make)
        self.from_context = product(step.from_context, make=make)
        self.second = product(step.second.from_hidden, make=make)
        self.query = product(step.attention.query, make=make)
        self.score = step.attention.score.detach().clone().unsqueeze(0)
        self.readout = product(decoder.readout, make=make)
        if decoder.guided_routing is not None:
            self.guide = Guide(decoder.guided_routing, self.encoder.guided_votes, make)

    def begin(self, encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> "RNMTDecoding":
        """Return the decoding of sentences from its start; see [`Adapter.begin`]."""
        return RNMTDecoding(self, encoded, mask, num_beams)


class _Recurrent:
    """Sentences whose decoder has only states: `states` has a row for every beam."""

    num_beams: int
    states: Tensor
    sentence_state: Tensor | None

    def reserve(self, steps: int, left: int) -> None:
        """Do nothing: a step needs no room; see [`Decoding.reserve`]."""

    def reorder(self, parents: Tensor) -> None:
        """Let beams go on from others; see [`Decoding.reorder`]."""
        sentences, beams = parents.shape
        starts = torch.arange(0, sentences * beams, beams, device=parents.device).unsqueeze(-1)
        self.states.copy_(self.states.index_select(0, (parents + starts).flatten()))

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Go on with some sentences; see [`Decoding.select`]."""
        self.states = self.states.unflatten(0, (-1, self.num_beams))[rows].flatten(0, 1)
        if self.sentence_state is not None:
            self.sentence_state = self.sentence_state[rows]


class RNMTDecoding(_Recurrent):
    """Sentences that RNMT is decoding.

    Args:
        adapter: of the model.
        encoded: output of the encoder.
        mask: `[sentences, source]`, 1 where there is a token; everywhere by default.
        num_beams: of every sentence.
    """

    def __init__(self, adapter: RNMTAdapter, encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> None:
        self.adapter, self.num_beams = adapter, num_beams
        self.keys, self.values = encoded.attention_keys, encoded.last_hidden_state
        aggregates = adapter.config.sentence_aggregation is not None
        self.sentence_state = encoded.sentence_state.unsqueeze(1) if aggregates else None
        self.mask = word_mask(mask, self.values)
        start = adapter.start(mean_over_words(self.values, self.mask)).tanh()
        self.states = start.repeat_interleave(num_beams, dim=0)
        self.guided = None if adapter.guide is None else adapter.guide.begin(encoded, self.mask)

    def step(self, words: Tensor) -> Tensor:
        """Read the next tokens; see [`Decoding.step`]."""
        adapter, beams = self.adapter, self.num_beams
        read = F.embedding(words.reshape(-1), adapter.words) * adapter.scale
        if self.sentence_state is not None:
            read = (read.view(-1, beams, read.shape[1]) + self.sentence_state).flatten(0, 1)
        between = _gru(adapter.from_words(read), self.states, adapter.first)
        context = self._attend(adapter.query(between))
        after = _gru(adapter.from_context(context), between, adapter.second)
        self.states.copy_(after)
        if self.guided is not None:
            after = self.guided.route(after.view(-1, beams, after.shape[1])).flatten(0, 1)
        return adapter.readout(torch.cat([read, after, context], dim=-1)).tanh_()

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Go on with some sentences; see [`Decoding.select`]."""
        super().select(rows, moved)
        self.keys, self.values = self.keys[rows], self.values[rows]
        self.mask = None if self.mask is None else self.mask[rows]
        if self.guided is not None:
            self.guided.select(rows)

    def _attend(self, queries: Tensor) -> Tensor:
        """Return the contexts of queries, `[sentences * beams, d]` both; see [`AdditiveAttention`]."""
        queries = queries.view(-1, self.num_beams, queries.shape[1])
        scores = additive_scores(queries, self.keys, self.adapter.score).squeeze(-1)
        if self.mask is None:
            return (scores.softmax(-1) @ self.values).flatten(0, 1)
        missing = ~self.mask.unsqueeze(1)
        weights = scores.masked_fill(missing, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(missing, 0.0)
        return (weights @ self.values).flatten(0, 1)


def _gru(from_inputs: Tensor, hidden: Tensor, from_hidden: Map) -> Tensor:
    """The state after `hidden`; see [`GRUStep`]."""
    by_hidden = from_hidden(hidden)
    width = hidden.shape[1]
    reset, keep = (from_inputs[:, : 2 * width] + by_hidden[:, : 2 * width]).sigmoid_().chunk(2, dim=-1)
    candidate = torch.addcmul(from_inputs[:, 2 * width :], reset, by_hidden[:, 2 * width :]).tanh_()
    return candidate.lerp(hidden, keep)


class CapsNMTAdapter(Adapter):
    """A copy of the decoder of a CapsNMT model."""

    models = (CapsNMTForConditionalGeneration,)

    def copy(self, model: CapsNMTForConditionalGeneration) -> None:
        """Copy the decoder's weights."""
        self.scale = model.config.d_model**0.5
        self.layers = [(_gates(layer.lstm, self.make), norm(layer.layer_norm)) for layer in model.model.decoder.layers]

    def begin(self, encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> "CapsNMTDecoding":
        """Return the decoding of sentences from its start; see [`Adapter.begin`]."""
        return CapsNMTDecoding(self, encoded.sentence_state, num_beams)


def _gates(lstm: LSTM, make: Make) -> Map:
    """Map of the input and the hidden state, side by side, to the gates, as one product."""
    weight = torch.cat([lstm.weight_ih_l0.detach(), lstm.weight_hh_l0.detach()], dim=1)
    return make(weight.t(), (lstm.bias_ih_l0 + lstm.bias_hh_l0).detach())


class CapsNMTDecoding(_Recurrent):
    """Sentences that CapsNMT is decoding.

    Args:
        adapter: of the model.
        sentence_state: of the encoder, `[sentences, d]`.
        num_beams: of every sentence.
    """

    def __init__(self, adapter: CapsNMTAdapter, sentence_state: Tensor, num_beams: int) -> None:
        self.adapter, self.num_beams, self.sentence_state = adapter, num_beams, sentence_state
        rows, width = sentence_state.shape[0] * num_beams, sentence_state.shape[1]
        # The hidden and the cell state of every layer.
        self.states = sentence_state.new_zeros(rows, len(adapter.layers), 2, width)

    def step(self, words: Tensor) -> Tensor:
        """Read the next tokens; see [`Decoding.step`]."""
        read = F.embedding(words.reshape(-1), self.adapter.words) * self.adapter.scale
        layer_input = (read.view(*words.shape, -1) + self.sentence_state.unsqueeze(1)).flatten(0, 1)
        states = []
        for (gates, normalise), before in zip(self.adapter.layers, self.states.unbind(1)):
            hidden, cell = _lstm(gates, layer_input, before)
            states += [hidden, cell]
            layer_input = normalise(layer_input + hidden)
        self.states.copy_(torch.stack(states, dim=1).view_as(self.states))
        return layer_input


def _lstm(gates: Map, inputs: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """The hidden and the cell state `[rows, d]` after `before` `[rows, 2, d]`; see [`LSTM`]."""
    hidden, cell = before.unbind(1)
    write, keep, candidate, read = gates(torch.cat([inputs, hidden], dim=1)).chunk(4, dim=-1)
    cell = torch.addcmul(keep.sigmoid() * cell, write.sigmoid(), candidate.tanh())
    return read.sigmoid() * cell.tanh(), cell
