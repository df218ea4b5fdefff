"""Subtitles: SubRip (.srt) and WebVTT (.vtt). Numbers, times, settings, styles and comments stay.

A sentence that goes on in the next cue is translated as a whole. Its translation is cut again, in proportion to the
lengths of the cues.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hf_capsule_mt.errors import UserError

from .base import Document, FileFormat, cut_in_proportion, decoded, text_with_tags, without_new_references

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_TIME = r"(?:\d+:)?\d{1,2}:\d{1,2}[.,]\d{1,3}"
_TIMES = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}")
# In front of a text: where it is shown, notes of music, and the dash of somebody who begins to speak.
_LEAD = re.compile(r"\s*(?:\{\\[^}]*\}\s*|[♪♫#]+\s*|[-–—]\s*(?=\S))*")
_DASH = re.compile(r"\s*(?:\{\\[^}]*\}\s*)?[-–—]\s*\S")
_KEEP = r"<[\d:.]+>|&\w+;|\{\\[^}]*\}|[♪♫]+"
_SENTENCE_END = re.compile(r"[.?!…。？！♪:]['\"”’»)\]]*$")
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
            return re.match(r"WEBVTT(?:\s|$)", beginning) is not None
        number, _, rest = beginning.partition("\n")
        return number.strip().isdecimal() and _TIMES.match(rest) is not None

    def read(self, data: bytes, target_lang: str | None = None) -> "_Cues":
        """Read subtitles."""
        return _Cues(decoded(data), self._is_vtt)


@dataclass
class _Slot:
    """A place in a file for a part of a translation."""

    start: int
    end: int
    text: str  # What stands there, in one line.
    line_lengths: list[int]
    line_break: str  # The end of a line in this file.


class _Cues(Document):
    def __init__(self, content: str, is_vtt: bool) -> None:
        self._content = content
        self._sentences = [group for group in _sentences(_slots(content)) if _has_letters(group)]
        if not self._sentences and _TIMES.search(content) is None:
            raise UserError("There are no cues, which begin with a line such as 00:00:01,000 --> 00:00:02,000.")
        self.texts = []
        for group in self._sentences:
            text = text_with_tags(" ".join(slot.text for slot in group), _KEEP)
            # Only WebVTT has references such as &amp;, which are read with tags.
            has_references = is_vtt and "&" in text.text and "<" not in text.text
            self.texts.append(text._replace(tags=text.tags or has_references))

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the subtitles with their translations."""
        parts = []
        end = 0
        for group, text, translation in zip(self._sentences, self.texts, translations, strict=True):
            translation = without_new_references(text, translation)
            pieces = cut_in_proportion(translation, [len(slot.text) for slot in group])
            for slot, piece in zip(group, pieces, strict=True):
                parts.append(self._content[end : slot.start])
                parts.append(slot.line_break.join(cut_in_proportion(piece, slot.line_lengths)))
                end = slot.end
        parts.append(self._content[end:])
        return "".join(parts).encode()


def _slots(content: str) -> Iterator[_Slot]:
    """Yield the text of each cue, or of each speaker in it."""
    lines: list[tuple[int, str]] = []
    is_cue = False
    place = 0
    # A blank line at the end closes the last cue.
    for line in [*_LINE.findall(content), "\n"]:
        has_times = _TIMES.match(line) is not None
        if is_cue and (has_times or not line.strip()):
            yield from _slots_of_cue(lines)
            is_cue = False
        if has_times:
            is_cue = True
            lines = []
        elif is_cue:
            lines.append((place, line))
        place += len(line)


def _slots_of_cue(lines: Sequence[tuple[int, str]]) -> Iterator[_Slot]:
    """Yield the text of a cue. If each of its lines begins with a dash, each is the text of another speaker."""
    has_speakers = len(lines) > 1 and all(_DASH.match(line) for _, line in lines)
    groups: list[Sequence[tuple[int, str]]] = [lines]
    if has_speakers:
        groups = [[line] for line in lines]
    for group in groups:
        if not group:
            continue
        start, first = group[0]
        last_start, last = group[-1]
        begin = start + _LEAD.match(first).end()
        text = "".join(line for _, line in group)[begin - start :].strip()
        line_lengths = [len(line.strip()) for line in text.split("\n")]
        line_break = "\r\n" if first.endswith("\r\n") else "\n"
        yield _Slot(begin, last_start + len(last.rstrip()), " ".join(text.split()), line_lengths, line_break)


def _sentences(slots: Iterator[_Slot]) -> Iterator[list[_Slot]]:
    """Yield the slots of each sentence.

    One with tags is by itself. Otherwise a cut could separate a tag from its end.
    """
    group: list[_Slot] = []
    for slot in slots:
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


def _has_letters(group: Sequence[_Slot]) -> bool:
    text = "".join(slot.text for slot in group)
    return any(map(str.isalpha, text))
