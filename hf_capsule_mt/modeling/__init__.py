"""The models, and the routing they are made of."""

from .caps_nmt import CapsNMTForConditionalGeneration, CapsNMTModel, CapsNMTPreTrainedModel
from .capsule_aggregated_marian import (
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianModel,
    CapsuleAggregatedMarianPreTrainedModel,
)
from .ops.em_routing import em_routing
from .ops.routing import RoutingOutput, dynamic_routing, simple_routing
from .rnmt import RNMTForConditionalGeneration, RNMTModel, RNMTPreTrainedModel
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
