"""The texts that an evaluation compares, line by line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .scores import check_aligned


@dataclass(frozen=True)
class AlignedTexts:
    """Texts of which segment i belongs to the same sentence.

    Attributes:
        systems: translations by the name of the system.
        references: one or more translations that are right.
        sources: the sentences that were translated, where they are needed.

    Raises:
        ValueError: if they differ in length, or there are none.
    """

    systems: Mapping[str, Sequence[str]]
    references: Sequence[Sequence[str]]
    sources: Sequence[str] | None = None

    def __post_init__(self) -> None:
        first, *others = self.systems
        check_aligned(self.systems[first], self.references)
        named = [(name, self.systems[name]) for name in others]
        if self.sources is not None:
            named.append(("the sources", self.sources))
        for name, text in named:
            if len(text) != len(self.systems[first]):
                raise ValueError(
                    f"{len(self.systems[first])} segments in {first} but {len(text)} in {name}; align them by line"
                )
