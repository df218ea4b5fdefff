# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
"""Configuration of RNMT."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .shared_fields import GuidedRoutingFields, RecurrentConfig


@strict
class RNMTConfig(GuidedRoutingFields, RecurrentConfig):
    r"""
    Configuration of RNMT (Bahdanau et al. 2015): a bidirectional GRU encoder, and a conditional GRU decoder that
    attends to its states; with `sentence_aggregation`, the hybrid with CapsNMT (Wang et al. 2019), whose decoder also
    reads vectors of the whole sentence with every word; with `guided_routing`, that of Zheng et al. 2019, which the
    decoder's states guide. Source and target share one vocabulary.

    Args:
        vocab_size (`int`, *optional*, defaults to 32000):
            Words of source and target.
        d_model (`int`, *optional*, defaults to 512):
            Width of words, states, attention and readout; even, for each direction of the encoder has a half of it.
        encoder_layers (`int`, *optional*, defaults to 1):
            Bidirectional GRU layers, each of which reads the one below.
        dropout (`float`, *optional*, defaults to 0.3):
            Dropout of what every encoder layer reads, of what the decoder reads and of the readout, in [0, 1).
        sentence_aggregation (`str`, *optional*):
            Nothing by default; `"capsule"` or `"pooling"`: what the decoder also gets of the encoder, as in
            [`CapsNMTConfig`]. The fields below are those of `"capsule"`.
        num_sentence_capsules (`int`, *optional*, defaults to 6):
            Output capsules M, each of width `d_model`.
        routing_iterations (`int`, *optional*, defaults to 3):
            Iterations of the routing.
        position_aware_routing (`bool`, *optional*, defaults to `True`):
            Whether sinusoidal positions are added to the states and, where they are compared, to the output capsules.
        share_routing_weights (`bool`, *optional*, defaults to `False`):
            Whether one W_j (Wang et al. 2019, Eq. 8) serves all iterations; each has its own otherwise. One iteration
            does not read it.
        separable_scoring (`bool`, *optional*, defaults to `True`):
            Whether a network g compares states and capsules (Eq. 14), rather than the message itself (Eq. 12). One
            iteration does not read it.
        label_smoothing (`float`, *optional*, defaults to 0.0):
            Label smoothing of the model's own loss, in [0, 1).
        tie_word_embeddings (`bool`, *optional*, defaults to `True`):
            Whether encoder, decoder and output projection have one embedding; three of the same size otherwise.
        use_cache (`bool`, *optional*, defaults to `True`):
            Whether the model returns the state that decoding goes on from.

    The arguments of guided routing are those of [`GuidedRoutingFields`].
    """

    model_type = "rnmt"
    keys_to_ignore_at_inference = [  # noqa: RUF012 (a class attribute of PreTrainedConfig, not a field)
        *RecurrentConfig.keys_to_ignore_at_inference,
        "bow_loss",
        "bca_loss",
        "guided_routing",
    ]

    sentence_aggregation: Literal["capsule", "pooling"] | None = None

    @property
    def decoder_layers(self) -> int:
        """The layers of the decoder: always one."""
        return 1

    @decoder_layers.setter
    def decoder_layers(self, layers: int) -> None:
        if layers != 1:
            raise ValueError(f"decoder_layers is {layers}. The decoder of RNMT has one layer.")


__all__ = ["RNMTConfig"]
