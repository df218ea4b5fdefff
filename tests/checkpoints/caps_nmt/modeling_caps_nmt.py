# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/caps_nmt.py.
"""CapsNMT (Wang et al. 2019): translation in time linear in the lengths of source and target."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.marian.modeling_marian import shift_tokens_right
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_caps_nmt import CapsNMTConfig
from .modeling_capsule_routing import OutputRouting
from .modeling_losses import label_smoothed_cross_entropy
from .modeling_outputs import RoutedSeq2SeqLMOutput, RoutedSeq2SeqModelOutput, SentenceEncoderOutput
from .modeling_recurrent import BidirectionalLayer, LSTMCache, RecurrentLayer, reading_orders
from .modeling_safe_loading import SafetensorsOnly
from .modeling_sentence_capsules import SentenceProjection, build_sentence_aggregation


class CapsNMTPreTrainedModel(SafetensorsOnly, PreTrainedModel):
    """Weight initialisation and loading, shared by the models of the family."""

    config: CapsNMTConfig
    config_class = CapsNMTConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    # An LSTM cannot take words back, as assisted decoding asks.
    _is_stateful = True
    _no_split_modules = ("BidirectionalLayer", "RecurrentLayer", "SentenceCapsules")

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, PreTrainedModel):
            return
        if hasattr(module, "init_weights"):
            module.init_weights()
        elif isinstance(module, (nn.Embedding, nn.Linear)):
            self._init_words(module)
        else:
            super()._init_weights(module)

    def _init_words(self, module: nn.Embedding | nn.Linear) -> None:
        """Draw words that have unit variance once they are multiplied by sqrt(d_model), unless they were loaded."""
        init.normal_(module.weight, mean=0.0, std=self.config.d_model**-0.5)
        # The slice does not carry the mark of what was loaded.
        padding = getattr(module, "padding_idx", None)
        if padding is not None and not getattr(module.weight, "_is_hf_initialized", False):
            init.zeros_(module.weight[padding])

    def _embed(self, input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
        """What the first layer of a stack reads, `[batch, length, d_model]`."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(f"{type(self).__name__} takes either input_ids or inputs_embeds; give one of them")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        return inputs_embeds * self.config.d_model**0.5


class CapsNMTEncoder(CapsNMTPreTrainedModel):
    """Bidirectional LSTM layers, and the aggregation of their states to a state of the sentence."""

    _can_record_outputs = {"hidden_states": BidirectionalLayer}  # noqa: RUF012

    def __init__(self, config: CapsNMTConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.layers = nn.ModuleList(BidirectionalLayer(config) for _ in range(config.encoder_layers))
        self.aggregation = build_sentence_aggregation(config)
        self.projection = SentenceProjection(config)
        self.post_init()

    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_routing: OutputRouting = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SentenceEncoderOutput:
        """Encode a batch.

        Args:
            input_ids: `[batch, source]`; or `inputs_embeds` `[batch, source, d_model]`: what [`get_input_embeddings`]
                makes of them.
            attention_mask: `[batch, source]`, 1 where there is a word; everywhere by default.
            inputs_embeds: see `input_ids`.
            output_routing: True for the assignment of the last routing iteration, "all" for that of every iteration.
            **kwargs: `output_hidden_states` and `return_dict`.
        """
        words = self._embed(input_ids, inputs_embeds)
        hidden_states = F.dropout(words, self.config.dropout, self.training)
        mask = None if attention_mask is None else attention_mask.bool()
        orders = reading_orders(_everywhere(words) if mask is None else mask)
        for layer in self.layers:
            # In the order of the sentence already, if there is no mask.
            hidden_states = layer(hidden_states, None if mask is None else orders[0], orders[1])
        vectors, routing = self.aggregation(hidden_states, mask, output_routing)
        return SentenceEncoderOutput(hidden_states, self.projection(vectors), vectors, routing)


class CapsNMTDecoder(CapsNMTPreTrainedModel):
    """LSTM layers that read the state of the sentence with every word (Eq. 5)."""

    _can_record_outputs = {"hidden_states": RecurrentLayer}  # noqa: RUF012

    def __init__(self, config: CapsNMTConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.layers = nn.ModuleList(RecurrentLayer(config, layer) for layer in range(config.decoder_layers))
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        sentence_state: Tensor | None = None,
        past_key_values: LSTMCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        """Decode a batch.

        Args:
            input_ids: the next words `[batch, target]`; or `inputs_embeds`, as in [`CapsNMTEncoder.forward`].
            attention_mask: `[batch, target]`, or that and the words before, 1 where there is a word.
            sentence_state: `[batch, d_model]`, of the encoder.
            past_key_values: the states after the words before; they are updated.
            inputs_embeds: see `input_ids`.
            use_cache: whether to return the states after the last word.
            **kwargs: `output_hidden_states` and `return_dict`.
        """
        words = self._embed(input_ids, inputs_embeds)
        if sentence_state is None:
            raise ValueError("sentence_state is missing; the decoder reads that of the encoder's output")
        if past_key_values is None and use_cache:
            past_key_values = LSTMCache(len(self.layers))
        if not isinstance(past_key_values, LSTMCache | None):
            raise TypeError(f"past_key_values is a {type(past_key_values).__name__}; CapsNMT goes on from an LSTMCache")
        mask = None if attention_mask is None else attention_mask[:, -words.shape[1] :].bool()
        hidden_states = F.dropout(sentence_state.unsqueeze(1) + words, self.config.dropout, self.training)
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask, past_key_values=past_key_values)
        return BaseModelOutputWithPast(hidden_states, past_key_values if use_cache else None)


class CapsNMTModel(CapsNMTPreTrainedModel):
    """The encoder-decoder without a language model head."""

    _tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: CapsNMTConfig) -> None:
        super().__init__(config)
        self.encoder = CapsNMTEncoder(config)
        self.decoder = CapsNMTDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The embedding of the source, which is that of the target too if it is tied."""
        return self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embedding of the source, and that of the target if it is tied."""
        self.encoder.embed_tokens = value
        if self.config.tie_word_embeddings:
            self.decoder.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: SentenceEncoderOutput | tuple[Tensor, ...] | None = None,
        past_key_values: LSTMCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_routing: OutputRouting = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> RoutedSeq2SeqModelOutput:
        """Run encoder and decoder.

        Args:
            input_ids: source `[batch, source]`; or `inputs_embeds`, as in [`CapsNMTEncoder.forward`].
            attention_mask: `[batch, source]`, 1 where the source is real.
            decoder_input_ids: target so far `[batch, target]`; or `decoder_inputs_embeds`.
            decoder_attention_mask: `[batch, target]`.
            encoder_outputs: of an earlier call, instead of the source.
            past_key_values: the decoder's states after the words before.
            inputs_embeds: see `input_ids`.
            decoder_inputs_embeds: see `decoder_input_ids`.
            use_cache: whether to return the decoder's states.
            output_routing: True to return the assignment of the last routing iteration, "all" for every iteration's.
            **kwargs: `output_hidden_states`.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask, inputs_embeds, output_routing=output_routing, **kwargs
            )
        encoder_outputs = _sentence_encoder_output(encoder_outputs)
        decoder_outputs = self.decoder(
            decoder_input_ids,
            decoder_attention_mask,
            encoder_outputs.sentence_state,
            past_key_values,
            decoder_inputs_embeds,
            use_cache=use_cache,
            **kwargs,
        )
        return RoutedSeq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            sentence_routing=encoder_outputs.sentence_routing,
        )


class CapsNMTForConditionalGeneration(CapsNMTPreTrainedModel, GenerationMixin):
    """The translation model: CapsNMT with a language model head (Eq. 6) and its own label-smoothed loss."""

    _tied_weights_keys = {"lm_head.weight": "model.encoder.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: CapsNMTConfig) -> None:
        super().__init__(config)
        self.model = CapsNMTModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.post_init()

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """What the decoder reads to predict `labels` `[batch, target]`: the word before each."""
        return shift_tokens_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: SentenceEncoderOutput | tuple[Tensor, ...] | None = None,
        past_key_values: LSTMCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_routing: OutputRouting = False,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> RoutedSeq2SeqLMOutput:
        """Run the model; with labels, compute the loss.

        Args:
            labels: target words `[batch, target]`, -100 where there is none. They become `decoder_input_ids`, shifted
                right, if there are no others.
            num_items_in_batch: the number of labels that the loss is averaged over; those of this call by default.

        The other arguments are those of [`CapsNMTModel.forward`].
        """
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None and decoder_inputs_embeds is None:
                decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        outputs: RoutedSeq2SeqModelOutput = self.model(
            input_ids,
            attention_mask,
            decoder_input_ids,
            decoder_attention_mask,
            encoder_outputs,
            past_key_values,
            inputs_embeds,
            decoder_inputs_embeds,
            use_cache,
            output_routing,
            **kwargs,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = label_smoothed_cross_entropy(logits, labels, self.config.label_smoothing, num_items_in_batch)
        others = {name: value for name, value in outputs.items() if name != "last_hidden_state"}
        return RoutedSeq2SeqLMOutput(loss=loss, logits=logits, lm_loss=loss, **others)

    def _resize_token_embeddings(self, new_num_tokens: int | None, *args: Any, **kwargs: Any) -> nn.Module:
        embeddings = super()._resize_token_embeddings(new_num_tokens, *args, **kwargs)
        decoder = self.get_decoder()
        if not self.config.tie_word_embeddings:
            # Transformers knows of one embedding and the output projection.
            decoder.embed_tokens = self._get_resized_embeddings(decoder.embed_tokens, new_num_tokens, *args, **kwargs)
        return embeddings


def _sentence_encoder_output(outputs: SentenceEncoderOutput | tuple[Tensor, ...]) -> SentenceEncoderOutput:
    if isinstance(outputs, tuple):
        outputs = SentenceEncoderOutput(*outputs[:2])
    if getattr(outputs, "sentence_state", None) is None:
        raise ValueError(
            "encoder_outputs has no sentence_state; give what get_encoder() returns, or its first two elements"
        )
    return outputs


def _everywhere(words: Tensor) -> Tensor:
    return torch.ones(words.shape[:2], dtype=torch.bool, device=words.device)


__all__ = ["CapsNMTForConditionalGeneration", "CapsNMTModel", "CapsNMTPreTrainedModel"]
