"""A Marian checkpoint as the start of a model of this family."""

import os
from collections.abc import Collection
from dataclasses import fields as fields_of
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from ..configuration.checks import check_overrides
from ..configuration.configuration_capsule_aggregated_marian import CapsuleAggregatedMarianConfig
from .aggregation import ResidualRoutedHeads, RoutedHeads
from .checkpoint_files import (
    GENERATION_CONFIG,
    OTHER_WEIGHTS,
    check_generation_config,
    check_weight_files,
    conversion,
    explained_weights,
    find_file,
    first_names,
)
from .copied_weights import copy_weights
from .finite_weights import check_finite
from .guided_routing import GUIDED_PARTS

_ADDED = ("model.encoder.aggregation.", "model.decoder.aggregation.", *GUIDED_PARTS)

_EMBEDDINGS = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}

logger = logging.get_logger(__name__)

_OF_LOADING = {
    *("attn_implementation", "cache_dir", "device_map", "force_download", "local_files_only", "low_cpu_mem_usage"),
    *("max_memory", "offload_folder", "proxies", "subfolder", "token", "trust_remote_code", "use_safetensors"),
    "variant",
}
"""Arguments of from_pretrained that are no fields of a configuration."""


def check_arguments(own: type[PreTrainedModel], marian: object, arguments: Collection[str]) -> None:
    """Check the names of arguments of from_marian, beside `dtype` and `revision`: fields of the configuration of `own`.

    Raises:
        ValueError: if one is not; it says where an option of loading, or a method's name, belongs.
    """
    for name in arguments:
        if name in _OF_LOADING and isinstance(marian, PreTrainedModel):
            raise ValueError(f"{name} is an option of loading, but marian is a model, loaded already; leave it out")
        if name in _OF_LOADING:
            if name in ("max_memory", "offload_folder"):
                raise ValueError(
                    f"{name} keeps weights elsewhere, and from_marian copies them: load the parent whole; save the new "
                    f"model, and give {name} to its from_pretrained"
                )
            raise ValueError(
                f"{name} is an option of loading, and from_marian takes dtype, revision and fields of the "
                f"configuration; load the parent and give that model: from_marian(MarianMTModel.from_pretrained("
                f"{str(marian)!r}, {name}=..., dtype=torch.float32), ...)"
            )
        if name == "method":
            raise ValueError(
                "from_marian takes no method: a method's name is for preset_config and train --method; here say "
                "layer_aggregation='em_routing', head_aggregation=... or guided_routing=..."
            )
    try:
        check_overrides(own.config_class, arguments)
    except ValueError as error:
        raise ValueError(f"from_marian takes dtype, revision and fields of the configuration: {error}") from None


def load_marian(name_or_path: str, revision: str = "main", **kwargs: Any) -> MarianMTModel:
    """Load a Marian model from safetensors alone: to load another format is to run what it holds.

    Of a model on the Hub without them Transformers takes the Hub's own conversion, if the revision is "main"; otherwise
    name the commit of that conversion, which is a pull request (refs/pr/N).

    Raises:
        OSError: if there is none, it has no safetensors, or these or its decoding settings are damaged.
        ValueError: if weights are missing or not finite.
    """
    where = {"revision": revision}
    check_weight_files(name_or_path, where)
    if (settings := find_file(name_or_path, GENERATION_CONFIG, where)) is not None:
        check_generation_config(name_or_path, settings)
    with explained_weights(name_or_path):
        try:
            marian, report = MarianMTModel.from_pretrained(
                name_or_path, revision=revision, use_safetensors=True, output_loading_info=True, **kwargs
            )
        except OSError as error:
            raise OSError(_without_safetensors(name_or_path, revision, error)) from error
    _check_whole(name_or_path, _share_embedding(marian, set(report["missing_keys"])))
    check_finite(name_or_path, marian.named_parameters())
    return marian


def _share_embedding(marian: MarianMTModel, missing: set[str]) -> set[str]:
    """Give both sides the embedding that they share, where the file has it under one name; return what else is missing.

    Safetensors name a tensor once, and a model whose output has weights of its own does not tie these when it loads.
    """
    if not marian.config.share_encoder_decoder_embeddings or "model.shared.weight" in missing:
        return missing
    for name in missing & _EMBEDDINGS:
        marian.get_parameter(name).data.copy_(marian.model.shared.weight.data)
    return missing - _EMBEDDINGS


def _without_safetensors(name_or_path: str, revision: str, error: OSError) -> str:
    if not os.path.isdir(name_or_path):
        return (
            f"{name_or_path} cannot be loaded from safetensors at revision {revision}: {error} If it has "
            f"{OTHER_WEIGHTS} alone: {conversion(name_or_path, revision)}"
        )
    if find_file(name_or_path, OTHER_WEIGHTS, {}) is not None:
        return f"{name_or_path} holds {OTHER_WEIGHTS}, and no weights in safetensors; {conversion(name_or_path)}"
    return f"{name_or_path} cannot be loaded from safetensors: {error}"


def _check_whole(name_or_path: str, unfit: Collection[str]) -> None:
    if unfit:
        raise ValueError(
            f"{name_or_path} lacks weights, or has others than its configuration says: {first_names(sorted(unfit))}; "
            "copy or download it again, or name another"
        )


def load_plain(
    own: type[PreTrainedModel], name_or_path: str, dtype: str | torch.dtype, revision: str = "main"
) -> PreTrainedModel:
    """Load a Marian model, or one of the class `own`.

    Raises:
        ValueError: if it is a model of another type, or its weights are not whole or not finite.
        OSError: if there is none, it has no safetensors, or these or its decoding settings are damaged.
    """
    if os.path.isfile(name_or_path):
        raise NotADirectoryError(
            f"{name_or_path} is a file; from_marian takes the folder of a model, such as "
            f"{os.path.dirname(name_or_path) or '.'}, or its name on the Hub"
        )
    model_type = PreTrainedConfig.get_config_dict(name_or_path, revision=revision)[0].get("model_type")
    if model_type == own.config_class.model_type:
        plain = own.from_pretrained(name_or_path, dtype=dtype, revision=revision)
        _check_whole(name_or_path, plain.unfit_tensors)
        check_finite(name_or_path, plain.named_parameters())
        return plain
    if model_type != MarianConfig.model_type:
        raise ValueError(
            f"{name_or_path!r} holds a model of type {model_type!r}; from_marian takes models of type "
            f"{MarianConfig.model_type!r}, and {own.config_class.model_type!r} without aggregations"
        )
    return load_marian(name_or_path, revision, dtype=dtype)


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


def load_marian_weights(model: PreTrainedModel, marian: MarianMTModel) -> None:
    """Give a model of this family the weights of a Marian model.

    Raises:
        ValueError: if they do not fit.
    """
    projections = _output_projections(model)
    added = (*_ADDED, *(f"{name}." for name in projections))
    unused = copy_weights(model, marian, added, {weight for weights in projections.values() for weight in weights})
    if unused:
        logger.warning(
            f"head_aggregation_output is 'replace': {len(unused) // 2} trained output projections are dropped, and the "
            "model does not translate until it is trained"
        )
