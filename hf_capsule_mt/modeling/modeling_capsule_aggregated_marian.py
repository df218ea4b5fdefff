"""The Marian encoder-decoder with capsule routing: it reuses Marian's modules and adds only the difference."""

import copy
from collections.abc import Callable, Sequence
from importlib import import_module
from os import PathLike
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from transformers import Cache, GenerationMixin, MarianMTModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.marian.modeling_marian import (
    MarianDecoder,
    MarianDecoderLayer,
    MarianEncoder,
    MarianEncoderLayer,
    MarianModel,
    MarianPreTrainedModel,
    MarianSinusoidalPositionalEmbedding,
)
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple

from ..configuration.configuration_capsule_aggregated_marian import CapsuleAggregatedMarianConfig
from .aggregation import RECORDED_HEADS, LayerAggregation, ResidualRoutedHeads, RoutedHeads, with_head_routing
from .guided_losses import READ_BY_LOSSES, GuidedLosses
from .guided_routing import GuidedRouting, GuidedVotes
from .initial_weights import init_words
from .linear import use_products
from .outputs import OutputRouting, RoutedDecoderOutput, RoutedEncoderOutput
from .portable_model import PortableModel
from .transformers_versions import decoder_layers, under_both_names
from .translation_head import EncoderDecoder, TranslationHead, UntiedEmbeddings
from .word_masks import word_mask


class Positions(MarianSinusoidalPositionalEmbedding):
    """Marian's sinusoids. A text that is too long is an error."""

    def forward(
        self, input_ids_shape: Sequence[int], cache_length: int | Tensor = 0, position_ids: Tensor | None = None
    ) -> Tensor:
        """Return the sinusoids of the positions after `cache_length`, as Marian does.

        Raises:
            ValueError: if there are fewer. Compiled and exported programs, and static caches, are not checked.
        """
        # On a GPU a lookup past the end would end the process.
        if not torch.compiler.is_compiling() and isinstance(cache_length, int):
            longest = cache_length + input_ids_shape[1]
            if longest > self.num_embeddings:
                raise ValueError(
                    f"A text has {longest} tokens, and the model {self.num_embeddings} positions. Truncate the "
                    "source, or set a smaller max_new_tokens."
                )
        return super().forward(input_ids_shape, cache_length, position_ids)


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


class CapsuleAggregatedMarianPreTrainedModel(PortableModel, MarianPreTrainedModel):
    """Weight initialisation and loading, shared by the models of the family."""

    config: CapsuleAggregatedMarianConfig
    _no_split_modules = (
        "CapsuleAggregatedMarianEncoderLayer",
        "CapsuleAggregatedMarianDecoderLayer",
        "LayerAggregation",
        "GuidedVotes",
        "GuidedRouting",
    )

    # Positions are computed. Marian also lists the bias, which would silently become zero.
    _keys_to_ignore_on_load_missing = (r"embed_positions\.weight$",)

    def __init__(self, config: CapsuleAggregatedMarianConfig) -> None:
        # Marian's own __init__ would apply this flag of old configurations to layers that are then replaced.
        self._checkpointing_requested = config.__dict__.pop("gradient_checkpointing", False)
        super().__init__(config)

    def post_init(self) -> None:
        """Finish the initialisation, as [`PreTrainedModel.post_init`] does."""
        if self._checkpointing_requested:
            self.config.gradient_checkpointing = True
        super().post_init()

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """Load a model as [`PreTrainedModel.from_pretrained`] does, and freeze its positions.

        Transformers marks every loaded weight as trainable. Positions are fixed sinusoids.
        """
        loaded = super().from_pretrained(*args, **kwargs)
        # With `output_loading_info` there are two results.
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        for module in model.modules():
            if isinstance(module, MarianSinusoidalPositionalEmbedding):
                module.requires_grad_(False)
        return loaded

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, MarianSinusoidalPositionalEmbedding):
            # Marian's own method takes seconds for the same numbers, so the method of its parent is called instead.
            super(MarianPreTrainedModel, self)._init_weights(module)
            count, width = module.weight.shape
            init.copy_(module.weight, _positions(count, width))
        else:
            super()._init_weights(module)
        if type(module) is nn.Embedding and self.config.scale_embedding:
            init_words(module, self.config.d_model)
        if hasattr(module, "init_weights") and not isinstance(module, MarianPreTrainedModel):
            module.init_weights(self.config.init_std)


def _positions(count: int, width: int) -> Tensor:
    """Return the sinusoids `[count, width]`, bit for bit those of Marian: first sines, then cosines."""
    periods = np.array([np.power(10000, 2 * (column // 2) / width) for column in range(width)])
    angles = np.arange(count)[:, None] / periods
    sines = np.sin(angles[:, 0::2])
    cosines = np.cos(angles[:, 1::2])
    return torch.from_numpy(np.concatenate([sines, cosines], axis=1)).float()


def aggregate_heads(attention: nn.Module, config: CapsuleAggregatedMarianConfig, site: str, layer: int) -> None:
    """Replace `attention.out_proj` by an aggregation, if the configuration has one at this site and layer.

    Args:
        attention: an attention of Marian.
        config: the configuration of the model.
        site: "encoder_self", "decoder_self" or "cross".
        layer: the layer of the attention, counted from 0.
    """
    if not config.aggregates_heads(site, layer):
        return
    heads_class = RoutedHeads if config.head_aggregation_output == "replace" else ResidualRoutedHeads
    attention.out_proj = heads_class(config, attention.num_heads, f"{site}.{layer}")


class _Layer:
    """A layer that appends its output to `layer_outputs`, outside of the part that gradient checkpointing repeats."""

    def __call__(self, *args: Any, layer_outputs: list[Tensor] | None = None, **kwargs: Any) -> Tensor:
        output = super().__call__(*args, **kwargs)
        if layer_outputs is not None:
            layer_outputs.append(output)
        return output

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Run Marian's layer."""
        is_autocast = hidden_states.device.type == "cpu" and torch.is_autocast_enabled("cpu")
        if not is_autocast or torch.compiler.is_compiling():
            return super().forward(hidden_states, *args, **kwargs)
        # Most CPUs have no AMX. There the backward pass of attention takes several times as long in bfloat16.
        with Float32Attention():
            return super().forward(hidden_states, *args, **kwargs)


class CapsuleAggregatedMarianEncoderLayer(_Layer, MarianEncoderLayer):
    """Marian's encoder layer, with aggregated heads if configured."""

    def __init__(self, config: CapsuleAggregatedMarianConfig, layer: int) -> None:
        super().__init__(config)
        aggregate_heads(self.self_attn, config, "encoder_self", layer)
        use_products(self)


class CapsuleAggregatedMarianDecoderLayer(_Layer, MarianDecoderLayer):
    """Marian's decoder layer, with aggregated heads if configured."""

    def __init__(self, config: CapsuleAggregatedMarianConfig, layer: int) -> None:
        super().__init__(config, layer_idx=layer)
        aggregate_heads(self.self_attn, config, "decoder_self", layer)
        aggregate_heads(self.encoder_attn, config, "cross", layer)
        use_products(self)


class _Stack:
    """A mixin for Marian's encoder or decoder: it checks positions, and aggregates layers if configured.

    `hidden_states` are the outputs of the layers. `last_hidden_state` is the aggregate.
    """

    def _build(self, layer_class: type[nn.Module], side: str) -> None:
        """Replace Marian's positions and layers, and add the aggregation."""
        config = self.config
        num_layers = getattr(config, f"{side}_layers")
        # A new module would draw random numbers, and all weights drawn after it would differ from Marian's.
        self.embed_positions.__class__ = Positions
        self.layers = nn.ModuleList(layer_class(config, layer) for layer in range(num_layers))
        self.aggregation = None
        if config.aggregates_layers(side):
            self.aggregation = LayerAggregation(config, num_layers)

    def _run(self, *args: Any, output_routing: OutputRouting, **kwargs: Any) -> dict[str, Any]:
        """Run Marian's stack. Return its outputs with the aggregate, `layer_routing` and `head_routing`."""
        layer_outputs: list[Tensor] | None = None if self.aggregation is None else []
        # Transformers records what is asked for by these names, which are those of `RECORDED_HEADS`.
        if output_routing == "all":
            kwargs["output_head_votes"] = True
        elif output_routing:
            kwargs["output_head_routing"] = True
        outputs = super().forward(*args, layer_outputs=layer_outputs, return_dict=True, **kwargs)
        outputs = with_head_routing(outputs)
        if self.aggregation is not None:
            aggregate, assignment = self.aggregation(layer_outputs, output_routing)
            outputs["last_hidden_state"] = aggregate
            outputs["layer_routing"] = assignment
        return outputs


class CapsuleAggregatedMarianEncoder(_Stack, CapsuleAggregatedMarianPreTrainedModel, MarianEncoder):
    """Marian's encoder with the additions of [`_Stack`], and the votes of guided routing."""

    _can_record_outputs = {**MarianEncoder._can_record_outputs, **RECORDED_HEADS}  # noqa: RUF012

    def __init__(self, config: CapsuleAggregatedMarianConfig) -> None:
        super().__init__(config)
        self._build(CapsuleAggregatedMarianEncoderLayer, "encoder")
        self.guided_votes = None if config.guided_routing is None else GuidedVotes(config)
        self.post_init()

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


class CapsuleAggregatedMarianDecoder(_Stack, CapsuleAggregatedMarianPreTrainedModel, MarianDecoder):
    """Marian's decoder with the additions of [`_Stack`]."""

    _can_record_outputs = {  # noqa: RUF012
        **MarianDecoder._can_record_outputs,
        "hidden_states": decoder_layers(MarianDecoderLayer),
        **RECORDED_HEADS,
    }

    def __init__(self, config: CapsuleAggregatedMarianConfig) -> None:
        super().__init__(config)
        self._build(CapsuleAggregatedMarianDecoderLayer, "decoder")
        self.post_init()

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
            **kwargs: `output_hidden_states`, `output_attentions`, and arguments of attention backends.
        """
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
            **kwargs,
        )
        return RoutedDecoderOutput(**outputs)


class CapsuleAggregatedMarianModel(EncoderDecoder, CapsuleAggregatedMarianPreTrainedModel, MarianModel):
    """The encoder-decoder without a language model head.

    With guided routing, `last_hidden_state` is o of Zheng et al. 2019, which predicts the next tokens.
    """

    def __init__(self, config: CapsuleAggregatedMarianConfig) -> None:
        super().__init__(config)
        self.encoder = CapsuleAggregatedMarianEncoder(config)
        self.decoder = CapsuleAggregatedMarianDecoder(config)
        self.guided_routing = None if config.guided_routing is None else GuidedRouting(config, config.decoder_ffn_dim)
        self.post_init()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the embedding of the source, and that of the target if it is tied."""
        if self.config.tie_word_embeddings or not self.config.share_encoder_decoder_embeddings:
            super().set_input_embeddings(value)
        else:
            self.encoder.embed_tokens = value
            # Nothing reads this one, but it is saved, and must have the same size.
            self.shared = copy.deepcopy(value)

    def _encoder_outputs(self, outputs: tuple[Tensor, ...]) -> RoutedEncoderOutput:
        # Hidden states and attentions are tuples. The other elements have no fixed order.
        hidden_states, *others = outputs
        return RoutedEncoderOutput(hidden_states, *(value for value in others if isinstance(value, tuple)))

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


class CapsuleAggregatedMarianForConditionalGeneration(
    TranslationHead, UntiedEmbeddings, CapsuleAggregatedMarianPreTrainedModel, MarianMTModel, GenerationMixin
):
    """The translation model: aggregated Marian with a language model head and its own loss."""

    _keys_to_ignore_on_load_unexpected = READ_BY_LOSSES

    def __init__(self, config: CapsuleAggregatedMarianConfig) -> None:
        super().__init__(config)
        self.model = CapsuleAggregatedMarianModel(config)
        self.guided_losses = None if config.guided_routing is None else GuidedLosses(config)
        self.post_init()

    def _resize_final_logits_bias(self, new_num_tokens: int) -> None:
        dtype = self.final_logits_bias.dtype
        # With `pad_to_multiple_of` there are more tokens than were asked for.
        super()._resize_final_logits_bias(self.lm_head.weight.shape[0])
        # Marian adds float32 elements, which would make the logits of a smaller dtype float32.
        self.final_logits_bias = self.final_logits_bias.to(dtype)

    @classmethod
    def from_marian(
        cls,
        marian: str | PathLike | MarianMTModel,
        dtype: str | torch.dtype | None = None,
        revision: str | None = None,
        **config_overrides: Any,
    ) -> "CapsuleAggregatedMarianForConditionalGeneration":
        """Warm-start from a Marian translation model. This needs the package hf-capsule-mt.

        Logits are those of the Marian model until the first update, if no output is "replace".

        Args:
            marian: a [`MarianMTModel`], or the name or folder of one (OPUS-MT). It may also be a model of this class
                without aggregation or guided routing.
            dtype: the dtype to load it in, float32 by default. "auto" is the dtype of the file.
            revision: branch, tag or commit of a name on the Hub.
            **config_overrides: fields of [`CapsuleAggregatedMarianConfig`]. `layer_aggregation_output` and
                `head_aggregation_output` are "residual" by default: their scales start at zero.

        Raises:
            ValueError: if `marian` is another model or not plain, or an override is unknown or does not fit.
            OSError: if there is no such model.
        """
        # Imported by name, because checkpoints carry this file without the package.
        warm_start = import_module("hf_capsule_mt.modeling.warm_start")
        return warm_start.from_marian(cls, marian, dtype, revision, config_overrides)
