"""RNMT: GRUs with attention (Bahdanau et al. 2015), optionally with capsules (Wang et al. 2019, Zheng et al. 2019)."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from ..configuration.configuration_rnmt import RNMTConfig
from .guided_losses import READ_BY_LOSSES, GuidedLosses
from .guided_routing import GuidedContext, GuidedRouting, GuidedVotes
from .linear import UnitGainLinear
from .outputs import OutputRouting, RecurrentEncoderOutput, RoutedDecoderOutput
from .recurrent import BidirectionalGRULayer, ConditionalGRU, RecurrentCache
from .recurrent_seq2seq import RecurrentHead, RecurrentModel, RecurrentPreTrainedModel
from .sentence_capsules import SENTENCE_AGGREGATIONS, SentenceProjection
from .transformers_versions import CACHE, decoder_layers, under_both_names
from .translation_head import TranslationHead
from .word_masks import mean_over_words, next_word_mask, word_mask


class RNMTPreTrainedModel(RecurrentPreTrainedModel):
    """The base of the family."""

    config: RNMTConfig
    _no_split_modules = ("BidirectionalGRULayer", "ConditionalGRU", "SentenceCapsules", "GuidedVotes", "GuidedRouting")


class RNMTEncoder(RNMTPreTrainedModel):
    """Bidirectional GRU layers. Also computes the attention keys and, if configured, the capsules' votes.

    The decoder needs these once a sentence. As outputs of the encoder they pass through `generate()`.
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
            self.aggregation = SENTENCE_AGGREGATIONS[config.sentence_aggregation](config)
            self.projection = SentenceProjection(config)
        self.guided_votes = None if config.guided_routing is None else GuidedVotes(config)
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
        hidden_states, mask = self._encode(self._embed(input_ids, inputs_embeds), attention_mask)
        vectors = routing = votes = keys = None
        if self.aggregation is not None:
            vectors, routing = self.aggregation(hidden_states, mask, output_routing)
        if self.guided_votes is not None:
            votes, keys = self.guided_votes(hidden_states, mask)
        return RecurrentEncoderOutput(
            last_hidden_state=hidden_states,
            attention_keys=self.key_projection(hidden_states),
            sentence_state=None if vectors is None else self.projection(vectors.flatten(-2)),
            guided_votes=votes,
            guided_keys=keys,
            sentence_vectors=vectors,
            sentence_routing=routing,
        )


class RNMTDecoder(RNMTPreTrainedModel):
    """A conditional GRU, and a readout of the token, the state and the context.

    With guided routing, the states guide it (z in Zheng et al. 2019), and the readout reads its result o instead of z.
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
        self.guided_routing = None if config.guided_routing is None else GuidedRouting(config, 4 * config.d_model)
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
    ) -> RoutedDecoderOutput:
        """Decode a batch.

        Args:
            input_ids: the next token ids, `[batch, target]`.
            attention_mask: `[batch, target]`, 0 for padding. It may also have columns for the tokens before. By default
                there is no padding.
            encoder_hidden_states: the states of the encoder, `[batch, source, d_model]`.
            attention_keys: those states' keys, also from the encoder, `[batch, source, d_model]`.
            encoder_attention_mask: `[batch, source]`, 0 for padding. By default there is no padding.
            sentence_state: `[batch, d_model]`, from an encoder that aggregates the sentence.
            guided_votes: `[batch, J, source, D]`, from an encoder with guided routing.
            guided_keys: the same encoder's keys for the votes.
            cache: the state after the tokens before. It is updated. `past_key_values` is another name.
            inputs_embeds: embeddings `[batch, target, d_model]` instead of `input_ids`.
            use_cache: whether to return the cache. Default: the configuration's.
            output_routing: True returns the assignment of the last routing iteration, "all" those of every iteration.
            output_guided_capsules: whether to return `guided_states` and `guided_capsules`.
            **kwargs: `output_hidden_states`, `output_attentions`.
        """
        embeddings = self._embed(input_ids, inputs_embeds)
        if self.config.sentence_aggregation is not None:
            embeddings = sentence_state.unsqueeze(1) + embeddings
        embeddings = self.dropout(embeddings)
        mask = word_mask(encoder_attention_mask, encoder_hidden_states)
        if cache is None or cache.states[0] is None:
            before = self.first_state(encoder_hidden_states, mask)
        else:
            (before,) = cache.states[0]
        is_word = next_word_mask(attention_mask, embeddings)
        # The states that predict the next tokens, [batch, target, d_model].
        states, contexts, _ = self.recurrence(embeddings, before, attention_keys, encoder_hidden_states, mask, is_word)
        if cache is None and use_cache:
            cache = RecurrentCache(1)
        if cache is not None:
            cache.update(0, states[:, -1], num_words=embeddings.shape[1])
        guided = GuidedContext(states, None, None)
        if self.guided_routing is not None:
            guided = self.guided_routing(states, guided_votes, guided_keys, mask, output_routing)
        readout = self.readout(torch.cat([embeddings, guided.states, contexts], dim=-1)).tanh()
        return RoutedDecoderOutput(
            last_hidden_state=self.dropout(readout),
            **{CACHE: cache if use_cache else None},
            guided_routing=guided.assignment,
            guided_states=states if output_guided_capsules else None,
            guided_capsules=guided.capsules if output_guided_capsules else None,
        )

    def first_state(self, encoder_hidden_states: Tensor, mask: Tensor | None) -> Tensor:
        """Return the state before the first token, `[batch, d_model]`, given the encoder's states and their mask."""
        return self.start(mean_over_words(encoder_hidden_states, mask)).tanh()


class RNMTModel(RecurrentModel, RNMTPreTrainedModel):
    """The encoder-decoder without a language model head."""

    def __init__(self, config: RNMTConfig) -> None:
        super().__init__(config)
        sentence = () if config.sentence_aggregation is None else ("sentence_state",)
        guided = () if config.guided_routing is None else ("guided_votes", "guided_keys")
        self._read_by_decoder = ("last_hidden_state", "attention_keys", *sentence, *guided)
        self.encoder = RNMTEncoder(config)
        self.decoder = RNMTDecoder(config)
        self.post_init()

    def _run_decoder(
        self,
        encoded: RecurrentEncoderOutput,
        source_mask: Tensor | None,
        output_routing: OutputRouting,
        output_guided_capsules: bool,
        **kwargs: Any,
    ) -> RoutedDecoderOutput:
        return self.decoder(
            encoder_hidden_states=encoded.last_hidden_state,
            attention_keys=encoded.attention_keys,
            encoder_attention_mask=source_mask,
            sentence_state=encoded.sentence_state,
            guided_votes=encoded.guided_votes,
            guided_keys=encoded.guided_keys,
            output_routing=output_routing,
            output_guided_capsules=output_guided_capsules,
            **kwargs,
        )


class RNMTForConditionalGeneration(TranslationHead, RecurrentHead, RNMTPreTrainedModel, GenerationMixin):
    """The translation model: RNMT with a language model head and its own loss."""

    _keys_to_ignore_on_load_unexpected = READ_BY_LOSSES

    def __init__(self, config: RNMTConfig) -> None:
        super().__init__(config)
        self.model = RNMTModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.guided_losses = None if config.guided_routing is None else GuidedLosses(config)
        self.post_init()

    @classmethod
    def from_rnmt(
        cls, plain: "RNMTForConditionalGeneration", **config_overrides: Any
    ) -> "RNMTForConditionalGeneration":
        """Warm-start guided routing from a trained model without it. Logits stay the same until the first update.

        The overrides are fields of [`RNMTConfig`].

        Raises:
            ValueError: if `plain` is another model or has guided routing, or an override is unknown or does not fit.
        """
        if not isinstance(plain, cls) or plain.config.guided_routing is not None:
            raise ValueError(f"from_rnmt takes a trained {cls.__name__} without guided routing.")
        # Imported by name, because checkpoints carry this file without the package.
        warm_start = import_module("hf_capsule_mt.modeling.warm_start")
        warm_start.check_overrides(RNMTConfig, config_overrides)
        config = RNMTConfig(**{**plain.config.to_dict(), **config_overrides})
        model = warm_start.begin_with(cls, config, plain)
        if model.model.decoder.guided_routing is not None:
            model.model.decoder.guided_routing.switch_off()
        return model
