# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
"""Configuration of the Marian family with capsule routing."""

from dataclasses import field
from typing import ClassVar

from transformers import MarianConfig
from transformers.activations import ACT2FN

from .checks import (
    MOST_POSITIONS,
    MOST_STEPS,
    check_choice,
    check_fraction,
    check_heads,
    check_not_negative,
    check_positive,
    check_positive_integer,
    check_probability,
)
from .portable import PortableConfig
from .shared_fields import GuidedRoutingFields

ROUTED_LAYER_AGGREGATIONS = ("dynamic_routing", "em_routing")
"""Aggregations of layers that route, by the algorithms of [`CapsuleRouting`]."""
LAYER_AGGREGATIONS = ("linear", "dynamic", *ROUTED_LAYER_AGGREGATIONS)
HEAD_AGGREGATIONS = ("simple_routing", "em_routing")
SIDES = ("encoder", "decoder")
_HEAD_SITES = {
    "encoder_self": "head_aggregation_encoder_layers",
    "decoder_self": "head_aggregation_decoder_layers",
    "cross": "head_aggregation_cross_layers",
}


class CapsuleAggregatedMarianConfig(GuidedRoutingFields, PortableConfig, MarianConfig):
    r"""
    A [`MarianConfig`] with the aggregation of layers of Dou et al. 2019, that of attention heads of Li et al. 2019, and
    the guided routing of Zheng et al. 2019. With the default values the model is Marian.

    Args:
        layer_aggregation (`str`, *optional*):
            How the outputs of a stack's layers are aggregated: `None` (the top layer alone, as in Marian), `"linear"`
            (Eq. 3), `"dynamic"` (Eq. 4), `"dynamic_routing"` (Eq. 5-9) or `"em_routing"` (Eq. 10-16).
        layer_aggregation_sides (`list[str]`, *optional*, defaults to `["encoder", "decoder"]`):
            The stacks whose layers are aggregated.
        layer_aggregation_context (`str`, *optional*, defaults to `"all"`):
            What the input capsule of a layer is computed from: `"all"` layers, or its `"own"` layer alone.
        layer_aggregation_parameterization (`str`, *optional*, defaults to `"factored"`):
            `"factored"`: one map for each input capsule, as the equations are printed; `"joint"`: one map of the
            concatenated capsules, as the published parameter counts say was trained.
        layer_aggregation_output (`str`, *optional*, defaults to `"replace"`):
            `"replace"`: LayerNorm(aggregate) takes the place of the top layer's output; `"residual"`: it is added to
            that output, times a learned vector that starts at zero.
        head_aggregation (`str`, *optional*):
            How the heads of the attentions named below are aggregated: `None` (the linear map W^O, as in Marian),
            `"simple_routing"` (Li et al., Eq. 7-8) or `"em_routing"` (Eq. 9-12).
        head_aggregation_encoder_layers (`list[int]`, *optional*):
            The layers whose encoder self-attention has its heads aggregated: indices from 0, the bottom layer. `None`
            means every layer.
        head_aggregation_decoder_layers (`list[int]`, *optional*, defaults to `[]`):
            The same for decoder self-attention.
        head_aggregation_cross_layers (`list[int]`, *optional*, defaults to `[]`):
            The same for the decoder's attention to the encoder.
        head_aggregation_output (`str`, *optional*, defaults to `"replace"`):
            `"replace"`: the routed heads take the place of W^O; `"residual"`: they are added to what W^O gives, times
            a learned vector that starts at zero.
        head_aggregation_input_norm (`bool`, *optional*, defaults to `False`):
            Whether each head's input capsule is normalised to mean 0 and variance 1 over its width before its tanh,
            which high learning rates saturate. The paper does not.
        num_output_capsules (`int`, *optional*):
            Output capsules N of the routing of layers and of heads; a divisor of `d_model`. `None` means `d_model`.
        routing_iterations (`int`, *optional*, defaults to 3):
            Iterations of the routing of layers and of heads.
        inverse_temperature (`float`, *optional*, defaults to 0.01):
            What the inverse temperature of EM routing (Dou et al., Eq. 14) rises to: it is `1 - 0.95**t` of this in
            iteration t.
        label_smoothing (`float`, *optional*, defaults to 0.0):
            Label smoothing of the model's own loss, in [0, 1).

    The arguments of guided routing are those of [`GuidedRoutingFields`], all others those of [`MarianConfig`].

    Raises:
        ValueError: if a value is not allowed; the message names the field, the value and what is allowed.
    """

    model_type = "capsule_aggregated_marian"
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "configuration_capsule_aggregated_marian.CapsuleAggregatedMarianConfig",
        "AutoModel": "modeling_capsule_aggregated_marian.CapsuleAggregatedMarianModel",
        "AutoModelForSeq2SeqLM": ("modeling_capsule_aggregated_marian.CapsuleAggregatedMarianForConditionalGeneration"),
        "AutoModelForSequenceClassification": (
            "modeling_sequence_classification.CapsuleAggregatedMarianForSequenceClassification"
        ),
    }
    keys_to_ignore_at_inference = [  # noqa: RUF012 (a class attribute of PreTrainedConfig, not a field)
        "cache",
        "past_key_values",
        "lm_loss",
        "bow_loss",
        "bca_loss",
        "encoder_layer_routing",
        "decoder_layer_routing",
        "head_routing",
        "guided_routing",
    ]

    layer_aggregation: str | None = None
    layer_aggregation_sides: list[str] = field(default_factory=lambda: list(SIDES))
    layer_aggregation_context: str = "all"
    layer_aggregation_parameterization: str = "factored"
    layer_aggregation_output: str = "replace"
    head_aggregation: str | None = None
    head_aggregation_encoder_layers: list[int] | None = None
    head_aggregation_decoder_layers: list[int] | None = field(default_factory=list)
    head_aggregation_cross_layers: list[int] | None = field(default_factory=list)
    head_aggregation_output: str = "replace"
    head_aggregation_input_norm: bool = False
    num_output_capsules: int | None = None
    routing_iterations: int = 3
    inverse_temperature: float | int = 0.01
    label_smoothing: float | int = 0.0

    def check_fields(self) -> None:
        """Check the fields, as [`PortableConfig.check_fields`] does."""
        self._validate_marian()
        self._validate_layer_aggregation()
        self._validate_head_aggregation()
        self._validate_routing()
        self._validate_guided_routing()
        check_fraction("label_smoothing", self.label_smoothing)

    def unread_fields(self) -> set[str]:
        """Name the fields that no part of the model reads, as [`PortableConfig.unread_fields`] does."""
        unread = self._unread_guided_fields()
        if self.layer_aggregation is None:
            unread |= {"layer_aggregation_sides", "layer_aggregation_output"}
        if not self.routes_layers:
            unread |= {"layer_aggregation_context", "layer_aggregation_parameterization"}
        if self.head_aggregation is None:
            unread |= {"head_aggregation_output"}
        if not self.routes_layers and self.head_aggregation is None:
            unread |= {"num_output_capsules", "routing_iterations"}
        if "em_routing" not in (self.layer_aggregation, self.head_aggregation):
            unread |= {"inverse_temperature"}
        return unread

    @property
    def routes_layers(self) -> bool:
        """Whether what aggregates layers routes."""
        return self.layer_aggregation in ROUTED_LAYER_AGGREGATIONS

    def aggregates_layers(self, side: str) -> bool:
        """Whether the layers of `side` ("encoder" or "decoder") are aggregated."""
        return self.layer_aggregation is not None and side in self.layer_aggregation_sides

    def aggregates_heads(self, site: str, layer: int) -> bool:
        """Whether `layer`, counted from 0, aggregates the heads of "encoder_self", "decoder_self" or "cross"."""
        layers = getattr(self, _HEAD_SITES[site])
        return self.head_aggregation is not None and (layers is None or layer in layers)

    def _validate_marian(self) -> None:
        for name in ("vocab_size", "d_model", "encoder_ffn_dim", "decoder_ffn_dim"):
            check_positive_integer(name, getattr(self, name))
        if self.decoder_vocab_size is not None:
            check_positive_integer("decoder_vocab_size", self.decoder_vocab_size)
        check_positive_integer("max_position_embeddings", self.max_position_embeddings, MOST_POSITIONS)
        for side in SIDES:
            check_positive_integer(f"{side}_layers", getattr(self, f"{side}_layers"), MOST_STEPS)
            check_heads(f"{side}_attention_heads", getattr(self, f"{side}_attention_heads"), self.d_model)
        for name in ("encoder_layerdrop", "decoder_layerdrop", "dropout", "attention_dropout", "activation_dropout"):
            check_probability(name, getattr(self, name))
        check_not_negative("init_std", self.init_std)
        check_choice("activation_function", self.activation_function, tuple(ACT2FN))

    def _validate_head_aggregation(self) -> None:
        check_choice("head_aggregation", self.head_aggregation, (None, *HEAD_AGGREGATIONS))
        check_choice("head_aggregation_output", self.head_aggregation_output, ("replace", "residual"))
        check_choice("head_aggregation_input_norm", self.head_aggregation_input_norm, (False, True))
        for site, name in _HEAD_SITES.items():
            self._validate_head_layers(name, self.encoder_layers if site == "encoder_self" else self.decoder_layers)
        layers = {name: getattr(self, name) for name in _HEAD_SITES.values()}
        if self.head_aggregation is None and layers != dict(zip(layers, (None, [], []))):
            raise ValueError(f"head_aggregation is None, but {layers} name layers for it; give it or leave them out")
        if self.head_aggregation is None and self.head_aggregation_input_norm:
            raise ValueError("head_aggregation is None, but head_aggregation_input_norm is True; leave that out")
        if self.head_aggregation is not None and not any(value != [] for value in layers.values()):
            raise ValueError(
                f"head_aggregation is {self.head_aggregation!r}, but {', '.join(layers)} are all []; name a layer in "
                "one of them, or leave out head_aggregation"
            )

    def _validate_head_layers(self, name: str, num_layers: int) -> None:
        layers = getattr(self, name)
        if layers is None:
            return
        known = isinstance(layers, (list, tuple)) and all(type(i) is int and 0 <= i < num_layers for i in layers)
        if not known or len(set(layers)) < len(layers):
            raise ValueError(
                f"{name} is {layers!r:.80}; allowed are None (every layer) and lists of different integers from 0 to "
                f"{num_layers - 1}"
            )
        setattr(self, name, list(layers))

    def _validate_layer_aggregation(self) -> None:
        check_choice("layer_aggregation", self.layer_aggregation, (None, *LAYER_AGGREGATIONS))
        check_choice("layer_aggregation_context", self.layer_aggregation_context, ("all", "own"))
        check_choice(
            "layer_aggregation_parameterization",
            self.layer_aggregation_parameterization,
            ("factored", "joint"),
        )
        check_choice("layer_aggregation_output", self.layer_aggregation_output, ("replace", "residual"))
        sides = self.layer_aggregation_sides
        if not isinstance(sides, (list, tuple)) or not sides or any(sides.count(side) > 1 for side in sides):
            raise ValueError(
                f"layer_aggregation_sides is {sides!r:.80}; allowed are lists of one or both of 'encoder', 'decoder'"
            )
        for side in sides:
            check_choice("layer_aggregation_sides has an entry that", side, SIDES)
            self._validate_layerdrop(side)
        self.layer_aggregation_sides = list(sides)

    def _validate_layerdrop(self, side: str) -> None:
        layerdrop = getattr(self, f"{side}_layerdrop")
        if self.aggregates_layers(side) and layerdrop > 0:
            raise ValueError(
                f"{side}_layerdrop is {layerdrop!r:.80} while layer_aggregation={self.layer_aggregation!r} needs the "
                f"output of every {side} layer; allowed is 0.0 (or take {side!r} out of layer_aggregation_sides)"
            )

    def _validate_routing(self) -> None:
        check_positive_integer("routing_iterations", self.routing_iterations, MOST_STEPS)
        check_positive("inverse_temperature", self.inverse_temperature)
        if self.num_output_capsules is not None:
            check_positive_integer("num_output_capsules", self.num_output_capsules)
            if self.d_model % self.num_output_capsules:
                raise ValueError(
                    f"num_output_capsules is {self.num_output_capsules}; allowed are divisors of d_model={self.d_model}"
                )


__all__ = ["CapsuleAggregatedMarianConfig"]
