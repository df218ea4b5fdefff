# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/configuration/recurrent.py.
"""Fields that the configurations of the recurrent families share."""

from typing import ClassVar

from transformers import PreTrainedConfig

from .configuration_checks import MOST, MOST_STEPS, check_choice, check_fraction, check_positive_integer
from .configuration_portable import PortableConfig

_OF_CAPSULES = (
    *("num_sentence_capsules", "routing_iterations", "position_aware_routing", "share_routing_weights"),
    "separable_scoring",
)
# What follows the last iteration has no effect: one compares nothing, and has one map.
_OF_SEVERAL_ITERATIONS = ("share_routing_weights", "separable_scoring")


class RecurrentConfig(PortableConfig, PreTrainedConfig):
    """Fields of a recurrent encoder-decoder with one width and one vocabulary; each family describes its own.

    Raises:
        ValueError: if a value is not allowed; the message names the field, the value and what is allowed.
    """

    sentence_aggregations: ClassVar[tuple[str | None, ...]] = ("capsule", "pooling")
    """Allowed values of `sentence_aggregation`."""
    positive_integers: ClassVar[tuple[str, ...]] = (
        "vocab_size",
        "d_model",
        "encoder_layers",
        "num_sentence_capsules",
        "routing_iterations",
    )
    """Fields that are integers of at least 1."""
    switches: ClassVar[tuple[str, ...]] = (
        "position_aware_routing",
        "share_routing_weights",
        "separable_scoring",
        "tie_word_embeddings",
        "use_cache",
    )
    """Fields that are True or False."""
    keys_to_ignore_at_inference = [  # noqa: RUF012 (a class attribute of PreTrainedConfig, not a field)
        "cache",
        "past_key_values",
        "lm_loss",
        "sentence_routing",
    ]
    attribute_map = {"hidden_size": "d_model", "num_hidden_layers": "encoder_layers"}  # noqa: RUF012 (as above)

    vocab_size: int = 32000
    d_model: int = 512
    encoder_layers: int = 1
    dropout: float | int = 0.3
    sentence_aggregation: str | None = "capsule"
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

    def check_fields(self) -> None:
        """Check the fields, as [`PortableConfig.check_fields`] does."""
        for name in self.positive_integers:
            most = MOST_STEPS if name.endswith(("_layers", "_iterations")) else MOST
            check_positive_integer(name, getattr(self, name), most)
        if self.d_model % 2:
            raise ValueError(f"d_model is {self.d_model}; allowed are even integers, half for each direction")
        check_choice("sentence_aggregation", self.sentence_aggregation, self.sentence_aggregations)
        for name in self.switches:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r:.80}; allowed are True and False")
        check_fraction("dropout", self.dropout)
        check_fraction("label_smoothing", self.label_smoothing)

    def unread_fields(self) -> set[str]:
        """Name the fields that no part of the model reads, as [`PortableConfig.unread_fields`] does."""
        if self.sentence_aggregation != "capsule":
            return set(_OF_CAPSULES)
        return set(_OF_SEVERAL_ITERATIONS) if self.routing_iterations == 1 else set()

    @property
    def num_sentence_vectors(self) -> int:
        """The vectors that a source sentence is aggregated to."""
        return {"capsule": self.num_sentence_capsules, "pooling": 4, None: 0}[self.sentence_aggregation]
