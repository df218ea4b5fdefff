"""What `hf_capsule_mt` offers. Its `__init__.py` imports this module when a name is first used."""

from hf_capsule_mt.translation.corpus_translator import CorpusTranslator

from . import decoding
from .configuration import (
    METHODS,
    SIZES,
    CapsNMTConfig,
    CapsuleAggregatedM2M100Config,
    CapsuleAggregatedMarianConfig,
    RNMTConfig,
    preset_config,
)
from .modeling import (
    CapsNMTForConditionalGeneration,
    CapsNMTModel,
    CapsuleAggregatedM2M100ForConditionalGeneration,
    CapsuleAggregatedM2M100Model,
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
from .training.lora import LORA_PARAMETERS, LORA_TARGETS
from .training.new_languages import add_languages
from .translation.pipeline import TranslationPipeline, pipeline
from .translation.translation import Translation
from .version import __version__

__all__ = [
    "LORA_PARAMETERS",
    "LORA_TARGETS",
    "METHODS",
    "SIZES",
    "CapsNMTConfig",
    "CapsNMTForConditionalGeneration",
    "CapsNMTModel",
    "CapsuleAggregatedM2M100Config",
    "CapsuleAggregatedM2M100ForConditionalGeneration",
    "CapsuleAggregatedM2M100Model",
    "CapsuleAggregatedMarianConfig",
    "CapsuleAggregatedMarianForConditionalGeneration",
    "CapsuleAggregatedMarianForSequenceClassification",
    "CapsuleAggregatedMarianModel",
    "CorpusTranslator",
    "RNMTConfig",
    "RNMTForConditionalGeneration",
    "RNMTModel",
    "RoutingOutput",
    "Translation",
    "TranslationPipeline",
    "__version__",
    "add_languages",
    "decoding",
    "dynamic_routing",
    "em_routing",
    "pipeline",
    "preset_config",
    "simple_routing",
]
