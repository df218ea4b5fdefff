"""What may be wrong with a translation: one table, which reports, pages, counts and the words of commands read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .signals import Signals

_LONG_SOURCE = 10
_LEAST_SHARE = 0.4
"""A translation is too short if its source has so many tokens, and it has less than this share of them."""
_LONGEST_PHRASE = 16
_TIMES_IN_A_ROW = 3
_REPEATED_TOKENS = 4
"""A repetition: the longest phrase, how often it stands in a row, and how many tokens are copies."""
_COPIED_SHARE = 0.5
"""A translation copies its source if this share of its words stands in the source. Names are copied too."""


@dataclass(frozen=True)
class Evidence:
    """What is known of a translation when it is judged."""

    source: Sequence[int]  # Token ids of its source, with the end.
    target: Sequence[int]  # Its token ids without the end.
    text: str
    has_end: bool = True  # Whether the model wrote an end.
    written: Sequence[int] | None = None  # Those of its token ids that stand in the text. By default all.
    is_source_cut: bool = False
    signals: Signals = field(default_factory=Signals)

    @property
    def source_length(self) -> int:
        """The number of tokens of the source without its end, at least 1."""
        return max(len(self.source) - 1, 1)


@dataclass(frozen=True)
class Fault:
    """Something that may be wrong with a translation. A line of a report has a field of its name, true or false."""

    name: str
    words: str
    """Of one translation, such as "far too short"."""
    of_several: str
    """Behind a number of translations, such as "far too short"."""
    holds: Callable[[Evidence], bool] | None = None
    """Whether a translation has it. None if only its file tells."""
    is_certain: bool = False
    """Whether it is never wrong: something is missing."""
    is_of_source: bool = False
    """Whether it is of the source, and not of the translation."""
    needs_pass: bool = False
    """Whether it is found only if the model reads the translation again."""


def repeated_tokens(ids: Sequence[int]) -> int:
    """Return how many tokens are copies of the phrase before them, for phrases three times in a row or more."""
    most = 0
    longest = min(_LONGEST_PHRASE, len(ids) // _TIMES_IN_A_ROW)
    for length in range(1, longest + 1):
        copies = 0
        for index in range(length, len(ids)):
            is_copy = ids[index] == ids[index - length]
            copies = copies + 1 if is_copy else 0
            if copies >= length * (_TIMES_IN_A_ROW - 1):
                most = max(most, copies)
    return most


def _is_too_short(evidence: Evidence) -> bool:
    """A part must be missing, as happens to lines with several sentences."""
    length = evidence.source_length
    return length >= _LONG_SOURCE and len(evidence.target) < _LEAST_SHARE * length


def _repeats(evidence: Evidence) -> bool:
    """It repeats a phrase many times, and its source does not."""
    copies = repeated_tokens(evidence.target if evidence.written is None else evidence.written)
    return copies >= _REPEATED_TOKENS and copies > repeated_tokens(evidence.source)


def _copies(evidence: Evidence) -> bool:
    return (evidence.signals.copied or 0.0) >= _COPIED_SHARE


FAULTS = (
    Fault(
        "left",
        "left in the source language",
        "left out, because a placeholder or a mark would get lost",
        is_certain=True,
    ),
    Fault("empty", "empty", "empty", lambda evidence: not evidence.text.strip(), is_certain=True),
    Fault(
        "limit_reached",
        "cut at the limit of its length",
        "at the limit of their length",
        lambda evidence: not evidence.has_end,
        is_certain=True,
    ),
    Fault(
        "source_cut",
        "the source was cut",
        "of a source that was cut",
        lambda evidence: evidence.is_source_cut,
        is_certain=True,
        is_of_source=True,
    ),
    Fault("too_short", "far too short", "far too short", _is_too_short),
    Fault("repeats", "repeats itself", "repeating", _repeats),
    Fault("copies", "copies its source", "copying their source", _copies, needs_pass=True),
    Fault(
        "adds_numbers",
        "adds a number",
        "with a number that their source lacks",
        lambda evidence: bool(evidence.signals.new_numbers),
        needs_pass=True,
    ),
    Fault(
        "other_script",
        "in another script",
        "in the script of another language",
        lambda evidence: evidence.signals.script is not None,
        needs_pass=True,
    ),
)
"""In the order in which reports name them."""


def faults_of(evidence: Evidence) -> tuple[str, ...]:
    """Return the names of the faults that a translation has."""
    return tuple(fault.name for fault in FAULTS if fault.holds is not None and fault.holds(evidence))


def faults_in(record: Mapping[str, Any]) -> list[Fault]:
    """Return the faults in a line of a report. Reports of earlier versions lack some fields."""
    return [fault for fault in FAULTS if record.get(fault.name)]


def named_with_numbers(counts: Mapping[str, int]) -> str:
    """Return how many translations have each fault, such as "2 empty, 1 repeating", or nothing."""
    return ", ".join(f"{counts[fault.name]} {fault.of_several}" for fault in FAULTS if counts.get(fault.name))
