"""The pieces of words that a model reads and writes, as a picture shows them."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data.tokenizer import is_byte_level, text_of_bytes

END = "(end)"
"""Shown for the token that ends a sentence."""
_SPACE = "(space)"
_WORD_START = "▁"
"""SentencePiece's mark before a piece that begins a word."""


def source_subwords(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> tuple[str, ...]:
    """Return the pieces of a source, special tokens included, as a reader knows words.

    "-" stands before a piece that continues a word, and [`END`] for the end. A piece of bytes that are no whole
    character is shown with U+FFFD in their place.
    """
    if getattr(tokenizer, "separate_vocabs", False):
        # A MarianTokenizer of two vocabularies turns ids into tokens only by the target's.
        vocabulary = {index: piece for piece, index in tokenizer.encoder.items()}
        return _as_words(tokenizer, [vocabulary.get(index, tokenizer.unk_token) for index in ids])
    return target_subwords(tokenizer, ids)


def target_subwords(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> tuple[str, ...]:
    """Return the pieces of a target, as [`source_subwords`] does of a source."""
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    if is_byte_level(tokenizer):
        special = set(tokenizer.all_special_tokens)
        pieces = [piece if piece in special else _readable(piece) for piece in pieces]
    return _as_words(tokenizer, pieces)


def _readable(piece: str) -> str:
    """Return a piece of byte-level BPE as text, with the mark of a word in place of a space before it."""
    text = text_of_bytes(piece)
    if text.startswith(" "):
        return _WORD_START + text[1:]
    return text


def _as_words(tokenizer: PreTrainedTokenizerBase, pieces: Sequence[str]) -> tuple[str, ...]:
    """Return pieces without marks of tokenizers. Without any such mark, each piece is a word."""
    special = set(tokenizer.all_special_tokens)
    continues_word = False
    has_marks = any(piece.startswith(_WORD_START) for piece in pieces)
    words = []

    for piece in pieces:
        text = piece.removeprefix(_WORD_START)
        if piece == tokenizer.eos_token:
            words.append(END)
        elif piece == _WORD_START:
            words.append(_SPACE)
        elif continues_word and text == piece and _begins_with_letter(piece) and piece not in special:
            words.append(f"-{piece}")
        else:
            words.append(text)
        continues_word = has_marks and piece != _WORD_START
    return tuple(words)


def _begins_with_letter(piece: str) -> bool:
    """Return whether a piece begins with a letter, a digit, or a byte of one."""
    return piece[:1].isalnum() or piece.startswith("\ufffd")
