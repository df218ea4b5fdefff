# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/decoding/recurrent.py.
"""Parts that decoders of recurrent networks share."""

import torch
from torch import Tensor


def reordered(states: Tensor, parents: Tensor) -> Tensor:
    """Return the states `[sentences * beams, ...]` of the beams `parents` `[sentences, beams]` of every sentence."""
    sentences, beams = parents.shape
    starts = torch.arange(0, sentences * beams, beams, device=parents.device).unsqueeze(-1)
    return states.index_select(0, (parents + starts).flatten())
