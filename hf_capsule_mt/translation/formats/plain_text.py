"""Whether a file has lines of text, which are translated one by one, or is something that this would damage."""

import re
from pathlib import Path

from hf_capsule_mt.translation.documents import is_language

# Names of text in which programs of machine translation write.
_PLAIN = (
    "txt text lines sentences in input out output src source tgt trg target ref reference hyp mt pe tok detok clean "
    "train valid val dev test"
)
_ISO_639_3 = (
    "ara ben bul cat ces cmn dan deu ell eng est fas fin fra glg heb hin hrv hun ind isl ita jpn kat kor lav lit mkd "
    "msa nld nob nor pol por ron rus slk slv spa sqi srp swa swe tam tha tur ukr urd vie zho"
)
_LANGUAGE = re.compile(r"\.([a-z]{2,3})(?:[-_][A-Za-z]{2,4})?")
# Lines of programs, settings, tables and pages of manuals.
_CODE = re.compile(
    r"""\s*(?:.*(?:[;{\\]|[\s)]\}|^\})$                        # Ends as a statement does.
    |(?:\#|//|/\*|\*/|%|\.[A-Za-z]{1,3}\b|\.\\"|'\\"|[\\@$;]|&&)   # Begins as one.
    |\[[^\]]*\]$|[\w.-]+\s*(?:=|:=|:$)|[\w.-]+:\s.*[^.?!…"'”’»)。？！]$   # A setting.
    |<.*>$|\{\w*\}$|\S*[/_=]\S*$|\S.*\t|[^\s:]*:[^\s:]*:)""",
    re.VERBOSE,
)
# Texts of programs have them too. The first two are codes of languages that multilingual models read.
_PLACEHOLDER = re.compile(r">>[\w.-]+<<|<2\w+>|</?[a-zA-Z][^<>]*>|\{\w*\}")
_SIGN = re.compile(r"[{}\[\]()<>=\\|/_*#~^$+]")
_MOST_SIGNS = 0.08
"""Of the characters of a line of text."""
_MOST_CODE = 0.3
"""Of the lines of a text whose name has no ending."""
_MOST_CODE_OF_TEXTS = 0.5
"""Of the lines of a text whose name says that it is one. Messages of programs have many signs."""
_MOST_LINES = 100
# Comments, and the first brackets of data.
_CODE_BEGINNINGS = ("#", "//", "/*", "{", "[", ";", "<", '"""', "%", "-----BEGIN ", '.\\"', "'\\\"")


def is_plain_text(path: Path, beginning: str) -> bool:
    """Return whether a file has lines of text, by its name without an ending of compression, and its beginning."""
    most_code = _MOST_CODE_OF_TEXTS if path.suffix else _MOST_CODE
    return _has_name_of_text(path) and not _is_code(beginning, most_code)


def _has_name_of_text(path: Path) -> bool:
    """Return whether the name has no ending, or one of text, such as "test.de.2016"."""
    return not path.suffix or any(map(_is_ending_of_text, path.suffixes))


def _is_ending_of_text(suffix: str) -> bool:
    language = _LANGUAGE.fullmatch(suffix)
    is_code = language is not None and (is_language(language[1]) or language[1] in _ISO_639_3.split())
    return is_code or suffix.lower().lstrip(".") in _PLAIN.split()


def _is_code(beginning: str, most_code: float) -> bool:
    lines = [line.rstrip() for line in beginning.split("\n") if line.strip()][:_MOST_LINES]
    if not lines:
        return False
    begins_as_code = _PLACEHOLDER.sub("", lines[0]).startswith(_CODE_BEGINNINGS)
    return begins_as_code or sum(map(_is_line_of_code, lines)) > most_code * len(lines)


def _is_line_of_code(line: str) -> bool:
    words = _PLACEHOLDER.sub("", line)
    return bool(_CODE.match(line)) or len(_SIGN.findall(words)) > _MOST_SIGNS * len(words)
