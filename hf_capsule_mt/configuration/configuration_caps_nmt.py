# Copyright 2026 The hf-capsule-mt authors.
"""Configuration of CapsNMT."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .shared_fields import RecurrentConfig, check_smallest


@strict
class CapsNMTConfig(RecurrentConfig):
    r"""
    Configuration of CapsNMT (Wang et al. 2019). A bidirectional LSTM encoder makes a fixed number of vectors, and an
    LSTM decoder reads them.

    Args:
        encoder_layers (`int`, *optional*, defaults to 4):
            Bidirectional LSTM layers.
        decoder_layers (`int`, *optional*, defaults to 3):
            LSTM layers.

    All other arguments are those of [`RecurrentConfig`].
    """

    model_type = "caps_nmt"

    encoder_layers: int = 4
    decoder_layers: int = 3
    sentence_aggregation: Literal["capsule", "pooling"] = "capsule"

    def validate_decoder(self) -> None:
        """Refuse a decoder without layers."""
        check_smallest(self, 1, ("decoder_layers",))
