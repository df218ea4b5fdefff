"""What a word is, in scripts with and without spaces, where words stand, and which parts of a text are kept."""

from collections.abc import Callable, Sequence

import regex

from hf_capsule_mt.errors import UserError

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
# A letter of a script without spaces, letters with apostrophes and hyphens between them, or a sign.
_UNSPACED_LETTER = rf"[{UNSPACED}]\p{{M}}*"
_SPACED_WORD = rf"{IN_WORD}+(?:['’.\-]{IN_WORD}+)*"
_SIGN = r"\S\p{M}*"
_WORD = regex.compile(f"{_UNSPACED_LETTER}|{_SPACED_WORD}|{_SIGN}")
# A letter, digit or underscore of a script with spaces. "请看https://x.org了解" has an address in the middle.
_IN_NAME = rf"[^\W{UNSPACED}]"
_IN_URL = rf"[^\s<>\"`()\[\]\u3000-\u303f\uff00-\uffef{UNSPACED}]"
_URL_START = r"(?:(?i:https?|ftp)://|(?<![\w.-])(?i:www\.|mailto:))"
# It may have one pair of parentheses. A comma or a full stop at its end is not part of it.
_URL = rf"{_URL_START}{_IN_URL}*(?:\({_IN_URL}*\){_IN_URL}*)?(?<=[\w/=&#+~$%)-])"
# It begins where a name does, so that each is read once. A placeholder such as %n may be in front of it.
_MAIL_START = rf"(?:(?<!{_IN_NAME}|[.+@-])|(?<=%[a-zA-Z]))"
_MAIL = rf"{_MAIL_START}(?:{_IN_NAME}|[.+-])++@(?:{_IN_NAME}|-)++\.(?:{_IN_NAME}|[.-])*{_IN_NAME}"
ADDRESSES = f"{_URL}|{_MAIL}"
"""A regular expression for addresses of the Web and of e-mail, in time that grows with the length of a text."""
_FLAGS_AT_START = regex.compile(r"^\(\?[aimsx]+\)")
_LETTERS = {regex.ASCII: "a", regex.IGNORECASE: "i", regex.MULTILINE: "m", regex.DOTALL: "s", regex.VERBOSE: "x"}
"""Flags that can hold for a part of an expression."""


def has_letters(text: str) -> bool:
    """Return whether there is something to translate in a text: a letter of any script."""
    return any(map(str.isalpha, text))


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


def keep_pattern(keep: str) -> regex.Pattern:
    """Compile a regular expression for kept parts."""
    try:
        return regex.compile(keep)
    except regex.error as error:
        raise UserError(f"keep is {keep!r}, which is not a regular expression: {error}") from error


def with_addresses(keep: str | regex.Pattern | None = None) -> regex.Pattern:
    """Return what finds addresses, and what another expression finds.

    Texts of several sentences, or with tags, keep their addresses by default. A single sentence is what `generate()`
    writes.
    """
    if keep is None:
        return keep_pattern(ADDRESSES)
    # It could be wrong by itself, and right with more behind it.
    pattern = keep if isinstance(keep, regex.Pattern) else keep_pattern(keep)
    # It comes first, so that the numbers of its groups stay.
    return regex.compile(f"{with_own_flags(pattern)}|{ADDRESSES}")


def with_own_flags(pattern: regex.Pattern) -> str:
    """Return the expression of a pattern so that its flags, such as `(?i)`, do not hold for what is joined with it."""
    expression = _FLAGS_AT_START.sub("", pattern.pattern)
    letters = "".join(letter for flag, letter in _LETTERS.items() if pattern.flags & flag)
    if not letters:
        return expression
    # A comment may be in its last line.
    end = "\n)" if pattern.flags & regex.VERBOSE else ")"
    return f"(?{letters}:{expression}{end}"
