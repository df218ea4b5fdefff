"""What a word is, in scripts with and without spaces, and where the words of a text stand."""

from collections.abc import Callable, Sequence

import regex

Span = tuple[int, int]
"""Where a word begins in its text, and the place behind it."""
Weights = Sequence[Sequence[float]]
"""How much each word of a translation belongs to each word of the source: `[target words][source words]`.

A row is empty if nothing is aligned.
"""
Align = Callable[[Sequence[Span], Sequence[Span]], Weights]
"""From the words of a source and of its translation to their alignment."""
# Scripts that put no spaces between words.
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
IN_WORD = rf"(?:(?![{UNSPACED}])[\p{{L}}\p{{N}}\p{{M}}_])"
"""A character of a word, in scripts with spaces."""
_WORD = regex.compile(rf"[{UNSPACED}]\p{{M}}*|{IN_WORD}+(?:['’.\-]{IN_WORD}+)*|\S\p{{M}}*")


def word_spans(text: str, whole: Sequence[Span] = ()) -> list[Span]:
    """Return the places of the words of a text. Each span of `whole` is one word."""
    words = []
    place = 0
    for start, end in [*whole, (len(text), len(text))]:
        # With `pos` instead, the span before would be part of the word.
        for match in _WORD.finditer(text[place:start]):
            words.append((place + match.start(), place + match.end()))
        if start < end:
            words.append((start, end))
        place = end
    return words
