"""Marian's decoder, also with what this package puts into it."""

import torch
from torch import Tensor
from transformers import MarianMTModel

from ..modeling.modeling_capsule_aggregated_marian import CapsuleAggregatedMarianForConditionalGeneration
from .transformer_decoding import DecoderLayer, TransformerAdapter, TransformerDecoding


class PostNormLayer(DecoderLayer):
    """A layer that normalises the sum of what goes into a part and what comes out of it."""

    def __call__(
        self, hidden: Tensor, sentences: TransformerDecoding, index: int, target_mask: Tensor | None
    ) -> Tensor:
        """Go through the layer."""
        attended = self.attend_to_target(hidden, sentences.targets, index, target_mask)
        hidden = self.target_norm(attended.add_(hidden))
        attended = self.attend_to_source(hidden, *sentences.source[index], sentences.source_mask)
        hidden = self.source_norm(attended.add_(hidden))
        return self.network_norm(self.feed_forward(hidden).add_(hidden))


class MarianAdapter(TransformerAdapter):
    """A copy of the decoder of a Marian model, or of one of the family of this package."""

    models = (MarianMTModel, CapsuleAggregatedMarianForConditionalGeneration)
    models_in_half = (MarianMTModel,)

    def copy(self, model: MarianMTModel) -> None:
        """Copy the decoder's weights."""
        decoder = model.model.decoder
        self.scale: float = decoder.embed_scale
        self.positions = decoder.embed_positions.weight.detach().float()
        self.layers = [PostNormLayer(layer, self.make) for layer in decoder.layers]
        self.copy_routing(model)

    def embed(self, tokens: Tensor, position: int | Tensor) -> Tensor:
        """Return the embeddings `[rows, d]` of tokens `[rows]` with that of their position."""
        embedded = self.embedded(tokens)
        if isinstance(position, Tensor):
            position = position.clamp(max=len(self.positions) - 1)
        return torch.add(self.positions[position], embedded, alpha=self.scale)
