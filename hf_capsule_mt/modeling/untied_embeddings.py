"""The words of an encoder-decoder whose target may have an embedding of its own."""

from typing import Any

from torch import nn


class UntiedEmbeddings:
    """For a model with encoder and decoder: Transformers resizes one embedding, and the output projection."""

    def _resize_token_embeddings(self, new_num_tokens: int | None, *args: Any, **kwargs: Any) -> nn.Module:
        embeddings = super()._resize_token_embeddings(new_num_tokens, *args, **kwargs)
        config, decoder = self.config, self.get_decoder()
        if not getattr(config, "share_encoder_decoder_embeddings", True):
            # With a vocabulary of its own the target is resized by itself.
            return embeddings
        if not config.tie_word_embeddings:
            decoder.embed_tokens = self._get_resized_embeddings(decoder.embed_tokens, new_num_tokens, *args, **kwargs)
        if hasattr(config, "decoder_vocab_size"):
            config.decoder_vocab_size = embeddings.weight.shape[0]
        return embeddings
