"""Configurations of the models, and the presets."""

from .configuration_caps_nmt import CapsNMTConfig
from .configuration_capsule_aggregated_m2m_100 import CapsuleAggregatedM2M100Config
from .configuration_capsule_aggregated_marian import CapsuleAggregatedMarianConfig
from .configuration_rnmt import RNMTConfig
from .presets import METHODS, SIZES, decoding_fields, method_config_class, method_fields, preset_config

CONFIGURATIONS = (CapsuleAggregatedMarianConfig, CapsuleAggregatedM2M100Config, CapsNMTConfig, RNMTConfig)
"""The configuration classes of all families."""
