"""The training and decoding speeds that the papers report, as fractions of their plain model's."""

from collections.abc import Mapping

from transformers import PreTrainedConfig

from hf_capsule_mt.configuration import CapsuleAggregatedMarianConfig, RNMTConfig

_SITES = ("encoder_self", "cross", "decoder_self")
_NONE, _ALL = (), tuple(range(6))

# Dou et al. 2019, Table 1: steps and sentences per second.
_PLAIN_LAYERS = (1.79, 1.43)
_LAYERS = {
    "linear": (1.57, 1.36),
    "dynamic": (1.50, 1.30),
    "dynamic_routing": (1.37, 1.24),
    "em_routing": (1.10, 1.15),
}
# Li et al. 2019, Table 2 and, without decoding, Table 3: routing, then the layers of encoder self-attention, of
# cross-attention and of decoder self-attention.
_PLAIN_HEADS = (1.92, 1.67)
_HEADS = {
    ("simple_routing", _ALL, _NONE, _NONE): (1.23, 1.66),
    ("em_routing", _ALL, _NONE, _NONE): (1.20, 1.65),
    ("em_routing", _NONE, _ALL, _NONE): (1.20, 1.21),
    ("em_routing", _NONE, _NONE, _ALL): (1.21, 1.21),
    ("em_routing", _ALL, _ALL, _NONE): (0.87, 1.20),
    ("em_routing", _ALL, _ALL, _ALL): (0.66, 0.89),
    ("em_routing", (3, 4, 5), _NONE, _NONE): (1.54,),
    ("em_routing", (0, 1, 2), _NONE, _NONE): (1.54,),
    ("em_routing", (0, 1), _NONE, _NONE): (1.67,),
    ("em_routing", (5,), _NONE, _NONE): (1.88,),
    ("em_routing", (0,), _NONE, _NONE): (1.88,),
}
# Zheng et al. 2019, Table 1, fractions already: whether there is the bag-of-words loss, that of content agreement, and
# redundant capsules.
_GUIDED = {
    (False, False, True): (0.77, 0.94),
    (True, False, True): (0.70, 0.94),
    (False, True, True): (0.75, 0.94),
    (True, True, True): (0.67, 0.94),
    (True, True, False): (0.69, 0.94),
}
# The same, RNMT with all three of them.
_GUIDED_RNMT = {(True, True, True): (0.62, 0.90)}


def _as_published(config: CapsuleAggregatedMarianConfig) -> bool:
    """Whether what the tables do not vary is as the papers have it."""
    return (
        config.encoder_layers == config.decoder_layers == 6
        and config.routing_iterations == 3
        and config.num_output_capsules in (None, config.d_model)
        and config.layer_aggregation_output == config.head_aggregation_output == "replace"
        and config.layer_aggregation_context == "all"
        and len(config.layer_aggregation_sides) == 2
    )


def published_speed(config: PreTrainedConfig) -> tuple[float, ...]:
    """The ratios of training and decoding speed printed for this configuration, at `base`; those that there are."""
    if isinstance(config, RNMTConfig):
        alone = config.sentence_aggregation is None and config.encoder_layers == 1
        return _published_guided_speed(config, _GUIDED_RNMT) if alone else ()
    if not _as_published(config):
        return ()
    if config.guided_routing is not None:
        alone = config.layer_aggregation is config.head_aggregation is None
        return _published_guided_speed(config, _GUIDED) if alone else ()
    if config.head_aggregation is None:
        speeds, plain = _LAYERS.get(config.layer_aggregation, ()), _PLAIN_LAYERS
    elif config.layer_aggregation is None:
        sites = (tuple(layer for layer in _ALL if config.aggregates_heads(site, layer)) for site in _SITES)
        speeds, plain = _HEADS.get((config.head_aggregation, *sites), ()), _PLAIN_HEADS
    else:
        return ()
    return tuple(speed / reference for speed, reference in zip(speeds, plain))


def _published_guided_speed(
    config: PreTrainedConfig, speeds: Mapping[tuple[bool, bool, bool], tuple[float, float]]
) -> tuple[float, ...]:
    past, future, redundant = config.num_past_capsules, config.num_future_capsules, config.num_redundant_capsules
    sizes = past, future, config.guided_capsule_dim, config.guided_routing_iterations
    if config.guided_routing != "gdr" or sizes != (2, 2, 256, 3) or redundant not in (0, 2):
        return ()
    return speeds.get((config.bow_loss_weight > 0, config.bca_loss_weight > 0, redundant > 0), ())
