"""Starts a model with more parts from a trained one."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import fields as fields_of
from logging import getLogger
from os import PathLike
from typing import Any

import torch
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging

from ..configuration.configuration_capsule_aggregated_m2m_100 import CapsuleAggregatedM2M100Config
from ..configuration.configuration_capsule_aggregated_marian import CapsuleAggregatedMarianConfig
from ..configuration.presets import check_overrides
from .aggregation import ResidualRoutedHeads, RoutedHeads
from .guided_routing import GUIDED_PARTS

_ADDED = (
    "model.encoder.aggregation.",
    "model.decoder.aggregation.",
    "model.encoder.source_aggregation.",
    "model.encoder.stack_aggregation.",
    "model.decoder.stack_aggregation.",
    *GUIDED_PARTS,
)
# The output projection that routed heads replace.
_PROJECTION = re.compile(r"\.out_proj\.(weight|bias)$")
_EMBEDDINGS = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")

logger = logging.get_logger(__name__)


@dataclass(frozen=True)
class _Start:
    """What a family of this package starts from.

    Attributes:
        method: the name of the method that starts it.
        name: of the family of Transformers.
        config_class: its configuration.
        model_class: its translation model.
    """

    method: str
    name: str
    config_class: type[PreTrainedConfig]
    model_class: type[PreTrainedModel]


_STARTS = {
    CapsuleAggregatedMarianConfig: _Start("from_marian", "Marian", MarianConfig, MarianMTModel),
    CapsuleAggregatedM2M100Config: _Start("from_m2m100", "M2M-100", M2M100Config, M2M100ForConditionalGeneration),
}
"""By the configuration of the family of this package."""


def from_plain(
    model_class: type[PreTrainedModel],
    plain_model: str | PathLike | PreTrainedModel,
    dtype: str | torch.dtype | None,
    revision: str | None,
    overrides: dict[str, Any],
) -> PreTrainedModel:
    """Do the work of `from_marian` and `from_m2m100`.

    Args:
        model_class: the class of the new model.
        plain_model: a plain model, or the name or folder of one.
        dtype: the dtype to load it in, float32 by default.
        revision: branch, tag or commit of a name on the Hub.
        overrides: fields of the new configuration.

    Raises:
        ValueError: if the model is another or not plain, or an override is unknown or does not fit.
    """
    config_class = model_class.config_class
    start = _STARTS[config_class]
    check_overrides(config_class, overrides)
    if isinstance(plain_model, str | PathLike):
        plain = _load_plain_config(config_class, plain_model, revision)
    elif isinstance(plain_model, start.model_class) and dtype is None and revision is None:
        plain = plain_model.config
    else:
        kind = start.model_class.__name__
        raise ValueError(
            f"{start.method} takes a {start.name} model ({kind}), or the name or folder of one with dtype or revision."
        )
    if plain.model_type not in (start.config_class.model_type, config_class.model_type) or not is_plain(plain):
        raise ValueError(
            f"{start.method} takes a plain {start.name} model, not {plain.model_type} with routing or aggregation."
        )
    config = _routed_config(config_class, plain, overrides)
    # Positions are computed, so their number may differ.
    options: dict[str, Any] = {
        "ignore_mismatched_sizes": config.max_position_embeddings != plain.max_position_embeddings
    }
    if isinstance(plain_model, PreTrainedModel):
        # Transformers has no public name for the attention that a model uses.
        options["attn_implementation"] = plain._attn_implementation
        model = begin_with(model_class, config, plain_model, **options)
    else:
        # Many OPUS-MT checkpoints are float16, in which Adam fails.
        options["dtype"] = torch.float32 if dtype is None else dtype
        options["revision"] = revision
        model = _loaded(model_class, config, plain_model, **options)
    if model.model.guided_routing is not None:
        model.model.guided_routing.switch_off()
    return model


def _load_plain_config(
    config_class: type[PreTrainedConfig], name: str | PathLike, revision: str | None
) -> PreTrainedConfig:
    """Load the configuration of a checkpoint of a family of this package, or of that which it starts from.

    Raises:
        ValueError: if the checkpoint has another model.
    """
    start = _STARTS[config_class]
    model_type = PreTrainedConfig.get_config_dict(name, revision=revision)[0].get("model_type")
    if model_type == config_class.model_type:
        return config_class.from_pretrained(name, revision=revision)
    if model_type != start.config_class.model_type:
        # The class of Marian would load it, and call it Marian.
        raise ValueError(f"{start.method} takes a plain {start.name} model, not {model_type}.")
    return start.config_class.from_pretrained(name, revision=revision)


def _routed_config(
    config_class: type[PreTrainedConfig], plain: PreTrainedConfig, overrides: dict[str, Any]
) -> PreTrainedConfig:
    """Return the configuration of a plain model with other fields. New outputs are residual by default."""
    fields = plain.to_dict()
    for name in ("model_type", "architectures"):
        fields.pop(name)
    if not isinstance(plain, config_class):
        # Old checkpoints have more, such as settings of generation.
        fields = {field.name: fields[field.name] for field in fields_of(type(plain)) if field.name in fields}
    if config_class is CapsuleAggregatedM2M100Config:
        fields |= _without_layerdrop(plain, overrides)
    residual = {"layer_aggregation_output": "residual", "head_aggregation_output": "residual"}
    return config_class(**{**fields, **residual, **overrides})


def _without_layerdrop(plain: PreTrainedConfig, overrides: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that switch LayerDrop off, and say so. M2M-100 has it, and aggregation reads every layer."""
    names = ("encoder_layerdrop", "decoder_layerdrop")
    switched_off = [name for name in names if name not in overrides and getattr(plain, name)]
    if switched_off:
        logger.warning("LayerDrop is switched off: 0 is the new value of %s.", " and ".join(switched_off))
    return dict.fromkeys(switched_off, 0.0)


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
    missing = set(report["missing_keys"])
    if getattr(config, "share_encoder_decoder_embeddings", False) and "model.shared.weight" not in missing:
        # Safetensors store a shared tensor once, and a model with a separate output does not tie these.
        for embedding in missing.intersection(_EMBEDDINGS):
            model.get_parameter(embedding).data.copy_(model.model.shared.weight.data)
            missing.remove(embedding)
    dropped = _check_fit(missing, set(report["unexpected_keys"]), report["mismatched_keys"])
    if dropped:
        logger.warning(
            "head_aggregation_output is 'replace', so %d trained output projections are dropped. The model cannot "
            "translate until it is trained.",
            # Each has a weight and a bias.
            len(dropped) // 2,
        )
    return model


def _check_fit(missing: set[str], unexpected: set[str], mismatched: Iterable[tuple]) -> set[str]:
    """Check that the weights of a plain model fit.

    Args:
        missing: names of weights that the plain model lacks.
        unexpected: names of weights that the new model lacks.
        mismatched: tuples of which the first is the name of a weight with another shape.

    Returns:
        The names of weights that are dropped, because routed heads replace them.

    Raises:
        ValueError: if other weights differ than those of the new parts.
    """
    dropped = {weight for weight in unexpected if _PROJECTION.search(weight)}
    added = {weight for weight in missing if weight.startswith(_ADDED) or ".out_proj." in weight}
    of_other_shape = {name for name, *_ in mismatched if not name.endswith("embed_positions.weight")}
    unfit = (missing - added) | (unexpected - dropped) | of_other_shape
    if unfit:
        raise ValueError(f"The weights do not fit the configuration: {', '.join(sorted(unfit)[:5])}.")
    return dropped


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
