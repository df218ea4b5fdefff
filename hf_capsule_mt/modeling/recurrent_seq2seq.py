"""Parts that the recurrent families share: initial weights, embeddings and heads."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.marian.modeling_marian import shift_tokens_right

from ..configuration.shared_fields import RecurrentConfig
from .initial_weights import init_unit_gain, init_words
from .outputs import RecurrentEncoderOutput
from .portable_model import PortableModel
from .recurrent import reading_orders
from .translation_head import EncoderDecoder, UntiedEmbeddings
from .word_masks import reading_mask, word_mask


class RecurrentPreTrainedModel(PortableModel, PreTrainedModel):
    """Weight initialisation, loading, and the embeddings of encoder and decoder."""

    config: RecurrentConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    # A recurrent network cannot drop tokens again, which assisted decoding needs.
    _is_stateful = True

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, PreTrainedModel):
            return
        if hasattr(module, "init_weights"):
            module.init_weights()
        elif isinstance(module, nn.Embedding):
            init_words(module, self.config.d_model)
        elif isinstance(module, nn.Linear):
            init_unit_gain(module)
        else:
            super()._init_weights(module)

    def _embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        """Return the inputs of the first layer, `[batch, length, d_model]`."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(f"{type(self).__name__} takes either input_ids or inputs_embeds.")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        return inputs_embeds * self.config.d_model**0.5

    def _encode(self, states: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Run the layers of an encoder on `[batch, length, d]`. Return their output and the mask of [`word_mask`]."""
        mask = word_mask(attention_mask, states)
        orders = reading_orders(reading_mask(mask, states))
        for layer in self.layers:
            # Without a mask the forward direction needs no reordering.
            states = layer(states, None if mask is None else orders[0], orders[1])
        return states, mask


class RecurrentModel(EncoderDecoder):
    """The encoder-decoder of CapsNMT and of RNMT, without its modules.

    `_read_by_decoder` lists the outputs of the encoder that the decoder reads, in order.
    """

    _read_by_decoder = ("last_hidden_state",)
    _tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}  # noqa: RUF012

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding of the source, and of the target if they are tied."""
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embedding of the source, and that of the target if it is tied."""
        self.encoder.embed_tokens = value
        if self.config.tie_word_embeddings:
            self.decoder.embed_tokens = value

    def _encoder_outputs(self, outputs: tuple[Tensor, ...]) -> RecurrentEncoderOutput:
        return RecurrentEncoderOutput(**dict(zip(self._read_by_decoder, outputs)))


class RecurrentHead(UntiedEmbeddings):
    """A mixin for a translation model, with its output projection and the inputs of its decoder."""

    _tied_weights_keys = {"lm_head.weight": "model.encoder.embed_tokens.weight"}  # noqa: RUF012

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Shift `labels` `[batch, target]` right. The decoder reads the result to predict them."""
        return shift_tokens_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)
