"""Model outputs: those of Transformers, with the routing and the parts of the loss."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
)
from transformers.utils import ModelOutput

OutputRouting = bool | Literal["all"]
"""Whether a forward pass returns no assignments, those of the last iteration, or those of every iteration."""


@dataclass
class RoutedEncoderOutput(BaseModelOutput):
    """[`BaseModelOutput`] with routing, as in [`RoutedSeq2SeqModelOutput`], and what a decoder also reads.

    Args:
        source_states: z of `layer_aggregation_place="source"`, what each layer of the decoder reads instead of
            `last_hidden_state`, `[batch, decoder layers, source, d]`.
        guided_votes: `[batch, capsules, source, width]`.
        guided_keys: `[batch, 1 or 2 or capsules, source, width]`.
    """

    # The first of these has a fixed place in a tuple.

    source_states: Tensor | None = None
    layer_routing: Tensor | None = None
    source_layer_routing: Tensor | None = None
    head_routing: dict[str, Tensor] | None = None
    guided_votes: Tensor | None = None
    guided_keys: Tensor | None = None


@dataclass
class RecurrentEncoderOutput(ModelOutput):
    """Output of the encoder of CapsNMT or RNMT. What is not named here is as in [`RoutedEncoderOutput`].

    Args:
        last_hidden_state: states of the tokens, `[batch, source, d]`.
        attention_keys: keys for the attention of RNMT, `[batch, source, d]`.
        sentence_state: W_c [c_1, ..., c_M], which the decoder reads at every step, `[batch, d]`.
        sentence_vectors: c_1, ..., c_M, `[batch, M, d]`.
        hidden_states: the embeddings and the output of each layer, `[batch, source, d]`.
    """

    # The fields that the decoder reads come first, so a tuple has them at fixed places.

    last_hidden_state: Tensor | None = None
    attention_keys: Tensor | None = None
    sentence_state: Tensor | None = None
    guided_votes: Tensor | None = None
    guided_keys: Tensor | None = None
    sentence_vectors: Tensor | None = None
    sentence_routing: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None


@dataclass
class RoutedDecoderOutput(BaseModelOutputWithPastAndCrossAttentions):
    """[`BaseModelOutputWithPastAndCrossAttentions`] with routing, as in [`RoutedSeq2SeqModelOutput`]."""

    layer_routing: Tensor | None = None
    head_routing: dict[str, Tensor] | None = None
    guided_routing: Tensor | None = None
    guided_states: Tensor | None = None
    guided_capsules: Tensor | None = None


@dataclass
class RoutedSeq2SeqModelOutput(Seq2SeqModelOutput):
    """[`Seq2SeqModelOutput`] with the assignment of every kind of routing that the model has.

    Args:
        encoder_layer_routing: encoder layers to output capsules, `[batch, source, L, N]`, or
            `[batch, source, iterations, L, N]` with `output_routing="all"`.
        decoder_layer_routing: decoder layers to output capsules, with target positions instead.
        source_layer_routing: embeddings and encoder layers to output capsules, for each decoder layer that reads them,
            `[batch, decoder layers, source, L + 1, N]`, or
            `[batch, decoder layers, source, iterations, L + 1, N]`.
        head_routing: attention heads to output capsules, by place such as "encoder_self.0" (site and layer),
            `[batch, positions, H, N]` or `[batch, positions, iterations, H, N]`.
        guided_routing: source positions to PAST, FUTURE and redundant capsules, `[batch, target, source, J]` or
            `[batch, target, iterations, source, J]`. The baselines have one column for each of the three groups.
        sentence_routing: source positions to sentence capsules, `[batch, source, M]` or
            `[batch, iterations, source, M]`.
        guided_states: z, the decoder's states that guide routing, `[batch, target, d]`, with
            `output_guided_capsules=True`.
        guided_capsules: PAST, then FUTURE capsules, `[batch, target, capsules, width]`, with the same argument.
    """

    encoder_layer_routing: Tensor | None = None
    decoder_layer_routing: Tensor | None = None
    source_layer_routing: Tensor | None = None
    head_routing: dict[str, Tensor] | None = None
    guided_routing: Tensor | None = None
    sentence_routing: Tensor | None = None
    guided_states: Tensor | None = None
    guided_capsules: Tensor | None = None


@dataclass
class RoutedSeq2SeqLMOutput(Seq2SeqLMOutput):
    """[`Seq2SeqLMOutput`] with the parts of the loss, and the routing as in [`RoutedSeq2SeqModelOutput`].

    Args:
        lm_loss: the label-smoothed cross entropy of the target tokens.
        bow_loss: the bag-of-words loss of guided routing.
        bca_loss: the bilingual content agreement loss of guided routing.
        rdrop_loss: the divergence between two passes (R-Drop). With it, neither part has a gradient.
    """

    lm_loss: Tensor | None = None
    bow_loss: Tensor | None = None
    bca_loss: Tensor | None = None
    rdrop_loss: Tensor | None = None
    encoder_layer_routing: Tensor | None = None
    decoder_layer_routing: Tensor | None = None
    source_layer_routing: Tensor | None = None
    head_routing: dict[str, Tensor] | None = None
    guided_routing: Tensor | None = None
    sentence_routing: Tensor | None = None
