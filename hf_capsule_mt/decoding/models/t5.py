"""The decoders of T5, which MADLAD-400 shares, and of mT5: relative positions, and norms without means."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import MT5ForConditionalGeneration, PreTrainedModel, T5ForConditionalGeneration

from hf_capsule_mt.modeling.streams import LayerStates

from ..products.products import Make, Map, product
from .transformer import PreNormLayer, TransformerAdapter, TransformerDecoding


class T5Layer(PreNormLayer):
    """A layer whose maps have no biases, and whose scores of attention are not scaled.

    Args:
        layer: a block of T5.
        make: makes the products.
    """

    def __init__(self, layer: Any, make: Make) -> None:  # Not those of the parent class: all names are other ones.
        target_part, source_part, network_part = layer.layer
        to_target = target_part.SelfAttention
        self.heads: int = to_target.n_heads
        self.target_scale = 1.0
        self.target_projections = product(to_target.q, to_target.k, to_target.v, make=make)
        self.target_output = product(to_target.o, make=make)
        self.target_norm = rms_norm(target_part.layer_norm)
        to_source = source_part.EncDecAttention
        self.source_scale = 1.0
        self.source_query = product(to_source.q, make=make)
        self.source_projections = product(to_source.k, to_source.v, make=make)
        self.source_output = product(to_source.o, make=make)
        self.source_norm = rms_norm(source_part.layer_norm)
        network = network_part.DenseReluDense
        self.is_gated: bool = hasattr(network, "wi_0")
        inner = (network.wi_0, network.wi_1) if self.is_gated else (network.wi,)
        self.inner = product(*inner, make=make)
        self.outer = product(network.wo, make=make)
        self.activation = network.act
        self.network_norm = rms_norm(network_part.layer_norm)

    def feed_forward(self, hidden: Tensor) -> Tensor:
        """Go through the feed-forward network, `[rows, d]` -> `[rows, d]`, a new tensor."""
        if not self.is_gated:
            return super().feed_forward(hidden)
        gates, values = self.inner(hidden).chunk(2, dim=-1)
        return self.outer(self.activation(gates) * values)


class T5Decoding(TransformerDecoding):
    """Sentences whose attention to the target is biased by distances. The arguments are those of [`Decoding`]."""

    adapter: "T5Adapter"

    def begin_step(self) -> Tensor:
        """Return biases, and -inf where a beam does not attend to a slot, `[sentences, heads, beams, slots]`."""
        hidden = super().begin_step()
        positions = self.targets.positions[:, self.targets.read_slots]
        # Slots that are not written yet may have later positions. They are hidden.
        distances = (self.position - positions).clamp(0, self.adapter.biases.shape[1] - 1)
        biases = self.adapter.biases[:, distances].transpose(0, 1).unsqueeze(2)
        return biases if hidden is None else biases + hidden


class T5Adapter(TransformerAdapter):
    """A copy of the decoder of T5, T5 v1.1 or MADLAD-400."""

    models = models_in_half = (T5ForConditionalGeneration,)
    decoding = T5Decoding
    has_relative_positions = True

    def copy(self, model: PreTrainedModel) -> None:
        """Copy the decoder's weights."""
        decoder = model.decoder
        self.layers = [T5Layer(block, self.make) for block in decoder.block]
        self.last_norm = rms_norm(decoder.final_layer_norm)
        self.last_scale = self.last_scale_of(model)
        # `[heads, distances]`. All larger distances have the bias of the last.
        attention = decoder.block[0].layer[0].SelfAttention
        last = attention.relative_attention_max_distance
        biases = attention.compute_bias(1, last + 1, past_seen_tokens=last)
        self.biases = biases.detach()[0, :, 0].flip(1).contiguous().float()

    def last_scale_of(self, model: PreTrainedModel) -> float | None:
        """Return the factor of the states that the output projection reads, or None."""
        # False for T5 v1.1 and MADLAD-400.
        return model.model_dim**-0.5 if model.config.scale_decoder_outputs else None

    def embed(self, tokens: Tensor, position: int | Tensor) -> Tensor:
        """Return the embeddings `[rows, d]` of tokens `[rows]`, which do not depend on the position."""
        return self.embedded(tokens)

    def finish(self, states: LayerStates) -> Tensor:
        """Normalise and scale the output of the last layer, `[rows, d]`."""
        hidden = self.last_norm(super().finish(states))
        return hidden if self.last_scale is None else hidden * self.last_scale


class MT5Adapter(T5Adapter):
    """A copy of the decoder of mT5."""

    models = models_in_half = (MT5ForConditionalGeneration,)

    def last_scale_of(self, model: PreTrainedModel) -> None:
        """Return None: mT5 scales nothing, whatever its configuration says."""
        return None


def rms_norm(module: nn.Module) -> Map:
    """Return a copy of a norm of T5, which maps `[..., d]`. It divides by the root of the mean square."""
    weight = module.weight.detach().clone().float()
    return partial(torch.rms_norm, normalized_shape=weight.shape, weight=weight, eps=module.variance_epsilon)
