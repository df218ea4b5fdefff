"""The base of the adapters of all families, with guided routing."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from hf_capsule_mt.modeling.guided_routing import GuidedRouting, GuidedVotes
from hf_capsule_mt.modeling.word_masks import word_mask

from ..fingerprint import UnsupportedModelError, check_plain
from ..products.products import HALVES, Make, in_float32, with_products
from ..products.shortlist import ShortlistVocabulary
from ..products.vocabulary import Vocabulary


class Decoding(ABC):
    """Sentences that a model is decoding, with the same number of beams each.

    If several steps are reserved, all of them do the same operations, in place.

    Args:
        adapter: has the weights.
        encoded: the encoder's output for the sentences.
        mask: `[sentences, source]`, 1 where there is a token. None means everywhere.
        num_beams: the number of beams of every sentence.
    """

    def __init__(self, adapter: "Adapter", encoded: ModelOutput, mask: Tensor | None, num_beams: int) -> None:
        self.adapter = adapter
        self.num_beams = num_beams
        self.routed: tuple[Tensor | None, ...] | None = None
        """Inputs of guided routing, the same for all beams: votes of the encoder's states, keys and mask."""
        if adapter.guide is not None:
            self.routing, votes = adapter.guide
            mask = word_mask(mask, encoded.last_hidden_state)
            self.routed = (*votes.of(encoded, mask), mask)

    def reserve(self, steps: int, left: int) -> None:  # noqa: B027 - some families need no room.
        """Make room for so many steps, of those that are left until all sentences are at their limits.

        They are done before any other method than `reorder` is called.
        """

    @abstractmethod
    def step(self, tokens: Tensor) -> Tensor:
        """Read the next tokens `[sentences, beams]`, and return the decoder's states `[sentences * beams, d]`."""

    @abstractmethod
    def reorder(self, parents: Tensor) -> None:
        """Let beam b of a sentence continue beam `parents[sentence, b]`."""

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Keep only some sentences.

        Args:
            rows: for each place that is left, the row that comes to it, `[places]`.
            moved: the places that get another row than they had, `[moved places]`.
        """
        if self.routed is not None:
            kept = []
            for part in self.routed:
                kept.append(None if part is None else part[rows])
            self.routed = tuple(kept)

    def guide(self, states: Tensor) -> Tensor:
        """Return the states `[sentences * beams, d]` after guided routing, if there is any."""
        if self.routed is None:
            return states
        of_sentences = states.unflatten(0, (-1, self.num_beams))
        return self.routing(of_sentences, *self.routed).states.flatten(0, 1)


class Adapter(ABC):
    """A copy of the decoder of a model with a language model head.

    Args:
        model: its `base_model` has the encoder in `encoder`, and the decoder in `decoder`.
        make: makes the products.

    Raises:
        UnsupportedModelError: if a module is not what its class says.
    """

    models: ClassVar[tuple[type[PreTrainedModel], ...]]
    """The classes of the models that it knows."""
    models_in_half: ClassVar[tuple[type[PreTrainedModel], ...]] = ()
    """Those of them whose weights may have 16 bits."""
    decoding: ClassVar[type[Decoding]]
    """The class of the sentences that it decodes."""
    needs_cache: ClassVar[bool] = False
    """Whether `generate()` without a cache may write other tokens."""

    def __init__(self, model: PreTrainedModel, make: Make) -> None:
        body = model.base_model
        check_plain(model, body, model.lm_head, *body.decoder.modules())
        self.encoder = body.encoder
        self.is_half = model.dtype in HALVES
        self.make = make
        self.embeddings = body.decoder.embed_tokens.weight.detach()
        self.guide: tuple[GuidedRouting, GuidedVotes] | None = None
        self._output_weight = model.lm_head.weight.detach()
        self._output_bias = self.bias_of(model)
        self.vocabulary = Vocabulary(model.lm_head.weight, self._output_bias, make)
        self.copy(model)

    def bias_of(self, model: PreTrainedModel) -> Tensor | None:
        """Return the bias of the language model head, `[vocabulary]`, or None."""
        return model.lm_head.bias

    def vocabulary_of(self, token_ids: Sequence[int]) -> ShortlistVocabulary:
        """Return the output projection of some tokens, which are in ascending order."""
        tokens = torch.tensor(token_ids, device=self._output_weight.device)
        bias = None if self._output_bias is None else self._output_bias.detach()[tokens]
        part = Vocabulary(self._output_weight[tokens], bias, self.make)
        return ShortlistVocabulary(self.vocabulary, part, tokens)

    def fast_encoder(self) -> nn.Module:
        """Return a copy of the encoder that multiplies as the engine does.

        An encoder with hooks or LoRA adapters, whose settings may change, is returned itself.
        """
        try:
            check_plain(*self.encoder.modules())
        except UnsupportedModelError:
            return self.encoder
        copied = with_products(self.encoder, self.make)
        return in_float32(copied) if self.is_half else copied

    def embedded(self, tokens: Tensor) -> Tensor:
        """Return the embeddings of tokens `[...]` in float32, `[..., d]`."""
        return F.embedding(tokens, self.embeddings).float()

    @abstractmethod
    def copy(self, model: PreTrainedModel) -> None:
        """Copy the decoder's weights."""
