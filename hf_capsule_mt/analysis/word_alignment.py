"""Alignment of target words with source words, in pieces of words: `[batch, target, source]` bool."""

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers.decoders import ByteLevel
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data.parallel_text import read_lines
from hf_capsule_mt.translation.attention import attended_positions

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
    backend = getattr(tokenizer, "backend_tokenizer", None)
    # By name, for a decoder may be a sequence of several.
    if backend is None or "ByteLevel" not in repr(backend.decoder):
        return tuple(pieces)
    special = set(tokenizer.all_special_tokens)
    texts = (piece if piece in special else ByteLevel().decode([piece]) for piece in pieces)
    return tuple(WORD_START + text[1:] if text.startswith(" ") else text for text in texts)


Links = frozenset[tuple[int, int]]
"""The (source, target) words that translate each other, from 0 on."""


def attended_words(
    cross_attentions: Sequence[Tensor], source_mask: Tensor, target_mask: Tensor, layer: int | None = None
) -> Tensor:
    """Align every target word with the source word that it attends to most, at the step that writes it.

    The ends of the sentences are aligned with nothing, nor is a word that attends to the end of the source.

    Args:
        cross_attentions: of each decoder layer, `[batch, heads, target, source]`.
        source_mask: `[batch, source]` bool, True where there is a word. The last one ends the sentence.
        target_mask: `[batch, target]` bool.
        layer: see [`attended_positions`].
    """
    attended = attended_positions(cross_attentions, source_mask, layer)
    aligned = torch.nn.functional.one_hot(attended, source_mask.shape[1]).bool()
    return aligned & _before_end(target_mask)[:, :, None] & _before_end(source_mask)[:, None]


def _before_end(mask: Tensor) -> Tensor:
    places = torch.arange(mask.shape[1], device=mask.device)
    return places < mask.sum(1, keepdim=True) - 1


def read_alignments(path: Path) -> list[Links]:
    """Read a line of links for every sentence, as "0-0 1-2 2-1" (source-target), of words between spaces.

    Raises:
        ValueError: if a line is not of that form.
    """
    alignments = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            alignments.append(frozenset((int(i), int(j)) for i, j in (link.split("-") for link in line.split())))
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is {line!r}. Links are numbers as in 0-0 1-2.") from error
    return alignments


def align_subwords(links: Links, source: Sequence[str], target: Sequence[str]) -> Tensor:
    """Align every piece of a word with every piece of each word that it is linked with, `[target, source]` bool.

    Args:
        links: of words.
        source: pieces of [`source_subwords`]. The last one ends the sentence.
        target: the same of the target.

    Raises:
        ValueError: if a link is to a word that there is not.
    """
    sources, targets = _words_of(source), _words_of(target)
    for link in links:
        for word, own in zip(link, (sources, targets)):
            if word not in own:
                raise ValueError(f"{link[0]}-{link[1]} links word {word}. The words are 0 to {max(own, default=-1)}.")
    return torch.tensor([[(word, other) in links for word in sources] for other in targets])


def _words_of(pieces: Sequence[str]) -> list[int]:
    """The number of the word that each piece is of, from 0 on, and -1 for the end and for spare spaces."""
    inner = pieces[:-1]
    if not any(piece.startswith(WORD_START) for piece in inner):
        # A tokenizer of whole words.
        return [*range(len(inner)), -1]
    words, word = [], -1
    for piece, following in zip(inner, (*inner[1:], WORD_START)):
        # A second space, or one at an end of the line, begins no word.
        if piece == WORD_START and following.startswith(WORD_START):
            words.append(-1)
        else:
            word += piece.startswith(WORD_START) or word < 0
            words.append(word)
    return [*words, -1]
