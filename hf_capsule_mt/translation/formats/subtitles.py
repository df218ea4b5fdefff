"""Subtitles: SubRip (.srt) and WebVTT (.vtt). Numbers, times, settings, styles and comments stay.

A sentence that goes on in the next cue is translated as a whole. Its translation is cut again, in proportion to the
lengths of the cues. `line_breaks.py` breaks the text of a cue into lines.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.long_work import next_step
from hf_capsule_mt.translation.tags.markup import read_markup
from hf_capsule_mt.translation.text.words import has_letters

from .base import (
    Document,
    FileFormat,
    Kept,
    Reason,
    TextPlace,
    cut_in_proportion,
    decoded,
    replaced,
    text_with_tags,
    without_new_references,
)
from .line_breaks import broken_into_lines, shown_length

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_TIME = r"(?:\d+:)?\d{1,2}:\d{1,2}[.,]\d{1,3}"
_TIMES = rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}"
# Behind a digit none begins, so that a long number is read once.
_ONE_TIME = re.compile(rf"(?<!\d){_TIME}")
_TIME_SIGN = re.compile("[:.,]")
_FIRST_LINE = re.compile(rf"^{_TIMES}", re.MULTILINE)
# Its text ends with a blank line, or with the times of the next one.
_CUE = re.compile(rf"^{_TIMES}[^\n]*\n(?P<text>(?:(?!{_TIMES})[^\S\n]*\S[^\n]*\n?)+)", re.MULTILINE)
# In front of a text: where it is shown, notes of music, and the dash of somebody who begins to speak.
_LEAD = re.compile(r"\s*(?:\{\\[^}]*\}\s*|[♪♫#]+\s*|[-–—]\s*(?=\S))*")
_DASH = re.compile(r"\s*(?:\{\\[^}]*\}\s*)?[-–—]\s*\S")
_KEEP = r"<[\d:.]+>|&\w+;|\{\\[^{}]*\}|[♪♫]+"
_SENTENCE_END = re.compile(r"[.?!…。？！♪:]['\"”’»)\]]*$")
# A comment of WebVTT goes on to an empty line.
_COMMENT = re.compile(r"^NOTE(?=\s)(?:[^\n]*\S[^\n]*(?:\n|\Z))+", re.MULTILINE)
_MOST_CUES = 6
"""The most cues of one sentence. Some subtitles have no full stops."""


class Subtitles(FileFormat):
    """Subtitles of one kind."""

    def __init__(self, name: str, title: str, is_vtt: bool) -> None:
        self.name = name
        self.title = title
        self.suffixes = (f".{name}",)
        self._is_vtt = is_vtt

    def is_begun_by(self, beginning: str) -> bool:
        """Return whether it has the mark of WebVTT, or the number and the times of a first cue of SubRip."""
        if self._is_vtt:
            return beginning.split(maxsplit=1)[:1] == ["WEBVTT"]
        number, _, rest = beginning.partition("\n")
        return number.strip().isdecimal() and _FIRST_LINE.match(rest) is not None

    def read(self, data: bytes, target_lang: str | None = None) -> "_Cues":
        """Read subtitles."""
        return _Cues(decoded(data), self._is_vtt)


@dataclass
class _Slot:
    """A place in a file for a part of a translation."""

    start: int
    end: int
    line: int  # From 1.
    cue_start: int  # The place of its cue, which may have several slots.
    cue: str  # The number or name of its cue.
    time: str  # When the cue begins.
    seconds: float  # How long the cue is shown.
    text: str  # What stands there, in one line.
    line_lengths: list[int]
    line_break: str  # The end of a line in this file.


class _Cues(Document):
    def __init__(self, content: str, is_vtt: bool) -> None:
        self._content = content
        self._sentences = []
        for group in _sentences(_slots(content)):
            if has_letters("".join(slot.text for slot in group)):
                self._sentences.append(group)
        if not self._sentences and _FIRST_LINE.search(content) is None:
            raise UserError("There are no cues, which begin with a line such as 00:00:01,000 --> 00:00:02,000.")

        self.texts = []
        for group in self._sentences:
            text = text_with_tags(" ".join(slot.text for slot in group), _KEEP)
            # Only WebVTT has references such as &amp;, which are read with tags.
            if is_vtt and "&" in text.text and "<" not in text.text:
                text = text._replace(markup=read_markup(text.text))
            self.texts.append(text._replace(place=_place(group)))

        if is_vtt:
            self.kept = list(_comments(content))

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the subtitles with their translations."""
        parts = []
        # The characters of each cue.
        lengths: Counter[int] = Counter()
        for text, group, translation in zip(self.texts, self._sentences, translations, strict=True):
            next_step()
            translation = without_new_references(text, translation)
            pieces = cut_in_proportion(translation, [len(slot.text) for slot in group])
            for slot, piece in zip(group, pieces, strict=True):
                lines = broken_into_lines(piece, slot.line_lengths)
                parts.append((slot.start, slot.end, slot.line_break.join(lines)))
                lengths[slot.cue_start] += shown_length(" ".join(lines))

        self.details = {number: _speed(group, lengths) for number, group in enumerate(self._sentences)}
        return replaced(self._content, parts).encode()


def _comments(content: str) -> Iterator[Kept]:
    """Yield the comments that have words."""
    for comment in _COMMENT.finditer(content):
        words = comment[0].removeprefix("NOTE")
        if has_letters(words):
            line = content.count("\n", 0, comment.start()) + 1
            yield Kept(Reason.COMMENTS, line, words)


def _slots(content: str) -> Iterator[_Slot]:
    """Yield the text of each cue. If each of its lines begins with a dash, each is the text of another speaker."""
    line = 1
    counted = 0
    end_before = 0
    for number, cue in enumerate(_CUE.finditer(content), 1):
        # The last line of the cue before is no name.
        name = content[content.rfind("\n", 0, cue.start() - 1) + 1 : cue.start()].strip()
        if not name or cue.start() == end_before:
            name = str(number)
        end_before = cue.end()

        time, end_time = [match[0] for match in islice(_ONE_TIME.finditer(cue[0]), 2)]
        seconds = _seconds(end_time) - _seconds(time)

        lines = _LINE.findall(cue["text"])
        has_speakers = all(map(_DASH.match, lines))
        place = cue.start("text")
        for part in lines if has_speakers else [cue["text"]]:
            start = place + _LEAD.match(part).end()
            place += len(part)
            line += content.count("\n", counted, start)
            counted = start

            written = content[start:place].rstrip()
            line_lengths = [len(line.strip()) for line in written.split("\n")]
            line_break = "\n"
            if "\r\n" in part:
                line_break = "\r\n"
            words = " ".join(written.split())
            end = start + len(written)
            yield _Slot(start, end, line, cue.start(), name, time, seconds, words, line_lengths, line_break)


def _seconds(time: str) -> float:
    """Return the seconds of a time such as 00:01:02,500."""
    *larger, seconds, fraction = _TIME_SIGN.split(time)
    total = float(f"{seconds}.{fraction}")
    for factor, number in zip((60, 3600), reversed(larger)):
        total += factor * int(number)
    return total


def _speed(sentence: Sequence[_Slot], lengths: Mapping[int, int]) -> dict[str, float]:
    """Return what a report says of the cues of a sentence: how fast the fastest one must be read.

    Args:
        sentence: its parts.
        lengths: the characters of each cue by its place.
    """
    speeds = [lengths[slot.cue_start] / slot.seconds for slot in sentence if slot.seconds > 0]
    if not speeds:
        return {}
    return {"characters_per_second": round(max(speeds), 1)}


def _place(sentence: Sequence[_Slot]) -> TextPlace:
    """Return where a sentence stands, with the names of its first and last cue, and the time of the first."""
    first = sentence[0]
    cue = first.cue
    if sentence[-1].cue != cue:
        cue = f"{cue} to {sentence[-1].cue}"
    return TextPlace(first.line, cue, first.time)


def _sentences(slots: Iterator[_Slot]) -> Iterator[list[_Slot]]:
    """Yield the slots of each sentence.

    One with tags is by itself. Otherwise a cut could separate a tag from its end.
    """
    group: list[_Slot] = []
    for slot in slots:
        next_step()
        is_single = "<" in slot.text or "{\\" in slot.text or not slot.text
        if group and (is_single or len(group) == _MOST_CUES):
            yield group
            group = []
        group.append(slot)
        if is_single or _SENTENCE_END.search(slot.text):
            yield group
            group = []

    if group:
        yield group
