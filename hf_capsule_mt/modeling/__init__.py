"""The models, and the routing they are made of."""

from .em_routing import em_routing
from .modeling_caps_nmt import CapsNMTForConditionalGeneration, CapsNMTModel, CapsNMTPreTrainedModel
from .modeling_capsule_aggregated_m2m_100 import (
    CapsuleAggregatedM2M100ForConditionalGeneration,
    CapsuleAggregatedM2M100Model,
    CapsuleAggregatedM2M100PreTrainedModel,
)
from .modeling_capsule_aggregated_marian import (
    CapsuleAggregatedMarianForConditionalGeneration,
    CapsuleAggregatedMarianModel,
    CapsuleAggregatedMarianPreTrainedModel,
)
from .modeling_rnmt import RNMTForConditionalGeneration, RNMTModel, RNMTPreTrainedModel
from .routing import RoutingOutput, dynamic_routing, simple_routing
from .sequence_classification import CapsuleAggregatedMarianForSequenceClassification

AUTO_MODELS = {
    "AutoModel": (CapsuleAggregatedMarianModel, CapsuleAggregatedM2M100Model, CapsNMTModel, RNMTModel),
    "AutoModelForSeq2SeqLM": (
        CapsuleAggregatedMarianForConditionalGeneration,
        CapsuleAggregatedM2M100ForConditionalGeneration,
        CapsNMTForConditionalGeneration,
        RNMTForConditionalGeneration,
    ),
    "AutoModelForSequenceClassification": (CapsuleAggregatedMarianForSequenceClassification,),
}
"""The models by the Auto class that makes and loads them."""
