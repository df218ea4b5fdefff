"""Which terms stand in a translation, followed token by token while it is written."""

from collections.abc import Sequence
from typing import NamedTuple

Forms = Sequence[Sequence[int]]
"""The forms of a term, as token ids."""


class WordBoundaries(NamedTuple):
    """Which tokens may stand in the same word as a neighbour. Both are `[vocabulary]`."""

    begins_inside: Sequence[bool]
    """Whether a token begins with a letter, without a space in front of it."""
    ends_inside: Sequence[bool]
    """Whether a token ends with a letter."""


class State(NamedTuple):
    """How much of its terms a hypothesis has."""

    placed: int = 0
    """A bit for each term that it has."""
    walk: tuple[int, ...] = ()
    """Its last tokens, if they begin a form of a missing term. They may be the whole form."""
    is_inside: bool = False
    """Whether its last token ends with a letter."""


class TermAutomaton:
    """Follows the terms of one sentence through the tokens of a translation.

    Tokens are read from left to right. The longest form at a place counts, forms do not overlap, and each term needs
    tokens of its own.

    With the form [7, 8, 9], the tokens 5, 7, 8 leave the walk (7, 8). With 9 after them the walk is the whole form. The
    term counts as written once a token follows that does not belong to the same word, or the translation ends.

    Args:
        terms: the forms of each term. Two equal terms must be written twice.
        boundaries: forms stand between word boundaries. None: they may stand inside a word.
    """

    def __init__(self, terms: Sequence[Forms], boundaries: WordBoundaries | None = None) -> None:
        self.terms = terms
        self.num_terms = len(terms)
        self._boundaries = boundaries
        self._terms_of_form: dict[tuple[int, ...], list[int]] = {}
        # Terms that have a form which begins like this, and goes on.
        self._terms_of_beginning: dict[tuple[int, ...], list[int]] = {}
        # The tokens that follow a beginning, with the term that wants them.
        self._following: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for term, forms in enumerate(terms):
            for form in forms:
                self._add(term, tuple(form))
        self._after: dict[tuple[State, int], State | None] = {}
        self._num_placed: dict[State, int] = {}

    def after(self, state: State, token: int) -> State | None:
        """Return the state after one more token, or None if the token would make a longer word of a whole form."""
        key = (state, token)
        if key not in self._after:
            self._after[key] = self._read(state, token)
        return self._after[key]

    def num_placed(self, state: State) -> int:
        """Return how many terms a hypothesis has if it ends, or goes on with another word."""
        if state not in self._num_placed:
            placed, _ = self._scan(state.placed, state.walk, can_start=True, is_end=True)
            self._num_placed[state] = placed.bit_count()
        return self._num_placed[state]

    def num_begun(self, state: State) -> int:
        """Return how many tokens a hypothesis has of a term that it has begun, and 0 if the term is whole."""
        return 0 if self._is_whole(state) else len(state.walk)

    def continuations(self, state: State) -> list[int]:
        """Return the tokens that begin a missing term, or go on with the one that is begun."""
        tokens = self._tokens_after(state.walk, state.placed)
        if not state.walk or self._is_whole(state):
            tokens |= self._tokens_after((), state.placed)
        return sorted(tokens)

    def _tokens_after(self, beginning: tuple[int, ...], placed: int) -> set[int]:
        """Return the tokens that follow a beginning in forms of missing terms."""
        tokens = set()
        for token, term in self._following.get(beginning, ()):
            if self._is_missing(term, placed):
                tokens.add(token)
        return tokens

    def _is_whole(self, state: State) -> bool:
        """Whether the walk is a form of a missing term."""
        return self._missing_term(state.walk, state.placed) is not None

    def _add(self, term: int, form: tuple[int, ...]) -> None:
        self._terms_of_form.setdefault(form, []).append(term)
        for length in range(len(form)):
            beginning = form[:length]
            self._terms_of_beginning.setdefault(beginning, []).append(term)
            self._following.setdefault(beginning, []).append((form[length], term))

    def _read(self, state: State, token: int) -> State | None:
        tokens = (*state.walk, token)
        can_start = True
        if not state.walk:
            can_start = not (state.is_inside and self._begins_inside(token))
        elif self._is_whole(state) and self._are_one_word(state.walk[-1], token):
            goes_on = self._begins_form(tokens, state.placed)
            if not goes_on:
                return None
        placed, walk = self._scan(state.placed, tokens, can_start, is_end=False)
        return State(placed, walk, is_inside=self._ends_inside(token))

    def _scan(
        self, placed: int, tokens: tuple[int, ...], can_start: bool, *, is_end: bool
    ) -> tuple[int, tuple[int, ...]]:
        """Read tokens from left to right. Return which terms are placed now, and the walk at the end.

        Args:
            placed: a bit for each term that is placed before them.
            tokens: the tokens.
            can_start: whether a form may begin with the first token.
            is_end: whether the translation ends behind them, so that no walk is left.
        """
        start = 0
        while start < len(tokens):
            if start > 0:
                can_start = not self._are_one_word(tokens[start - 1], tokens[start])
            length = 0
            if can_start:
                length = self._longest_beginning(tokens[start:], placed)
                is_open = start + length == len(tokens)
                if is_open and not is_end:
                    # The tokens to come decide which form it is, if any.
                    return placed, tokens[start:]
            whole = self._longest_form(tokens, start, length, placed)
            if whole is None:
                # A form may begin with the next token, also inside of what looked like the beginning of another.
                start += 1
            else:
                term, start = whole
                placed |= 1 << term
        return placed, ()

    def _longest_beginning(self, tokens: tuple[int, ...], placed: int) -> int:
        """Return how many of the first tokens are a form of a missing term, or begin one."""
        for length in range(len(tokens)):
            longer = tokens[: length + 1]
            if not self._begins_form(longer, placed):
                return length
        return len(tokens)

    def _longest_form(self, tokens: tuple[int, ...], start: int, length: int, placed: int) -> tuple[int, int] | None:
        """Return the missing term whose longest form stands at `start`, and where it ends. It is no part of a word."""
        for end in range(start + length, start, -1):
            term = self._missing_term(tokens[start:end], placed)
            if term is None:
                continue
            if end == len(tokens) or not self._are_one_word(tokens[end - 1], tokens[end]):
                return term, end
        return None

    def _begins_form(self, tokens: tuple[int, ...], placed: int) -> bool:
        longer = self._terms_of_beginning.get(tokens, ())
        whole = self._terms_of_form.get(tokens, ())
        return any(self._is_missing(term, placed) for term in (*longer, *whole))

    def _missing_term(self, form: tuple[int, ...], placed: int) -> int | None:
        """Return the first missing term that has this form."""
        for term in self._terms_of_form.get(form, ()):
            if self._is_missing(term, placed):
                return term
        return None

    def _is_missing(self, term: int, placed: int) -> bool:
        is_placed = placed >> term & 1
        return not is_placed

    def _are_one_word(self, token: int, following: int) -> bool:
        return self._ends_inside(token) and self._begins_inside(following)

    def _begins_inside(self, token: int) -> bool:
        return self._boundaries is not None and self._boundaries.begins_inside[token]

    def _ends_inside(self, token: int) -> bool:
        return self._boundaries is not None and self._boundaries.ends_inside[token]
