"""The pieces of words that a model reads and writes, as a picture shows them."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data.tokenizer import is_byte_level, text_of_bytes

WORD_START = "▁"
"""Mark before a piece that begins a word, whatever the tokenizer: SentencePiece's own."""


def source_subwords(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> tuple[str, ...]:
    """Return the pieces of a source, special tokens included. [`WORD_START`] begins a word.

    A piece of bytes that are no whole character is shown with U+FFFD in their place.
    """
    if getattr(tokenizer, "separate_vocabs", False):
        # A MarianTokenizer of two vocabularies turns ids into tokens only by the target's.
        vocabulary = {index: piece for piece, index in tokenizer.encoder.items()}
        return tuple(vocabulary.get(index, tokenizer.unk_token) for index in ids)
    return target_subwords(tokenizer, ids)


def target_subwords(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> tuple[str, ...]:
    """Return the pieces of a target, as [`source_subwords`] does of a source."""
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    if not is_byte_level(tokenizer):
        return tuple(pieces)
    special = set(tokenizer.all_special_tokens)
    shown = []
    for piece in pieces:
        shown.append(piece if piece in special else _readable(piece))
    return tuple(shown)


def _readable(piece: str) -> str:
    """Return a piece of byte-level BPE as text, with the mark of a word in place of a space before it."""
    text = text_of_bytes(piece)
    if text.startswith(" "):
        return WORD_START + text[1:]
    return text
