"""Encoder-decoders of recurrent layers: what the families have in common."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.marian.modeling_marian import shift_tokens_right
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple

from ..configuration.recurrent import RecurrentConfig
from .forced_decoding import ForcedDecoding
from .layers.capsule_routing import OutputRouting
from .layers.guided_losses import GuidedLosses
from .layers.linear import init_unit_gain, init_words
from .layers.recurrent import RecurrentCache
from .outputs import RoutedSeq2SeqLMOutput, RoutedSeq2SeqModelOutput
from .safe_loading import SafetensorsOnly
from .translation_losses import TranslationLosses


class RecurrentPreTrainedModel(SafetensorsOnly, PreTrainedModel):
    """Weight initialisation, loading, and the words that encoder and decoder read."""

    config: RecurrentConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    # A recurrent network cannot take words back, as assisted decoding asks.
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
        """What the first layer of a stack reads, `[batch, length, d_model]`."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(f"{type(self).__name__} takes either input_ids or inputs_embeds; give one of them")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        return inputs_embeds * self.config.d_model**0.5

    def _cache(self, past_key_values: RecurrentCache | None, num_layers: int, use_cache: bool) -> RecurrentCache | None:
        """What the decoder goes on from: a new cache where one is asked for and there is none."""
        if not isinstance(past_key_values, RecurrentCache | None):
            family = type(self).__name__.removesuffix("Decoder")
            given = type(past_key_values).__name__
            raise TypeError(f"past_key_values is a {given}; {family} goes on from a RecurrentCache")
        return RecurrentCache(num_layers) if past_key_values is None and use_cache else past_key_values


class RecurrentModel(RecurrentPreTrainedModel):
    """An encoder-decoder without a language model head."""

    _tied_weights_keys = {"decoder.embed_tokens.weight": "encoder.embed_tokens.weight"}  # noqa: RUF012
    encoder_class: ClassVar[type[RecurrentPreTrainedModel]]
    decoder_class: ClassVar[type[RecurrentPreTrainedModel]]
    encoder_output_class: ClassVar[type[ModelOutput]]

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.encoder = self.encoder_class(config)
        self.decoder = self.decoder_class(config)
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
        encoder_outputs: ModelOutput | tuple[Tensor, ...] | None = None,
        past_key_values: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_routing: OutputRouting = False,
        output_guided_capsules: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> RoutedSeq2SeqModelOutput:
        """Run encoder and decoder.

        Args:
            input_ids: source `[batch, source]`; or `inputs_embeds` `[batch, source, d_model]`: what
                [`get_input_embeddings`] makes of them.
            attention_mask: `[batch, source]`, 1 where the source is real.
            decoder_input_ids: target so far `[batch, target]`; or `decoder_inputs_embeds`.
            decoder_attention_mask: `[batch, target]`.
            encoder_outputs: of an earlier call, instead of the source.
            past_key_values: the decoder's states after the words before.
            inputs_embeds: see `input_ids`.
            decoder_inputs_embeds: see `decoder_input_ids`.
            use_cache: whether to return the decoder's states.
            output_routing: True to return the assignment of the last routing iteration, "all" for every iteration's.
            output_guided_capsules: whether to return the capsules of guided routing, and the states that guided it, if
                there is any.
            **kwargs: `output_hidden_states`, and `output_attentions` where there is attention.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask, inputs_embeds, output_routing=output_routing, **kwargs
            )
        encoder_outputs = self._checked(encoder_outputs)
        decoder_outputs = self.decoder(
            decoder_input_ids,
            decoder_attention_mask,
            past_key_values=past_key_values,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_routing=output_routing,
            output_guided_capsules=output_guided_capsules,
            **self._read_by_decoder(encoder_outputs, attention_mask),
            **kwargs,
        )
        return RoutedSeq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            past_key_values=decoder_outputs.past_key_values,
            decoder_hidden_states=decoder_outputs.hidden_states,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            sentence_routing=encoder_outputs.sentence_routing,
            guided_routing=getattr(decoder_outputs, "guided_routing", None),
            guided_states=getattr(decoder_outputs, "guided_states", None),
            guided_capsules=getattr(decoder_outputs, "guided_capsules", None),
        )

    def _needed(self) -> tuple[str, ...]:
        """The first fields of the encoder's output, which the decoder cannot do without."""
        raise NotImplementedError

    def _read_by_decoder(self, encoder_outputs: ModelOutput, attention_mask: Tensor | None) -> dict[str, Any]:
        """What of the source the decoder gets, by the names of its arguments."""
        raise NotImplementedError

    def _checked(self, outputs: ModelOutput | tuple[Tensor, ...]) -> ModelOutput:
        """The output of the encoder, by name, with all that the decoder needs."""
        needed = self._needed()
        if isinstance(outputs, tuple):
            outputs = self.encoder_output_class(**dict(zip(needed, outputs)))
        for name in needed:
            if getattr(outputs, name, None) is None:
                elements = f"its first {len(needed)} elements"
                raise ValueError(f"encoder_outputs has no {name}; give what get_encoder() returns, or {elements}")
        return outputs


class RecurrentForConditionalGeneration(ForcedDecoding, TranslationLosses, RecurrentPreTrainedModel):
    """A translation model: an encoder-decoder with a language model head and its own label-smoothed loss."""

    _tied_weights_keys = {"lm_head.weight": "model.encoder.embed_tokens.weight"}  # noqa: RUF012
    model_class: ClassVar[type[RecurrentModel]]

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config)
        self.model = self.model_class(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        is_guided = getattr(config, "guided_routing", None) is not None
        self.guided_losses = GuidedLosses(config, config.d_model) if is_guided else None
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
        encoder_outputs: ModelOutput | tuple[Tensor, ...] | None = None,
        past_key_values: RecurrentCache | None = None,
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

        The other arguments are those of [`RecurrentModel.forward`].
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
            output_guided_capsules=labels is not None and self.guided_losses is not None,
            **kwargs,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        return self._with_losses(logits, outputs, labels, num_items_in_batch)

    def _resize_token_embeddings(self, new_num_tokens: int | None, *args: Any, **kwargs: Any) -> nn.Module:
        embeddings = super()._resize_token_embeddings(new_num_tokens, *args, **kwargs)
        decoder = self.get_decoder()
        if not self.config.tie_word_embeddings:
            # Transformers knows of one embedding and the output projection.
            decoder.embed_tokens = self._get_resized_embeddings(decoder.embed_tokens, new_num_tokens, *args, **kwargs)
        return embeddings
