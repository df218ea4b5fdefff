"""What a model is, in words, by the fields of its configuration."""

from transformers import PreTrainedConfig

_ROUTINGS = {
    "linear": "linear combination",
    "dynamic": "dynamic combination",
    "simple_routing": "simple routing-by-agreement",
    "dynamic_routing": "dynamic routing",
    "em_routing": "EM routing",
}
_SITES = {
    "encoder_self": ("encoder_layers", "encoder self-attention"),
    "decoder_self": ("decoder_layers", "decoder self-attention"),
    "cross": ("decoder_layers", "the decoder's attention to the encoder"),
}


def describe_architecture(config: PreTrainedConfig) -> str:
    """A paragraph on the model with this configuration; of a model type not known here, its name alone."""
    if config.model_type == "caps_nmt":
        return " ".join([_lstms(config), _sentence_aggregation(config)])
    if config.model_type == "rnmt":
        return " ".join([_grus(config), *_hybrid(config), *_guided_routing(config)])
    if config.model_type != "capsule_aggregated_marian":
        return f"An encoder-decoder of type `{config.model_type}`."
    parts = (*_layer_aggregation(config), *_head_aggregation(config), *_guided_routing(config))
    return " ".join([_transformer(config), *parts])


def _transformer(config: PreTrainedConfig) -> str:
    layers = f"{config.encoder_layers}+{config.decoder_layers} layers"
    widths = f"width {config.d_model}, feed-forward width {_both(config, 'ffn_dim')}"
    heads = f"{_both(config, 'attention_heads')} heads"
    return (
        f"A Transformer encoder-decoder of the Marian family: {layers}, {widths}, {heads}, "
        f"a vocabulary of {config.vocab_size}."
    )


def _both(config: PreTrainedConfig, field: str) -> str:
    """A field of encoder and decoder: once if they have the same."""
    values = (getattr(config, f"{side}_{field}") for side in ("encoder", "decoder"))
    return "+".join(str(value) for value in dict.fromkeys(values))


def _lstms(config: PreTrainedConfig) -> str:
    layers = f"{config.encoder_layers} bidirectional layers to read the source, {config.decoder_layers} to write"
    return f"CapsNMT, LSTMs without attention: {layers}, width {config.d_model}, a vocabulary of {config.vocab_size}."


def _grus(config: PreTrainedConfig) -> str:
    layers = f"{config.encoder_layers} bidirectional layer{'s' * (config.encoder_layers > 1)} to read the source"
    return (
        f"RNMT, GRUs with additive attention: {layers}, a conditional GRU to write, width {config.d_model}, "
        f"a vocabulary of {config.vocab_size}."
    )


def _hybrid(config: PreTrainedConfig) -> list[str]:
    if config.sentence_aggregation is None:
        return []
    return [_sentence_aggregation(config), "The decoder also reads what this makes of the sentence, with every word."]


def _sentence_aggregation(config: PreTrainedConfig) -> str:
    if config.sentence_aggregation == "pooling":
        return "The states of the source are pooled: the largest, the mean, the first and the last."
    strategies = {
        "position-aware routing": config.position_aware_routing,
        "weights of their own for every iteration": not config.share_routing_weights,
        "separable scoring": config.separable_scoring,
    }
    used = ", ".join(name for name, is_used in strategies.items() if is_used)
    routing = f"{config.routing_iterations} iterations to {config.num_sentence_capsules} capsules"
    return f"The states of the source are routed by agreement, {routing}{used and f' ({used})'}."


def _layer_aggregation(config: PreTrainedConfig) -> list[str]:
    if config.layer_aggregation is None:
        return []
    sides = " and ".join(config.layer_aggregation_sides)
    sentence = f"The layers of {sides} are aggregated by {_ROUTINGS[config.layer_aggregation]}"
    if config.layer_aggregation in ("dynamic_routing", "em_routing"):
        sentence += f", {_routing(config)}, each input capsule from {_context(config)}"
        sentence += f" ({config.layer_aggregation_parameterization} parameters)"
    return [f"{sentence}. {_output(config.layer_aggregation_output, 'the top layer')}"]


def _head_aggregation(config: PreTrainedConfig) -> list[str]:
    if config.head_aggregation is None:
        return []
    places = []
    for site, (layers, name) in _SITES.items():
        routed = [layer for layer in range(getattr(config, layers)) if config.aggregates_heads(site, layer)]
        if routed:
            places.append(f"{name} (layers {', '.join(str(layer + 1) for layer in routed)})")
    sentence = f"The heads of {' and of '.join(places)} are aggregated by {_ROUTINGS[config.head_aggregation]}"
    return [f"{sentence}, {_routing(config)}. {_output(config.head_aggregation_output, 'the output projection')}"]


def _guided_routing(config: PreTrainedConfig) -> list[str]:
    if config.guided_routing is None:
        return []
    how = {
        "gdr": f"guided dynamic routing in {config.guided_routing_iterations} iterations",
        "classifier": "a classifier of every word",
        "attention": "an attention to each",
    }[config.guided_routing]
    counts = {"PAST": config.num_past_capsules, "FUTURE": config.num_future_capsules}
    if config.num_redundant_capsules and config.guided_routing == "gdr":
        counts["redundant"] = config.num_redundant_capsules
    capsules = ", ".join(f"{count} {name}" for name, count in counts.items())
    weights = {"bag-of-words": config.bow_loss_weight, "content agreement": config.bca_loss_weight}
    losses = " and ".join(f"a {name} loss (weight {weight:g})" for name, weight in weights.items() if weight)
    return [
        f"On top of the decoder, source words are told apart as translated and not translated by {how}: {capsules} "
        f"capsules of width {config.guided_capsule_dim}, trained with {losses or 'no losses of their own'}."
    ]


def _routing(config: PreTrainedConfig) -> str:
    capsules = config.num_output_capsules or config.d_model
    return f"{config.routing_iterations} iterations to {capsules} output capsules"


def _context(config: PreTrainedConfig) -> str:
    return {"all": "all layers", "own": "its own layer"}[config.layer_aggregation_context]


def _output(output: str, replaced: str) -> str:
    return {
        "replace": f"The aggregate takes the place of {replaced}.",
        "residual": f"The aggregate is added to {replaced}, times a learned vector.",
    }[output]
