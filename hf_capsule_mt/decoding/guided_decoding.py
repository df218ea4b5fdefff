"""Guided routing while decoding: the beams of a sentence are positions that read the same votes."""

from torch import Tensor
from transformers.utils import ModelOutput

from ..modeling.guided_routing import GuidedRouting, GuidedVotes
from ..modeling.routing import word_mask
from .decoder_weights import check_plain, with_products
from .precisions import Make
from .rows import masks_together, together


class Guide:
    """The guided routing of a model.

    Args:
        routing: of the decoder's states.
        votes: of the encoder's states.
        make: makes the products of the routing.
    """

    def __init__(self, routing: GuidedRouting, votes: GuidedVotes, make: Make) -> None:
        check_plain(routing, kind=GuidedRouting)
        self.routing, self.votes = with_products(routing, make), votes

    def begin(self, encoded: ModelOutput, mask: Tensor | None) -> "GuidedDecoding":
        """Return what routes for sentences by the output of their encoder and their mask `[sentences, source]`."""
        mask = word_mask(mask, encoded.last_hidden_state)
        return GuidedDecoding(self.routing, *self.votes.of(encoded, mask), mask)


class GuidedDecoding:
    """The votes of sentences that are being decoded."""

    def __init__(self, routing: GuidedRouting, votes: Tensor, keys: Tensor, mask: Tensor | None) -> None:
        self.routing, self.votes, self.keys, self.mask = routing, votes, keys, mask

    def route(self, states: Tensor) -> Tensor:
        """Return o `[sentences, beams, d]` of the decoder's states z."""
        return self.routing(states, self.votes, self.keys, self.mask).states

    def select(self, rows: Tensor) -> None:
        """Go on with the sentences `rows`."""
        self.votes, self.keys = self.votes[rows], self.keys[rows]
        self.mask = None if self.mask is None else self.mask[rows]

    def admit(self, new: "GuidedDecoding") -> None:
        """Go on with the sentences of `new` too."""
        shapes = tuple((len(votes), votes.shape[2]) for votes in (self.votes, new.votes))
        self.mask, words = masks_together(self.mask, new.mask, shapes)
        self.votes, self.keys = together(self.votes, new.votes, 2, words), together(self.keys, new.keys, 2, words)
