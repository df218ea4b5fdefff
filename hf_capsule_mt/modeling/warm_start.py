"""A trained model as the start of one that has more parts."""

import re
from dataclasses import fields as fields_of
from logging import LogRecord, getLogger
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
# What routed heads are in the place of: an output projection.
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
    """Do what `CapsuleAggregatedMarianForConditionalGeneration.from_marian` says."""
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
    config = aggregated_config(plain, overrides)
    # Positions are computed, as many as there are to be.
    more = {"ignore_mismatched_sizes": config.max_position_embeddings != plain.max_position_embeddings}
    if isinstance(marian, PreTrainedModel):
        model = begin_with(model_class, config, marian, attn_implementation=plain._attn_implementation, **more)
    else:
        # New parts are trained, and Adam fails in the float16 of many OPUS-MT checkpoints.
        options = {"dtype": torch.float32 if dtype is None else dtype, "revision": revision}
        model = _loaded(model_class, config, marian, **options, **more)
    if model.model.guided_routing is not None:
        model.model.guided_routing.switch_off()
    return model


def begin_with(
    model_class: type[PreTrainedModel], config: PreTrainedConfig, trained: PreTrainedModel, **options: Any
) -> PreTrainedModel:
    """Return a new model with a copy of the weights, and with the generation settings, of a trained one.

    Only what the trained one lacks is initialised.
    """
    weights = {name: weight.clone() for name, weight in trained.state_dict().items()}
    settings = trained.generation_config.to_dict()
    model = _loaded(model_class, config, None, state_dict=weights, dtype=trained.dtype, **options)
    model.generation_config = type(trained.generation_config).from_dict(settings)
    return model.to(trained.device).train(trained.training)


def _loaded(
    model_class: type[PreTrainedModel], config: PreTrainedConfig, name: str | PathLike | None, **options: Any
) -> PreTrainedModel:
    """Load the weights of a plain model into one with more parts, and check that all others were there.

    Raises:
        ValueError: if they were not, or have other shapes.
    """
    options |= {"config": config, "output_loading_info": True}
    # Transformers reports each new part as missing. A higher level of the logger would make it report other things.
    reporting = getLogger(PreTrainedModel.__module__)
    reporting.addFilter(_silence)
    try:
        model, report = model_class.from_pretrained(name, **options)
    finally:
        reporting.removeFilter(_silence)
    missing, unexpected = set(report["missing_keys"]), set(report["unexpected_keys"])
    if getattr(config, "share_encoder_decoder_embeddings", False) and "model.shared.weight" not in missing:
        # Safetensors name a shared tensor once, and a model with an output of its own does not tie these.
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
            "head_aggregation_output is 'replace': %d trained output projections are dropped, and the model does not "
            "translate until it is trained",
            len(dropped) // 2,
        )
    return model


def _silence(record: LogRecord) -> bool:
    return False


def is_plain(config: PreTrainedConfig) -> bool:
    """Return whether a model has nothing that is routed or aggregated."""
    fields = ("layer_aggregation", "head_aggregation", "guided_routing", "sentence_aggregation")
    return all(getattr(config, name, None) is None for name in fields)


def aggregated_config(config: MarianConfig, overrides: dict[str, Any]) -> CapsuleAggregatedMarianConfig:
    """The configuration of a Marian model, with `overrides`, and its aggregations beside what they would replace.

    What else the file of a plain one holds, which Marian does not read, is left out.

    Raises:
        ValueError: if an override is not allowed, or the model does not read it.
    """
    fields = config.to_dict()
    for name in ("model_type", "architectures"):
        fields.pop(name)
    if not isinstance(config, CapsuleAggregatedMarianConfig):
        fields = {field.name: fields[field.name] for field in fields_of(MarianConfig) if field.name in fields}
    residual = {"layer_aggregation_output": "residual", "head_aggregation_output": "residual"}
    aggregated = CapsuleAggregatedMarianConfig(**{**fields, **residual, **overrides})
    return aggregated


def added_weights(model: PreTrainedModel) -> set[str]:
    """Return the names of the weights that a model has and its parent, a plain model of its family, has not."""
    projections = _output_projections(model)
    names = {name for name, _ in model.named_parameters()}
    # What aggregates a sentence is in no parent's place.
    layers = _ADDED if hasattr(model.config, "layer_aggregation") else GUIDED_PARTS
    beginnings = (*layers, *(f"{name}." for name in projections))
    return {name for name in names if name.startswith(beginnings)}.difference(*projections.values())


def _output_projections(model: PreTrainedModel) -> dict[str, set[str]]:
    """Return, by the name of each routed aggregation of heads, the names of the weights of what it replaces."""
    kinds = (RoutedHeads, ResidualRoutedHeads)
    routed = [name for name, module in model.named_modules() if isinstance(module, kinds)]
    return {name: {f"{name}.weight", f"{name}.bias"} for name in routed}
