"""What the Transformer families share: layers and stacks with routing around those of Transformers."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from transformers import Cache, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple

from .aggregation import (
    LayerAggregation,
    ResidualRoutedHeads,
    RoutedHeads,
    SourceAggregation,
    with_head_routing,
)
from .outputs import OutputRouting, RoutedDecoderOutput, RoutedEncoderOutput
from .portable_model import PortableModel
from .streams import LayerStates, make_stream
from .transformers_versions import under_both_names
from .translation_head import EncoderDecoder
from .word_masks import word_mask


class Float32Attention(TorchFunctionMode):
    """A context that computes `scaled_dot_product_attention` in float32 under autocast on a CPU."""

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call `func`."""
        kwargs = kwargs or {}
        if func is not scaled_dot_product_attention:
            return func(*args, **kwargs)
        float32_args = [_to_float32(value) for value in args]
        float32_kwargs = {name: _to_float32(value) for name, value in kwargs.items()}
        with torch.autocast("cpu", enabled=False):
            return func(*float32_args, **float32_kwargs)


def _to_float32(value: Any) -> Any:
    """Convert tensors of floating point numbers. A mask of bool, or a number, stays as it is."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.float()
    return value


def waits_for(device: torch.device) -> bool:
    """Return whether reading a number makes the host wait until the device has finished its work."""
    return device.type != "cpu"


def ready_mask(stack: nn.Module, mask: Tensor | None, tokens: Tensor, *, causal: bool = False) -> Tensor | None:
    """In training on an accelerator, make the mask that SDPA takes.

    Given another mask, Transformers would first look for padding, and the host would wait for the device.

    Args:
        stack: the encoder or the decoder.
        mask: `[batch, key]`, 1 for tokens and 0 for padding, or None.
        tokens: token ids or embeddings of the queries, `[batch, query, ...]`.
        causal: whether a token sees only the tokens up to itself.

    Returns:
        A mask `[batch, 1, query, key]`, True for what is seen. In all other cases the given mask.
    """
    if not stack.training or not waits_for(tokens.device) or torch.compiler.is_compiling():
        return mask

    # Transformers has no public name for the attention that a model uses.
    if stack.config._attn_implementation != "sdpa":
        return mask
    if mask is not None and mask.dim() != 2:
        return mask

    keys = None if mask is None else mask.bool()[:, None, None]
    if not causal:
        return keys
    length = tokens.shape[1]
    until_itself = torch.ones(length, length, dtype=torch.bool, device=tokens.device).tril()[None, None]
    if keys is None:
        return until_itself
    return until_itself & keys


class RoutedPreTrainedModel(PortableModel):
    """A mixin for the base of a family: a flag of old configurations, and the initialisation of what is added."""

    def __init__(self, config: PreTrainedConfig) -> None:
        # Transformers' own __init__ would apply this flag of old configurations to layers that are then replaced.
        self._checkpointing_requested = config.__dict__.pop("gradient_checkpointing", False)
        super().__init__(config)

    def post_init(self) -> None:
        """Finish the initialisation, as [`PreTrainedModel.post_init`] does."""
        if self._checkpointing_requested:
            self.config.gradient_checkpointing = True
        super().post_init()

    def _init_routed_part(self, module: nn.Module) -> None:
        """Draw the weights of a module of this package, unless they were loaded."""
        if hasattr(module, "init_weights") and not isinstance(module, PreTrainedModel):
            module.init_weights(self.config.init_std)


def aggregate_heads(attention: nn.Module, config: PreTrainedConfig, site: str, layer: int) -> None:
    """Replace `attention.out_proj` by an aggregation, if the configuration has one at this site and layer.

    Args:
        attention: an attention of Transformers.
        config: the configuration of the model.
        site: "encoder_self", "decoder_self" or "cross".
        layer: the layer of the attention, counted from 0.
    """
    if not config.aggregates_heads(site, layer):
        return
    heads_class = RoutedHeads if config.head_aggregation_output == "replace" else ResidualRoutedHeads
    attention.out_proj = heads_class(config, attention.num_heads, f"{site}.{layer}")


class RoutedLayer:
    """A layer that gives its output to `layer_states`, outside of the part that gradient checkpointing repeats."""

    def __call__(
        self, hidden_states: Tensor, *args: Any, layer_states: LayerStates | None = None, **kwargs: Any
    ) -> Tensor:
        """Run the layer. With `layer_states` it reads what these say, and adds its output to them."""
        if layer_states is None:
            return super().__call__(hidden_states, *args, **kwargs)
        if not layer_states.states:
            layer_states.begin(hidden_states)
        output = super().__call__(layer_states.next_input(), *args, **kwargs)
        layer_states.append(output)
        return output

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Run the layer of Transformers."""
        is_autocast = hidden_states.device.type == "cpu" and torch.is_autocast_enabled("cpu")
        if not is_autocast or torch.compiler.is_compiling():
            return super().forward(hidden_states, *args, **kwargs)
        # Most CPUs have no AMX. There the backward pass of attention takes several times as long in bfloat16.
        with Float32Attention():
            return super().forward(hidden_states, *args, **kwargs)


class RoutedDecoderLayer(RoutedLayer):
    """A layer of a decoder, which may read states of the source that are made for this layer."""

    def __call__(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        *args: Any,
        source_states: Sequence[Tensor] | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Run the layer. `source_states` has the states `[batch, source, d]` that each layer of the decoder reads."""
        if source_states is not None:
            encoder_hidden_states = source_states[self.self_attn.layer_idx]
        # Not by name, for gradient checkpointing.
        return super().__call__(hidden_states, attention_mask, encoder_hidden_states, *args, **kwargs)


class RoutedStack:
    """A mixin for an encoder or decoder of Transformers: it aggregates layers if configured.

    `hidden_states` are the outputs of the layers. `last_hidden_state` is the aggregate at the top of the stack.
    """

    def _build(self, layer_class: type[nn.Module], side: str) -> None:
        """Replace the layers, and add the aggregation."""
        config = self.config
        num_layers = getattr(config, f"{side}_layers")
        self.layers = nn.ModuleList(layer_class(config, layer) for layer in range(num_layers))

        self.aggregation = None
        self.source_aggregation = None
        self.stack_aggregation = None
        if not config.aggregates_layers(side):
            return

        place = config.layer_aggregation_place
        if place == "top":
            self.aggregation = LayerAggregation(config, num_layers)
        elif place == "source":
            self.source_aggregation = SourceAggregation(config)
        else:
            self.stack_aggregation = make_stream(config, num_layers, side)

    def _run(self, *args: Any, output_routing: OutputRouting, **kwargs: Any) -> dict[str, Any]:
        """Run the stack of Transformers. Return its outputs with aggregates, and with the routing that made them."""
        layer_states = None
        aggregations = (self.aggregation, self.source_aggregation, self.stack_aggregation)
        if any(aggregation is not None for aggregation in aggregations):
            layer_states = LayerStates(self.stack_aggregation)

        # Transformers records what is asked for by these names, which are those of `RECORDED_HEADS`.
        if output_routing == "all":
            kwargs["output_head_votes"] = True
        elif output_routing:
            kwargs["output_head_routing"] = True

        outputs = super().forward(*args, layer_states=layer_states, return_dict=True, **kwargs)
        outputs = with_head_routing(outputs)

        if self.aggregation is not None:
            # Without the embeddings.
            aggregate, assignment = self.aggregation(layer_states.states[1:], output_routing)
            outputs["last_hidden_state"] = self._normalised(aggregate)
            outputs["layer_routing"] = assignment

        if self.source_aggregation is not None:
            aggregates, assignments = self.source_aggregation(layer_states.states, output_routing)
            outputs["source_states"] = self._normalised(aggregates)
            outputs["source_layer_routing"] = assignments

        if self.stack_aggregation is not None:
            outputs["last_hidden_state"] = self._normalised(layer_states.top())
        return outputs

    def _normalised(self, aggregate: Tensor) -> Tensor:
        """Apply the norm behind the last layer. M2M-100 has one. Marian normalises in each layer."""
        if hasattr(self, "layer_norm"):
            return self.layer_norm(aggregate)
        return aggregate


class RoutedEncoder(RoutedStack):
    """A mixin for an encoder of Transformers: that of [`RoutedStack`], with the votes of guided routing."""

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_routing: OutputRouting = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> RoutedEncoderOutput:
        """Encode a batch.

        Args:
            input_ids: token ids `[batch, source]`.
            attention_mask: `[batch, source]`, 1 for tokens and 0 for padding. By default there is no padding.
            inputs_embeds: embeddings `[batch, source, d_model]` instead of `input_ids`.
            output_routing: True returns the assignment of the last routing iteration, "all" those of every iteration.
            **kwargs: `output_hidden_states`, `output_attentions`, and arguments of attention backends.
        """
        tokens = input_ids if inputs_embeds is None else inputs_embeds
        mask = ready_mask(self, attention_mask, tokens)
        outputs = self._run(input_ids, mask, inputs_embeds, output_routing=output_routing, **kwargs)
        votes = keys = None
        if self.guided_votes is not None:
            states = outputs["last_hidden_state"]
            votes, keys = self.guided_votes(states, word_mask(attention_mask, states))
        return RoutedEncoderOutput(**outputs, guided_votes=votes, guided_keys=keys)


class RoutedDecoder(RoutedStack):
    """A mixin for a decoder of Transformers: that of [`RoutedStack`]."""

    @can_return_tuple
    @under_both_names
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_routing: OutputRouting = False,
        source_states: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> RoutedDecoderOutput:
        """Decode a batch.

        Args:
            input_ids: token ids `[batch, target]`.
            attention_mask: `[batch, target]`, or with the tokens in the cache. By default there is no padding.
            encoder_hidden_states: `[batch, source, d_model]`.
            encoder_attention_mask: `[batch, source]`, 1 for tokens and 0 for padding. By default there is no padding.
            cache: the keys and values of the tokens before.
            inputs_embeds: embeddings `[batch, target, d_model]` instead of `input_ids`.
            use_cache: whether to return a cache.
            output_routing: True returns the assignment of the last routing iteration, "all" those of every iteration.
            source_states: `[batch, decoder layers, source, d_model]`. With `layer_aggregation_place="source"` each
                layer reads its own of these instead of `encoder_hidden_states`.
            **kwargs: `output_hidden_states`, `output_attentions`, and arguments of attention backends.

        Raises:
            ValueError: if layers read their own states of the source, and there are none.
        """
        if encoder_hidden_states is not None and source_states is None and self.config.aggregates_layers_for_source():
            raise ValueError(
                "With layer_aggregation_place 'source' the decoder reads source_states of the encoder's output. Give "
                "the whole output as encoder_outputs, or source_states to the decoder."
            )

        if encoder_hidden_states is not None:
            encoder_attention_mask = ready_mask(self, encoder_attention_mask, encoder_hidden_states)
        if cache is None and not use_cache:
            tokens = input_ids if inputs_embeds is None else inputs_embeds
            attention_mask = ready_mask(self, attention_mask, tokens, causal=True)
        outputs = self._run(
            input_ids,
            attention_mask,
            encoder_hidden_states,
            encoder_attention_mask,
            cache,
            inputs_embeds,
            use_cache=use_cache,
            output_routing=output_routing,
            source_states=None if source_states is None else source_states.unbind(1),
            **kwargs,
        )
        return RoutedDecoderOutput(**outputs)


class RoutedTransformer(EncoderDecoder):
    """A mixin for an encoder-decoder with `guided_routing`, which may be None."""

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embedding of the source, and that of the target if it is tied."""
        config = self.config
        # Only Marian can have two vocabularies.
        has_one_vocabulary = getattr(config, "share_encoder_decoder_embeddings", True)
        if config.tie_word_embeddings or not has_one_vocabulary:
            super().set_input_embeddings(value)
        else:
            self.encoder.embed_tokens = value
            # Nothing reads this one, but it is saved, and must have the same size.
            self.shared = copy.deepcopy(value)

    def _encoder_outputs(self, outputs: tuple[Tensor, ...]) -> RoutedEncoderOutput:
        # Hidden states and attentions are tuples. Behind them only the first element has a fixed place.
        hidden_states, *others = outputs
        tuples = [value for value in others if isinstance(value, tuple)]
        tensors = [value for value in others if isinstance(value, Tensor)]
        source_states = None
        if tensors and self.config.aggregates_layers_for_source():
            source_states = tensors[0]
        return RoutedEncoderOutput(hidden_states, *tuples, source_states=source_states)

    def _run_decoder(
        self,
        encoded: BaseModelOutput,
        source_mask: Tensor | None,
        output_routing: OutputRouting,
        output_guided_capsules: bool,
        **kwargs: Any,
    ) -> RoutedDecoderOutput:
        outputs = self.decoder(
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=source_mask,
            output_routing=output_routing,
            source_states=getattr(encoded, "source_states", None),
            **kwargs,
        )
        if self.guided_routing is None:
            return outputs

        mask = word_mask(source_mask, encoded.last_hidden_state)
        votes, keys = self.encoder.guided_votes.of(encoded, mask)
        states = outputs.last_hidden_state
        guided = self.guided_routing(states, votes, keys, mask, output_routing)

        outputs.last_hidden_state = guided.states
        outputs.guided_routing = guided.assignment
        if output_guided_capsules:
            outputs.guided_states = states
            outputs.guided_capsules = guided.capsules
        return outputs
