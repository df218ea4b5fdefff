"""Capsule-routing machine translation models for the Hugging Face ecosystem.

Importing the package registers its models with Transformers' Auto classes.
"""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from .configuration import METHODS, SIZES, CapsuleAggregatedMarianConfig, preset_config
from .modeling import (
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianForSequenceClassification,
    CapsuleAggregatedMarianModel,
    RoutingOutput,
    dynamic_routing,
    em_routing,
    simple_routing,
)

__version__ = "0.1.0"

AutoConfig.register(CapsuleAggregatedMarianConfig.model_type, CapsuleAggregatedMarianConfig)
AutoModel.register(CapsuleAggregatedMarianConfig, CapsuleAggregatedMarianModel)
AutoModelForSeq2SeqLM.register(CapsuleAggregatedMarianConfig, CapsuleAggregatedMarianForConditionalGeneration)
AutoModelForSequenceClassification.register(
    CapsuleAggregatedMarianConfig, CapsuleAggregatedMarianForSequenceClassification
)

__all__ = [
    "METHODS",
    "SIZES",
    "CapsuleAggregatedMarianConfig",
    "CapsuleAggregatedMarianForConditionalGeneration",
    "CapsuleAggregatedMarianForSequenceClassification",
    "CapsuleAggregatedMarianModel",
    "RoutingOutput",
    "dynamic_routing",
    "em_routing",
    "preset_config",
    "simple_routing",
]
