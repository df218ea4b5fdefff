"""Parallel text, tokenizers, tokenised pairs and batches of a token budget."""
