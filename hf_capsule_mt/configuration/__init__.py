"""Configurations of the models, and the presets."""

from .caps_nmt import CapsNMTConfig
from .capsule_aggregated_marian import CapsuleAggregatedMarianConfig
from .presets import METHODS, SIZES, decoding_fields, method_config_class, method_fields, preset_config
from .rnmt import RNMTConfig

CONFIGURATIONS = (CapsuleAggregatedMarianConfig, CapsNMTConfig, RNMTConfig)
"""Of all families."""

__all__ = [
    "CONFIGURATIONS",
    "METHODS",
    "SIZES",
    "CapsNMTConfig",
    "CapsuleAggregatedMarianConfig",
    "RNMTConfig",
    "decoding_fields",
    "method_config_class",
    "method_fields",
    "preset_config",
]
