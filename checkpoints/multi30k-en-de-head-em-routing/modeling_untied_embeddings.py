# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/modeling/untied_embeddings.py.
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
