"""Glossaries that clients make and use, in memory. Each belongs to the owner of a key."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from uuid import uuid4

from hf_capsule_mt.language_tags import known_code
from hf_capsule_mt.translation.terms.files import read_rows
from hf_capsule_mt.translation.terms.forcing import check_glossary
from hf_capsule_mt.translation.terms.glossary import Entry, Glossary

from .models import ServedModel
from .refusals import RequestError

MOST_GLOSSARIES = 1000
"""The most glossaries of an owner, as DeepL has it."""
MOST_ENTRIES = 100_000
"""The most entries of all glossaries of an owner. An entry takes some hundred bytes besides its text."""
MOST_CHARACTERS = 5_000_000
"""The most characters of all these entries."""
MOST_CHARACTERS_OF_NAME = 1000
_QUOTA = 456
"""DeepL's status for a quota that is used up."""


@dataclass(frozen=True)
class Dictionary:
    """The terms of one pair of languages."""

    source: str
    target: str
    glossary: Glossary

    @property
    def entries(self) -> str:
        """The entries, as tab-separated values."""
        lines = []
        for entry in self.glossary.entries:
            # A client writes one term on each side.
            [source] = entry.sources
            [target] = entry.targets
            lines.append(f"{source}\t{target}")
        return "\n".join(lines)

    def is_for(self, source: str, target: str) -> bool:
        """Return whether it is for texts in these languages. One for pt is also for pt-BR."""
        return _are_one_pair((self.source, self.target), (source, target))


@dataclass(frozen=True)
class ClientGlossary:
    """A glossary with a dictionary for each pair of languages."""

    owner: str
    name: str
    dictionaries: list[Dictionary]
    number: str = field(default_factory=lambda: str(uuid4()))
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    @cached_property
    def num_entries(self) -> int:
        """The entries of all dictionaries."""
        return sum(len(dictionary.glossary.entries) for dictionary in self.dictionaries)

    @cached_property
    def num_characters(self) -> int:
        """The characters of all entries."""
        count = 0
        for dictionary in self.dictionaries:
            for entry in dictionary.glossary.entries:
                count += len(entry.sources[0]) + len(entry.targets[0])
        return count

    def dictionary(self, source: str, target: str) -> Dictionary:
        """Return the dictionary for a pair of languages.

        Raises:
            RequestError: if there is none.
        """
        for dictionary in self.dictionaries:
            if dictionary.is_for(source, target):
                return dictionary
        pairs = ", ".join(f"{dictionary.source} to {dictionary.target}" for dictionary in self.dictionaries)
        message = f"The glossary is for {pairs}, not for {source:.40} to {target:.40}."
        raise RequestError(400, message, reason="The glossary is for other languages.")


class GlossaryStore:
    """The glossaries of all clients. They are forgotten when the server stops."""

    def __init__(self) -> None:
        self._glossaries: dict[str, ClientGlossary] = {}

    def add(self, glossary: ClientGlossary) -> None:
        """Remember a glossary.

        Raises:
            RequestError: if its owner has too many, or they are too large together, or its name is too long.
        """
        if len(glossary.name) > MOST_CHARACTERS_OF_NAME:
            raise RequestError(400, f"The name has over {MOST_CHARACTERS_OF_NAME} characters.")
        others = self.of(glossary.owner)
        if len(others) >= MOST_GLOSSARIES:
            raise RequestError(_QUOTA, f"There are {MOST_GLOSSARIES} glossaries. Delete one first.")

        all_glossaries = [*others, glossary]
        num_entries = sum(one.num_entries for one in all_glossaries)
        num_characters = sum(one.num_characters for one in all_glossaries)
        if num_entries > MOST_ENTRIES or num_characters > MOST_CHARACTERS:
            raise RequestError(
                _QUOTA,
                f"All glossaries together may have {MOST_ENTRIES} entries and {MOST_CHARACTERS} characters. Delete one "
                "first.",
            )

        self._glossaries[glossary.number] = glossary

    def of(self, owner: str) -> list[ClientGlossary]:
        """Return the glossaries of an owner, the oldest first."""
        return [glossary for glossary in self._glossaries.values() if glossary.owner == owner]

    def find(self, owner: str, number: str) -> ClientGlossary:
        """Return a glossary by its number.

        Raises:
            RequestError: if its owner has none with this number.
        """
        glossary = self._glossaries.get(number)
        if glossary is None or glossary.owner != owner:
            raise RequestError(404, "Glossary not found.")
        return glossary

    def remove(self, owner: str, number: str) -> None:
        """Forget a glossary.

        Raises:
            RequestError: if its owner has none with this number.
        """
        self.find(owner, number)
        del self._glossaries[number]


def read_dictionary(
    source: str, target: str, entries: str, entries_format: str, models: Sequence[ServedModel]
) -> Dictionary:
    """Read the entries of a client.

    Args:
        source: code of the source language.
        target: code of the target language.
        entries: a source and a target in each line.
        entries_format: "tsv" or "csv".
        models: one of them must translate these languages, and be able to write the terms.

    Raises:
        RequestError: if there is no such model or format, or an entry is for other languages.
        UserError: if a row is wrong, or a term is empty, too long, there twice, or cannot be written.
    """
    suitable = []
    for model in models:
        if model.obeys_glossaries and _are_one_pair((model.source, model.target), (source, target)):
            suitable.append(model)
    if not suitable:
        message = f"Glossaries from {source:.40} to {target:.40} are not supported."
        raise RequestError(400, message, reason="No model obeys glossaries for these languages.")

    if entries_format not in ("tsv", "csv"):
        raise RequestError(400, "Value for 'entries_format' not supported.")

    terms = []
    for place, row in read_rows(entries.split("\n"), f".{entries_format}", "Entry "):
        if len(row) == 4 and not _are_one_pair((row[2], row[3]), (source, target)):
            message = f"{place} is for other languages than {source:.40} and {target:.40}."
            raise RequestError(400, message, reason=f"{place} is for other languages than its glossary.")
        # A client writes one term on each side, so no mark stands between alternatives.
        terms.append(Entry((row[0].strip(),), (row[1].strip(),), place))
    if not terms:
        raise RequestError(400, "The glossary has no entries.")

    glossary = Glossary(terms)
    for model in suitable:
        check_glossary(glossary, model.translator.tokenizer, model.translator.model.generation_config)
    return Dictionary(base_code(source), base_code(target), glossary)


def language_pairs(models: Sequence[ServedModel]) -> list[tuple[str, str]]:
    """Return the pairs of languages for which there may be glossaries."""
    pairs = [(base_code(model.source), base_code(model.target)) for model in models if model.obeys_glossaries]
    return list(dict.fromkeys(pairs))


def base_code(code: str) -> str:
    """Return the code of a language without its region: glossaries are for all regions."""
    return code.lower().replace("_", "-").partition("-")[0]


def _are_one(first: str, second: str) -> bool:
    """Return whether two codes stand for one language, in any region."""
    return known_code(base_code(first), [base_code(second)]) is not None


def _are_one_pair(first: tuple[str, str], second: tuple[str, str]) -> bool:
    """Return whether two pairs stand for one source and one target language, in any region."""
    return all(map(_are_one, first, second))
