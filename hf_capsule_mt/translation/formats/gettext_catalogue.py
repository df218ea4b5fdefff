"""Catalogues of gettext (.po): messages without a translation get one, which is marked as fuzzy for a reviewer."""

import gettext
import re
from collections.abc import Sequence
from datetime import datetime
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

from hf_capsule_mt.errors import UserError

from .accelerators import SIGNS, Accelerators
from .base import Document, FileFormat, Kept, Reason, TextPlace
from .messages import Message
from .placeholders import has_words, with_placeholders_of

if TYPE_CHECKING:
    from translate.storage.pypo import pounit

_PERCENT_FORMATS = tuple(
    f"{language}-format"
    for language in (
        *("c", "objc", "gcc-internal", "python", "perl", "php", "ruby", "lua", "awk", "object-pascal", "javascript"),
        "java-printf",
    )
)
"""Flags of messages in which every `%` is the sign of a placeholder."""
_CHARSET = re.compile(r"(?<=charset=)[^\s\\\"]+")
_REVISION = re.compile(r'(?<=PO-Revision-Date:)[^\\"]*')
_SOURCE = re.compile(r"\s*(?:msgctxt|msgid)\b")
_NO_LIMIT = 1_000_000_000
"""The length of lines that are broken only where the message has a line break."""


class _Entry(NamedTuple):
    """A message of a catalogue, the number of its first line from 0, and that of the line behind it."""

    unit: "pounit"
    start: int
    end: int


class Catalogue(FileFormat):
    """Catalogues of gettext."""

    name = "po"
    title = "a catalogue of gettext"
    suffixes = (".po", ".pot")
    package = "translate"
    has_fuzzy = True

    def is_begun_by(self, beginning: str) -> bool:
        """Return whether the first line that is no comment has a message."""
        lines = [line for line in beginning.splitlines() if line.strip() and not line.startswith("#")]
        return bool(lines) and lines[0].startswith(('msgid "', 'msgctxt "'))

    def __init__(self, fuzzy: bool = False) -> None:
        """Read messages without a translation, and with `fuzzy` also those whose translation is fuzzy."""
        self._fuzzy = fuzzy

    def with_fuzzy(self) -> "Catalogue":
        """Return the format that translates fuzzy messages again."""
        return Catalogue(fuzzy=True)

    def read(self, data: bytes, target_lang: str | None = None) -> "_Catalogue":
        """Read a catalogue."""
        from translate.storage.pypo import pofile

        try:
            store = pofile.parsestring(data)
        # The library raises errors of many kinds.
        except Exception as error:
            raise UserError(f"The catalogue is damaged: {error}") from error
        return _Catalogue(data, store, self._fuzzy)


class _Catalogue(Document):
    """A catalogue. The library reads its messages, and only lines of new translations are written."""

    def __init__(self, data: bytes, store: Any, fuzzy: bool) -> None:
        self._store = store
        try:
            self._lines = data.decode(store.encoding).split(store.newline)
        except UnicodeDecodeError as error:
            raise UserError(f"The catalogue is damaged: it is not in {store.encoding}, as its header says.") from error

        self._entries = _entries(store, len(self._lines))
        self._open = [entry for entry in self._entries if _is_open(entry.unit, fuzzy)]
        if not fuzzy:
            self.kept = [
                _fuzzy(entry.unit) for entry in self._entries if entry.unit.isfuzzy() and _has_draft(entry.unit)
            ]

        accelerators = self._accelerators()
        self._messages: list[list[Message]] = []
        self.texts = []
        for entry in self._open:
            is_format = any(map(entry.unit.hastypecomment, _PERCENT_FORMATS))
            messages = []
            for string in _as_list(entry.unit.source):
                messages.append(Message(string, is_format=is_format, accelerators=accelerators))
            self._messages.append(messages)
            place = TextPlace(entry.unit.line_number, str(entry.unit.source), entry.unit.getcontext() or None)
            for message in messages:
                self.texts += [text._replace(place=place) for text in message.texts]

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the catalogue with its translations. All other lines stay byte for byte."""
        rest = iter(translations)
        self.left = []
        number = 0
        lines = []
        place = 0

        for entry, messages in zip(self._open, self._messages, strict=True):
            targets = [message.written(rest) for message in messages]
            behind = number + sum(len(message.texts) for message in messages)
            if None in targets:
                self.left += range(number, behind)
            else:
                self._translate(entry.unit, targets)
                source_lines = self._lines[entry.start : entry.end]
                lines += self._lines[place : entry.start]
                lines += _with_target(source_lines, str(entry.unit).split(self._store.newline))
                place = entry.end
            number = behind

        lines += self._lines[place:]
        if place:
            self._write_date(lines)
        return self._encoded(lines)

    def _accelerators(self) -> Accelerators:
        """Return the accelerators of the catalogue, with those of messages that stay."""
        labels = []
        for entry in self._entries:
            if entry.unit.istranslatable():
                labels += _as_list(entry.unit.source)

        sign = self._store.parseheader().get("X-Accelerator-Marker")
        signs = [sign.strip()] if sign else SIGNS
        accelerators = Accelerators(labels, signs, declared=bool(sign))

        are_open = set(map(id, self._open))
        for entry in self._entries:
            if id(entry) not in are_open and entry.unit.istranslatable():
                for source, target in zip(_as_list(entry.unit.source), _as_list(entry.unit.target)):
                    accelerators.take(source, target)
        return accelerators

    def _translate(self, unit: "pounit", targets: Sequence[str]) -> None:
        """Give a message its translation, for a reviewer to look at."""
        if unit.hastypecomment("no-wrap"):
            from translate.storage.pypo import PoWrapper

            unit.wrapper = PoWrapper(_NO_LIMIT)
        if unit.hasplural():
            unit.target = self._plurals(*targets)
        else:
            unit.target = targets[0]
        unit.markfuzzy(True)

    def _write_date(self, lines: list[str]) -> None:
        """Write the time of this translation into the header, if there is one."""
        if self._store.header() is None:
            return

        header = self._entries[0]
        now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M%z")
        for number in range(header.start, header.end):
            line, changes = _REVISION.subn(f" {now}", lines[number])
            if changes:
                lines[number] = line
                return

        for number in range(header.start, header.end):
            # The fields have an order. Other tools put this one behind the time of the template.
            if lines[number].startswith('"POT-Creation-Date:'):
                lines.insert(number + 1, f'"PO-Revision-Date: {now}\\n"')
                return

    def _encoded(self, lines: list[str]) -> bytes:
        """Return the bytes of the catalogue, in UTF-8 if its own encoding lacks a character of the translation."""
        newline = self._store.newline
        try:
            return newline.join(lines).encode(self._store.encoding)
        except UnicodeEncodeError:
            # The header names it, and is the first message.
            number = next(number for number, line in enumerate(lines) if _CHARSET.search(line))
            lines[number] = _CHARSET.sub("UTF-8", lines[number])
            return newline.join(lines).encode()

    def _plurals(self, singular: str, plural: str) -> list[str]:
        """Return as many forms as the language of the catalogue has. A reviewer finds those that differ."""
        number, rule = self._store.getheaderplural()
        # A template does not tell yet.
        number = int(number) if number and number.isdecimal() else 2
        if number == 1:
            return [plural]

        # "one file" has no number.
        has_same_placeholders = with_placeholders_of(plural, singular) == singular
        first = plural
        if has_same_placeholders or _is_for_one(rule):
            first = singular
        return [first, *[plural] * (number - 1)]


def _is_for_one(rule: str | None) -> bool:
    """Return whether the first plural form is only for one thing. In Russian it is also for 21."""
    try:
        # It has no page in Python's documentation. Nothing else in Python's library reads a rule without a catalogue.
        form_of = gettext.c2py(rule or "")
    except ValueError:
        # The rule of a template, or a damaged one.
        return True
    return [count for count in range(200) if form_of(count) == 0] == [1]


def _entries(store: Any, num_lines: int) -> list[_Entry]:
    """Return the messages of a catalogue with their lines, up to the comments of the next one."""
    starts = [unit.line_number - 1 for unit in store.units]
    ends = [*starts[1:], num_lines]
    return [_Entry(unit, start, end) for unit, start, end in zip(store.units, starts, ends)]


def _with_target(lines: Sequence[str], written: Sequence[str]) -> list[str]:
    """Return the lines of a message with a new translation and its flags.

    Args:
        lines: the message as it stands in the file, with the blank lines behind it.
        written: the message as the library writes it, with the translation.
    """
    flags = [line for line in written if line.startswith("#,")]
    new_lines = []
    for line in takewhile(_is_no_target, lines):
        # The old message, for which the replaced translation was made.
        if line.startswith("#|"):
            continue
        is_flag = line.startswith("#,")
        if is_flag or _SOURCE.match(line):
            new_lines += flags
            flags = []
        if not is_flag:
            new_lines.append(line)

    new_lines += filter(None, dropwhile(_is_no_target, written))
    blank_lines = list(takewhile(_is_blank, reversed(lines)))
    return new_lines + blank_lines[::-1]


def _is_no_target(line: str) -> bool:
    return not line.lstrip().startswith("msgstr")


def _is_blank(line: str) -> bool:
    return not line.strip()


def _is_open(unit: "pounit", fuzzy: bool) -> bool:
    """Return whether a message has words, and no translation yet, or a fuzzy one that is to be replaced."""
    # The header and obsolete messages are not translatable.
    if not unit.istranslatable() or unit.istranslated():
        return False
    # A fuzzy message has a translation, which a reviewer has not seen yet.
    has_target = any(str(string) for string in _as_list(unit.target))
    if has_target and not fuzzy:
        return False
    return any(map(has_words, _as_list(unit.source)))


def _has_draft(unit: "pounit") -> bool:
    """Return whether a message has words and a translation. The header and obsolete messages are none."""
    has_target = any(map(str, _as_list(unit.target)))
    return unit.istranslatable() and has_target and any(map(has_words, _as_list(unit.source)))


def _fuzzy(unit: "pounit") -> Kept:
    """Return a message whose fuzzy translation stays."""
    return Kept(Reason.FUZZY, unit.line_number, str(unit.source))


def _as_list(strings: Any) -> list[str]:
    if strings is None:
        return []
    return [str(string) for string in getattr(strings, "strings", [strings])]
