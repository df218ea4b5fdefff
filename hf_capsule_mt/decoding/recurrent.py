"""Parts that decoders of recurrent networks share."""

import torch
from torch import Tensor


def reordered(states: Tensor, parents: Tensor) -> Tensor:
    """Return the states `[sentences * beams, ...]` of the beams `parents` `[sentences, beams]` of every sentence."""
    sentences, beams = parents.shape
    starts = torch.arange(0, sentences * beams, beams, device=parents.device).unsqueeze(-1)
    return states.index_select(0, (parents + starts).flatten())
