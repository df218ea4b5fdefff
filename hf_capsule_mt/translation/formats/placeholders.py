"""Parts of messages of programs that are not translated."""

import regex

PLACEHOLDERS = (
    # %s, %1$d, %(name)s, %% and Qt's %1. After a space it must be the end of a word: "100% sure" has none.
    r"%(?:\(\w+\)|\d+\$)?[-+#0]*(?:\*|\d+)?(?:\.\d+)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z@]|% [dioxX](?!\w)|%%|%L?\d+"
    # Keys in keys: $t(key, {"count": 1}). Braces in quotes: '{'.
    r"|\$t(?P<parentheses>\((?:[^()]|(?&parentheses))*\))|'\{[^']*'"
    # {name}, {{name}}, and messages of ICU with braces in braces.
    r"|\$?(?P<braces>\{(?:[^{}]|(?&braces))*\})|\$\w+\$?"
    # Addresses, options, references to characters.
    r"|https?://[^\s<>\"]+|[\w.+-]+@[\w-]+\.\w+|<?--[\w-]+|(?<!\S)-\w(?!\w)|&\#?\w+;"
)
"""A regular expression for parts of messages that programs fill in, or that are no words."""

# A path, an identifier, a colour, an address, one character.
_CODE = regex.compile(r"\.{0,2}/\S*|\S*/\S*[/.]\S*|\S*(?:\w_\w|[\\#=@]|\w[.:]\w)\S*|[^\s\w]*\w?[^\s\w]*")
_DATE = regex.compile(r"(?=.*(?:YY|yy|HH|hh|mm))[GYyMLdDEaHhmsSZz.,:/' -]+")


def has_words(string: str) -> bool:
    """Return whether something in a message is for a reader, and not only for a program."""
    return any(map(str.isalpha, regex.sub(PLACEHOLDERS, "", string)))


def is_code(string: str) -> bool:
    """Return whether a string of a program is no message, but a path, a name, a form of dates and so on."""
    string = string.strip()
    return not has_words(string) or bool(_CODE.fullmatch(string) or _DATE.fullmatch(string))
