"""M2M-100 and NLLB-200 with capsule routing: it reuses the modules of Transformers and adds only the difference."""

from importlib import import_module
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, M2M100Config, M2M100ForConditionalGeneration, PreTrainedConfig
from transformers.models.m2m_100.modeling_m2m_100 import (
    M2M100Decoder,
    M2M100DecoderLayer,
    M2M100Encoder,
    M2M100EncoderLayer,
    M2M100Model,
    M2M100PreTrainedModel,
    shift_tokens_right,
)
from transformers.utils import logging

from ..configuration.configuration_capsule_aggregated_m2m_100 import CapsuleAggregatedM2M100Config
from .aggregation import RECORDED_HEADS
from .guided_losses import READ_BY_LOSSES, GuidedLosses
from .guided_routing import GuidedRouting, GuidedVotes
from .linear import use_products
from .stacks import (
    RoutedDecoder,
    RoutedDecoderLayer,
    RoutedEncoder,
    RoutedLayer,
    RoutedPreTrainedModel,
    RoutedTransformer,
    aggregate_heads,
)
from .transformers_versions import decoder_layers
from .translation_head import TranslationHead, UntiedEmbeddings


def begins_without_position(config: PreTrainedConfig | None) -> bool:
    """Return whether targets of a model begin with padding, to which M2M-100 gives no position.

    In one pass, as in training, the tokens behind it then have the positions 1, 2, 3. Step by step they have 2, 3, 4.
    """
    return isinstance(config, M2M100Config) and config.decoder_start_token_id == config.pad_token_id


def warn_of_start(config: PreTrainedConfig) -> None:
    """Warn, once, of a model that was trained at other positions than it decodes at."""
    if begins_without_position(config):
        logging.get_logger(__name__).warning_once(
            "Translations of this model begin with padding, which has no position in M2M-100. So the model decodes at "
            "other positions than it was trained at. Train it again, with another decoder_start_token_id."
        )


class CapsuleAggregatedM2M100PreTrainedModel(RoutedPreTrainedModel, M2M100PreTrainedModel):
    """Weight initialisation and loading, shared by the models of the family."""

    config: CapsuleAggregatedM2M100Config
    _no_split_modules = (
        "CapsuleAggregatedM2M100EncoderLayer",
        "CapsuleAggregatedM2M100DecoderLayer",
        "LayerAggregation",
        "SourceAggregation",
        "GuidedVotes",
        "GuidedRouting",
    )

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        self._init_routed_part(module)


class CapsuleAggregatedM2M100EncoderLayer(RoutedLayer, M2M100EncoderLayer):
    """An encoder layer of M2M-100, with aggregated heads if configured."""

    def __init__(self, config: CapsuleAggregatedM2M100Config, layer: int) -> None:
        super().__init__(config)
        aggregate_heads(self.self_attn, config, "encoder_self", layer)
        use_products(self)


class CapsuleAggregatedM2M100DecoderLayer(RoutedDecoderLayer, M2M100DecoderLayer):
    """A decoder layer of M2M-100, with aggregated heads if configured."""

    def __init__(self, config: CapsuleAggregatedM2M100Config, layer: int) -> None:
        super().__init__(config, layer_idx=layer)
        aggregate_heads(self.self_attn, config, "decoder_self", layer)
        aggregate_heads(self.encoder_attn, config, "cross", layer)
        use_products(self)


class CapsuleAggregatedM2M100Encoder(RoutedEncoder, CapsuleAggregatedM2M100PreTrainedModel, M2M100Encoder):
    """The encoder of M2M-100 with the additions of [`RoutedEncoder`]."""

    _can_record_outputs = {**M2M100Encoder._can_record_outputs, **RECORDED_HEADS}  # noqa: RUF012

    def __init__(self, config: CapsuleAggregatedM2M100Config) -> None:
        super().__init__(config)
        self._build(CapsuleAggregatedM2M100EncoderLayer, "encoder")
        self.guided_votes = None if config.guided_routing is None else GuidedVotes(config)
        self.post_init()


class CapsuleAggregatedM2M100Decoder(RoutedDecoder, CapsuleAggregatedM2M100PreTrainedModel, M2M100Decoder):
    """The decoder of M2M-100 with the additions of [`RoutedDecoder`]."""

    _can_record_outputs = {  # noqa: RUF012
        **M2M100Decoder._can_record_outputs,
        "hidden_states": decoder_layers(M2M100DecoderLayer),
        **RECORDED_HEADS,
    }

    def __init__(self, config: CapsuleAggregatedM2M100Config) -> None:
        super().__init__(config)
        self._build(CapsuleAggregatedM2M100DecoderLayer, "decoder")
        self.post_init()


class CapsuleAggregatedM2M100Model(RoutedTransformer, CapsuleAggregatedM2M100PreTrainedModel, M2M100Model):
    """The encoder-decoder without a language model head.

    With guided routing, `last_hidden_state` is o of Zheng et al. 2019, which predicts the next tokens.
    """

    def __init__(self, config: CapsuleAggregatedM2M100Config) -> None:
        super().__init__(config)
        self.encoder = CapsuleAggregatedM2M100Encoder(config)
        self.decoder = CapsuleAggregatedM2M100Decoder(config)
        self.guided_routing = None if config.guided_routing is None else GuidedRouting(config, config.decoder_ffn_dim)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the embedding of the source."""
        # Without tied embeddings nothing reads the shared one, which Transformers would return.
        return self.encoder.embed_tokens


class CapsuleAggregatedM2M100ForConditionalGeneration(
    TranslationHead,
    UntiedEmbeddings,
    CapsuleAggregatedM2M100PreTrainedModel,
    M2M100ForConditionalGeneration,
    GenerationMixin,
):
    """The translation model: aggregated M2M-100 or NLLB-200 with a language model head and its own loss."""

    # Old files have the sinusoids too, which are computed.
    _keys_to_ignore_on_load_unexpected = (*READ_BY_LOSSES, r"embed_positions\.weights$")

    def __init__(self, config: CapsuleAggregatedM2M100Config) -> None:
        super().__init__(config)
        self.model = CapsuleAggregatedM2M100Model(config)
        self.guided_losses = None if config.guided_routing is None else GuidedLosses(config)
        warn_of_start(config)
        self.post_init()

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Return the labels after the start token, `[batch, target]`, with padding instead of -100."""
        return shift_tokens_right(labels, self.config.pad_token_id, self.config.decoder_start_token_id)

    @classmethod
    def from_m2m100(
        cls,
        m2m100: str | PathLike | M2M100ForConditionalGeneration,
        dtype: str | torch.dtype | None = None,
        revision: str | None = None,
        **config_overrides: Any,
    ) -> "CapsuleAggregatedM2M100ForConditionalGeneration":
        """Warm-start from M2M-100 or NLLB-200. This needs the package hf-capsule-mt.

        Logits are those of that model until the first update, if no output is "replace". LayerDrop is switched off.

        Args:
            m2m100: a [`M2M100ForConditionalGeneration`], or the name or folder of one (NLLB-200 is one). It may also be
                a model of this class without aggregation or guided routing.
            dtype: the dtype to load it in, float32 by default. "auto" is the dtype of the file.
            revision: branch, tag or commit of a name on the Hub.
            **config_overrides: fields of [`CapsuleAggregatedM2M100Config`]. `layer_aggregation_output` and
                `head_aggregation_output` are "residual" by default: their scales start at zero.

        Raises:
            ValueError: if `m2m100` is another model or not plain, or an override is unknown or does not fit.
            OSError: if there is no such model.
        """
        # Imported by name, because checkpoints carry this file without the package.
        warm_start = import_module("hf_capsule_mt.modeling.warm_start")
        return warm_start.from_plain(cls, m2m100, dtype, revision, config_overrides)
