"""CapsNMT (Wang et al. 2019): translation in time linear in the lengths of source and target."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from ..configuration.configuration_caps_nmt import CapsNMTConfig
from .outputs import OutputRouting, RecurrentEncoderOutput, RoutedDecoderOutput
from .recurrent import BidirectionalLayer, RecurrentCache, RecurrentLayer
from .recurrent_seq2seq import RecurrentHead, RecurrentModel, RecurrentPreTrainedModel
from .sentence_capsules import SENTENCE_AGGREGATIONS, SentenceProjection
from .transformers_versions import CACHE, decoder_layers, under_both_names
from .translation_head import TranslationHead
from .word_masks import next_word_mask


class CapsNMTPreTrainedModel(RecurrentPreTrainedModel):
    """The base of the family."""

    config: CapsNMTConfig
    _no_split_modules = ("BidirectionalLayer", "RecurrentLayer", "SentenceCapsules")


class CapsNMTEncoder(CapsNMTPreTrainedModel):
    """Bidirectional LSTM layers, whose states are aggregated to one state of the sentence."""

    _can_record_outputs = {"hidden_states": BidirectionalLayer}  # noqa: RUF012

    def __init__(self, config: CapsNMTConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.layers = nn.ModuleList(
            BidirectionalLayer(config.d_model, config.dropout) for _ in range(config.encoder_layers)
        )
        self.aggregation = SENTENCE_AGGREGATIONS[config.sentence_aggregation](config)
        self.projection = SentenceProjection(config)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_routing: OutputRouting = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> RecurrentEncoderOutput:
        """Encode a batch.

        Args:
            input_ids: token ids `[batch, source]`.
            attention_mask: `[batch, source]`, 1 for tokens and 0 for padding. By default there is no padding.
            inputs_embeds: embeddings `[batch, source, d_model]` instead of `input_ids`.
            output_routing: True returns the assignment of the last routing iteration, "all" those of every iteration.
            **kwargs: `output_hidden_states`.
        """
        embeddings = self.dropout(self._embed(input_ids, inputs_embeds))
        hidden_states, mask = self._encode(embeddings, attention_mask)
        vectors, routing = self.aggregation(hidden_states, mask, output_routing)
        return RecurrentEncoderOutput(
            last_hidden_state=hidden_states,
            sentence_state=self.projection(vectors.flatten(-2)),
            sentence_vectors=vectors,
            sentence_routing=routing,
        )


class CapsNMTDecoder(CapsNMTPreTrainedModel):
    """LSTM layers that read the state of the sentence with every token (Eq. 5)."""

    _can_record_outputs = {"hidden_states": decoder_layers(RecurrentLayer)}  # noqa: RUF012

    def __init__(self, config: CapsNMTConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.layers = nn.ModuleList(
            RecurrentLayer(config.d_model, config.dropout, layer) for layer in range(config.decoder_layers)
        )
        self.dropout = nn.Dropout(config.dropout)
        # Because of this attribute Transformers returns no cache when layers are checkpointed.
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    @under_both_names
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        sentence_state: Tensor | None = None,
        cache: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> RoutedDecoderOutput:
        """Decode a batch.

        Args:
            input_ids: the next token ids, `[batch, target]`.
            attention_mask: `[batch, target]`, 0 for padding. It may also have columns for the tokens before. By default
                there is no padding.
            sentence_state: `[batch, d_model]`, from the encoder.
            cache: the states after the tokens before. It is updated. `past_key_values` is another name.
            inputs_embeds: embeddings `[batch, target, d_model]` instead of `input_ids`.
            use_cache: whether to return the cache. Default: the configuration's.
            **kwargs: `output_hidden_states`.

        Raises:
            ValueError: for a cache in training with gradient checkpointing.
        """
        embeddings = self._embed(input_ids, inputs_embeds)
        if cache is None and use_cache:
            cache = RecurrentCache(len(self.layers))
        if cache is not None and self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            raise ValueError("Checkpointed layers cannot read a cache in training.")
        mask = next_word_mask(attention_mask, embeddings)
        hidden_states = self.dropout(sentence_state.unsqueeze(1) + embeddings)
        for layer in self.layers:
            hidden_states = layer(hidden_states, mask, cache=cache)
        return RoutedDecoderOutput(last_hidden_state=hidden_states, **{CACHE: cache if use_cache else None})


class CapsNMTModel(RecurrentModel, CapsNMTPreTrainedModel):
    """The encoder-decoder without a language model head."""

    _read_by_decoder = ("last_hidden_state", "sentence_state")

    def __init__(self, config: CapsNMTConfig) -> None:
        super().__init__(config)
        self.encoder = CapsNMTEncoder(config)
        self.decoder = CapsNMTDecoder(config)
        self.post_init()

    def _run_decoder(
        self, encoded: RecurrentEncoderOutput, source_mask: Tensor | None, *_: Any, **kwargs: Any
    ) -> RoutedDecoderOutput:
        return self.decoder(sentence_state=encoded.sentence_state, **kwargs)


class CapsNMTForConditionalGeneration(TranslationHead, RecurrentHead, CapsNMTPreTrainedModel, GenerationMixin):
    """The translation model: CapsNMT with a language model head (Eq. 6) and its own label-smoothed loss."""

    def __init__(self, config: CapsNMTConfig) -> None:
        super().__init__(config)
        self.model = CapsNMTModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.guided_losses = None
        self.post_init()
