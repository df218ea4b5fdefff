"""The hypotheses of a search that must write given terms, in banks: one for each number of terms that they have.

A sentence with T terms has T + 1 banks of the same width. Without them a hypothesis that has begun a term would fall
out of the beam, because those without terms have better scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from .search import NEVER, Settings
from .term_automaton import Forms, State, TermAutomaton, WordBoundaries

_MOST_ROWS = 32
"""Hypotheses of a sentence, in all banks."""
_LEAST_WIDTH = 2
"""Hypotheses of a bank."""
MOST_FINISHED = 8
"""Translations of a sentence that are kept, or more in wider banks. Of many, more often one has no copies of a term."""
_SURE_OF_END = 0.5
"""A hypothesis without all terms is closed if the end has more probability."""

Proposals = dict[tuple[int, int], float]
"""The scores of continuations of a sentence, by the row that they continue and their token."""


class Candidate(NamedTuple):
    """A hypothesis with one more token."""

    score: float
    """The sum of its log-probabilities."""
    parent: int
    """The row that it continues."""
    token: int
    state: State


@dataclass(frozen=True)
class Finished:
    """A translation that has ended."""

    missing: int
    """The number of terms that it lacks. It is not 0 only at the limit of its length."""
    score: float
    """As `sequences_scores` of `generate()`."""
    tokens: list[int]
    """Its tokens with the start token and the end."""

    @property
    def rank(self) -> tuple[int, float]:
        """The best translation has the smallest rank."""
        return self.missing, -self.score


@dataclass(frozen=True)
class TermBanks:
    """The terms of every sentence of a batch, and the size of their banks."""

    automata: Sequence[TermAutomaton]
    width: int
    """The number of hypotheses in a bank."""

    @classmethod
    def of(cls, terms: Sequence[Sequence[Forms]], width: int, boundaries: WordBoundaries | None = None) -> "TermBanks":
        """Return banks that have, for each sentence, at most 32 hypotheses in all.

        Args:
            terms: the forms of each term of each sentence. Those that banks of two have no room for are left out.
            width: hypotheses of a bank, if there is room for them. See [`default_bank_width`].
            boundaries: which tokens may stand in one word. None: terms may stand inside a word.
        """
        most = max(map(len, terms))
        while width > _LEAST_WIDTH and (most + 1) * width > _MOST_ROWS:
            width -= 1
        fitting = _MOST_ROWS // width - 1
        return cls([TermAutomaton(of_sentence[:fitting], boundaries) for of_sentence in terms], width)

    def settings(self, settings: Settings) -> Settings:
        """Return the settings of a search with a row for every hypothesis of all banks."""
        most = max(automaton.num_terms for automaton in self.automata)
        return replace(settings, num_beams=(most + 1) * self.width, num_return_sequences=1)

    def of_sentences(self, rows: int) -> list["SentenceBanks"]:
        """Return the banks of each sentence, which have so many hypotheses in all."""
        return [SentenceBanks(automaton, rows, self.width) for automaton in self.automata]


def default_bank_width(num_beams: int) -> int:
    """Return the hypotheses of a bank, for a search that has so many beams without terms."""
    return 1 if num_beams == 1 else max(3, num_beams // 2 + 1)


class SentenceBanks:
    """The hypotheses of one sentence, and its translations that have ended.

    Args:
        automaton: the terms of the sentence.
        rows: the number of hypotheses of all banks.
        width: the number of hypotheses in a bank.
    """

    def __init__(self, automaton: TermAutomaton, rows: int, width: int) -> None:
        self.automaton = automaton
        self.width = width
        self.states = [State()] * rows
        self.finished: list[Finished] = []

    @property
    def num_proposals(self) -> int:
        """How many of the best continuations of all hypotheses are looked at."""
        return 2 * (self.automaton.num_terms + 1) * self.width

    def continuations(self) -> list[tuple[int, int]]:
        """Return the row and the token of every continuation of a term."""
        places = []
        for row, state in enumerate(self.states):
            places += [(row, token) for token in self.automaton.continuations(state)]
        return places

    def missing(self, state: State) -> int:
        """Return how many terms a hypothesis lacks."""
        return self.automaton.num_terms - self.automaton.num_placed(state)

    def closed_rows(self, scores: Sequence[float], end_probabilities: Sequence[float]) -> set[int]:
        """Return the rows that lack terms and want to end, unless all rows are like this.

        Args:
            scores: the scores of the rows.
            end_probabilities: the probability of the end after each row.
        """
        live = [row for row, score in enumerate(scores) if is_live(score)]
        closed = set()
        for row in live:
            if end_probabilities[row] > _SURE_OF_END and self.missing(self.states[row]):
                closed.add(row)
        return closed if len(closed) < len(live) else set()

    def allowed(
        self, proposed: Proposals, closed: set[int], ends: frozenset[int], is_at_limit: bool
    ) -> list[Candidate]:
        """Return the continuations that may be written, best first.

        Args:
            proposed: the continuations to choose from.
            closed: the rows that have no continuation but the rest of a term that they have begun.
            ends: the tokens that end a translation.
            is_at_limit: whether the translation ends with this token.
        """
        candidates = []
        least = NEVER / 2
        for (row, token), score in proposed.items():
            # The same as `is_live`, many times in every step.
            if score <= least:
                continue
            is_end = token in ends
            # The end belongs to no word, so it changes nothing in the terms.
            state = self.states[row] if is_end else self.automaton.after(self.states[row], token)
            if state is None:
                # The token would make another word of a term, as "s" after "house".
                continue
            if row in closed and not is_at_limit and not self._goes_on_with_term(row, state):
                continue
            ends_too_early = is_end and self.missing(state) > 0
            if is_at_limit or not ends_too_early:
                candidates.append(Candidate(score, row, token, state))
        return sorted(candidates, key=_best_first)

    def _goes_on_with_term(self, row: int, state: State) -> bool:
        """Whether a row is inside a term, and the state has one more token of it."""
        return 0 < len(self.states[row].walk) < len(state.walk)

    def finish(self, ended: Finished) -> None:
        """Keep the best translations that have ended."""
        self.finished.append(ended)
        self.finished.sort(key=lambda finished: finished.rank)
        del self.finished[max(self.width, MOST_FINISHED) :]

    def fill(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Choose the hypotheses of every bank from candidates, best first."""
        banks: list[list[Candidate]] = [[] for _ in range(self.automaton.num_terms + 1)]
        for candidate in candidates:
            banks[self.automaton.num_placed(candidate.state)].append(candidate)
        chosen = []
        # The bank without any term comes first, and the one with all of them last.
        for placed, bank in enumerate(banks):
            if placed < self.automaton.num_terms:
                bank = self._with_begun_terms(bank)
            chosen += bank[: self.width]
        return chosen

    def _with_begun_terms(self, bank: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates of a bank, so that half of its places are for those that are inside a term.

        Those that are furthest inside get these places. Otherwise a better hypothesis that begins a term would take
        the place of one that is inside, step after step, and no long term would be written to its end.
        """
        inside = []
        for candidate in bank:
            length = self.automaton.num_begun(candidate.state)
            if length > 0:
                inside.append((length, candidate))
        # Of equally long beginnings the best stays first.
        inside.sort(key=_longest_first)
        begun = [candidate for _, candidate in inside[: max(1, self.width // 2)]]
        others = [candidate for candidate in bank if candidate not in begun]
        return [*begun, *others]

    def complete_scores(self) -> list[float]:
        """Return the best scores of translations that have ended with all terms, as many as a bank is wide."""
        complete = [ended.score for ended in self.finished if not ended.missing]
        return complete[: self.width]

    def best_complete(self, scores: Sequence[float]) -> float:
        """Return the best score of a hypothesis that has all terms."""
        best = NEVER
        for state, score in zip(self.states, scores, strict=True):
            if not self.missing(state):
                best = max(best, score)
        return best


def is_live(score: float) -> bool:
    """Whether a row with this score holds a hypothesis."""
    return score > NEVER / 2


def _best_first(candidate: Candidate) -> tuple[float, int, int]:
    """Return the key that sorts candidates. Those with equal scores have the order of their rows."""
    return -candidate.score, candidate.parent, candidate.token


def _longest_first(inside: tuple[int, Candidate]) -> int:
    """Return the key that sorts candidates by the tokens of a term that stand in front of them."""
    return -inside[0]
