"""Fields of the Transformer families: the aggregation of layers and of attention heads."""

from dataclasses import dataclass, field
from typing import Literal

from .shared_fields import check_smallest

_HEAD_SITES = {
    "encoder_self": "head_aggregation_encoder_layers",
    "decoder_self": "head_aggregation_decoder_layers",
    "cross": "head_aggregation_cross_layers",
}


@dataclass(kw_only=True, init=False, repr=False, eq=False)
class AggregationFields:
    r"""
    A mixin for a [`PreTrainedConfig`] of a Transformer: aggregation of layers (Dou et al. 2019) and of attention heads
    (Li et al. 2019), and label smoothing.

    Args:
        layer_aggregation (`str`, *optional*):
            How the outputs of a stack's layers are aggregated: `None` (only the top layer, as in Transformers),
            `"linear"` (Eq. 3), `"dynamic"` (Eq. 4), `"dynamic_routing"` (Eq. 5-9), `"em_routing"` (Eq. 10-16), or
            `"attention"` (arXiv 2603.15031). Others can be entered in `COMBINATIONS` and `ROUTINGS`, so only the model
            refuses an unknown name.
        layer_aggregation_place (`str`, *optional*, defaults to `"top"`):
            Where aggregates are read. `"top"`: on top of a stack, instead of its last layer. `"source"`: each layer of
            the decoder attends to its own aggregate of the encoder's layers, with the embeddings as the lowest one
            (Bapna et al. 2018). There `"linear"` is a softmax over one learned number for each layer. `"layers"`: each
            layer of a stack reads an aggregate of all layers below it (Wang et al. 2019). There `"linear"` has one
            learned number for each layer. `"attention"`, `"delta-attention"` (arXiv 2605.18855), `"hyper-connections"`
            (2409.19606) and `"manifold-hyper-connections"` (mHC, 2512.24880) are only for the layers of M2M-100. Others
            can be entered in `STREAMS`.
        layer_aggregation_sides (`list[str]`, *optional*, defaults to `["encoder", "decoder"]`):
            The stacks whose layers are aggregated. For the place `"source"` it is always the encoder.
        layer_aggregation_context (`str`, *optional*, defaults to `"all"`):
            Whether the input capsule of a layer is computed from `"all"` layers, or only from its `"own"` layer.
        layer_aggregation_parameterization (`str`, *optional*, defaults to `"factored"`):
            `"factored"`: one map for each input capsule, as in the printed equations. `"joint"`: one map of the
            concatenated capsules, as in the published parameter counts.
        layer_aggregation_output (`str`, *optional*, defaults to `"replace"`):
            `"replace"`: LayerNorm(aggregate) replaces the output of the top layer. `"residual"`: it is added to that
            output, times a learned vector that starts at zero. For the place `"source"`, `"replace"` has no LayerNorm
            for `"linear"` and `"attention"`, which are weighted means. For the place `"layers"` it has none in M2M-100,
            whose layers normalise their inputs. Hyper-connections have no use for it: they start as the plain model.
        layer_aggregation_input_norm (`bool`, *optional*, defaults to `False`):
            Whether the output of each layer is normalised to mean 0 and variance 1 before it is aggregated. For the
            place `"layers"` and `"linear"` the norm also has a gain and a bias. Hyper-connections have
            no such norm.
        layer_aggregation_streams (`int`, *optional*, defaults to 4):
            The number of streams of hyper-connections, at least 2.
        head_aggregation (`str`, *optional*):
            How the heads of the attentions named below are aggregated: `None` (the linear map W^O, as in Transformers),
            `"simple_routing"` (Li et al., Eq. 7-8) or `"em_routing"` (Eq. 9-12).
        head_aggregation_encoder_layers (`list[int]`, *optional*):
            The encoder layers whose self-attention has its heads aggregated, counted from 0 at the bottom. `None` means
            every layer.
        head_aggregation_decoder_layers (`list[int]`, *optional*, defaults to `[]`):
            The same for decoder self-attention.
        head_aggregation_cross_layers (`list[int]`, *optional*, defaults to `[]`):
            The same for the decoder's attention to the encoder.
        head_aggregation_output (`str`, *optional*, defaults to `"replace"`):
            `"replace"`: the routed heads replace W^O. `"residual"`: they are added to its output, times a learned
            vector that starts at zero.
        head_aggregation_input_norm (`bool`, *optional*, defaults to `False`):
            Whether the input capsule of each head is normalised to mean 0 and variance 1 before its tanh. The paper
            does not do this, and high learning rates saturate the tanh.
        num_output_capsules (`int`, *optional*):
            Output capsules N of layers and of heads, a divisor of `d_model`. `None` means `d_model`.
        routing_iterations (`int`, *optional*, defaults to 3):
            Iterations of the routing of layers and of heads.
        inverse_temperature (`float`, *optional*, defaults to 0.01):
            Limit of the inverse temperature of EM routing (Dou et al., Eq. 14). Iteration t uses
            `1 - 0.95**t` times this.
        label_smoothing (`float`, *optional*, defaults to 0.0):
            Label smoothing of the model's own loss, in [0, 1).
    """

    keys_to_ignore_at_inference = [  # noqa: RUF012 (a class attribute of PreTrainedConfig, not a field)
        "cache",
        "past_key_values",
        "lm_loss",
        "bow_loss",
        "bca_loss",
        "encoder_layer_routing",
        "decoder_layer_routing",
        "source_layer_routing",
        "head_routing",
        "guided_routing",
    ]

    is_pre_norm = False  # Whether layers normalise their inputs, and not their outputs. It is not a field.

    layer_aggregation: str | None = None
    layer_aggregation_place: Literal["top", "source", "layers"] = "top"
    layer_aggregation_sides: list[Literal["encoder", "decoder"]] = field(default_factory=lambda: ["encoder", "decoder"])
    layer_aggregation_context: Literal["all", "own"] = "all"
    layer_aggregation_parameterization: Literal["factored", "joint"] = "factored"
    layer_aggregation_output: Literal["replace", "residual"] = "replace"
    layer_aggregation_input_norm: bool = False
    layer_aggregation_streams: int = 4
    head_aggregation: str | None = None
    head_aggregation_encoder_layers: list[int] | None = None
    head_aggregation_decoder_layers: list[int] | None = field(default_factory=list)
    head_aggregation_cross_layers: list[int] | None = field(default_factory=list)
    head_aggregation_output: Literal["replace", "residual"] = "replace"
    head_aggregation_input_norm: bool = False
    num_output_capsules: int | None = None
    routing_iterations: int = 3
    inverse_temperature: float | int = 0.01
    label_smoothing: float | int = 0.0

    def validate_routing(self) -> None:
        """Refuse output capsules that do not divide the width, and numbers that are too small."""
        count = self.num_output_capsules
        if count is not None and (count < 1 or self.d_model % count):
            raise ValueError(f"num_output_capsules is {count}. Give a divisor of d_model, which is {self.d_model}.")
        check_smallest(self, 2, ("layer_aggregation_streams",))
        check_smallest(self, 1, ("routing_iterations",))
        check_smallest(self, 0, ("inverse_temperature",))

    def validate_head_aggregation(self) -> None:
        """Refuse layers that do not exist, because they would have no effect."""
        for site, name in _HEAD_SITES.items():
            count = self.encoder_layers if site == "encoder_self" else self.decoder_layers
            if any(not 0 <= layer < count for layer in getattr(self, name) or ()):
                raise ValueError(f"{name} is {getattr(self, name)}, but there are {count} layers, counted from 0.")
        if self.head_aggregation is not None and not any(getattr(self, name) != [] for name in _HEAD_SITES.values()):
            raise ValueError(f"head_aggregation is {self.head_aggregation!r}, but no layer is named for it.")

    def validate_layer_aggregation(self) -> None:
        """Refuse layerdrop for aggregated layers."""
        for side in ("encoder", "decoder"):
            if self.aggregates_layers(side) and getattr(self, f"{side}_layerdrop"):
                raise ValueError(f"{side}_layerdrop cannot be combined with layer_aggregation. Set it to 0.")

    def validate_layer_aggregation_place(self) -> None:
        """Refuse a place where nothing is aggregated, because it would have no effect."""
        if self.layer_aggregation_place == "top":
            return
        if self.layer_aggregation is None:
            raise ValueError(
                f"layer_aggregation_place is {self.layer_aggregation_place!r}, but layer_aggregation is not set. Set "
                "both, or neither."
            )
        if self.layer_aggregation_place == "source" and "encoder" not in self.layer_aggregation_sides:
            raise ValueError(
                f"layer_aggregation_place 'source' aggregates the layers of the encoder, but layer_aggregation_sides "
                f"is {self.layer_aggregation_sides}. Add 'encoder'."
            )

    def validate_layer_aggregation_of_each_layer(self) -> None:
        """Refuse a norm in front of layers that have normalised outputs. The model refuses unknown streams."""
        if self.layer_aggregation_place != "layers" or self.layer_aggregation is None:
            return
        if self.layer_aggregation_input_norm and not self.is_pre_norm:
            raise ValueError(
                "layer_aggregation_place 'layers' has no layer_aggregation_input_norm in the family "
                f"{self.model_type}, whose layers normalise their outputs. Set it to False."
            )

    def aggregates_layers(self, side: str) -> bool:
        """Whether the layers of `side` ("encoder" or "decoder") are aggregated."""
        if self.aggregates_layers_for_source():
            return side == "encoder"
        return self.layer_aggregation is not None and side in self.layer_aggregation_sides

    def aggregates_layers_for_source(self) -> bool:
        """Whether each layer of the decoder reads its own aggregate of the encoder's layers."""
        return self.layer_aggregation is not None and self.layer_aggregation_place == "source"

    def aggregates_heads(self, site: str, layer: int) -> bool:
        """Whether `layer`, counted from 0, aggregates the heads of "encoder_self", "decoder_self" or "cross"."""
        layers = getattr(self, _HEAD_SITES[site])
        return self.head_aggregation is not None and (layers is None or layer in layers)
