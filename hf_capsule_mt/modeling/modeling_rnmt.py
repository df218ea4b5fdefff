# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
"""RNMT, GRUs with attention (Bahdanau et al. 2015): alone, or with capsules (Wang et al. 2019, Zheng et al. 2019)."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.processing_utils import Unpack
from transformers.utils import ModelOutput, TransformersKwargs, can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from ..configuration.configuration_rnmt import RNMTConfig
from .guided_routing import (
    READ_BY_LOSSES,
    GuidedContext,
    build_guided_losses,
    build_guided_routing,
    build_guided_votes,
)
from .linear import UnitGainLinear
from .outputs import (
    CACHE,
    AttendedEncoderOutput,
    GuidedDecoderOutput,
    OutputRouting,
    RoutedSeq2SeqModelOutput,
    check_output_routing,
    decoder_layers,
    under_both_names,
)
from .recurrent import BidirectionalGRULayer, ConditionalGRU, RecurrentCache
from .recurrent_seq2seq import (
    OF_THE_DECODER,
    RecurrentEmbeddings,
    RecurrentHead,
    RecurrentPreTrainedModel,
    build_sentence_aggregation,
    build_sentence_projection,
    named_encoder_outputs,
)
from .routing import mean_over_words, next_word_mask, word_mask
from .translation_head import TranslationHead


class RNMTPreTrainedModel(RecurrentPreTrainedModel):
    """Configuration class and undivided modules of the family."""

    config: RNMTConfig
    config_class = RNMTConfig
    _no_split_modules = ("BidirectionalGRULayer", "ConditionalGRU", "SentenceCapsules", "GuidedVotes", "GuidedRouting")


class RNMTEncoder(RNMTPreTrainedModel):
    """Bidirectional GRU layers, the keys that the decoder attends by, and what capsules the decoder has need of them.

    What the decoder needs once a sentence is computed here, so that it travels through `generate()`.
    """

    _can_record_outputs = {"hidden_states": BidirectionalGRULayer}  # noqa: RUF012

    def __init__(self, config: RNMTConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.layers = nn.ModuleList(
            BidirectionalGRULayer(config.d_model, config.dropout) for _ in range(config.encoder_layers)
        )
        self.key_projection = UnitGainLinear(config.d_model, config.d_model)
        self.aggregation = None
        if config.sentence_aggregation is not None:
            self.aggregation = build_sentence_aggregation(config)
            self.projection = build_sentence_projection(config)
        self.guided_votes = build_guided_votes(config)
        self.post_init()

    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_routing: OutputRouting = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> AttendedEncoderOutput:
        """Encode a batch.

        Args:
            input_ids: `[batch, source]`; or `inputs_embeds` `[batch, source, d_model]`: what [`get_input_embeddings`]
                makes of them.
            attention_mask: `[batch, source]`, 1 where there is a word; everywhere by default.
            inputs_embeds: see `input_ids`.
            output_routing: True for the assignment of the last routing iteration, "all" for that of every iteration.
            **kwargs: `output_hidden_states` and `return_dict`.
        """
        hidden_states, mask = self._read(self._embed(input_ids, inputs_embeds), attention_mask)
        vectors = routing = votes = keys = None
        if self.aggregation is not None:
            vectors, routing = self.aggregation(hidden_states, mask, output_routing)
        if self.guided_votes is not None:
            votes, keys = self.guided_votes(hidden_states, mask)
        return AttendedEncoderOutput(
            last_hidden_state=hidden_states,
            attention_keys=self.key_projection(hidden_states),
            sentence_state=None if vectors is None else self.projection(vectors.flatten(-2)),
            guided_votes=votes,
            guided_keys=keys,
            sentence_vectors=vectors,
            sentence_routing=routing,
        )


class RNMTDecoder(RNMTPreTrainedModel):
    """A conditional GRU, and a readout of the word, the state and what was attended to.

    If routing is guided, it is the states that guide it (z in Zheng et al. 2019), and the readout has o in their place.
    """

    _can_record_outputs = {  # noqa: RUF012
        "hidden_states": decoder_layers(ConditionalGRU),
        "cross_attentions": OutputRecorder(ConditionalGRU, index=2),
    }

    def __init__(self, config: RNMTConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.start = UnitGainLinear(config.d_model, config.d_model)
        self.recurrence = ConditionalGRU(config.d_model)
        self.guided_routing = build_guided_routing(config, 4 * config.d_model)
        self.readout = UnitGainLinear(3 * config.d_model, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs(tie_last_hidden_states=False)
    @under_both_names
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        attention_keys: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        sentence_state: Tensor | None = None,
        guided_votes: Tensor | None = None,
        guided_keys: Tensor | None = None,
        cache: RecurrentCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_routing: OutputRouting = False,
        output_guided_capsules: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> GuidedDecoderOutput:
        """Decode a batch.

        Args:
            input_ids: the next words `[batch, target]`; or `inputs_embeds`, as in [`RNMTEncoder.forward`].
            attention_mask: `[batch, target]`, or that and the words before, 1 where there is a word.
            encoder_hidden_states: `[batch, source, d_model]`, of the encoder.
            attention_keys: `[batch, source, d_model]`, of the encoder.
            encoder_attention_mask: `[batch, source]`, 1 where there is a word; everywhere by default.
            sentence_state: `[batch, d_model]`, of the encoder, if it aggregates.
            guided_votes: of the encoder, with `guided_keys`, if routing is guided.
            guided_keys: see `guided_votes`.
            cache: the state after the words before; it is updated.
            inputs_embeds: see `input_ids`.
            use_cache: whether to return the state after the last word.
            output_routing: True for the assignment of guided routing's last iteration, "all" for that of every one.
            output_guided_capsules: whether to return the capsules of guided routing, and the states that guided it.
            **kwargs: `output_hidden_states` (what is read, and the states that predict words), `output_attentions` and
                `return_dict`.
        """
        words = self._embed(input_ids, inputs_embeds, OF_THE_DECODER)
        if encoder_hidden_states is None or attention_keys is None:
            name = "attention_keys" if attention_keys is None else "encoder_hidden_states"
            raise ValueError(f"{name} is missing; the decoder reads that of the encoder's output")
        _check_fits(self.config, sentence_state, guided_votes, guided_keys)
        cache = self._cache(cache, 1, use_cache)
        if sentence_state is not None:
            words = sentence_state.unsqueeze(1) + words
        words = self.dropout(words)
        mask = word_mask(encoder_attention_mask, encoder_hidden_states)
        if cache is None or cache.states[0] is None:
            before = self.first_state(encoder_hidden_states, mask)
        else:
            (before,) = cache.states[0]
        real = next_word_mask(attention_mask, words)
        # The states that predict the words, [batch, target, d_model].
        states, contexts, _ = self.recurrence(words, before, attention_keys, encoder_hidden_states, mask, real)
        if cache is not None:
            cache.update(0, states[:, -1], num_words=words.shape[1])
        guided = GuidedContext(states, None, None)
        if self.guided_routing is not None:
            guided = self.guided_routing(states, guided_votes, guided_keys, mask, output_routing)
        readout = self.readout(torch.cat([words, guided.states, contexts], dim=-1)).tanh()
        return GuidedDecoderOutput(
            last_hidden_state=self.dropout(readout),
            **{CACHE: cache if use_cache else None},
            guided_routing=guided.assignment,
            guided_states=states if output_guided_capsules else None,
            guided_capsules=guided.capsules if output_guided_capsules else None,
        )

    def first_state(self, encoder_hidden_states: Tensor, mask: Tensor | None) -> Tensor:
        """Return the state before the first word, `[batch, d_model]`, of a source and its mask, bool."""
        return self.start(mean_over_words(encoder_hidden_states, mask)).tanh()


class RNMTModel(RecurrentEmbeddings, RNMTPreTrainedModel):
    """The encoder-decoder without a language model head."""

    def __init__(self, config: RNMTConfig) -> None:
        super().__init__(config)
        self.encoder = RNMTEncoder(config)
        self.decoder = RNMTDecoder(config)
        self.post_init()

    @can_return_tuple
    @under_both_names
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: AttendedEncoderOutput | tuple[Tensor, ...] | None = None,
        cache: RecurrentCache | None = None,
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
            cache: the decoder's states after the words before; as `past_key_values` too.
            inputs_embeds: see `input_ids`.
            decoder_inputs_embeds: see `decoder_input_ids`.
            use_cache: whether to return the decoder's states.
            output_routing: True to return the assignment of the last routing iteration, "all" for every iteration's.
            output_guided_capsules: whether to return `guided_states` and `guided_capsules`.
            **kwargs: `output_hidden_states`, `output_attentions` and `return_dict`.
        """
        check_output_routing(output_routing)
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids, attention_mask, inputs_embeds, output_routing=output_routing, **kwargs
            )
        encoder_outputs = rnmt_encoder_outputs(encoder_outputs, self.config)
        decoder_outputs = self.decoder(
            decoder_input_ids,
            decoder_attention_mask,
            encoder_hidden_states=encoder_outputs.last_hidden_state,
            attention_keys=encoder_outputs.attention_keys,
            encoder_attention_mask=attention_mask,
            sentence_state=encoder_outputs.sentence_state,
            guided_votes=encoder_outputs.guided_votes,
            guided_keys=encoder_outputs.guided_keys,
            cache=cache,
            inputs_embeds=decoder_inputs_embeds,
            use_cache=use_cache,
            output_routing=output_routing,
            output_guided_capsules=output_guided_capsules,
            **kwargs,
        )
        return RoutedSeq2SeqModelOutput(
            last_hidden_state=decoder_outputs.last_hidden_state,
            **{CACHE: getattr(decoder_outputs, CACHE)},
            decoder_hidden_states=decoder_outputs.hidden_states,
            cross_attentions=decoder_outputs.cross_attentions,
            encoder_last_hidden_state=encoder_outputs.last_hidden_state,
            encoder_hidden_states=encoder_outputs.hidden_states,
            sentence_routing=encoder_outputs.sentence_routing,
            guided_routing=decoder_outputs.guided_routing,
            guided_states=decoder_outputs.guided_states,
            guided_capsules=decoder_outputs.guided_capsules,
        )


def rnmt_encoder_outputs(outputs: ModelOutput | tuple[Tensor, ...], config: RNMTConfig) -> ModelOutput:
    """Return the output of an encoder by name.

    Raises:
        ValueError: if it lacks what the decoder of this configuration reads, or has more of that.
    """
    sentence = () if config.sentence_aggregation is None else ("sentence_state",)
    guided = () if config.guided_routing is None else ("guided_votes", "guided_keys")
    needed = ("last_hidden_state", "attention_keys", *sentence, *guided)
    outputs = named_encoder_outputs(outputs, AttendedEncoderOutput, needed)
    _check_fits(config, outputs.sentence_state, outputs.guided_votes, outputs.guided_keys)
    return outputs


def _check_fits(
    config: RNMTConfig, sentence_state: Tensor | None, guided_votes: Tensor | None, guided_keys: Tensor | None
) -> None:
    """Raise ValueError if the encoder's output has what the configuration does not ask for, or lacks it."""
    for name, value, field in (
        ("sentence_state", sentence_state, "sentence_aggregation"),
        ("guided_votes", guided_votes, "guided_routing"),
        ("guided_keys", guided_keys, "guided_routing"),
    ):
        if (value is None) != (getattr(config, field) is None):
            state = "missing" if value is None else "given"
            raise ValueError(
                f"{name} is {state}, but {field} is {getattr(config, field)!r}; "
                "give what the encoder of this model returns"
            )


class RNMTForConditionalGeneration(TranslationHead, RecurrentHead, RNMTPreTrainedModel, GenerationMixin):
    """The translation model: RNMT with a language model head and its own label-smoothed loss."""

    _keys_to_ignore_on_load_unexpected = READ_BY_LOSSES

    def __init__(self, config: RNMTConfig) -> None:
        super().__init__(config)
        self.model = RNMTModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.guided_losses = build_guided_losses(config)
        self.post_init()

    @classmethod
    def from_rnmt(
        cls, plain: "RNMTForConditionalGeneration", **config_overrides: Any
    ) -> "RNMTForConditionalGeneration":
        """Warm-start guided routing from a trained model without it, whose logits stay until the first update.

        Args:
            plain: the trained model.
            **config_overrides: fields of [`RNMTConfig`].

        Raises:
            ValueError: if `plain` is of another type or has guided routing, or an override is unknown, not allowed or
                does not fit the weights.
        """
        if not isinstance(plain, cls):
            raise ValueError(f"from_rnmt takes a trained {cls.__name__}, not a {type(plain).__name__}; load it first")
        if plain.config.guided_routing is not None:
            raise ValueError(f"the model has guided_routing={plain.config.guided_routing!r}; give one without it")
        # It stays in the package.
        warm_start = import_module("hf_capsule_mt.modeling.warm_start")
        warm_start.check_overrides(RNMTConfig, config_overrides)
        config = RNMTConfig(**{**plain.config.to_dict(), **config_overrides})
        model = warm_start.begin_with(cls, config, plain)
        if model.model.decoder.guided_routing is not None:
            model.model.decoder.guided_routing.switch_off()
        return model


__all__ = ["RNMTForConditionalGeneration", "RNMTModel", "RNMTPreTrainedModel"]
