"""Accelerators of labels: a sign in front of the letter whose key chooses a menu or button, as in "&Save" and "_Quit".

Qt, KDE, wxWidgets, Windows, SWT and NetBeans write `&`, and GTK writes `_`. In Chinese, Japanese and Korean the letter
stands behind the words: "保存(&S)". The model gets the words without the sign, and their translation gets it again.

A sign in front of a later word, as in "Select &All", could be a character of a name, as in "Tom &Jerry". It counts only
in a label with the ending of a menu, such as "Save &As...", or in a file with "&File", "E&xit" or such a label.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .base import replaced
from .placeholders import PLACEHOLDER

SIGNS = ("&", "_")
"""What stands in front of the letter, if the file does not say it."""
_RUNS = {
    "&": re.compile("&+"),
    "&amp;": re.compile("(?:&amp;)+"),
    "_": re.compile("_+"),
    "~": re.compile("~+"),
}
"""Finds signs that stand one behind the other, by the sign. Files of LibreOffice have the last one."""
_REFERENCE = re.compile(r"#?\w+;")
"""Follows the `&` of a reference to a character."""
_LONGEST = 200
"""Characters of a label. Longer messages are texts."""
_MOST_WORDS = 8
"""Words of a label whose sign is not in front of the first one. A sentence may have an identifier such as `_id`."""
_SENTENCE = re.compile(r"[^.][.!?]$")
"""The end of a sentence. A label may end with three dots."""
_OPENINGS = " \t([\"'“«>"
"""Characters that stand in front of a word."""
_NAME = re.compile(r"\w*+(?:\(\)|[=/\\]|\.\w)")
"""Follows the first letters of a name that programs read, such as `Some_name.txt`."""
_APPENDED = re.compile(r"[\u0e00-\u0eff\u1100-\u11ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Letters that keyboards lack keys for. Their labels have the key of a Latin letter behind them."""
_MENU_ENDINGS = ("...", "…", ":")
"""The end of a label that opens a dialog, or that stands in front of a field."""
_LABEL_END = " .…:：。"
"""Characters at the end of a label, behind its appended accelerator."""
_CODES = re.compile(r"<(?:ph|bpt|ept|it)\b[^<>]*>[^<>]*</\w+>|<[^<>]*>|&\#?\w++;")
"""Parts of a message that are no words, besides placeholders."""


class Accelerator(NamedTuple):
    """The accelerator of a label: its sign as it is written, and the letter behind it."""

    sign: str
    letter: str


class Accelerators:
    """The accelerators of one file, so that different labels get different letters while there are free ones."""

    def __init__(
        self, labels: Iterable[str], signs: Sequence[str] = SIGNS, is_xml: bool = False, declared: bool = False
    ) -> None:
        """Find the signs that the file uses.

        Args:
            labels: the messages of the file, also those that are translated already.
            signs: the characters that stand in front of a letter. Only `&`, `_` and `~` are known.
            is_xml: whether `&` is written as a reference.
            declared: whether the file names the signs itself, so that no label has to show them.
        """
        self._signs = [sign for sign in signs if sign in _RUNS]
        if is_xml:
            self._signs = [sign.replace("&", "&amp;") for sign in self._signs]

        self._taken: set[str] = set()
        self._used: set[str] = set()
        if declared:
            self._used.update(self._signs)

        for label in labels:
            accelerator = self.split(label)[1]
            if accelerator is not None:
                self._used.add(accelerator.sign)

    def split(self, label: str) -> tuple[str, Accelerator | None]:
        """Return a label without its accelerator, and the accelerator. Other messages stay, and have none."""
        if len(label) > _LONGEST:
            return label, None

        for sign in self._signs:
            place = _only_place(label, sign)
            if place is None:
                continue
            behind = place + len(sign)
            accelerator = Accelerator(sign, label[behind])
            if label[:place].endswith("(") and label[behind + 1 : behind + 2] == ")":
                return label[: place - 1].rstrip() + label[behind + 2 :], accelerator
            if _is_in_label(label, place, behind, sign, sign in self._used):
                return label[:place] + label[behind:], accelerator
        return label, None

    def take(self, label: str, translation: str) -> None:
        """Take the letter of a label that is translated already."""
        accelerator = self.split(label)[1]
        if accelerator is None:
            return
        place = _only_place(translation, accelerator.sign)
        if place is not None:
            self._taken.add(translation[place + len(accelerator.sign)].lower())

    def put(self, translation: str, accelerator: Accelerator) -> str:
        """Return the translation of a label with an accelerator, on its first letter that is free in the file.

        If none is free, it is on the first one. A translation without letters stays as it is. A sign that the model
        wrote is doubled, which is how programs write the character itself.
        """
        sign = accelerator.sign
        spans = _spans(translation, sign)

        if _APPENDED.search(translation):
            self._taken.add(accelerator.letter.lower())
            end = len(translation.rstrip(_LABEL_END))
            words = _with_doubled(translation, 0, end, sign, spans)
            return f"{words}({sign}{accelerator.letter.upper()}){translation[end:]}"

        letters = _letters(translation, sign, spans)
        if not letters:
            return translation

        free = [place for place in letters if translation[place].lower() not in self._taken]
        place = (free or letters)[0]
        self._taken.add(translation[place].lower())

        before = _with_doubled(translation, 0, place, sign, spans)
        behind = _with_doubled(translation, place, len(translation), sign, spans)
        return f"{before}{sign}{behind}"


def _only_place(label: str, sign: str) -> int | None:
    """Return the place of a sign that stands once in front of a letter or digit, as tools for gettext ask.

    A sign twice is the character itself, and `&name;` is a reference.
    """
    places = []
    for match in _RUNS[sign].finditer(label):
        is_reference = sign != "_" and _REFERENCE.match(label, match.end())
        if match[0] == sign and not is_reference:
            places.append(match.start())
    if len(places) != 1:
        return None

    behind = places[0] + len(sign)
    if not label[behind : behind + 1].isalnum():
        return None
    return places[0]


def _is_in_label(label: str, place: int, behind: int, sign: str, is_used: bool) -> bool:
    """Return whether a sign is an accelerator, and not part of a name such as "R&D" or `some_name`.

    Args:
        label: the message.
        place: of the sign.
        behind: the place behind it.
        sign: the sign.
        is_used: whether other labels of the file have the sign.
    """
    if sign == "_" and _NAME.match(label, behind):
        return False

    before = _CODES.sub("", label[:place]).lstrip()
    if not before:
        # Names begin with small letters, as `_id` does, and labels with capital ones.
        return sign != "_" or not label[behind].islower()

    is_text = "\n" in label or _SENTENCE.search(label) or len(label.split()) > _MOST_WORDS
    if is_text or before[0].islower():
        return False
    if _is_in_word(label, place, behind):
        return True
    return label[place - 1] in _OPENINGS and (is_used or label.endswith(_MENU_ENDINGS))


def _is_in_word(label: str, place: int, behind: int) -> bool:
    """Return whether a sign is in a word of a label, as in "E&xit" and "F_ormat". Arguments: [`_is_in_label`]."""
    start = place
    while start > 0 and label[start - 1].isalpha():
        start -= 1
    end = behind
    while end < len(label) and label[end].isalpha():
        end += 1

    word = label[start:place] + label[behind:end]
    is_whole = start == 0 or label[start - 1] in _OPENINGS
    if start == place or not is_whole:
        return False

    # Small letters follow a capital one. "R&D", "Q&a" and `MAX_SIZE` are no words.
    return len(word) > 2 and word[0].isupper() and word[1:].islower()


def _spans(translation: str, sign: str) -> list[tuple[int, int]]:
    """Return the places of parts of a translation that are no words, such as placeholders and tags."""
    spans = []
    for expression in (PLACEHOLDER, _CODES):
        for match in expression.finditer(translation):
            # In XML the sign is written as a reference, too.
            if match[0] != sign:
                spans.append(match.span())
    return sorted(spans)


def _letters(translation: str, sign: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the places of the letters of a translation, in front of the name of a key such as Ctrl+S."""
    end = translation.find("\t")
    if end < 0:
        end = len(translation)
    # In XML the sign itself has letters. It would be no reference with another one in it.
    of_signs = [match.span() for match in _RUNS[sign].finditer(translation)]
    in_spans = set()
    for start, span_end in [*spans, *of_signs]:
        in_spans.update(range(start, span_end))
    return [place for place in range(end) if translation[place].isalpha() and place not in in_spans]


def _with_doubled(translation: str, start: int, end: int, sign: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return the part of a translation from a start to an end, in which a sign outside of spans is doubled."""
    parts = []
    for match in _RUNS[sign].finditer(translation, start, end):
        is_in_span = any(first <= match.start() < last for first, last in spans)
        if not is_in_span:
            parts.append((match.start() - start, match.end() - start, sign * 2))
    return replaced(translation[start:end], parts)
