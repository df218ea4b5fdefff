# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
"""Configuration of CapsNMT."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .shared_fields import RecurrentConfig


@strict
class CapsNMTConfig(RecurrentConfig):
    r"""
    Configuration of CapsNMT (Wang et al. 2019): a bidirectional LSTM encoder, whose states are aggregated to a fixed
    number of vectors, and an LSTM decoder that reads these. Source and target share one vocabulary.

    Args:
        vocab_size (`int`, *optional*, defaults to 32000):
            Words of source and target.
        d_model (`int`, *optional*, defaults to 512):
            Width of words, states and capsules; even, for each direction of the encoder has a half of it.
        encoder_layers (`int`, *optional*, defaults to 4):
            Bidirectional LSTM layers.
        decoder_layers (`int`, *optional*, defaults to 3):
            LSTM layers.
        dropout (`float`, *optional*, defaults to 0.3):
            Dropout of what the first layer reads and of every layer's output before the residual connection, in [0, 1).
        sentence_aggregation (`str`, *optional*, defaults to `"capsule"`):
            What the decoder reads of the encoder: `"capsule"`, the output capsules of dynamic routing (Eq. 7-13), or
            `"pooling"`, the largest, mean, first and last state (Eq. 2-4). The fields below are those of `"capsule"`.
        num_sentence_capsules (`int`, *optional*, defaults to 6):
            Output capsules M, each of width `d_model`.
        routing_iterations (`int`, *optional*, defaults to 3):
            Iterations of the routing.
        position_aware_routing (`bool`, *optional*, defaults to `True`):
            Whether sinusoidal positions are added to the states and, where they are compared, to the output capsules.
        share_routing_weights (`bool`, *optional*, defaults to `False`):
            Whether one W_j (Eq. 8) serves all iterations; each has its own otherwise. One iteration does not
            read it.
        separable_scoring (`bool`, *optional*, defaults to `True`):
            Whether a network g compares states and capsules (Eq. 14), rather than the message itself (Eq. 12). One
            iteration does not read it.
        label_smoothing (`float`, *optional*, defaults to 0.0):
            Label smoothing of the model's own loss, in [0, 1).
        tie_word_embeddings (`bool`, *optional*, defaults to `True`):
            Whether encoder, decoder and output projection have one embedding; three of the same size otherwise.
        use_cache (`bool`, *optional*, defaults to `True`):
            Whether the model returns the states that decoding goes on from.
    """

    model_type = "caps_nmt"

    encoder_layers: int = 4
    decoder_layers: int = 3
    sentence_aggregation: Literal["capsule", "pooling"] = "capsule"


__all__ = ["CapsNMTConfig"]
