"""CapsNMT's decoder: LSTM layers that read the state of the sentence with every word."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.utils import ModelOutput

from ..modeling.modeling_caps_nmt import (
    CapsNMTDecoder,
    CapsNMTForConditionalGeneration,
    CapsNMTModel,
    caps_nmt_encoder_outputs,
)
from ..modeling.recurrent import LSTM, RecurrentLayer
from .decoder_weights import check_plain, norm
from .precisions import Make, Map
from .rows import reordered, together
from .vocabulary import Vocabulary


class CapsNMTAdapter:
    """A copy of the decoder of a CapsNMT model.

    Args:
        model: with a language model head.
        make: makes its products.

    Raises:
        UnsupportedModelError: if a module is not what its class says.
    """

    def __init__(self, model: CapsNMTForConditionalGeneration, make: Make) -> None:
        check_plain(model, kind=CapsNMTForConditionalGeneration)
        check_plain(model.model, kind=CapsNMTModel)
        decoder = model.model.decoder
        check_plain(decoder, kind=CapsNMTDecoder)
        check_plain(decoder.embed_tokens, kind=nn.Embedding)
        check_plain(model.lm_head, kind=nn.Linear)
        self.encoder = model.model.encoder
        self.words, self.scale = decoder.embed_tokens.weight.detach(), model.config.d_model**0.5
        check_plain(*decoder.layers, kind=RecurrentLayer)
        self.layers = [(_gates(layer.lstm, make), norm(layer.layer_norm)) for layer in decoder.layers]
        self.vocabulary = Vocabulary(model.lm_head.weight, model.lm_head.bias, make)

    def begin(self, encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> "CapsNMTDecoding":
        """Return the decoding of sentences from its start; a ValueError tells that `encoded` is another model's."""
        return CapsNMTDecoding(self, caps_nmt_encoder_outputs(encoded).sentence_state, num_beams)


def _gates(lstm: LSTM, make: Make) -> Map:
    """Map of the input and the hidden state, side by side, to the gates, as one product."""
    check_plain(lstm, kind=LSTM)
    weight = torch.cat([lstm.weight_ih_l0.detach(), lstm.weight_hh_l0.detach()], dim=1)
    return make(weight.t(), (lstm.bias_ih_l0 + lstm.bias_hh_l0).detach())


class CapsNMTDecoding:
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

    def reserve(self, steps: int, left: int) -> None:
        """Do nothing: a step needs no room; see [`Decoding.reserve`]."""

    def step(self, words: Tensor) -> Tensor:
        """Read the next words; see [`Decoding.step`]."""
        read = F.embedding(words.reshape(-1), self.adapter.words) * self.adapter.scale
        layer_input = (read.view(*words.shape, -1) + self.sentence_state.unsqueeze(1)).flatten(0, 1)
        states = []
        for (gates, normalise), before in zip(self.adapter.layers, self.states.unbind(1)):
            hidden, cell = _lstm(gates, layer_input, before)
            states += [hidden, cell]
            layer_input = normalise(layer_input + hidden)
        self.states.copy_(torch.stack(states, dim=1).view_as(self.states))
        return layer_input

    def reorder(self, parents: Tensor) -> None:
        """Let beams go on from others; see [`Decoding.reorder`]."""
        self.states.copy_(reordered(self.states, parents))

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Go on with some sentences; see [`Decoding.select`]."""
        self.sentence_state = self.sentence_state[rows]
        self.states = self.states.unflatten(0, (-1, self.num_beams))[rows].flatten(0, 1)

    def admit(self, new: "CapsNMTDecoding") -> None:
        """Go on with other sentences too; see [`Decoding.admit`]."""
        self.sentence_state = together(self.sentence_state, new.sentence_state)
        self.states = together(self.states, new.states)


def _lstm(gates: Map, inputs: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
    """The hidden and the cell state `[rows, d]` after `before` `[rows, 2, d]`; see [`LSTM`]."""
    hidden, cell = before.unbind(1)
    write, keep, candidate, read = gates(torch.cat([inputs, hidden], dim=1)).chunk(4, dim=-1)
    cell = torch.addcmul(keep.sigmoid() * cell, write.sigmoid(), candidate.tanh())
    return read.sigmoid() * cell.tanh(), cell


ADAPTERS = {CapsNMTForConditionalGeneration: CapsNMTAdapter}
