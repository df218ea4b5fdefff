"""The Marian encoder-decoder with capsule routing: it reuses Marian's modules and adds only the difference."""

from collections.abc import Sequence
from importlib import import_module
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GenerationMixin, MarianMTModel
from transformers import initialization as init
from transformers.models.marian.modeling_marian import (
    MarianDecoder,
    MarianDecoderLayer,
    MarianEncoder,
    MarianEncoderLayer,
    MarianModel,
    MarianPreTrainedModel,
    MarianSinusoidalPositionalEmbedding,
)

from ..configuration.configuration_capsule_aggregated_marian import CapsuleAggregatedMarianConfig
from .aggregation import RECORDED_HEADS
from .guided_losses import READ_BY_LOSSES, GuidedLosses
from .guided_routing import GuidedRouting, GuidedVotes
from .initial_weights import init_words
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


class Positions(MarianSinusoidalPositionalEmbedding):
    """Marian's sinusoids. A text that is too long is an error."""

    def forward(
        self, input_ids_shape: Sequence[int], cache_length: int | Tensor = 0, position_ids: Tensor | None = None
    ) -> Tensor:
        """Return the sinusoids of the positions after `cache_length`, as Marian does.

        Raises:
            ValueError: if there are fewer. Compiled and exported programs, and static caches, are not checked.
        """
        # On a GPU a lookup past the end would end the process.
        if not torch.compiler.is_compiling() and isinstance(cache_length, int):
            longest = cache_length + input_ids_shape[1]
            if longest > self.num_embeddings:
                raise ValueError(
                    f"A text has {longest} tokens, and the model {self.num_embeddings} positions. Truncate the "
                    "source, or set a smaller max_new_tokens."
                )
        return super().forward(input_ids_shape, cache_length, position_ids)


class CapsuleAggregatedMarianPreTrainedModel(RoutedPreTrainedModel, MarianPreTrainedModel):
    """Weight initialisation and loading, shared by the models of the family."""

    config: CapsuleAggregatedMarianConfig
    _no_split_modules = (
        "CapsuleAggregatedMarianEncoderLayer",
        "CapsuleAggregatedMarianDecoderLayer",
        "LayerAggregation",
        "SourceAggregation",
        "GuidedVotes",
        "GuidedRouting",
    )

    # Positions are computed. Marian also lists the bias, which would silently become zero.
    _keys_to_ignore_on_load_missing = (r"embed_positions\.weight$",)

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load a model as [`PreTrainedModel.from_pretrained`] does, and freeze its positions.

        Transformers marks every loaded weight as trainable. Positions are fixed sinusoids.
        """
        loaded = super().from_pretrained(*args, **kwargs)
        # With `output_loading_info` there are two results.
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        for module in model.modules():
            if isinstance(module, MarianSinusoidalPositionalEmbedding):
                module.requires_grad_(False)
        return loaded

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, MarianSinusoidalPositionalEmbedding):
            # Marian's own method takes seconds for the same numbers, so the method of its parent is called instead.
            super(MarianPreTrainedModel, self)._init_weights(module)
            count, width = module.weight.shape
            init.copy_(module.weight, _positions(count, width))
        else:
            super()._init_weights(module)
        if type(module) is nn.Embedding and self.config.scale_embedding:
            init_words(module, self.config.d_model)
        self._init_routed_part(module)


def _positions(count: int, width: int) -> Tensor:
    """Return the sinusoids `[count, width]`, bit for bit those of Marian: first sines, then cosines."""
    exponents = [2 * (column // 2) / width for column in range(width)]
    # One by one, as Marian does: other ways may round differently.
    periods = np.array([np.power(10000, exponent) for exponent in exponents])
    angles = np.arange(count)[:, None] / periods
    sines = np.sin(angles[:, 0::2])
    cosines = np.cos(angles[:, 1::2])
    return torch.from_numpy(np.concatenate([sines, cosines], axis=1)).float()


class CapsuleAggregatedMarianEncoderLayer(RoutedLayer, MarianEncoderLayer):
    """Marian's encoder layer, with aggregated heads if configured."""

    def __init__(self, config: CapsuleAggregatedMarianConfig, layer: int) -> None:
        super().__init__(config)
        aggregate_heads(self.self_attn, config, "encoder_self", layer)
        use_products(self)


class CapsuleAggregatedMarianDecoderLayer(RoutedDecoderLayer, MarianDecoderLayer):
    """Marian's decoder layer, with aggregated heads if configured."""

    def __init__(self, config: CapsuleAggregatedMarianConfig, layer: int) -> None:
        super().__init__(config, layer_idx=layer)
        aggregate_heads(self.self_attn, config, "decoder_self", layer)
        aggregate_heads(self.encoder_attn, config, "cross", layer)
        use_products(self)


class CapsuleAggregatedMarianEncoder(RoutedEncoder, CapsuleAggregatedMarianPreTrainedModel, MarianEncoder):
    """Marian's encoder with the additions of [`RoutedEncoder`]."""

    _can_record_outputs = {**MarianEncoder._can_record_outputs, **RECORDED_HEADS}  # noqa: RUF012

    def __init__(self, config: CapsuleAggregatedMarianConfig) -> None:
        super().__init__(config)
        # A new module would draw random numbers, and all weights drawn after it would differ from Marian's.
        self.embed_positions.__class__ = Positions
        self._build(CapsuleAggregatedMarianEncoderLayer, "encoder")
        self.guided_votes = None if config.guided_routing is None else GuidedVotes(config)
        self.post_init()


class CapsuleAggregatedMarianDecoder(RoutedDecoder, CapsuleAggregatedMarianPreTrainedModel, MarianDecoder):
    """Marian's decoder with the additions of [`RoutedDecoder`]."""

    _can_record_outputs = {  # noqa: RUF012
        **MarianDecoder._can_record_outputs,
        "hidden_states": decoder_layers(MarianDecoderLayer),
        **RECORDED_HEADS,
    }

    def __init__(self, config: CapsuleAggregatedMarianConfig) -> None:
        super().__init__(config)
        # As in the encoder.
        self.embed_positions.__class__ = Positions
        self._build(CapsuleAggregatedMarianDecoderLayer, "decoder")
        self.post_init()


class CapsuleAggregatedMarianModel(RoutedTransformer, CapsuleAggregatedMarianPreTrainedModel, MarianModel):
    """The encoder-decoder without a language model head.

    With guided routing, `last_hidden_state` is o of Zheng et al. 2019, which predicts the next tokens.
    """

    def __init__(self, config: CapsuleAggregatedMarianConfig) -> None:
        super().__init__(config)
        self.encoder = CapsuleAggregatedMarianEncoder(config)
        self.decoder = CapsuleAggregatedMarianDecoder(config)
        self.guided_routing = None if config.guided_routing is None else GuidedRouting(config, config.decoder_ffn_dim)
        self.post_init()


class CapsuleAggregatedMarianForConditionalGeneration(
    TranslationHead, UntiedEmbeddings, CapsuleAggregatedMarianPreTrainedModel, MarianMTModel, GenerationMixin
):
    """The translation model: aggregated Marian with a language model head and its own loss."""

    _keys_to_ignore_on_load_unexpected = READ_BY_LOSSES

    def __init__(self, config: CapsuleAggregatedMarianConfig) -> None:
        super().__init__(config)
        self.model = CapsuleAggregatedMarianModel(config)
        self.guided_losses = None if config.guided_routing is None else GuidedLosses(config)
        self.post_init()

    def _resize_final_logits_bias(self, new_num_tokens: int) -> None:
        dtype = self.final_logits_bias.dtype
        # With `pad_to_multiple_of` there are more tokens than were asked for.
        super()._resize_final_logits_bias(self.lm_head.weight.shape[0])
        # Marian adds float32 elements, which would make the logits of a smaller dtype float32.
        self.final_logits_bias = self.final_logits_bias.to(dtype)

    @classmethod
    def from_marian(
        cls,
        marian: str | PathLike | MarianMTModel,
        dtype: str | torch.dtype | None = None,
        revision: str | None = None,
        **config_overrides: Any,
    ) -> "CapsuleAggregatedMarianForConditionalGeneration":
        """Warm-start from a Marian translation model. This needs the package hf-capsule-mt.

        Logits are those of the Marian model until the first update, if no output is "replace".

        Args:
            marian: a [`MarianMTModel`], or the name or folder of one (OPUS-MT). It may also be a model of this class
                without aggregation or guided routing.
            dtype: the dtype to load it in, float32 by default. "auto" is the dtype of the file.
            revision: branch, tag or commit of a name on the Hub.
            **config_overrides: fields of [`CapsuleAggregatedMarianConfig`]. `layer_aggregation_output` and
                `head_aggregation_output` are "residual" by default: their scales start at zero.

        Raises:
            ValueError: if `marian` is another model or not plain, or an override is unknown or does not fit.
            OSError: if there is no such model.
        """
        # Imported by name, because checkpoints carry this file without the package.
        warm_start = import_module("hf_capsule_mt.modeling.warm_start")
        return warm_start.from_plain(cls, marian, dtype, revision, config_overrides)
