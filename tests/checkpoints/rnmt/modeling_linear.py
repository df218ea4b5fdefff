# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/linear.py.
"""Linear maps that know how their weights start."""

from torch import nn
from transformers import initialization as init


class UnitGainLinear(nn.Linear):
    """A linear map whose outputs start as large as its inputs."""

    def init_weights(self) -> None:
        """Draw the weights and zero the bias, unless they were loaded."""
        init.normal_(self.weight, mean=0.0, std=self.in_features**-0.5)
        if self.bias is not None:
            init.zeros_(self.bias)


class GateLinear(nn.Linear):
    """What the gates of a recurrent network get of a vector; it starts as Transformers starts a recurrent network."""

    def init_weights(self) -> None:
        """Draw the weights and zero the bias, unless they were loaded."""
        init.xavier_uniform_(self.weight)
        init.zeros_(self.bias)
