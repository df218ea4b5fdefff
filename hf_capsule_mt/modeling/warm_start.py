"""Starts a model with more parts from a trained one."""

import re
from dataclasses import fields as fields_of
from logging import getLogger
from os import PathLike
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from ..configuration.configuration_capsule_aggregated_marian import CapsuleAggregatedMarianConfig
from ..configuration.presets import check_overrides
from .aggregation import ResidualRoutedHeads, RoutedHeads
from .guided_routing import GUIDED_PARTS

_ADDED = ("model.encoder.aggregation.", "model.decoder.aggregation.", *GUIDED_PARTS)
# The output projection that routed heads replace.
_PROJECTION = re.compile(r"\.out_proj\.(weight|bias)$")
_EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")

logger = logging.get_logger(__name__)


def from_marian(
    model_class: type[PreTrainedModel],
    marian: str | PathLike | PreTrainedModel,
    dtype: str | torch.dtype | None,
    revision: str | None,
    overrides: dict[str, Any],
) -> PreTrainedModel:
    """Do the work of `CapsuleAggregatedMarianForConditionalGeneration.from_marian`."""
    own = model_class.config_class
    check_overrides(own, overrides)
    if isinstance(marian, str | PathLike):
        model_type = PreTrainedConfig.get_config_dict(marian, revision=revision)[0].get("model_type")
        kind = own if model_type == own.model_type else MarianConfig
        plain = kind.from_pretrained(marian, revision=revision)
    else:
        if not isinstance(marian, MarianMTModel) or dtype is not None or revision is not None:
            raise ValueError("from_marian takes a MarianMTModel, or the name or folder of one with dtype or revision.")
        plain, model_type = marian.config, marian.config.model_type
    if model_type not in ("marian", own.model_type) or not is_plain(plain):
        raise ValueError(f"from_marian takes a plain Marian model, not {model_type} with routing or aggregation.")
    fields = plain.to_dict()
    for name in ("model_type", "architectures"):
        fields.pop(name)
    if not isinstance(plain, CapsuleAggregatedMarianConfig):
        fields = {field.name: fields[field.name] for field in fields_of(MarianConfig) if field.name in fields}
    residual = {"layer_aggregation_output": "residual", "head_aggregation_output": "residual"}
    config = CapsuleAggregatedMarianConfig(**{**fields, **residual, **overrides})
    # Positions are computed, so their number may differ.
    more = {"ignore_mismatched_sizes": config.max_position_embeddings != plain.max_position_embeddings}
    if isinstance(marian, PreTrainedModel):
        model = begin_with(model_class, config, marian, attn_implementation=plain._attn_implementation, **more)
    else:
        # Many OPUS-MT checkpoints are float16, in which Adam fails.
        options = {"dtype": torch.float32 if dtype is None else dtype, "revision": revision}
        model = _loaded(model_class, config, marian, **options, **more)
    if model.model.guided_routing is not None:
        model.model.guided_routing.switch_off()
    return model


def begin_with(
    model_class: type[PreTrainedModel], config: PreTrainedConfig, trained: PreTrainedModel, **options: Any
) -> PreTrainedModel:
    """Return a new model with copies of the weights and of the generation settings of a trained one."""
    weights = {name: weight.clone() for name, weight in trained.state_dict().items()}
    settings = trained.generation_config.to_dict()
    model = _loaded(model_class, config, None, state_dict=weights, dtype=trained.dtype, **options)
    model.generation_config = type(trained.generation_config).from_dict(settings)
    return model.to(trained.device).train(trained.training)


def _loaded(
    model_class: type[PreTrainedModel], config: PreTrainedConfig, name: str | PathLike | None, **options: Any
) -> PreTrainedModel:
    """Load the weights of a plain model into one with more parts. Only the new parts may be missing."""
    options |= {"config": config, "output_loading_info": True}
    # Transformers reports each new part as missing. A higher level of the logger would make it report other things.
    reporting = getLogger(PreTrainedModel.__module__)
    reporting.disabled = True
    try:
        model, report = model_class.from_pretrained(name, **options)
    finally:
        reporting.disabled = False
    missing, unexpected = set(report["missing_keys"]), set(report["unexpected_keys"])
    if getattr(config, "share_encoder_decoder_embeddings", False) and "model.shared.weight" not in missing:
        # Safetensors store a shared tensor once, and a model with a separate output does not tie these.
        for embedding in missing.intersection(_EMBEDDINGS):
            model.get_parameter(embedding).data.copy_(model.model.shared.weight.data)
            missing.remove(embedding)
    mismatched = {each[0] for each in report["mismatched_keys"] if not each[0].endswith("embed_positions.weight")}
    dropped = {weight for weight in unexpected if _PROJECTION.search(weight)}
    added = {weight for weight in missing if weight.startswith(_ADDED) or ".out_proj." in weight}
    if unfit := sorted((missing - added) | (unexpected - dropped) | mismatched):
        raise ValueError(f"The weights do not fit the configuration: {', '.join(unfit[:5])}.")
    if dropped:
        logger.warning(
            "head_aggregation_output is 'replace', so %d trained output projections are dropped. The model cannot "
            "translate until it is trained.",
            len(dropped) // 2,
        )
    return model


def is_plain(config: PreTrainedConfig) -> bool:
    """Return whether a model has no routing or aggregation."""
    fields = ("layer_aggregation", "head_aggregation", "guided_routing", "sentence_aggregation")
    return all(getattr(config, name, None) is None for name in fields)


def added_weights(model: PreTrainedModel) -> set[str]:
    """Return the names of the weights that a plain model of the same family lacks."""
    kinds = (RoutedHeads, ResidualRoutedHeads)
    heads = [name for name, module in model.named_modules() if isinstance(module, kinds)]
    # The weights of W^O, in residual heads, are also in the plain model.
    kept = {f"{name}.{weight}" for name in heads for weight in ("weight", "bias")}
    # A plain recurrent model also has the aggregation of its sentence.
    layers = _ADDED if hasattr(model.config, "layer_aggregation") else GUIDED_PARTS
    prefixes = (*layers, *(f"{name}." for name in heads))
    return {name for name, _ in model.named_parameters() if name.startswith(prefixes)} - kept
