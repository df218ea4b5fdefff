"""The decoders of M2M-100, which NLLB-200 shares, and of mBART."""

import torch
from torch import Tensor
from transformers import M2M100ForConditionalGeneration, MBartForConditionalGeneration, PreTrainedModel

from hf_capsule_mt.modeling.modeling_capsule_aggregated_m2m_100 import CapsuleAggregatedM2M100ForConditionalGeneration
from hf_capsule_mt.modeling.streams import LayerStates

from ..products.products import norm
from .transformer import PreNormLayer, TransformerAdapter


class _PreNormAdapter(TransformerAdapter):
    """The layers, and the norm after the last of them."""

    def copy(self, model: PreTrainedModel) -> None:
        """Copy the decoder's weights."""
        decoder = model.model.decoder
        self.scale: float = decoder.embed_tokens.embed_scale
        self.layers = [PreNormLayer(layer, self.make) for layer in decoder.layers]
        self.copy_routing(model)
        self.last_norm = norm(decoder.layer_norm)

    def finish(self, states: LayerStates) -> Tensor:
        """Normalise the output of the last layer, or the aggregation of all, `[rows, d]`."""
        return self.last_norm(super().finish(states))


class M2M100Adapter(_PreNormAdapter):
    """A copy of the decoder of M2M-100 or NLLB-200, or of one of the family of this package."""

    models = (M2M100ForConditionalGeneration, CapsuleAggregatedM2M100ForConditionalGeneration)
    models_in_half = (M2M100ForConditionalGeneration,)
    # Without a cache Transformers does not count padding that the model has written as a position.
    needs_cache = True

    def copy(self, model: M2M100ForConditionalGeneration) -> None:
        """Copy the decoder's weights."""
        super().copy(model)
        embed_positions = model.model.decoder.embed_positions
        self.padding: int = embed_positions.padding_idx
        # The first token has the row after that of padding. Transformers adds rows when a translation needs them.
        rows = self.padding + 1 + model.config.max_position_embeddings
        positions = embed_positions.weights.detach().float()
        if len(positions) < rows:
            made = embed_positions.get_embedding(rows, embed_positions.embedding_dim, self.padding)
            positions = made.to(positions)
        self.positions = positions

    def embed(self, tokens: Tensor, position: int | Tensor) -> Tensor:
        """Return the embeddings `[rows, d]` of tokens `[rows]` with that of their position.

        A model can write padding, whose position has the row of padding.
        """
        row = position + self.padding + 1
        rows = torch.where(tokens == self.padding, self.padding, row)
        embedded = self.embedded(tokens)
        return torch.add(self.positions[rows], embedded, alpha=self.scale)


class MBartAdapter(_PreNormAdapter):
    """A copy of the decoder of mBART or mBART-50."""

    models = models_in_half = (MBartForConditionalGeneration,)

    def copy(self, model: MBartForConditionalGeneration) -> None:
        """Copy the decoder's weights."""
        super().copy(model)
        decoder = model.model.decoder
        self.positions = decoder.embed_positions.weight.detach()[decoder.embed_positions.offset :].float()
        self.first_norm = norm(decoder.layernorm_embedding)

    def embed(self, tokens: Tensor, position: int | Tensor) -> Tensor:
        """Return the normalised embeddings `[rows, d]` of tokens `[rows]` with that of their position."""
        embedded = self.embedded(tokens)
        return self.first_norm(torch.add(self.positions[position], embedded, alpha=self.scale))
