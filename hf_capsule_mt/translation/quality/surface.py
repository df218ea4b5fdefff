"""What the words of a source and of its translation say about it, without a model: copies, numbers and scripts."""

import unicodedata
from collections.abc import Iterable

import regex

from hf_capsule_mt.language_tags import script_of

_LEAST_LETTERS = 4
"""A translation with fewer letters that are not copied tells no script."""
WORD = regex.compile(r"\w+")
"""A word: letters, digits and underscores."""
_NUMBER = regex.compile(r"\d+(?:[.,:]\d+)*")
_DIGITS = regex.compile(r"\d+")
_NAMES_OF_SCRIPTS = {
    "Latn": ("Latin",),
    "Cyrl": ("Cyrillic",),
    "Arab": ("Arabic",),
    "Grek": ("Greek",),
    "Hebr": ("Hebrew",),
    "Armn": ("Armenian",),
    "Geor": ("Georgian",),
    "Deva": ("Devanagari",),
    "Beng": ("Bengali",),
    "Taml": ("Tamil",),
    "Telu": ("Telugu",),
    "Thai": ("Thai",),
    "Hans": ("Han",),
    "Hant": ("Han",),
    "Jpan": ("Han", "Hiragana", "Katakana"),
    "Hang": ("Hangul", "Han"),
    "Kore": ("Hangul", "Han"),
}
"""What Unicode calls the letters of scripts."""
_SCRIPTS = {
    script: regex.compile(rf"\p{{Script={script}}}")
    for script in sorted({script for scripts in _NAMES_OF_SCRIPTS.values() for script in scripts})
}


def copied_share(source: str, translation: str, kept: Iterable[str] = ()) -> float | None:
    """Return the share of the words of a translation that stand in its source, None without words.

    Args:
        source: the text.
        translation: its translation.
        kept: parts of the source that are not translated. One copy of each is no word.
    """
    for part in kept:
        translation = translation.replace(part, " ", 1)
    words = [word.casefold() for word in WORD.findall(translation)]
    if not words:
        return None
    source_words = {word.casefold() for word in WORD.findall(source)}
    copies = [word for word in words if word in source_words]
    return len(copies) / len(words)


def compare_numbers(source: str, translation: str) -> tuple[list[str], list[str]]:
    """Return the numbers of a translation that its source lacks, and the numbers of the source that it lacks.

    Only numbers in digits count. "1,000" is "1.000", and "2:30" is also 2 and 30.
    """
    return _lacking(translation, source), _lacking(source, translation)


def _lacking(text: str, other: str) -> list[str]:
    """Return the numbers of a text that another text lacks."""
    known = set()
    for match in _NUMBER.finditer(other):
        known.add(_digits(match[0]))
        known.update(_digits(part) for part in _DIGITS.findall(match[0]))
    numbers = []
    for match in _NUMBER.finditer(text):
        parts = [_digits(part) for part in _DIGITS.findall(match[0])]
        if _digits(match[0]) not in known and not known.issuperset(parts):
            numbers.append(match[0])
    return numbers


def _digits(number: str) -> str:
    """Return the digits of a number, 0 to 9, in whatever script it is written."""
    digits = [str(unicodedata.digit(character)) for character in number if character.isdigit()]
    return "".join(digits).lstrip("0") or "0"


def wrong_script(source: str, translation: str, language: str | None) -> str | None:
    """Return the script of most letters of a translation if its language is written in others, otherwise None.

    Words that stand in the source do not count, for names are often copied.
    """
    expected = scripts_of(language)
    if expected is None:
        return None
    source_words = set(WORD.findall(source))
    letters = "".join(word for word in WORD.findall(translation) if word not in source_words)
    counts = {script: len(pattern.findall(letters)) for script, pattern in _SCRIPTS.items()}
    most = max(counts, key=counts.__getitem__)
    if counts[most] < _LEAST_LETTERS or most in expected:
        return None
    return most


def scripts_of(language: str | None) -> tuple[str, ...] | None:
    """Return the scripts of a language, such as "de", "de_DE" or "deu_Latn", or None if they are not known."""
    if language is None:
        return None
    return _NAMES_OF_SCRIPTS.get(script_of(language))
