"""Model outputs: those of Transformers, with the routing and the parts of the loss."""

from dataclasses import dataclass, fields
from typing import Literal

from torch import Tensor, nn
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
    SequenceClassifierOutput,
)
from transformers.utils import ModelOutput
from transformers.utils.deprecation import deprecate_kwarg
from transformers.utils.output_capturing import OutputRecorder

CACHE = "cache" if "cache" in Seq2SeqLMOutput.__dataclass_fields__ else "past_key_values"
"""What the installed Transformers calls it, in the arguments of models and in their outputs."""

# Deprecated where Transformers has it so; there is no warning of what was removed before the installed version.
under_both_names = deprecate_kwarg("past_key_values", "5.40.0" if CACHE == "cache" else "5.0.0", new_name="cache")
"""Decorator of a method that has an argument `cache`: it may be called with `past_key_values` too."""


# Since Transformers 5.24, where hidden states can be asked for by numbers, from behind too.
_COUNTED_BY = {"num_hidden_layers_key": "decoder_layers"}
_KNOWN = {field.name for field in fields(OutputRecorder)}


def decoder_layers(kind: type[nn.Module]) -> OutputRecorder:
    """Return the recorder of a decoder's layers of a `kind`, which may be more or fewer than the encoder's."""
    return OutputRecorder(kind, **{name: value for name, value in _COUNTED_BY.items() if name in _KNOWN})


OutputRouting = bool | Literal["all"]
"""Whether a forward pass returns assignments: no, those of the last iteration, or those of every iteration."""


@dataclass
class RoutedEncoderOutput(BaseModelOutput):
    """[`BaseModelOutput`] with routing, as in [`RoutedSeq2SeqModelOutput`], and what guided routing reads.

    Args:
        guided_votes: `[batch, capsules, source, width]`.
        guided_keys: `[batch, 1 or 2 or capsules, source, width]`.
    """

    layer_routing: Tensor | None = None
    head_routing: dict[str, Tensor] | None = None
    guided_votes: Tensor | None = None
    guided_keys: Tensor | None = None


@dataclass
class RecurrentEncoderOutput(ModelOutput):
    """Output of the encoder of CapsNMT or RNMT.

    Args:
        last_hidden_state: states of the tokens, `[batch, source, d]`.
        attention_keys: keys for the attention of RNMT, `[batch, source, d]`.
        sentence_state: W_c [c_1, ..., c_M], which the decoder reads at every step, `[batch, d]`.
        guided_votes: as in [`RoutedEncoderOutput`], with `guided_keys`.
        sentence_vectors: c_1, ..., c_M, `[batch, M, d]`.
        sentence_routing: as in [`RoutedSeq2SeqModelOutput`].
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
        encoder_layer_routing: of encoder layers to output capsules, `[batch, source, L, N]`, or
            `[batch, source, iterations, L, N]` with `output_routing="all"`.
        decoder_layer_routing: of decoder layers to output capsules, the same with target positions.
        head_routing: of attention heads to output capsules: by place, as "encoder_self.0" (site and layer),
            `[batch, positions, H, N]`, or `[batch, positions, iterations, H, N]`.
        guided_routing: of source positions to PAST, then FUTURE, then redundant capsules (with the baselines, to each
            of these as a whole), `[batch, target, source, J]`, or `[batch, target, iterations, source, J]`.
        sentence_routing: of source positions to sentence capsules, `[batch, source, M]`, or
            `[batch, iterations, source, M]` with `output_routing="all"`.
        guided_states: z, the decoder's states that guided routing, `[batch, target, d]`, with
            `output_guided_capsules=True`.
        guided_capsules: PAST, then FUTURE capsules, `[batch, target, capsules, width]`, likewise.
    """

    encoder_layer_routing: Tensor | None = None
    decoder_layer_routing: Tensor | None = None
    head_routing: dict[str, Tensor] | None = None
    guided_routing: Tensor | None = None
    sentence_routing: Tensor | None = None
    guided_states: Tensor | None = None
    guided_capsules: Tensor | None = None


@dataclass
class RoutedSeq2SeqLMOutput(Seq2SeqLMOutput):
    """[`Seq2SeqLMOutput`] with the parts of the loss, and the routing as in [`RoutedSeq2SeqModelOutput`].

    Args:
        lm_loss: the (label-smoothed) cross entropy of the target words.
        bow_loss: the bag-of-words loss of guided routing.
        bca_loss: the bilingual content agreement loss of guided routing.
        rdrop_loss: the divergence between two passes (R-Drop). It, and `lm_loss` beside it, have no gradient.
    """

    lm_loss: Tensor | None = None
    bow_loss: Tensor | None = None
    bca_loss: Tensor | None = None
    rdrop_loss: Tensor | None = None
    encoder_layer_routing: Tensor | None = None
    decoder_layer_routing: Tensor | None = None
    head_routing: dict[str, Tensor] | None = None
    guided_routing: Tensor | None = None
    sentence_routing: Tensor | None = None


@dataclass
class RoutedSequenceClassifierOutput(SequenceClassifierOutput):
    """[`SequenceClassifierOutput`] with the encoder's routing, as in [`RoutedSeq2SeqModelOutput`]."""

    encoder_layer_routing: Tensor | None = None
    head_routing: dict[str, Tensor] | None = None
