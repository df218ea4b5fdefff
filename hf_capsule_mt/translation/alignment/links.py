"""Links between the words of a text and of its translation, and how those of sentences become those of a text."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from hf_capsule_mt.errors import UserError

from ..text.words import Align, Span, word_spans

NOT_ALIGNABLE = (
    "Alignments are for texts without tags and kept parts. Leave out tags and keep, or do not ask for alignments."
)
_WORD = re.compile(r"\S+")


class WordLink(NamedTuple):
    """A word of a translation, and the word of the source that it belongs to.

    Words are numbered from 0. Punctuation is a word, and so is each character of a script without spaces. Spans are the
    places of both words in their texts, from the first character to the one behind the last.
    """

    source: int
    target: int
    source_span: Span
    target_span: Span


def linked_words(source: str, target: str, align: Align) -> tuple[WordLink, ...]:
    """Link each word of a translation with the word of its source that it belongs to most, if there is one."""
    source_words = word_spans(source)
    target_words = word_spans(target)
    links = []
    for number, weights in enumerate(align(source_words, target_words)):
        if any(weights):
            best = max(range(len(weights)), key=weights.__getitem__)
            links.append(WordLink(best, number, source_words[best], target_words[number]))
    return tuple(links)


def copied_words(source: str, copy: str) -> tuple[WordLink, ...]:
    """Link each word of a copy with itself. A code of a language may stand in front of the source."""
    begin = source.rindex(copy)
    source_words = word_spans(source)
    numbers = {start: number for number, (start, _) in enumerate(source_words)}
    links = []
    for number, (start, end) in enumerate(word_spans(copy)):
        source_span = (begin + start, begin + end)
        links.append(WordLink(numbers[begin + start], number, source_span, (start, end)))
    return tuple(links)


def joined_links(
    parts: Sequence[tuple[str, str, Sequence[WordLink]]], source: str, target: str
) -> tuple[WordLink, ...]:
    """Return the links of all parts with their places and numbers in the whole texts.

    Args:
        parts: parts of the source, the same parts of the translation, and the links between both, in the order of the
            texts. White space in their sources may have become single spaces.
        source: the whole source.
        target: the whole translation. Joined, the translations of the parts are it.

    Raises:
        UserError: if the characters of a part are not those of the source.
    """
    source_starts = [start for start, _ in word_spans(source)]
    target_starts = [start for start, _ in word_spans(target)]

    begin = 0
    links = []
    all_places = _places_in_text(source, [of_source for of_source, _, _ in parts])
    for (_, of_target, links_of_part), places in zip(parts, all_places, strict=True):
        for link in links_of_part:
            start, end = link.source_span
            source_span = (places[start], places[end - 1] + 1)
            start, end = link.target_span
            target_span = (begin + start, begin + end)
            source_number = bisect_right(source_starts, source_span[0]) - 1
            target_number = bisect_right(target_starts, target_span[0]) - 1
            links.append(WordLink(source_number, target_number, source_span, target_span))
        begin += len(of_target)
    return tuple(links)


def _places_in_text(text: str, segments: Sequence[str]) -> list[list[int]]:
    """Return for each segment the place in the text of each of its characters.

    Args:
        text: the source.
        segments: parts of it in their order.

    Raises:
        UserError: if the characters of a segment are not those of the text.
    """
    places = []
    end = 0
    for segment in segments:
        of_segment = [end] * len(segment)
        for word in _WORD.finditer(segment):
            start = text.find(word[0], end)
            if start < 0:
                # References such as &amp; are other characters in the text.
                raise UserError(NOT_ALIGNABLE)
            end = start + len(word[0])
            of_segment[word.start() : word.end()] = range(start, end)
        places.append(of_segment)
    return places


def pharaoh_links(links: Sequence[WordLink], source: str, target: str) -> list[tuple[int, int]]:
    """Return pairs of numbers of words between white space, in rising order, as Pharaoh's format has them."""
    source_starts = [word.start() for word in _WORD.finditer(source)]
    target_starts = [word.start() for word in _WORD.finditer(target)]
    pairs = set()
    for link in links:
        source_word = bisect_right(source_starts, link.source_span[0]) - 1
        target_word = bisect_right(target_starts, link.target_span[0]) - 1
        pairs.add((source_word, target_word))
    return sorted(pairs)
