"""What the adapters of all families share: a base class, and guided routing."""

from typing import ClassVar, Protocol

from torch import Tensor
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from ..modeling.guided_routing import GuidedRouting, GuidedVotes
from ..modeling.routing import word_mask
from .decoder_weights import check_plain, with_products
from .precisions import Make
from .vocabulary import Vocabulary


class Decoding(Protocol):
    """Sentences that a model is decoding, with the same number of beams each.

    Between two calls of the other methods every step is the same operations, if several are reserved: they change
    tensors where they are.
    """

    def reserve(self, steps: int, left: int) -> None:
        """Make room for as many steps, all of which are made before any other method but `reorder` is called.

        So many are left until all these sentences are at their limits.
        """

    def step(self, words: Tensor) -> Tensor:
        """Read the next tokens `[sentences, beams]`; return what predicts those after, `[sentences * beams, d]`."""

    def reorder(self, parents: Tensor) -> None:
        """Let beam b of a sentence go on from beam `parents[sentence, b]`."""

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Go on with the sentences `rows`. Those at the places `moved` stood elsewhere before."""


class Adapter:
    """A copy of a model's decoder.

    Args:
        model: with a language model head.
        make: makes its products.

    Raises:
        UnsupportedModelError: if a module is not what its class says.
    """

    models: ClassVar[tuple[type[PreTrainedModel], ...]]
    """The classes of the models that it knows."""

    def __init__(self, model: PreTrainedModel, make: Make) -> None:
        body = model.model
        check_plain(model, body, model.lm_head, *body.decoder.modules())
        self.encoder, self.make = body.encoder, make
        self.words = body.decoder.embed_tokens.weight.detach()
        self.guide: Guide | None = None
        self.vocabulary = Vocabulary(model.lm_head.weight, self.bias_of(model), make)
        self.copy(model)

    def bias_of(self, model: PreTrainedModel) -> Tensor | None:
        """Return the bias of the language model head, `[vocabulary]`."""
        return model.lm_head.bias

    def copy(self, model: PreTrainedModel) -> None:
        """Copy the decoder's weights."""
        raise NotImplementedError

    def begin(self, encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> Decoding:
        """Return the decoding of sentences `[sentences, source]` from its start.

        Raises:
            ValueError: if `encoded` is not what the encoder of this model returns.
        """
        raise NotImplementedError


class Guide:
    """The guided routing of a model. The beams of a sentence are positions that read the same votes.

    Args:
        routing: of the decoder's states.
        votes: of the encoder's states.
        make: makes the products of the routing.
    """

    def __init__(self, routing: GuidedRouting, votes: GuidedVotes, make: Make) -> None:
        check_plain(*routing.modules())
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
