# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/configuration/caps_nmt.py.
"""Configuration of CapsNMT."""

from typing import Any, ClassVar

from transformers import PreTrainedConfig

from .configuration_checks import check_choice, check_fraction, check_positive_integer
from .configuration_portable import PortableConfig

SENTENCE_AGGREGATIONS = ("capsule", "pooling")


class CapsNMTConfig(PortableConfig, PreTrainedConfig):
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
            Whether one W_j (Eq. 8) serves all iterations; each has its own otherwise.
        separable_scoring (`bool`, *optional*, defaults to `True`):
            Whether a network g compares states and capsules (Eq. 14), rather than the message itself (Eq. 12).
        label_smoothing (`float`, *optional*, defaults to 0.0):
            Label smoothing of the model's own loss, in [0, 1).
        tie_word_embeddings (`bool`, *optional*, defaults to `True`):
            Whether encoder, decoder and output projection have one embedding; three of the same size otherwise.
        use_cache (`bool`, *optional*, defaults to `True`):
            Whether the model returns the states that decoding goes on from.

    Raises:
        ValueError: if a value is not allowed; the message names the field, the value and what is allowed.
    """

    model_type = "caps_nmt"
    auto_classes: ClassVar[dict[str, str]] = {
        "AutoConfig": "configuration_caps_nmt.CapsNMTConfig",
        "AutoModel": "modeling_caps_nmt.CapsNMTModel",
        "AutoModelForSeq2SeqLM": "modeling_caps_nmt.CapsNMTForConditionalGeneration",
    }
    keys_to_ignore_at_inference = [  # noqa: RUF012 (a class attribute of PreTrainedConfig, not a field)
        "past_key_values",
        "lm_loss",
        "sentence_routing",
    ]
    attribute_map = {"hidden_size": "d_model", "num_hidden_layers": "encoder_layers"}  # noqa: RUF012 (as above)

    vocab_size: int = 32000
    d_model: int = 512
    encoder_layers: int = 4
    decoder_layers: int = 3
    dropout: float | int = 0.3
    sentence_aggregation: str = "capsule"
    num_sentence_capsules: int = 6
    routing_iterations: int = 3
    position_aware_routing: bool = True
    share_routing_weights: bool = False
    separable_scoring: bool = True
    label_smoothing: float | int = 0.0
    tie_word_embeddings: bool = True
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = 2
    forced_eos_token_id: int | list[int] | None = None
    decoder_start_token_id: int | None = 0

    def __post_init__(self, **kwargs: Any) -> None:
        sizes = ("vocab_size", "d_model", "encoder_layers", "decoder_layers")
        for name in (*sizes, "num_sentence_capsules", "routing_iterations"):
            check_positive_integer(name, getattr(self, name))
        if self.d_model % 2:
            raise ValueError(f"d_model is {self.d_model}; allowed are even integers, half for each direction")
        check_choice("sentence_aggregation", self.sentence_aggregation, SENTENCE_AGGREGATIONS)
        for name in ("position_aware_routing", "share_routing_weights", "separable_scoring"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}; allowed are True and False")
        check_fraction("dropout", self.dropout)
        check_fraction("label_smoothing", self.label_smoothing)
        super().__post_init__(**kwargs)

    @property
    def num_sentence_vectors(self) -> int:
        """The vectors that a source sentence is aggregated to."""
        return self.num_sentence_capsules if self.sentence_aggregation == "capsule" else 4


__all__ = ["CapsNMTConfig"]
