"""Configurations of the models, and the presets."""

from .capsule_aggregated_marian import CapsuleAggregatedMarianConfig
from .presets import METHODS, SIZES, method_fields, preset_config

__all__ = ["METHODS", "SIZES", "CapsuleAggregatedMarianConfig", "method_fields", "preset_config"]
