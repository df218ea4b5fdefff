# Copyright 2026 The hf-capsule-mt authors.
"""Configuration of the Marian family with capsule routing."""

from huggingface_hub.dataclasses import strict
from transformers import MarianConfig

from .aggregation_fields import AggregationFields
from .shared_fields import CapsuleConfig, GuidedRoutingFields


@strict
class CapsuleAggregatedMarianConfig(AggregationFields, GuidedRoutingFields, CapsuleConfig, MarianConfig):
    r"""
    A [`MarianConfig`] with aggregation of layers (Dou et al. 2019) and of attention heads (Li et al. 2019), and with
    guided routing (Zheng et al. 2019). With the default values the model is Marian.

    The arguments of aggregation are those of [`AggregationFields`], and those of guided routing those of
    [`GuidedRoutingFields`]. All others are those of [`MarianConfig`].
    """

    model_type = "capsule_aggregated_marian"
