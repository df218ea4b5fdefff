"""Ways to damage a reference, such as a machine does: words are missing, added, repeated, wrong or not translated."""

import random
from collections.abc import Sequence

from hf_capsule_mt.translation.quality.surface import WORD

Pair = tuple[str, str]
"""A sentence and its translation."""

KINDS = (
    "third",
    "clause",
    "one word",
    "two words",
    "first only",
    "added",
    "repeated",
    "wrong word",
    "swapped",
    "copied",
)
"""What is wrong with a damaged reference. For "first only" two sources have the reference of the first."""
SHORTEST_CONTENT = 4
"""Letters of a word that is removed or replaced: shorter ones are mostly articles and prepositions."""


def damage(kind: str, source: str, target: str, pairs: Sequence[Pair], generator: random.Random) -> str | None:
    """Return a damaged translation, or None if it cannot be damaged in this way.

    Args:
        kind: one of `KINDS`, except "first only".
        source: a sentence.
        target: its translation.
        pairs: other words and sentences are drawn from them.
        generator: draws what is damaged.
    """
    words = target.split()
    mark = end_mark(words)
    if kind == "third":
        kept = words[: len(words) * 2 // 3]
        return " ".join(kept).rstrip(",") + mark
    if kind == "clause":
        return without_clause(words, mark, generator)
    if kind == "one word":
        return without_words(words, 1, mark, generator)
    if kind == "two words":
        return without_words(words, 2, mark, generator)
    if kind == "added":
        other_words = words_of_another(pairs, generator)
        added = other_words[: max(len(other_words) // 2, 1)]
        return f"{target} {' '.join(added)}"
    if kind == "repeated":
        place = generator.randrange(max(len(words) - 3, 1))
        before = words[:place]
        three = words[place : place + 3]
        after = words[place + 3 :]
        return " ".join([*before, *three, *three, *three, *after])
    if kind == "wrong word":
        return with_wrong_word(words, pairs, generator)
    if kind == "swapped":
        return other_of_like_length(target, pairs)
    return source


def end_mark(words: Sequence[str]) -> str:
    """Return the mark that ends a sentence, or nothing."""
    last = words[-1][-1]
    return last if last in ".!?" else ""


def content_places(words: Sequence[str]) -> list[int]:
    """Return the places of the words that are worth damaging."""
    places = []
    for place, word in enumerate(words):
        is_one_word = len(WORD.findall(word)) == 1
        if is_one_word and len(word) >= SHORTEST_CONTENT:
            places.append(place)
    return places


def words_of_another(pairs: Sequence[Pair], generator: random.Random) -> list[str]:
    """Return the words of a drawn translation."""
    _, target = generator.choice(pairs)
    return target.split()


def ended(text: str, mark: str) -> str:
    """Return a text with a mark at its end, which it may have already."""
    return text if text.endswith(mark) else text + mark


def without_words(words: Sequence[str], number: int, mark: str, generator: random.Random) -> str | None:
    """Return words without some of them, or None if there are too few.

    Args:
        words: of the translation.
        number: how many are removed.
        mark: the end of the sentence.
        generator: draws which are removed.
    """
    places = content_places(words)
    if len(places) < number:
        return None
    removed = generator.sample(places, number)
    kept = [word for place, word in enumerate(words) if place not in removed]
    return ended(" ".join(kept), mark)


def without_clause(words: Sequence[str], mark: str, generator: random.Random) -> str:
    """Return words without what stands between two commas, or after the only one, or without a quarter."""
    commas = [place for place, word in enumerate(words) if word.endswith(",")]
    if commas:
        number = generator.choice(range(len(commas)))
        is_last = number + 1 == len(commas)
        start = commas[number] + 1
        end = len(words) if is_last else commas[number + 1] + 1
    else:
        length = max(len(words) // 4, 1)
        start = generator.randrange(len(words) - length)
        end = start + length
    kept = [*words[:start], *words[end:]]
    return ended(" ".join(kept).rstrip(","), mark)


def with_wrong_word(words: Sequence[str], pairs: Sequence[Pair], generator: random.Random) -> str | None:
    """Return words with one that another translation has in its place, or None if one of them has no such word."""
    places = content_places(words)
    if not places:
        return None
    place = generator.choice(places)
    others = []
    for word in words_of_another(pairs, generator):
        if len(word) >= SHORTEST_CONTENT and word.isalpha():
            others.append(word)
    if not others:
        return None
    changed = list(words)
    changed[place] = generator.choice(others)
    return " ".join(changed)


def other_of_like_length(target: str, pairs: Sequence[Pair]) -> str:
    """Return another translation, the one whose length is closest."""
    others = [other for _, other in pairs if other != target]

    def distance(other: str) -> tuple[int, str]:
        # Of two with the same distance always the same one is taken.
        return abs(len(other) - len(target)), other

    return min(others, key=distance)


def first_only(first: Pair, second: Pair) -> dict[str, str]:
    """Return two pairs as one, with the translation of the first as the damaged one."""
    first_source, first_target = first
    second_source, second_target = second
    return {
        "kind": "first only",
        "source": f"{first_source} {second_source}",
        "whole": f"{first_target} {second_target}",
        "damaged": first_target,
    }
