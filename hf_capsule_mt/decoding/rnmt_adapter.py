"""RNMT's decoder: a conditional GRU, whose beams attend to the same keys and values."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.utils import ModelOutput

from ..modeling.guided_routing import additive_scores
from ..modeling.linear import GateLinear, UnitGainLinear
from ..modeling.modeling_rnmt import RNMTDecoder, RNMTForConditionalGeneration, RNMTModel, rnmt_encoder_outputs
from ..modeling.recurrent import AdditiveAttention, ConditionalGRU, ConditionalGRUStep, GRUStep
from ..modeling.routing import mean_over_words, word_mask
from .decoder_weights import check_plain, product
from .guided_decoding import Guide
from .precisions import Make, Map
from .rows import masks_together, reordered, together
from .vocabulary import Vocabulary


class RNMTAdapter:
    """A copy of the decoder of an RNMT model, the hybrid and guided ones included.

    Args:
        model: with a language model head.
        make: makes its products.

    Raises:
        UnsupportedModelError: if a module is not what its class says.
    """

    def __init__(self, model: RNMTForConditionalGeneration, make: Make) -> None:
        check_plain(model, kind=RNMTForConditionalGeneration)
        check_plain(model.model, kind=RNMTModel)
        decoder = model.model.decoder
        check_plain(decoder, kind=RNMTDecoder)
        check_plain(decoder.recurrence, kind=ConditionalGRU)
        check_plain(decoder.embed_tokens, kind=nn.Embedding)
        check_plain(model.lm_head, kind=nn.Linear)
        step = decoder.recurrence.step
        check_plain(step, kind=ConditionalGRUStep)
        check_plain(step.first, step.second, kind=GRUStep)
        check_plain(step.attention, kind=AdditiveAttention)
        self.encoder, self.config = model.model.encoder, model.config
        self.words, self.scale = decoder.embed_tokens.weight.detach(), model.config.d_model**0.5
        self.start = product(decoder.start, make=make, kind=UnitGainLinear)
        self.from_words = product(decoder.recurrence.from_words, make=make, kind=GateLinear)
        self.first = product(step.first.from_hidden, make=make, kind=GateLinear)
        self.from_context = product(step.from_context, make=make, kind=GateLinear)
        self.second = product(step.second.from_hidden, make=make, kind=GateLinear)
        self.query = product(step.attention.query, make=make, kind=UnitGainLinear)
        self.score = step.attention.score.detach().clone().unsqueeze(0)
        self.readout = product(decoder.readout, make=make, kind=UnitGainLinear)
        self.guide = None
        if decoder.guided_routing is not None:
            self.guide = Guide(decoder.guided_routing, self.encoder.guided_votes, make)
        self.vocabulary = Vocabulary(model.lm_head.weight, model.lm_head.bias, make)

    def begin(self, encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> "RNMTDecoding":
        """Return the decoding of sentences `[sentences, source]` from its start.

        Raises:
            ValueError: if `encoded` is not what the encoder of this model returns.
        """
        return RNMTDecoding(self, rnmt_encoder_outputs(encoded, self.config), mask, num_beams)


class RNMTDecoding:
    """Sentences that RNMT is decoding.

    Args:
        adapter: of the model.
        encoded: output of the encoder.
        mask: `[sentences, source]`, 1 where there is a word; everywhere by default.
        num_beams: of every sentence.
    """

    def __init__(self, adapter: RNMTAdapter, encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> None:
        self.adapter, self.num_beams = adapter, num_beams
        self.keys, self.values = encoded.attention_keys, encoded.last_hidden_state
        self.sentence_state = encoded.sentence_state
        self.mask = word_mask(mask, self.values)
        start = adapter.start(mean_over_words(self.values, self.mask)).tanh()
        self.states = start.repeat_interleave(num_beams, dim=0)
        self.guided = None if adapter.guide is None else adapter.guide.begin(encoded, self.mask)

    def reserve(self, steps: int, left: int) -> None:
        """Do nothing: a step needs no room; see [`Decoding.reserve`]."""

    def step(self, words: Tensor) -> Tensor:
        """Read the next words; see [`Decoding.step`]."""
        adapter, beams = self.adapter, self.num_beams
        read = F.embedding(words.reshape(-1), adapter.words) * adapter.scale
        if self.sentence_state is not None:
            read = (read.view(-1, beams, read.shape[1]) + self.sentence_state.unsqueeze(1)).flatten(0, 1)
        between = _gru(adapter.from_words(read), self.states, adapter.first)
        context = self._attend(adapter.query(between))
        after = _gru(adapter.from_context(context), between, adapter.second)
        self.states.copy_(after)
        if self.guided is not None:
            after = self.guided.route(after.view(-1, beams, after.shape[1])).flatten(0, 1)
        return adapter.readout(torch.cat([read, after, context], dim=-1)).tanh_()

    def reorder(self, parents: Tensor) -> None:
        """Let beams go on from others; see [`Decoding.reorder`]."""
        self.states.copy_(reordered(self.states, parents))

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Go on with some sentences; see [`Decoding.select`]."""
        self.states = self.states.view(-1, self.num_beams, self.states.shape[1])[rows].flatten(0, 1)
        self.keys, self.values = self.keys[rows], self.values[rows]
        if self.mask is not None:
            self.mask = self.mask[rows]
        if self.sentence_state is not None:
            self.sentence_state = self.sentence_state[rows]
        if self.guided is not None:
            self.guided.select(rows)

    def admit(self, new: "RNMTDecoding") -> None:
        """Go on with other sentences too; see [`Decoding.admit`]."""
        self.mask, words = masks_together(self.mask, new.mask, (self.keys.shape[:2], new.keys.shape[:2]))
        self.keys, self.values = together(self.keys, new.keys, 1, words), together(self.values, new.values, 1, words)
        self.states = together(self.states, new.states)
        if self.sentence_state is not None:
            self.sentence_state = together(self.sentence_state, new.sentence_state)
        if self.guided is not None:
            self.guided.admit(new.guided)

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


ADAPTERS = {RNMTForConditionalGeneration: RNMTAdapter}
