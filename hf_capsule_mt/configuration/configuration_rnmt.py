# Copyright 2026 The hf-capsule-mt authors.
"""Configuration of RNMT."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .shared_fields import GuidedRoutingFields, RecurrentConfig


@strict
class RNMTConfig(GuidedRoutingFields, RecurrentConfig):
    r"""
    Configuration of RNMT (Bahdanau et al. 2015): a bidirectional GRU encoder, and a conditional GRU decoder with
    attention to its states. With `sentence_aggregation` it is the hybrid of Wang et al. 2019, whose decoder also reads
    vectors of the whole sentence. With `guided_routing` it is the model of Zheng et al. 2019.

    Args:
        encoder_layers (`int`, *optional*, defaults to 1):
            Bidirectional GRU layers.
        sentence_aggregation (`str`, *optional*):
            `None` by default, or `"capsule"` or `"pooling"`, as in [`CapsNMTConfig`].

    All other arguments are those of [`RecurrentConfig`] and [`GuidedRoutingFields`].
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
