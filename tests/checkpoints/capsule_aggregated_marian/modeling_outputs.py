# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/outputs.py.
"""Model outputs: Transformers' own, with the routing and the parts of the loss."""

from dataclasses import dataclass

from torch import Tensor
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPastAndCrossAttentions,
    Seq2SeqLMOutput,
    Seq2SeqModelOutput,
    SequenceClassifierOutput,
)


@dataclass
class RoutedEncoderOutput(BaseModelOutput):
    """[`BaseModelOutput`] with routing, as in [`RoutedSeq2SeqModelOutput`]."""

    layer_routing: Tensor | None = None
    head_routing: dict[str, Tensor] | None = None


@dataclass
class RoutedDecoderOutput(BaseModelOutputWithPastAndCrossAttentions):
    """[`BaseModelOutputWithPastAndCrossAttentions`] with routing, as in [`RoutedSeq2SeqModelOutput`]."""

    layer_routing: Tensor | None = None
    head_routing: dict[str, Tensor] | None = None


@dataclass
class RoutedSeq2SeqModelOutput(Seq2SeqModelOutput):
    """[`Seq2SeqModelOutput`] with the assignment of every kind of routing that the model has.

    Args:
        encoder_layer_routing: of encoder layers to output capsules, `[batch, source, L, N]`, or
            `[batch, source, iterations, L, N]` with `output_routing="all"`.
        decoder_layer_routing: of decoder layers to output capsules, the same with target positions.
        head_routing: of attention heads to output capsules: by place, as "encoder_self.0" (site and layer),
            `[batch, positions, H, N]`, or `[batch, positions, iterations, H, N]`.
        guided_routing: of source positions to PAST, FUTURE and redundant capsules.
        sentence_routing: of source positions to sentence capsules.
    """

    encoder_layer_routing: Tensor | None = None
    decoder_layer_routing: Tensor | None = None
    head_routing: dict[str, Tensor] | None = None
    guided_routing: Tensor | None = None
    sentence_routing: Tensor | None = None


@dataclass
class RoutedSeq2SeqLMOutput(Seq2SeqLMOutput):
    """[`Seq2SeqLMOutput`] with the parts of the loss, and the routing as in [`RoutedSeq2SeqModelOutput`].

    Args:
        lm_loss: the (label-smoothed) cross entropy of the target words.
        bow_loss: the bag-of-words loss of guided routing.
        bca_loss: the bilingual content agreement loss of guided routing.
    """

    lm_loss: Tensor | None = None
    bow_loss: Tensor | None = None
    bca_loss: Tensor | None = None
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
