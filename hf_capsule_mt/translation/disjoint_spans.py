"""Which words of a text each term gets, when several terms may want the same words.

"coat" and "jacket" may both be "Jacke". In a text with one "Jacke" one of the two terms gets it, and the other nothing.
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

Span = tuple[int, int, str]
"""First character, the character behind, and the form of the term that stands there."""


class _Candidate(NamedTuple):
    """A span that terms of one kind may have. Terms with the same spans are of one kind."""

    kind: int
    span: Span

    @property
    def start(self) -> int:
        """Its first character."""
        return self.span[0]

    @property
    def end(self) -> int:
        """The character behind it."""
        return self.span[1]


class _SpanChoice(NamedTuple):
    """Candidates that are taken, from left to right. Many choices begin alike, so each refers to the one before it."""

    number: int = 0
    """How many candidates are taken."""
    last: _Candidate | None = None
    before: "_SpanChoice | None" = None

    def with_next(self, candidate: _Candidate) -> "_SpanChoice":
        """Return these candidates and one more."""
        return _SpanChoice(self.number + 1, candidate, self)

    def candidates(self) -> list[_Candidate]:
        """Return the candidates, from left to right."""
        taken = []
        choice = self
        while choice.last is not None:
            taken.append(choice.last)
            choice = choice.before
        return taken[::-1]


_TermsLeft = tuple[int, ...]
"""How many terms of each kind have no span yet."""


def most_without_overlap(spans_of_terms: Sequence[Sequence[Span]]) -> list[Span | None]:
    """Choose at most one span for each term, so that none overlap and as many terms as possible have one.

    Args:
        spans_of_terms: the spans that each term may have.

    Returns:
        The span of each term, or None.
    """
    # The order of terms with the same spans does not matter. To try all orders of ten such terms would take forever.
    terms_of_kind: dict[tuple[Span, ...], list[int]] = {}
    for term, spans in enumerate(spans_of_terms):
        terms_of_kind.setdefault(tuple(spans), []).append(term)
    terms_left = tuple(len(terms) for terms in terms_of_kind.values())
    waiting_terms = list(terms_of_kind.values())
    chosen: list[Span | None] = [None] * len(spans_of_terms)
    for candidate in _largest_choice(_from_left(list(terms_of_kind)), terms_left):
        term = waiting_terms[candidate.kind].pop(0)
        chosen[term] = candidate.span
    return chosen


def _from_left(kinds: Sequence[Sequence[Span]]) -> list[_Candidate]:
    """Return the spans of all kinds from left to right, and of one start the longest first."""
    candidates = []
    for kind, spans in enumerate(kinds):
        candidates += [_Candidate(kind, span) for span in spans]

    def position(candidate: _Candidate) -> tuple[int, int, int]:
        return candidate.start, -candidate.end, candidate.kind

    return sorted(candidates, key=position)


def _largest_choice(candidates: Sequence[_Candidate], terms_left: _TermsLeft) -> list[_Candidate]:
    """Take as many candidates as possible that do not overlap, and at most as many of a kind as it has terms.

    Each candidate is taken or skipped, from left to right. What can follow depends on two things: the next candidate,
    and how many terms are left. Of all choices that agree in both, only the largest is remembered.

    Args:
        candidates: the candidates from left to right.
        terms_left: the number of terms of each kind.

    Returns:
        The candidates that are taken, from left to right.
    """
    starts = [candidate.start for candidate in candidates]
    last_of_kind = {candidate.kind: index for index, candidate in enumerate(candidates)}
    # The largest choices whose next candidate has this index. The index behind the last one is the end of the text.
    largest: list[dict[_TermsLeft, _SpanChoice]] = [{} for _ in range(len(candidates) + 1)]
    largest[0][terms_left] = _SpanChoice()
    for index, candidate in enumerate(candidates):
        kind = candidate.kind
        next_if_skipped = index + 1
        next_if_taken = bisect_left(starts, candidate.end)
        overlaps_later = next_if_taken != next_if_skipped
        for left, choice in largest[index].items():
            can_take = left[kind] > 0
            if can_take:
                left_then = _with_number(left, kind, left[kind] - 1)
                _remember(largest[next_if_taken], left_then, choice.with_next(candidate))
            # A candidate that overlaps no later one is always taken if it can be. To skip it never gives more.
            if overlaps_later or not can_take:
                # Terms of a kind without a later candidate make no difference any more. To count them as none
                # lets more choices agree, so fewer are remembered.
                left_then = _with_number(left, kind, 0) if last_of_kind[kind] == index else left
                _remember(largest[next_if_skipped], left_then, choice)
    return max(largest[-1].values(), key=attrgetter("number")).candidates()


def _with_number(left: _TermsLeft, kind: int, number: int) -> _TermsLeft:
    """Return how many terms are left of each kind, with another number for one kind."""
    return (*left[:kind], number, *left[kind + 1 :])


def _remember(largest: dict[_TermsLeft, _SpanChoice], left: _TermsLeft, choice: _SpanChoice) -> None:
    """Keep a choice if no other with the same terms left is as large."""
    if left not in largest or largest[left].number < choice.number:
        largest[left] = choice
