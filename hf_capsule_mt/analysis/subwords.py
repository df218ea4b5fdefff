"""The subword tokens that a model reads and writes, as people read them."""

from collections.abc import Sequence

from tokenizers.decoders import ByteLevel
from transformers import PreTrainedTokenizerBase

WORD_START = "▁"
"""Mark before a piece that begins a word, whatever the tokenizer: SentencePiece's own."""


def source_subwords(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> tuple[str, ...]:
    """Return the pieces of a source, special tokens included; those that begin a word begin with [`WORD_START`].

    A piece of bytes that are no whole character is shown with U+FFFD in their place.
    """
    if getattr(tokenizer, "separate_vocabs", False):
        # A MarianTokenizer of two vocabularies turns ids to tokens by the target's alone.
        vocabulary = {index: piece for piece, index in tokenizer.encoder.items()}
        return tuple(vocabulary.get(index, tokenizer.unk_token) for index in ids)
    return target_subwords(tokenizer, ids)


def target_subwords(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> tuple[str, ...]:
    """Return the pieces of a target, as [`source_subwords`] does of a source."""
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    backend = getattr(tokenizer, "backend_tokenizer", None)
    # By name, for a decoder may be a sequence of several.
    if backend is None or "ByteLevel" not in repr(backend.decoder):
        return tuple(pieces)
    special = set(tokenizer.all_special_tokens)
    return tuple(piece if piece in special else _of_bytes(piece) for piece in pieces)


def _of_bytes(piece: str) -> str:
    text = ByteLevel().decode([piece])
    return WORD_START + text[1:] if text.startswith(" ") else text
