"""Catalogues of gettext (.po): messages without a translation get one, which is marked as fuzzy for a reviewer."""

import gettext
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hf_capsule_mt.errors import UserError

from .base import Document, FileFormat, Place
from .messages import Message, warn_of_untranslated
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


class Catalogue(FileFormat):
    """Catalogues of gettext."""

    name = "po"
    title = "a catalogue of gettext"
    suffixes = (".po", ".pot")
    package = "translate"

    def is_begun_by(self, beginning: str) -> bool:
        """Return whether the first line that is no comment has a message."""
        lines = [line for line in beginning.splitlines() if line.strip() and not line.startswith("#")]
        return bool(lines) and lines[0].startswith(('msgid "', 'msgctxt "'))

    def read(self, data: bytes, target_lang: str | None = None) -> "_Catalogue":
        """Read a catalogue."""
        from translate.storage.pypo import pofile

        try:
            store = pofile.parsestring(data)
        # The library raises errors of many kinds.
        except Exception as error:
            raise UserError(f"The catalogue is damaged: {error}") from error
        return _Catalogue(store)


class _Catalogue(Document):
    def __init__(self, store: Any) -> None:
        self._store = store
        self._units = [unit for unit in store.units if _is_open(unit)]
        self._messages: list[list[Message]] = []
        self.texts = []
        for unit in self._units:
            is_format = any(map(unit.hastypecomment, _PERCENT_FORMATS))
            messages = [Message(string, is_format=is_format) for string in _as_list(unit.source)]
            self._messages.append(messages)
            place = Place(unit.line_number, str(unit.source), unit.getcontext() or None)
            for message in messages:
                self.texts += [text._replace(place=place) for text in message.texts]

    def written(self, translations: Sequence[str]) -> bytes:
        """Return the catalogue with its translations."""
        rest = iter(translations)
        untranslated = []
        self.left = []
        number = 0
        for unit, messages in zip(self._units, self._messages, strict=True):
            targets = [message.written(rest) for message in messages]
            behind = number + sum(len(message.texts) for message in messages)
            if None in targets:
                untranslated.append(unit.line_number)
                self.left += range(number, behind)
            else:
                unit.target = self._plurals(*targets) if unit.hasplural() else targets[0]
                unit.markfuzzy(True)
            number = behind
        warn_of_untranslated(untranslated, len(self._units))
        return bytes(self._store)

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


def _is_open(unit: "pounit") -> bool:
    """Return whether a message has words, and no translation yet."""
    # The header and obsolete messages are not translatable.
    if not unit.istranslatable() or unit.istranslated():
        return False
    # A fuzzy message has a translation, which a reviewer has not seen yet.
    has_target = any(str(string) for string in _as_list(unit.target))
    return not has_target and any(map(has_words, _as_list(unit.source)))


def _as_list(strings: Any) -> list[str]:
    if strings is None:
        return []
    return [str(string) for string in getattr(strings, "strings", [strings])]
