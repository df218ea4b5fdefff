"""Capsule-routing machine translation models for the Hugging Face ecosystem.

Importing the package registers its models with Transformers' Auto classes, and `pipeline("translation")`.
"""

from . import decoding
from .configuration import METHODS, SIZES, CapsNMTConfig, CapsuleAggregatedMarianConfig, RNMTConfig, preset_config
from .modeling import (
    CapsNMTForConditionalGeneration,
    CapsNMTModel,
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianForSequenceClassification,
    CapsuleAggregatedMarianModel,
    RNMTForConditionalGeneration,
    RNMTModel,
    RoutingOutput,
    dynamic_routing,
    em_routing,
    simple_routing,
)
from .registration import register_models, register_translation
from .training.lora import LORA_PARAMETERS, LORA_TARGETS
from .translation.pipeline import TranslationPipeline
from .version import __version__

register_models()
register_translation()

__all__ = [
    "LORA_PARAMETERS",
    "LORA_TARGETS",
    "METHODS",
    "SIZES",
    "CapsNMTConfig",
    "CapsNMTForConditionalGeneration",
    "CapsNMTModel",
    "CapsuleAggregatedMarianConfig",
    "CapsuleAggregatedMarianForConditionalGeneration",
    "CapsuleAggregatedMarianForSequenceClassification",
    "CapsuleAggregatedMarianModel",
    "RNMTConfig",
    "RNMTForConditionalGeneration",
    "RNMTModel",
    "RoutingOutput",
    "TranslationPipeline",
    "__version__",
    "decoding",
    "dynamic_routing",
    "em_routing",
    "preset_config",
    "simple_routing",
]
