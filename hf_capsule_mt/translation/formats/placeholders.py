"""Parts of messages of programs that are not translated, and whether a translation has them all."""

import html
from collections import Counter
from collections.abc import Sequence

import regex

from hf_capsule_mt.translation.text.words import ADDRESSES, has_letters

_DEEPEST = 12
"""The most parentheses or braces in each other. Without a limit, each of many open ones is searched to the end."""


def _nested(opening: str, closing: str) -> str:
    """Return an expression for what stands between two brackets, with brackets in brackets."""
    others = rf"[^{opening}{closing}]*+"
    pattern = rf"\{opening}{others}\{closing}"
    for _ in range(_DEEPEST - 1):
        pattern = rf"\{opening}{others}(?:{pattern}{others})*+\{closing}"
    return pattern


# Quantifiers are possessive, so that the time grows with the length only.
_FORMAT = (
    # %s, %1$d, %(name)s, %% and Qt's %1. After a space it must be the end of a word: "100% sure" has none.
    r"%(?:\(\w++\)|\d++\$)?+[-+#0]*+(?:\*|\d++)?+(?:\.(?:\*|\d++))?+(?:hh|h|ll|l|z|j|t)?[a-zA-Z@]"
    r"|% [dioxX](?!\w)|%%|%L?\d+"
    # Keys in keys: $t(key, {"count": 1}). Braces in quotes: '{'.
    rf"|\$t{_nested('(', ')')}|'\{{[^']*'"
    # {name}, {{name}}, and messages of ICU with braces in braces.
    rf"|\$?{_nested('{', '}')}|\$\w+\$?"
)
"""A regular expression for what programs fill in."""
PLACEHOLDERS = (
    rf"{_FORMAT}"
    # Options, references to characters.
    r"|<?--[\w-]+|(?<!\S)-\w(?!\w)|&\#?\w+;"
)
"""A regular expression for parts of messages that programs fill in, or that are no words."""

PLACEHOLDER = regex.compile(PLACEHOLDERS)
_PLACEHOLDER_OR_ADDRESS = regex.compile(f"{PLACEHOLDERS}|{ADDRESSES}")
_SIGN_OF_CODE = regex.compile(r"\w_\w|[\\#=@]|\w[.:]\w")
"""Stands in identifiers, colours and addresses."""
_ONE_CHARACTER = regex.compile(r"\W*+\w?+\W*+")
_ANY_FORMAT = regex.compile(_FORMAT)
# Programs that are given values read any % as a sign, such as "% s" in "100% sure".
_STRICT_FORMAT = regex.compile(
    r"%(?:\(\w++\)|\d++\$)?+[-+#0' ]*+(?:\*|\d++)?+(?:\.(?:\*|\d++)?+)?+(?:hh|h|ll|l|z|j|t|L|q)?[a-zA-Z@]"
    rf"|{_FORMAT}"
)
# Neither %2$s nor %(name)s, {name} and Qt's %1.
_TAKES_THE_NEXT_VALUE = regex.compile(r"%(?!\d+\$|L?\d+$|[(%])|\{(?:[:!].*)?\}")
_MOST_MENDED = 100
"""The most different placeholders of a translation that is mended. Each of them is looked for at each place."""
_TAG = regex.compile(r"</?[a-zA-Z][^<>]*>")
_DATE = regex.compile(r"(?=.*(?:YY|yy|HH|hh|mm))[GYyMLdDEaHhmsSZz.,:/' -]+")


def has_words(string: str) -> bool:
    """Return whether something in a message is for a reader, and not only for a program."""
    return has_letters(_PLACEHOLDER_OR_ADDRESS.sub("", string))


def is_code(string: str) -> bool:
    """Return whether a string of a program is no message, but a path, a name, a form of dates and so on."""
    string = string.strip()
    return not has_words(string) or _is_word_of_code(string) or _DATE.fullmatch(string) is not None


def _is_word_of_code(string: str) -> bool:
    """Return whether a string is a path, an identifier, a colour, an address, or one character."""
    if any(map(str.isspace, string)):
        return False
    behind_slash = string.partition("/")[2]
    is_path = string.startswith(("/", "./", "../")) or "/" in behind_slash or "." in behind_slash
    return is_path or bool(_ONE_CHARACTER.fullmatch(string) or _SIGN_OF_CODE.search(string))


def with_placeholders_of(source: str, translation: str, is_format: bool = False, signs: str = "") -> str | None:
    """Return the translation of a message, if it has exactly the placeholders and signs of its source.

    Signs that only the model wrote are left out. A `%` after a number stays, since it may mean percent.

    Args:
        source: the message.
        translation: its translation, into which the placeholders have been put back.
        is_format: whether every `%` is read by the program. Otherwise it is if the source has such a placeholder.
        signs: more characters than `%`, `{` and `}` that the program reads.

    Returns:
        The translation, or None if a placeholder is missing, is there too often, would be another one, or those that
        take one value after the other have another order.
    """
    expression = _ANY_FORMAT
    if is_format:
        expression = _STRICT_FORMAT

    placeholders, rest = _split(source, expression)
    signs += "{}"
    if is_format or any(placeholder.startswith("%") for placeholder in placeholders):
        signs += "%"

    expected = _read(source, expression, signs)
    if _read(translation, expression, signs) == expected:
        return translation

    # A sign of the source may be the one in the translation.
    new_signs = [sign for sign in signs if sign not in rest]
    mended = _without_signs(translation, placeholders, expression, new_signs)
    if mended is None or _read(mended, expression, signs) != expected:
        return None
    return mended


def _read(message: str, expression: regex.Pattern, signs: str) -> tuple[Counter, list[str], Counter]:
    """Return what a program reads in a message.

    Args:
        message: the message.
        expression: finds placeholders.
        signs: characters that the program reads.

    Returns:
        Its placeholders, those that take one value after the other in their order, and its signs elsewhere.
    """
    placeholders, rest = _split(message, expression)
    if "%" not in signs:
        # "50% o più" has no placeholder.
        placeholders = [placeholder for placeholder in placeholders if not placeholder.startswith("% ")]
    in_order = list(filter(_TAKES_THE_NEXT_VALUE.match, placeholders))
    return Counter(placeholders), in_order, Counter(character for character in rest if character in signs)


def _without_signs(
    translation: str, placeholders: Sequence[str], expression: regex.Pattern, signs: Sequence[str]
) -> str | None:
    """Return a translation without signs that only the model wrote.

    Args:
        translation: the translation.
        placeholders: those of the source, which stay, as tags do.
        expression: finds placeholders.
        signs: those that are left out.

    Returns:
        The translation, or None if the model wrote a placeholder, or there are too many.
    """
    longest_first = sorted(set(placeholders), key=len, reverse=True)
    if len(longest_first) > _MOST_MENDED:
        return None

    stays = "|".join([_TAG.pattern, *map(regex.escape, longest_first)])
    # What stays has odd numbers, and what the model wrote has even ones.
    pieces = regex.split(f"({stays})", translation)
    if any(map(expression.search, pieces[::2])):
        return None

    for sign in signs:
        may_be_percent = sign == "%" and "%%" not in placeholders
        pieces[::2] = [_without_sign(piece, sign, may_be_percent) for piece in pieces[::2]]
    return "".join(pieces)


def _split(message: str, expression: regex.Pattern) -> tuple[list[str], str]:
    """Return the placeholders of a message, and what stands between them. Tags are left out."""
    characters = html.unescape(_TAG.sub("", message))
    placeholders = [match[0] for match in expression.finditer(characters)]
    return placeholders, expression.sub(" ", characters)


def _without_sign(piece: str, sign: str, may_be_percent: bool) -> str:
    """Return what a model wrote behind a placeholder without a sign, and without the spaces that this leaves over."""
    not_behind_number = ""
    if may_be_percent:
        not_behind_number = r"(?<!^ ?|\d ?)"
    escaped = regex.escape(sign)

    def space(match: regex.Match) -> str:
        if match["end"]:
            return match["end"]
        if " " in match[0]:
            return " "
        return ""

    return regex.sub(rf"{not_behind_number} ?{escaped}(?: ?{escaped})*+ ?+(?P<end>[.,;:!?)])?", space, piece)
