"""Parts of messages of programs that are not translated."""

import regex

_DEEPEST = 12
"""The most parentheses or braces in each other. Without a limit, each of many open ones is searched to the end."""


def _nested(opening: str, closing: str) -> str:
    """Return an expression for what stands between two brackets, with brackets in brackets."""
    others = rf"[^{opening}{closing}]*+"
    pattern = rf"\{opening}{others}\{closing}"
    for _ in range(_DEEPEST - 1):
        pattern = rf"\{opening}{others}(?:{pattern}{others})*+\{closing}"
    return pattern


# Quantifiers are possessive, and addresses begin where a word does, so that the time grows with the length only.
PLACEHOLDERS = (
    # %s, %1$d, %(name)s, %% and Qt's %1. After a space it must be the end of a word: "100% sure" has none.
    r"%(?:\(\w++\)|\d++\$)?+[-+#0]*+(?:\*|\d++)?+(?:\.\d++)?+(?:hh|h|ll|l|z|j|t)?[a-zA-Z@]|% [dioxX](?!\w)|%%|%L?\d+"
    # Keys in keys: $t(key, {"count": 1}). Braces in quotes: '{'.
    rf"|\$t{_nested('(', ')')}|'\{{[^']*'"
    # {name}, {{name}}, and messages of ICU with braces in braces.
    rf"|\$?{_nested('{', '}')}|\$\w+\$?"
    # Addresses, options, references to characters. An address may stand right after a placeholder such as %n.
    r"|https?://[^\s<>\"]+|(?:(?<![\w.+-])|(?<=%[a-zA-Z]))[\w.+-]++@[\w-]++\.\w+"
    r"|<?--[\w-]+|(?<!\S)-\w(?!\w)|&\#?\w+;"
)
"""A regular expression for parts of messages that programs fill in, or that are no words."""

_PLACEHOLDER = regex.compile(PLACEHOLDERS)
_SIGN_OF_CODE = regex.compile(r"\w_\w|[\\#=@]|\w[.:]\w")
"""Stands in identifiers, colours and addresses."""
_ONE_CHARACTER = regex.compile(r"\W*+\w?+\W*+")
_DATE = regex.compile(r"(?=.*(?:YY|yy|HH|hh|mm))[GYyMLdDEaHhmsSZz.,:/' -]+")


def has_words(string: str) -> bool:
    """Return whether something in a message is for a reader, and not only for a program."""
    return any(map(str.isalpha, _PLACEHOLDER.sub("", string)))


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
