"""A Marian checkpoint as the start of a model of this family."""

from typing import Any

from transformers import MarianConfig, MarianMTModel, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from ..configuration.capsule_aggregated_marian import CapsuleAggregatedMarianConfig
from ..configuration.checks import check_overrides
from .layers.head_aggregation import ResidualRoutedHeads, RoutedHeads

logger = logging.get_logger(__name__)


def load_marian(name_or_path: str, revision: str = "main", **kwargs: Any) -> MarianMTModel:
    """Load a Marian model from safetensors alone: to load another format is to run what it holds.

    Of a model on the Hub without them Transformers takes the Hub's own conversion, if the revision is "main"; otherwise
    name the commit of that conversion, which is a pull request (refs/pr/N).

    Raises:
        ValueError: if it is a model of another type.
        OSError: if there is none, or it has no safetensors.
    """
    _check_model_type(name_or_path, revision)
    try:
        return MarianMTModel.from_pretrained(name_or_path, revision=revision, use_safetensors=True, **kwargs)
    except OSError as error:
        raise OSError(
            f"{name_or_path} cannot be loaded from safetensors at revision {revision}: {error} If it has "
            "pytorch_model.bin alone, and you trust whoever made that file, convert it: "
            f"MarianMTModel.from_pretrained({name_or_path!r}, revision={revision!r}).save_pretrained(FOLDER)"
        ) from error


def _check_model_type(name_or_path: str, revision: str) -> None:
    model_type = PreTrainedConfig.get_config_dict(name_or_path, revision=revision)[0].get("model_type")
    if model_type != MarianConfig.model_type:
        raise ValueError(
            f"{name_or_path!r} holds a model of type {model_type!r}; from_marian takes models of type "
            f"{MarianConfig.model_type!r} (models of this package load with from_pretrained)"
        )


def is_plain(config: PreTrainedConfig) -> bool:
    """Return whether a model is a Marian model in all but its type, having nothing that is routed or aggregated."""
    if isinstance(config, CapsuleAggregatedMarianConfig):
        return config.layer_aggregation is config.head_aggregation is config.guided_routing is None
    return config.model_type == MarianConfig.model_type


def aggregated_config(config: MarianConfig, overrides: dict[str, Any]) -> CapsuleAggregatedMarianConfig:
    """The configuration of a Marian model, with `overrides`, and its aggregations beside what they would replace.

    Raises:
        ValueError: if an override is unknown or not allowed.
    """
    check_overrides(CapsuleAggregatedMarianConfig, overrides)
    fields = config.to_dict()
    for name in ("model_type", "architectures"):
        fields.pop(name)
    residual = {"layer_aggregation_output": "residual", "head_aggregation_output": "residual"}
    return CapsuleAggregatedMarianConfig(**{**fields, **residual, **overrides})


def load_marian_weights(model: PreTrainedModel, marian: MarianMTModel) -> None:
    """Give a model of this family the weights of a Marian model.

    Raises:
        ValueError: if they do not fit.
    """
    try:
        report = model.load_state_dict(marian.state_dict(), strict=False)
    except RuntimeError as error:
        first = " ".join(line.strip() for line in str(error).splitlines()[1:2])
        raise ValueError(f"the Marian weights do not fit the configuration: {first}") from error
    routed = [name for name, module in model.named_modules() if isinstance(module, (RoutedHeads, ResidualRoutedHeads))]
    guided = ("model.encoder.guided_votes.", "model.guided_routing.", "guided_losses.")
    sides = (f"model.{side}.aggregation." for side in ("encoder", "decoder"))
    added = (*sides, *guided, *(f"{name}." for name in routed))
    unused = {f"{name}.{part}" for name in routed for part in ("weight", "bias")}.intersection(report.unexpected_keys)
    strange = [
        *(key for key in report.missing_keys if not key.startswith(added)),
        *(key for key in report.unexpected_keys if key not in unused),
    ]
    if strange:
        raise ValueError(f"the Marian weights do not fit the configuration: {', '.join(strange)}")
    if unused:
        logger.warning(
            f"head_aggregation_output is 'replace': {len(unused) // 2} trained output projections are dropped, and the "
            "model does not translate until it is trained"
        )
    model.tie_weights()
