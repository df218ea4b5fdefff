# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/configuration/guided_routing.py.
"""The fields of guided routing, which every family that has a decoder with states can take up."""

from dataclasses import dataclass, fields

from .configuration_checks import MOST, MOST_STEPS, check_choice, check_not_negative, check_positive_integer

GUIDED_ROUTINGS = ("gdr", "classifier", "attention")


@dataclass(kw_only=True, init=False, repr=False, eq=False)
class GuidedRoutingFields:
    r"""
    For a [`PreTrainedConfig`]: PAST and FUTURE capsules (Zheng et al. 2019). They are on top of the decoder, whose
    states guide how the source words are assigned to them.

    Args:
        guided_routing (`str`, *optional*):
            How source words are told apart: `None` (not at all), `"gdr"` (guided dynamic routing, Algorithm 1), or one
            of the baselines of Fig. 6: a `"classifier"` of every word, or an `"attention"` each to PAST and FUTURE.
        num_past_capsules (`int`, *optional*, defaults to 2):
            Capsules of what is translated already.
        num_future_capsules (`int`, *optional*, defaults to 2):
            Capsules of what is not.
        num_redundant_capsules (`int`, *optional*, defaults to 2):
            Capsules of what is neither, which are routed to and then dropped; 0 for none. The classifier has one class
            for them, if there are any, and attention no use.
        guided_capsule_dim (`int`, *optional*, defaults to 256):
            Width of one capsule.
        guided_routing_iterations (`int`, *optional*, defaults to 3):
            Iterations of guided dynamic routing; in the first the decoder's state guides nothing.
        bow_loss_weight (`float`, *optional*, defaults to 1.0):
            Weight of the bag-of-words loss; with 0 the model is made without what only that loss needs.
        bca_loss_weight (`float`, *optional*, defaults to 1.0):
            Weight of the loss of bilingual content agreement; with 0 as above.
    """

    guided_routing: str | None = None
    num_past_capsules: int = 2
    num_future_capsules: int = 2
    num_redundant_capsules: int = 2
    guided_capsule_dim: int = 256
    guided_routing_iterations: int = 3
    bow_loss_weight: float | int = 1.0
    bca_loss_weight: float | int = 1.0

    def _unread_guided_fields(self) -> set[str]:
        if self.guided_routing is None:
            return {field.name for field in fields(GuidedRoutingFields)} - {"guided_routing"}
        unread = set() if self.guided_routing == "gdr" else {"guided_routing_iterations"}
        return unread | ({"num_redundant_capsules"} if self.guided_routing == "attention" else set())

    def _validate_guided_routing(self) -> None:
        check_choice("guided_routing", self.guided_routing, (None, *GUIDED_ROUTINGS))
        for name in ("num_past_capsules", "num_future_capsules", "guided_capsule_dim"):
            check_positive_integer(name, getattr(self, name))
        check_positive_integer("guided_routing_iterations", self.guided_routing_iterations, MOST_STEPS)
        redundant = self.num_redundant_capsules
        if not isinstance(redundant, int) or isinstance(redundant, bool) or not 0 <= redundant <= MOST:
            raise ValueError(f"num_redundant_capsules is {redundant!r:.80}; allowed are integers of at least 0")
        for name in ("bow_loss_weight", "bca_loss_weight"):
            check_not_negative(name, getattr(self, name))
