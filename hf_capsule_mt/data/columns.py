"""The two sides of a row whose fields have names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# One segment of each side, None where its bytes are not UTF-8.
RawPair = tuple[str | None, str | None]


@dataclass(frozen=True)
class Columns:
    """Names by which rows tell source from target.

    A row is {"translation": {"en": "...", "de": "..."}}, read by its languages, or flat, {"en": "...", "de": "..."},
    read by its columns, which are called as the languages are unless they are named.

    Args:
        source_lang: source language, as the data names it.
        target_lang: target language, likewise.
        source_column: column of the source in flat rows.
        target_column: column of the target, likewise.
    """

    source_lang: str | None = None
    target_lang: str | None = None
    source_column: str | None = None
    target_column: str | None = None

    @property
    def source(self) -> str | None:
        """The column of the source in flat rows, or None."""
        return self.source_column or self.source_lang

    @property
    def target(self) -> str | None:
        """The column of the target in flat rows, or None."""
        return self.target_column or self.target_lang

    def check(self, where: str) -> None:
        """Raise a ValueError, about the data at `where`, unless each side has a name of its own."""
        if None in (self.source, self.target):
            raise ValueError(
                f"{where} needs source_lang and target_lang, such as en and de, or source_column and target_column"
            )
        if self.source == self.target:
            raise ValueError(
                f"{where}: source and target are both {self.source!r}; name the two with source_lang and target_lang, "
                "or source_column and target_column"
            )

    def pick(self, row: Any, where: str) -> RawPair:
        """Return both sides of a row; null is an empty side.

        Raises:
            ValueError: if the row has no such side, or it is no string; the message begins with `where`.
        """
        if not isinstance(row, dict):
            raise ValueError(
                f'{where}: expected {{"translation": {{"en": "...", "de": "..."}}}} or {{"en": "...", ...}}.'
            )
        translation = row.get("translation")
        if "translation" in row and None in (self.source_column, self.target_column):
            if isinstance(translation, dict):
                return self._sides(translation, (self.source_lang, self.target_lang), "language", where)
            if translation is None and not {self.source, self.target} <= row.keys():
                return "", ""
        self.check_names(row, where)
        return self._sides(row, (self.source, self.target), "column", where)

    def wanted(self, names: Sequence[str], where: str) -> list[str]:
        """Return those columns of a table that hold the two sides; raise a ValueError if it has no such columns."""
        # Its rows tell whether it holds the languages, or is a side itself.
        nested = [name for name in names if name == "translation" and None in (self.source_column, self.target_column)]
        if not nested:
            self.check_names(names, where)
        return [name for name in dict.fromkeys((*nested, self.source, self.target)) if name in names]

    def check_names(self, names: Iterable[str], where: str) -> None:
        """Raise a ValueError unless both sides are among the `names` of flat columns."""
        for option, name in zip(("source_column", "target_column"), (self.source, self.target)):
            if name not in names:
                raise ValueError(f'{where}: no column "{name}", only {", ".join(names)}; name one with {option}.')

    def _sides(self, fields: dict[str, Any], names: tuple[str | None, str | None], kind: str, where: str) -> RawPair:
        for name in names:
            if name not in fields:
                raise ValueError(f'{where}: no {kind} "{name}", only {", ".join(fields)}.')
            if not isinstance(fields[name], str | None):
                raise ValueError(f'{where}: "{name}" must be a string, not {fields[name]!r:.80}.')
        return _encodable(fields[names[0]] or ""), _encodable(fields[names[1]] or "")


def _encodable(text: str) -> str | None:
    # JSON can spell half of a surrogate pair, which no UTF-8 can.
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text
