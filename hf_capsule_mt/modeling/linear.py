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
