# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/decoding/stream.py.
"""The sentences of a stream: which of them are being decoded, and which come next."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Source(NamedTuple):
    """A sentence to translate.

    Attributes:
        ids: source tokens, the end of the sentence included.
        limit: of the new tokens of its translation, at least 1.
    """

    ids: Sequence[int]
    limit: int


class Arrivals:
    """Sentences that wait until there are places for several of them, which are then encoded together.

    Args:
        sources: all sentences, in the order in which they come.
        room: source tokens that can be decoded at a time, those that fill up shorter sentences included. A sentence
            that is longer is decoded alone.

    Raises:
        TypeError: where a sentence is read that is no [`Source`].
        ValueError: where one is read that has no words, or a limit that is no whole number or below 1.
    """

    _ENOUGH = 4
    """Sentences come in once one place in so many is free."""

    def __init__(self, sources: Iterable[Source], room: int) -> None:
        self._sources = _checked(sources)
        self._room = room
        self._next = next(self._sources, None)
        self._count = 0
        self._lengths: dict[int, int] = {}

    def leave(self, index: int) -> None:
        """Note that a sentence is done."""
        del self._lengths[index]

    def take(self) -> tuple[int, list[Source]]:
        """Return the index of the first sentence that comes in, and all that do; none if too few places are free."""
        longest = max(self._lengths.values(), default=0)
        index, taken = self._count, []
        if self._next is None or not self._has_places(max(longest, len(self._next.ids))):
            return index, taken
        while self._next is not None:
            longest = max(longest, len(self._next.ids))
            if self._lengths and (len(self._lengths) + 1) * longest > self._room:
                break
            self._lengths[self._count] = len(self._next.ids)
            self._count += 1
            taken.append(self._next)
            self._next = next(self._sources, None)
        return index, taken

    def _has_places(self, longest: int) -> bool:
        places, taken = self._room // longest, len(self._lengths)
        return not taken or (places - taken) * self._ENOUGH >= places > taken


def _checked(sources: Iterable[Source]) -> Iterator[Source]:
    for source in sources:
        # Not by its class: a checkpoint that carries its source has another.
        if not all(hasattr(source, name) for name in Source._fields):
            raise TypeError(
                f"sources holds a {type(source).__name__}, {source!r:.80}; give "
                'Source(tokenizer(line)["input_ids"], limit=64)'
            )
        if not hasattr(source.limit, "__index__"):
            raise ValueError(
                f"sources holds one whose translation has the limit {source.limit!r}; give a whole number of tokens"
            )
        if not len(source.ids) or source.limit < 1:
            raise ValueError(
                f"sources holds one of {len(source.ids)} words whose translation has the limit {source.limit}; both "
                "must be at least 1"
            )
        yield source
