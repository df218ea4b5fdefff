"""Whether a file has lines of text, which are translated one by one, or is something that this would damage."""

import re
from pathlib import Path

from hf_capsule_mt.language_tags import is_language, language_of

_ENDINGS = (
    "txt text lines sentences in input out output src source tgt trg target ref reference hyp mt pe tok detok clean "
    "train valid val dev test"
)
"""Endings of the names of texts, as people and programs of machine translation choose them."""
_NOT_LANGUAGES = ("asm", "mol", "run")
"""Endings of programs and molecules, although Assamese, Moldavian and Rundi are called so."""
_LANGUAGE = re.compile(r"\.([a-z]{2,3})(?:[-_][A-Za-z]{2,4})?")
"""An ending such as ".de", ".deu" or ".pt_BR"."""
_CODE = re.compile(
    r"""\s*+(?:
    .*[;{\\]$                         # The end of a statement, of its first line, or a line that goes on.
    |.*(?:[\s)]\}|^\})$               # The end of a block.
    |\#|//|/\*|\*/|%|\.\\"|'\\"       # A comment, also of TeX or of a page of a manual.
    |\.[A-Za-z]{1,3}\b                # A command of a page of a manual.
    |[\\@$;]|&&                       # A command, a decorator, a variable.
    |\[[^\]]*\]$                      # The name of a section of settings.
    |[\w.-]+\s*(?:=|:=|:$)            # A setting, or the beginning of several.
    |[\w.-]+:\s.*[^.?!…"'”’»)。？！]$    # A setting, because a sentence would have an end.
    |<.*>$|\{\w*\}$                   # An element of XML, or a placeholder.
    |(?=[^\s/_=]*[/_=])\S++$            # A path, or a name of programmers.
    |\S.*\t|[^\s:]*:[^\s:]*:          # A row of a table.
    )""",
    re.VERBOSE,
)
"""Begins like a line of a program, of settings, of a table or of a page of a manual."""
_PLACEHOLDER = re.compile(r">>[\w.-]+<<|<2\w+>|</?[a-zA-Z][^<>]*>|\{\w*\}")
"""Signs that texts have too. The first two are codes of languages that multilingual models read."""
_SIGN = re.compile(r"[{}\[\]()<>=\\|/_*#~^$+]")
_MOST_SIGNS = 0.08
"""The largest share of signs in the characters of a line of text."""
_MOST_CODE = 0.3
"""The largest share of lines of code in a text whose name has no ending."""
_MOST_CODE_OF_TEXTS = 0.5
"""The same for a text whose name says that it is one. Messages of programs have many signs."""
_MOST_LINES = 100
"""Lines that are looked at."""
_CODE_BEGINNINGS = ("#", "//", "/*", "{", "[", ";", "<", '"""', "%", "-----BEGIN ", '.\\"', "'\\\"")
"""How files begin with a comment, with data or with a key."""


def is_plain_text(path: Path, beginning: str) -> bool:
    """Return whether a file has lines of text, by its name without an ending of compression, and its beginning."""
    most_code = _MOST_CODE_OF_TEXTS if path.suffix else _MOST_CODE
    return _has_name_of_text(path) and not _is_code(beginning, most_code)


def _has_name_of_text(path: Path) -> bool:
    """Return whether the name has no ending, or one of text, such as "test.de.2016"."""
    return not path.suffix or any(map(_is_ending_of_text, path.suffixes))


def _is_ending_of_text(suffix: str) -> bool:
    if suffix.lower().removeprefix(".") in _ENDINGS.split():
        return True
    match = _LANGUAGE.fullmatch(suffix)
    if match is None:
        return False
    letters = match[1]
    if len(letters) == 2:
        return is_language(letters)
    # "log" and "css" are languages, too. Only those that also have two letters end the names of texts.
    return letters not in _NOT_LANGUAGES and is_language(language_of(letters) or "")


def _is_code(beginning: str, most_code: float) -> bool:
    """Return whether a file begins as code does, or a larger share of its lines than `most_code` is code."""
    lines = [line.rstrip() for line in beginning.split("\n") if line.strip()]
    lines = lines[:_MOST_LINES]
    if not lines:
        return False
    first_line = _PLACEHOLDER.sub("", lines[0])
    if first_line.startswith(_CODE_BEGINNINGS):
        return True
    lines_of_code = sum(map(_is_line_of_code, lines))
    return lines_of_code > most_code * len(lines)


def _is_line_of_code(line: str) -> bool:
    if _CODE.match(line):
        return True
    words = _PLACEHOLDER.sub("", line)
    signs = len(_SIGN.findall(words))
    return signs > _MOST_SIGNS * len(words)
