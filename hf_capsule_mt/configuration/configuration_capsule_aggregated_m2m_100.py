# Copyright 2026 The hf-capsule-mt authors.
"""Configuration of M2M-100 and NLLB-200 with capsule routing."""

from typing import Literal

from huggingface_hub.dataclasses import strict
from transformers import M2M100Config

from .aggregation_fields import AggregationFields
from .shared_fields import CapsuleConfig, GuidedRoutingFields


@strict
class CapsuleAggregatedM2M100Config(AggregationFields, GuidedRoutingFields, CapsuleConfig, M2M100Config):
    r"""
    A [`M2M100Config`] with aggregation of layers (Dou et al. 2019) and of attention heads (Li et al. 2019), and with
    guided routing (Zheng et al. 2019). With the default values the model is M2M-100, which NLLB-200 is too.

    The arguments of aggregation are those of [`AggregationFields`], and those of guided routing those of
    [`GuidedRoutingFields`]. All others are those of [`M2M100Config`]. Some have other defaults:

    Args:
        layer_aggregation_context (`str`, *optional*, defaults to `"own"`):
            With `"all"` EM routing adds 327 million parameters to NLLB-200's 615, with `"own"` 50 million.
        layer_aggregation_input_norm (`bool`, *optional*, defaults to `True`):
            The outputs of these layers are not normalised, and grow from layer to layer.
        encoder_layerdrop (`float`, *optional*, defaults to 0.0):
            Aggregated layers cannot be left out.
        decoder_layerdrop (`float`, *optional*, defaults to 0.0):
            The same for the decoder.
    """

    model_type = "capsule_aggregated_m2m_100"
    is_pre_norm = True

    layer_aggregation_context: Literal["all", "own"] = "own"
    layer_aggregation_input_norm: bool = True
    encoder_layerdrop: float | int = 0.0
    decoder_layerdrop: float | int = 0.0
