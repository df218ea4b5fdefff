"""The training and decoding speeds that the papers report, as fractions of their plain model's."""

from pathlib import Path
from typing import Any

import yaml
from transformers import PreTrainedConfig

from hf_capsule_mt.configuration import CapsuleAggregatedMarianConfig, RNMTConfig

_SITES = ("encoder_self", "cross", "decoder_self")


def published_speed(config: PreTrainedConfig) -> tuple[float, ...]:
    """Return the ratios of training and decoding speed printed for this configuration, at `base`; those there are."""
    if isinstance(config, RNMTConfig):
        alone = config.sentence_aggregation is None and config.encoder_layers == 1
        return _guided_speed("guided_rnmt", config) if alone else ()
    if not _as_published(config):
        return ()
    if [config.guided_routing, config.head_aggregation, config.layer_aggregation].count(None) != 2:
        return ()
    if config.guided_routing is not None:
        return _guided_speed("guided", config)
    if config.layer_aggregation is not None:
        return _find("layers", layer_aggregation=config.layer_aggregation)
    layers = {site: [layer for layer in range(6) if config.aggregates_heads(site, layer)] for site in _SITES}
    return _find("heads", routing=config.head_aggregation, **layers)


def _as_published(config: CapsuleAggregatedMarianConfig) -> bool:
    """Return whether the fields that the tables do not vary are as in the papers."""
    return (
        config.encoder_layers == config.decoder_layers == 6
        and config.routing_iterations == 3
        and config.num_output_capsules in (None, config.d_model)
        and config.layer_aggregation_output == config.head_aggregation_output == "replace"
        and not config.head_aggregation_input_norm
        and config.layer_aggregation_context == "all"
        and len(config.layer_aggregation_sides) == 2
    )


def _guided_speed(table: str, config: PreTrainedConfig) -> tuple[float, ...]:
    past, future, redundant = config.num_past_capsules, config.num_future_capsules, config.num_redundant_capsules
    sizes = past, future, config.guided_capsule_dim, config.guided_routing_iterations
    if config.guided_routing != "gdr" or sizes != (2, 2, 256, 3) or redundant not in (0, 2):
        return ()
    losses = {"bow": config.bow_loss_weight > 0, "bca": config.bca_loss_weight > 0}
    return _find(table, **losses, redundant=redundant > 0)


def _find(table: str, **fields: Any) -> tuple[float, ...]:
    """Return the ratios in the row of a table that has these fields; none if there is no such row."""
    path = Path(__file__).with_name("published_speed.yaml")
    found = yaml.safe_load(path.read_text(encoding="utf-8"))[table]
    for row in found["rows"]:
        if fields.items() <= row.items():
            return tuple(speed / plain for speed, plain in zip(row["speed"], found["plain"]))
    return ()
