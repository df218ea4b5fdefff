"""What a configuration routes, and the names of guided capsules."""

from collections import ChainMap

from transformers import PreTrainedConfig

from hf_capsule_mt.configuration.aggregation_fields import AggregationFields
from hf_capsule_mt.modeling.aggregation import COMBINATIONS
from hf_capsule_mt.modeling.streams import STREAMS, LayerMixing

_ROUTED_BY = ("layer_aggregation", "head_aggregation", "guided_routing", "sentence_aggregation")
"""Fields of configurations."""
_UNROUTED = {"layer_aggregation": ChainMap(COMBINATIONS, STREAMS), "sentence_aggregation": ["pooling"]}
"""Values of these fields that aggregate without routing."""


def has_routing(config: PreTrainedConfig) -> bool:
    """Return whether a model of this configuration routes anything."""
    for field in _ROUTED_BY:
        # A stranger's Marian model may have any field, which means nothing in its class.
        if hasattr(type(config), field):
            value = getattr(config, field)
            if value is not None and value not in _UNROUTED.get(field, ()):
                return True
    return False


def mixes_layers(config: PreTrainedConfig) -> bool:
    """Return whether each layer of a stack of such a model reads an aggregate of its own of other layers."""
    if not isinstance(config, AggregationFields) or config.layer_aggregation is None:
        return False
    if config.layer_aggregation_place == "layers":
        # Hyper-connections mix streams, which are no layers.
        stream_class = STREAMS.get(config.layer_aggregation)
        return stream_class is not None and issubclass(stream_class, LayerMixing)
    return config.layer_aggregation_place == "source"


def guided_names(num_past: int, num_future: int, capsules: int) -> list[str]:
    """Return the names of the columns of `guided_routing`. `capsules` is their number."""
    groups = {"PAST": num_past, "FUTURE": num_future, "redundant": capsules - num_past - num_future}
    names = []
    for group, size in groups.items():
        if size == 1:
            names.append(group)
        else:
            names += [f"{group} {number + 1}" for number in range(size)]
    return names


def guided_groups(config: PreTrainedConfig) -> tuple[int, int]:
    """Return the number of PAST columns of `guided_routing`, and of FUTURE columns, or (0, 0)."""
    # A stranger's Marian model may have any field, which means nothing in its class.
    is_known = hasattr(type(config), "guided_routing")
    if not is_known or config.guided_routing is None:
        return 0, 0
    if config.guided_routing == "gdr":
        return config.num_past_capsules, config.num_future_capsules
    # The baselines of guided dynamic routing assign words to PAST and FUTURE as a whole.
    return 1, 1
