"""The papers' models by name: `preset_config("em-routing", "base")`."""

from collections.abc import Iterable
from dataclasses import fields as fields_of
from typing import Any

from transformers import PreTrainedConfig

from hf_capsule_mt.methods import METHODS, SIZES

from .configuration_caps_nmt import CapsNMTConfig
from .configuration_capsule_aggregated_m2m_100 import CapsuleAggregatedM2M100Config
from .configuration_capsule_aggregated_marian import CapsuleAggregatedMarianConfig
from .configuration_rnmt import RNMTConfig

# Each layer of the decoder has an aggregator of its own. With the context "all" they would have as many weights as the
# model.
_SOURCE = {"layer_aggregation_place": "source", "layer_aggregation_context": "own"}
_LAYERS = {"layer_aggregation_place": "layers"}
_METHODS = {
    "transformer": (CapsuleAggregatedMarianConfig, {}),
    "pre-norm-transformer": (CapsuleAggregatedM2M100Config, {}),
    "linear-combination": (CapsuleAggregatedMarianConfig, {"layer_aggregation": "linear"}),
    "dynamic-combination": (CapsuleAggregatedMarianConfig, {"layer_aggregation": "dynamic"}),
    "layer-attention": (CapsuleAggregatedMarianConfig, {"layer_aggregation": "attention"}),
    "dynamic-routing": (CapsuleAggregatedMarianConfig, {"layer_aggregation": "dynamic_routing"}),
    "em-routing": (CapsuleAggregatedMarianConfig, {"layer_aggregation": "em_routing"}),
    "transparent-attention": (CapsuleAggregatedMarianConfig, {**_SOURCE, "layer_aggregation": "linear"}),
    "source-attention": (CapsuleAggregatedMarianConfig, {**_SOURCE, "layer_aggregation": "attention"}),
    "source-dynamic-routing": (CapsuleAggregatedMarianConfig, {**_SOURCE, "layer_aggregation": "dynamic_routing"}),
    "source-em-routing": (CapsuleAggregatedMarianConfig, {**_SOURCE, "layer_aggregation": "em_routing"}),
    "pre-norm-transparent": (CapsuleAggregatedM2M100Config, {**_SOURCE, "layer_aggregation": "linear"}),
    "dlcl": (
        CapsuleAggregatedM2M100Config,
        {**_LAYERS, "layer_aggregation": "linear", "layer_aggregation_input_norm": True},
    ),
    # Its authors add attention to the output below, and do not replace it.
    "delta-residuals": (
        CapsuleAggregatedM2M100Config,
        {
            **_LAYERS,
            "layer_aggregation": "delta-attention",
            "layer_aggregation_output": "residual",
            "layer_aggregation_input_norm": False,
        },
    ),
    "hyper-connections": (CapsuleAggregatedM2M100Config, {**_LAYERS, "layer_aggregation": "hyper-connections"}),
    "mhc": (CapsuleAggregatedM2M100Config, {**_LAYERS, "layer_aggregation": "manifold-hyper-connections"}),
    "deep-shallow": (CapsuleAggregatedM2M100Config, {"encoder_layers": 12, "decoder_layers": 1}),
    "head-simple-routing": (CapsuleAggregatedMarianConfig, {"head_aggregation": "simple_routing"}),
    "head-em-routing": (CapsuleAggregatedMarianConfig, {"head_aggregation": "em_routing"}),
    "head-em-effective": (
        CapsuleAggregatedMarianConfig,
        {"head_aggregation": "em_routing", "head_aggregation_encoder_layers": [0, 1]},
    ),
    "gdr": (CapsuleAggregatedMarianConfig, {"guided_routing": "gdr"}),
    "gdr-classifier": (CapsuleAggregatedMarianConfig, {"guided_routing": "classifier"}),
    "gdr-attention": (CapsuleAggregatedMarianConfig, {"guided_routing": "attention"}),
    "capsnmt": (CapsNMTConfig, {}),
    "capsnmt-pooling": (CapsNMTConfig, {"sentence_aggregation": "pooling"}),
    "capsnmt-hybrid": (RNMTConfig, {"sentence_aggregation": "capsule"}),
    "rnmt": (RNMTConfig, {}),
    "rnmt-gdr": (RNMTConfig, {"guided_routing": "gdr"}),
}


def _transformer_size(layers: int, width: int, ffn_width: int, heads: int, dropout: float) -> dict[str, Any]:
    return {
        "d_model": width,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "encoder_ffn_dim": ffn_width,
        "decoder_ffn_dim": ffn_width,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "dropout": dropout,
        # Half of Glorot's deviation for a square map. With more, the branches of a deep post-norm stack would drown
        # its inputs.
        "init_std": 0.5 * width**-0.5,
        "activation_function": "relu",
        "scale_embedding": True,
    }


_TRANSFORMER_SIZES = {
    "tiny": _transformer_size(layers=4, width=128, ffn_width=256, heads=4, dropout=0.3),
    "base": _transformer_size(layers=6, width=512, ffn_width=2048, heads=8, dropout=0.1),
    "big": _transformer_size(layers=6, width=1024, ffn_width=4096, heads=16, dropout=0.3),
}
_RECURRENT_WIDTHS = {"tiny": 128, "base": 512, "big": 1024}
_SIZES = {
    CapsuleAggregatedMarianConfig: _TRANSFORMER_SIZES,
    # Transformers' M2M-100 drops attention weights too, and its Marian does not.
    CapsuleAggregatedM2M100Config: {
        size: {**fields, "attention_dropout": 0.0} for size, fields in _TRANSFORMER_SIZES.items()
    },
    # Section 4.2. For English-French its dropout is 0.1.
    CapsNMTConfig: {
        size: {"d_model": width, "encoder_layers": 4, "decoder_layers": 3, "dropout": 0.3}
        for size, width in _RECURRENT_WIDTHS.items()
    },
    # The papers print no sizes. These are the widths and dropout of CapsNMT.
    RNMTConfig: {
        size: {"d_model": width, "encoder_layers": 1, "dropout": 0.3} for size, width in _RECURRENT_WIDTHS.items()
    },
}

_SHARED = {
    "vocab_size": 32000,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "forced_eos_token_id": 2,
}


def method_fields(method: str) -> dict[str, Any]:
    """Return the configuration fields of a published `method`."""
    check_choice("method", method, METHODS)
    return dict(_METHODS[method][1])


def method_config_class(method: str) -> type[PreTrainedConfig]:
    """Return the configuration class of a published `method`."""
    check_choice("method", method, METHODS)
    return _METHODS[method][0]


def decoding_fields(method: str) -> dict[str, Any]:
    """Return the generation settings of a `method` in its paper. RNMT's prints none, so it has the Transformer's."""
    return {"num_beams": 8, "length_penalty": 0.8} if method.startswith("capsnmt") else {"num_beams": 4}


def preset_config(method: str, size: str, /, **overrides: Any) -> PreTrainedConfig:
    """Return the configuration of a published method. Sizes may differ from the paper's, as docs/papers says.

    Args:
        method: one of `METHODS`. `pre-norm-transformer` has the layers of M2M-100, which normalise what goes into each
            part. Those of `transformer` are Marian's, which normalise each sum.
        size: one of `SIZES`: `tiny` (4+4 layers, width 128, FFN 256, 4 heads, dropout 0.3, the usual size for
            Multi30k), `base` or `big` (Vaswani et al. 2017, Table 3). CapsNMT has 4+3 layers, dropout 0.3, and width
            128, 512 or 1024 (Wang et al. 2019, section 4.2). RNMT has one encoder layer, the same widths and dropout.
        **overrides: other values for fields of the configuration. The model checks the names of aggregations when it is
            made: a program may have entered its own.

    Raises:
        ValueError: if the method, the size or an overriding field is unknown, or a value is not allowed.
    """
    fields = method_fields(method)
    check_choice("size", size, SIZES)
    config_class = method_config_class(method)
    check_overrides(config_class, overrides)

    # M2M-100 has no forced_eos_token_id: its generation configuration has it.
    shared = {name: value for name, value in _SHARED.items() if hasattr(config_class, name)}
    # The later ones win.
    chosen = {**shared, **_SIZES[config_class][size], **fields, **overrides}

    # M2M-100 gives padding no position. A target that began with it would have other positions in one pass, as in
    # training, than step by step.
    start = "eos_token_id" if config_class is CapsuleAggregatedM2M100Config else "pad_token_id"
    chosen.setdefault("decoder_start_token_id", chosen[start])

    return config_class(**chosen)


def check_choice(name: str, value: Any, allowed: tuple) -> None:
    """Raise ValueError unless `value` is one of `allowed`."""
    if value not in allowed:
        choices = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} is {value!r:.80}. Allowed are {choices}.")


def check_overrides(config_class: type[PreTrainedConfig], overrides: Iterable[str]) -> None:
    """Raise ValueError unless every name in `overrides` is a field of `config_class`: others would have no effect."""
    # num_labels is a property that sets id2label.
    known = sorted([*(field.name for field in fields_of(config_class)), "num_labels"])
    for name in overrides:
        if name not in known:
            raise ValueError(f"{config_class.__name__} has no field {name!r}. It has {', '.join(known)}.")
