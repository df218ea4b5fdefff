"""Description of a model in words, by the fields of its configuration."""

from pathlib import Path

from transformers import PreTrainedConfig

from hf_capsule_mt.templates import render

_TEMPLATE = Path(__file__).with_name("architecture.txt")
# Those that are not called by their own names.
_AGGREGATIONS = {
    "linear": "linear combination",
    "dynamic": "dynamic combination",
    "simple_routing": "simple routing-by-agreement",
    "em_routing": "EM routing",
}
_SITES = {
    "encoder_self": ("encoder_layers", "encoder self-attention"),
    "decoder_self": ("decoder_layers", "decoder self-attention"),
    "cross": ("decoder_layers", "the decoder's attention to the encoder"),
}


def describe_architecture(config: PreTrainedConfig) -> str:
    """Return a paragraph on the model with this configuration; of a model type not known here, its name alone."""
    text = render(
        _TEMPLATE,
        config=config,
        called=_called,
        heads=_aggregated_heads(config),
        strategies=_routing_strategies(config),
    )
    return " ".join(text.split())


def _called(aggregation: str) -> str:
    return _AGGREGATIONS.get(aggregation, aggregation.replace("_", " "))


def _aggregated_heads(config: PreTrainedConfig) -> dict[str, list[int]]:
    """Return the layers, from 1 on, whose heads are aggregated, by the name of their attention."""
    if getattr(config, "head_aggregation", None) is None:
        return {}
    layers = {
        name: [layer + 1 for layer in range(getattr(config, field)) if config.aggregates_heads(site, layer)]
        for site, (field, name) in _SITES.items()
    }
    return {name: found for name, found in layers.items() if found}


def _routing_strategies(config: PreTrainedConfig) -> list[str]:
    """Return the names of the strategies that routing to sentence capsules uses."""
    if getattr(config, "sentence_aggregation", None) is None:
        return []
    strategies = {
        "position-aware routing": config.position_aware_routing,
        "weights of their own for every iteration": not config.share_routing_weights and config.routing_iterations > 1,
        "separable scoring": config.separable_scoring and config.routing_iterations > 1,
    }
    return [name for name, used in strategies.items() if used]
