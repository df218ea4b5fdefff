"""Numbers of sentences and of their faults, as corpora and the last lines of commands have them."""

from collections.abc import Mapping

from ..translation import PreparedText, Translation
from .faults import FAULTS

COUNTED = tuple(fault.name for fault in FAULTS if fault.holds is not None and not fault.needs_pass)
"""The faults that are found without another pass of the model."""


class RowCounts(dict[str, int]):
    """What became of the sentences of a row: numbers by their names. Sums are those of a corpus.

    "segments" is the number of sentences, also of those that were translated for another row. "words" are those of the
    source, between white space. "copied" sentences have no letters. The others are the faults of [`COUNTED`].
    """

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        super().__init__(dict.fromkeys(("segments", "words", "copied", *COUNTED), 0))
        for name, number in (counts or {}).items():
            # As finished outputs of earlier clones call it.
            self["source_cut" if name == "cut" else name] = number

    def __add__(self, other: Mapping[str, int]) -> "RowCounts":
        return RowCounts({name: number + other[name] for name, number in self.items()})

    @classmethod
    def of(cls, text: PreparedText, translation: Translation) -> "RowCounts":
        """Return the numbers of a text whose sentences were judged."""
        counts = cls()
        for sentence, translated in zip(text.sentences, translation.sentences, strict=True):
            if not sentence.segment.text:
                continue
            faults = {name: int(translated.record[name]) for name in COUNTED}
            words = len(sentence.segment.text.split())
            counts += cls({"segments": 1, "words": words, "copied": int(sentence.copy is not None), **faults})
        return counts
