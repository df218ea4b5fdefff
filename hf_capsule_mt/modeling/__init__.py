"""The models, and the routing they are made of."""

from .em_routing import em_routing
from .modeling_caps_nmt import CapsNMTForConditionalGeneration, CapsNMTModel, CapsNMTPreTrainedModel
from .modeling_capsule_aggregated_marian import (
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianModel,
    CapsuleAggregatedMarianPreTrainedModel,
)
from .modeling_rnmt import RNMTForConditionalGeneration, RNMTModel, RNMTPreTrainedModel
from .routing import RoutingOutput, dynamic_routing, simple_routing
from .sequence_classification import CapsuleAggregatedMarianForSequenceClassification

__all__ = [
    "CapsNMTForConditionalGeneration",
    "CapsNMTModel",
    "CapsNMTPreTrainedModel",
    "CapsuleAggregatedMarianForConditionalGeneration",
    "CapsuleAggregatedMarianForSequenceClassification",
    "CapsuleAggregatedMarianModel",
    "CapsuleAggregatedMarianPreTrainedModel",
    "RNMTForConditionalGeneration",
    "RNMTModel",
    "RNMTPreTrainedModel",
    "RoutingOutput",
    "dynamic_routing",
    "em_routing",
    "simple_routing",
]
