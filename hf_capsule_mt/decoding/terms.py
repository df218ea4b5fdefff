"""Beam search that must write given terms, such as those of a glossary.

A term has forms, which are token sequences, and one of them must stand in the translation. A sentence with T terms has
T + 1 banks of beams: bank k holds hypotheses that have k terms (Post and Vilar 2018 share one beam between the banks,
and Hokamp and Liu 2017 have one for each token of a term). A hypothesis that wants to end before it has all terms is
closed, because the model would go on with a second sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from .adapter import Decoding
from .search import Search, Settings, Translation
from .vocabulary import Vocabulary

Forms = Sequence[Sequence[int]]
"""The forms of a term, as token ids."""
_MOST_ROWS = 32
"""Hypotheses of a sentence, in all banks."""
_LEAST_WIDTH = 2
"""Hypotheses of a bank."""
_SURE_OF_END = 0.5
"""A hypothesis without all terms is closed if the end has more probability."""
_NEVER = -1e9
"""The score of a row that holds no hypothesis."""


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
    """Whether the token in front of the walk ends with a letter."""


class TermAutomaton:
    """Follows the terms of one sentence through the tokens of a translation.

    Tokens are read from left to right. The longest form at a place counts, forms do not overlap, and each term needs
    tokens of its own.

    Args:
        terms: the forms of each term. Two equal terms must be written twice.
        boundaries: forms stand between word boundaries. None: they may stand inside a word.
    """

    def __init__(self, terms: Sequence[Forms], boundaries: WordBoundaries | None = None) -> None:
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

    def continuations(self, state: State) -> list[int]:
        """Return the tokens that begin a missing term, or go on with the one that is begun."""
        tokens = {token for token, term in self._following.get(state.walk, ()) if self._is_missing(term, state.placed)}
        if not state.walk or self._missing_term(state.walk, state.placed) is not None:
            beginning = {token for token, term in self._following.get((), ()) if self._is_missing(term, state.placed)}
            tokens |= beginning
        return sorted(tokens)

    def _add(self, term: int, form: tuple[int, ...]) -> None:
        self._terms_of_form.setdefault(form, []).append(term)
        for length in range(len(form)):
            beginning = form[:length]
            self._terms_of_beginning.setdefault(beginning, []).append(term)
            self._following.setdefault(beginning, []).append((form[length], term))

    def _read(self, state: State, token: int) -> State | None:
        tokens = (*state.walk, token)
        can_start = bool(state.walk) or not (state.is_inside and self._begins_inside(token))
        is_whole = bool(state.walk) and self._missing_term(state.walk, state.placed) is not None
        if is_whole and self._are_one_word(state.walk[-1], token) and not self._begins_form(tokens, state.placed):
            return None
        placed, walk = self._scan(state.placed, tokens, can_start, is_end=False)
        return State(placed, walk, is_inside=not walk and self._ends_inside(token))

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
                if start + length == len(tokens) and not is_end:
                    return placed, tokens[start:]
            whole = self._longest_form(tokens, start, length, placed)
            if whole is None:
                start += 1
                continue
            term, start = whole
            placed |= 1 << term
        return placed, ()

    def _longest_beginning(self, tokens: tuple[int, ...], placed: int) -> int:
        """Return how many of the first tokens are a form of a missing term, or begin one."""
        length = 0
        while length < len(tokens) and self._begins_form(tokens[: length + 1], placed):
            length += 1
        return length

    def _longest_form(self, tokens: tuple[int, ...], start: int, length: int, placed: int) -> tuple[int, int] | None:
        """Return the missing term whose longest form stands at `start`, and where it ends. It is no part of a word."""
        for end in range(start + length, start, -1):
            term = self._missing_term(tokens[start:end], placed)
            is_apart = end == len(tokens) or not self._are_one_word(tokens[end - 1], tokens[end])
            if term is not None and is_apart:
                return term, end
        return None

    def _begins_form(self, tokens: tuple[int, ...], placed: int) -> bool:
        terms = (*self._terms_of_beginning.get(tokens, ()), *self._terms_of_form.get(tokens, ()))
        return any(self._is_missing(term, placed) for term in terms)

    def _missing_term(self, form: tuple[int, ...], placed: int) -> int | None:
        """Return the first missing term that has this form."""
        missing = [term for term in self._terms_of_form.get(form, ()) if self._is_missing(term, placed)]
        return min(missing, default=None)

    def _is_missing(self, term: int, placed: int) -> bool:
        return not placed >> term & 1

    def _are_one_word(self, token: int, following: int) -> bool:
        return self._ends_inside(token) and self._begins_inside(following)

    def _begins_inside(self, token: int) -> bool:
        return self._boundaries is not None and self._boundaries.begins_inside[token]

    def _ends_inside(self, token: int) -> bool:
        return self._boundaries is not None and self._boundaries.ends_inside[token]


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


def default_bank_width(num_beams: int) -> int:
    """Return the hypotheses of a bank, for a search that has so many beams without terms."""
    if num_beams == 1:
        return 1
    return 3 if num_beams <= 4 else num_beams // 2 + 1


class TermSearch(Search):
    """Writes the terms of each sentence.

    A bank keeps its best `width` hypotheses. In a bank that lacks terms, half of the places are for hypotheses that
    have begun a term. A sentence is finished when `width` of its translations have ended with all terms, and no
    hypothesis with all terms can be better.

    Args:
        decoding: runs the decoder for all sentences and rows.
        vocabulary: gives the scores of the next tokens.
        settings: those of `generate()`, as [`TermBanks.settings`] changes them.
        limits: the most new tokens of every sentence.
        banks: the terms of every sentence.
    """

    _ROWS = (*Search._ROWS, "scores")

    def __init__(
        self,
        decoding: Decoding,
        vocabulary: Vocabulary,
        settings: Settings,
        limits: Sequence[int],
        banks: TermBanks,
    ) -> None:
        super().__init__(decoding, vocabulary, settings, limits)
        sentences, rows, _ = self.tokens.shape
        self.width = banks.width
        # Sums of log-probabilities, `[sentences, rows]`. All hypotheses of a sentence begin the same.
        self.scores = torch.full((sentences, rows), _NEVER, dtype=torch.float32, device=self.device)
        self.scores[:, 0] = 0
        self.end_tokens = frozenset(settings.eos.tolist())
        # In the order of the sentences that are left, as all tensors.
        self.automata = list(banks.automata)
        self.states = [[State()] * rows for _ in range(sentences)]
        self.finished: list[list[Finished]] = [[] for _ in range(sentences)]

    def _read_constraints(self) -> None:
        super()._read_constraints()
        # Terms are chosen on the host, from the scores of all tokens.
        self.needs_all_scores = True

    def _extend(self, hidden: Tensor) -> None:
        log_probabilities = self._constrained(self.vocabulary.scores(hidden).float().log_softmax(-1))
        log_probabilities = log_probabilities.unflatten(0, self.scores.shape)
        proposals = self._proposals(log_probabilities)
        end_probabilities = log_probabilities[:, :, self.eos].exp().sum(-1).tolist()
        scores = self.scores.tolist()
        is_at_limit = (self.last_columns <= self.device_column).tolist()
        is_done = self.done.tolist()
        chosen: list[list[Candidate]] = []
        for sentence, proposed in enumerate(proposals):
            running = []
            if not is_done[sentence]:
                closed = self._closed_rows(sentence, scores[sentence], end_probabilities[sentence])
                candidates = self._allowed(sentence, proposed, closed, is_at_limit[sentence])
                running = self._collect(sentence, candidates, is_at_limit[sentence])
                if not candidates:
                    self._give_up(sentence, scores[sentence])
            chosen.append(self._fill_banks(self.automata[sentence], running))
        self._go_on(chosen)
        self._judge(is_at_limit)

    def _proposals(self, log_probabilities: Tensor) -> list[dict[tuple[int, int], float]]:
        """Return the scores of continuations by their row and token, for each sentence.

        They are the best of all rows, the best of each row, and every continuation of a term.

        Args:
            log_probabilities: of all tokens, `[sentences, rows, vocabulary]`.
        """
        totals = log_probabilities + self.scores.unsqueeze(-1)
        rows, size = totals.shape[1:]
        first_of_rows = torch.arange(rows, device=self.device).unsqueeze(-1) * size
        # Among these are also the best of all rows.
        of_rows = totals.topk(min(2 * rows, size))
        places = of_rows.indices + first_of_rows
        best_of_rows = _listed(of_rows.values[:, :, : self.width], places[:, :, : self.width])
        parts = [self._best_of_all(of_rows.values, places), best_of_rows]
        continuations = self._continuations(size)
        if continuations is not None:
            parts.append(_listed(totals.flatten(1).gather(1, continuations), continuations))
        proposals = []
        for lists in zip(*parts, strict=True):
            scores = {}
            for place, score in chain.from_iterable(lists):
                scores[divmod(place, size)] = score
            proposals.append(scores)
        return proposals

    def _best_of_all(self, values: Tensor, places: Tensor) -> list[list[tuple[int, float]]]:
        """Return the places and scores of the best continuations of each sentence, twice as many as it has rows.

        Other sentences of the batch may have more rows, and must not change which ones these are.

        Args:
            values: the best scores of each row, `[sentences, rows, best]`.
            places: their places, in the same shape.
        """
        best = values.flatten(1).topk(2 * values.shape[1])
        of_sentences = _listed(best.values, places.flatten(1).gather(1, best.indices))
        return [
            best_of_sentence[: 2 * (automaton.num_terms + 1) * self.width]
            for best_of_sentence, automaton in zip(of_sentences, self.automata, strict=True)
        ]

    def _continuations(self, size: int) -> Tensor | None:
        """Return the places of all continuations of terms among rows times `size` tokens, `[sentences, places]`."""
        places: list[list[int]] = []
        for automaton, states in zip(self.automata, self.states, strict=True):
            of_sentence = []
            for row, state in enumerate(states):
                of_sentence += [row * size + token for token in automaton.continuations(state)]
            places.append(of_sentence)
        most = max(map(len, places))
        if most == 0:
            return None
        # A sentence with fewer repeats one of its places, which changes nothing.
        filled = [[*of_sentence, *[(of_sentence or [0])[0]] * (most - len(of_sentence))] for of_sentence in places]
        return torch.tensor(filled, device=self.device)

    def _closed_rows(self, sentence: int, scores: Sequence[float], end_probabilities: Sequence[float]) -> set[int]:
        """Return the rows that lack terms and want to end, unless all rows are like this.

        Args:
            sentence: the sentence.
            scores: the scores of its rows.
            end_probabilities: the probability of the end after each row.
        """
        automaton = self.automata[sentence]
        live = [row for row, score in enumerate(scores) if _is_live(score)]
        closed = set()
        for row in live:
            lacks_terms = automaton.num_placed(self.states[sentence][row]) < automaton.num_terms
            if lacks_terms and end_probabilities[row] > _SURE_OF_END:
                closed.add(row)
        return closed if len(closed) < len(live) else set()

    def _allowed(
        self, sentence: int, proposed: dict[tuple[int, int], float], closed: set[int], is_at_limit: bool
    ) -> list[Candidate]:
        """Return the continuations of a sentence that may be written, best first.

        Args:
            sentence: the sentence.
            proposed: scores by row and token.
            closed: the rows that have no continuation.
            is_at_limit: whether the translation ends with this token.
        """
        automaton = self.automata[sentence]
        states = self.states[sentence]
        lacks_terms = [automaton.num_placed(state) < automaton.num_terms for state in states]
        candidates = []
        for (row, token), score in proposed.items():
            is_end = token in self.end_tokens
            is_too_early = not is_at_limit and (row in closed or (is_end and lacks_terms[row]))
            if is_too_early or not _is_live(score):
                continue
            state = states[row] if is_end else automaton.after(states[row], token)
            if state is not None:
                candidates.append(Candidate(score, row, token, state))
        return sorted(candidates, key=lambda candidate: (-candidate.score, candidate.parent, candidate.token))

    def _give_up(self, sentence: int, scores: Sequence[float]) -> None:
        """End the hypotheses of a sentence where they are, because nothing may follow them."""
        automaton = self.automata[sentence]
        for row, score in enumerate(scores):
            if _is_live(score):
                missing = automaton.num_terms - automaton.num_placed(self.states[sentence][row])
                tokens = self.tokens[sentence, row, : self.column].tolist()
                self._finish(sentence, Finished(missing, score, [*tokens, int(self.settings.eos[0])]))

    def _finish(self, sentence: int, ended: Finished) -> None:
        """Keep the best `width` translations of a sentence that have ended."""
        best = sorted([*self.finished[sentence], ended], key=lambda finished: finished.rank)
        self.finished[sentence] = best[: self.width]

    def _collect(self, sentence: int, candidates: Sequence[Candidate], is_at_limit: bool) -> list[Candidate]:
        """Finish the translations that end here. Return the other candidates."""
        automaton = self.automata[sentence]
        running = []
        for candidate in candidates:
            if not is_at_limit and candidate.token not in self.end_tokens:
                running.append(candidate)
                continue
            tokens = self.tokens[sentence, candidate.parent, : self.column].tolist()
            missing = automaton.num_terms - automaton.num_placed(candidate.state)
            score = candidate.score / self.column**self.settings.length_penalty
            self._finish(sentence, Finished(missing, score, [*tokens, candidate.token]))
        return running

    def _fill_banks(self, automaton: TermAutomaton, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Choose the hypotheses of every bank from candidates, best first."""
        banks: list[list[Candidate]] = [[] for _ in range(automaton.num_terms + 1)]
        for candidate in candidates:
            banks[automaton.num_placed(candidate.state)].append(candidate)
        chosen = []
        for num_placed, bank in enumerate(banks):
            if num_placed < automaton.num_terms:
                bank = _with_begun_terms(bank, self.width)
            chosen += bank[: self.width]
        return chosen

    def _go_on(self, chosen: Sequence[Sequence[Candidate]]) -> None:
        """Let the rows of each sentence be the chosen candidates. Rows that are left over hold none."""
        rows = self.scores.shape[1]
        scores = []
        parents = []
        tokens = []
        states = []
        for candidates in chosen:
            empty = rows - len(candidates)
            scores.append([*(candidate.score for candidate in candidates), *[_NEVER] * empty])
            parents.append([*(candidate.parent for candidate in candidates), *[0] * empty])
            tokens.append([*(candidate.token for candidate in candidates), *[self.settings.filling] * empty])
            states.append([*(candidate.state for candidate in candidates), *[State()] * empty])
        self.states = states
        self.scores.copy_(torch.tensor(scores))
        self.latest.copy_(torch.tensor(tokens))
        continued = torch.tensor(parents, device=self.device)
        so_far = self.tokens[:, :, : self.column]
        so_far.copy_(so_far.gather(1, continued.unsqueeze(-1).expand(-1, -1, self.column)))
        self.tokens[:, :, self.column] = self.latest
        self.decoding.reorder(continued)

    def _judge(self, is_at_limit: Sequence[bool]) -> None:
        """Find out which sentences are finished."""
        for sentence, scores in enumerate(self.scores.tolist()):
            if is_at_limit[sentence] or self._cannot_improve(sentence, scores):
                self.done[sentence] = True

    def _cannot_improve(self, sentence: int, scores: Sequence[float]) -> bool:
        """Whether enough translations have ended, and no hypothesis with all terms may be better."""
        if not any(map(_is_live, scores)):
            return True
        complete = [ended for ended in self.finished[sentence] if ended.missing == 0]
        if len(complete) < self.width:
            return False
        if self.settings.early_stopping is True:
            return True
        automaton = self.automata[sentence]
        longest = self.column
        if self.settings.early_stopping == "never" and self.settings.length_penalty > 0:
            longest = self.settings.max_length - 1
        best = _NEVER
        for state, score in zip(self.states[sentence], scores, strict=True):
            if automaton.num_placed(state) == automaton.num_terms:
                best = max(best, score)
        return best / longest**self.settings.length_penalty <= min(ended.score for ended in complete)

    def _translations_of(self, rows: list[int]) -> list[tuple[int, Translation]]:
        translations = []
        for row in rows:
            translations.append((int(self.sentences[row]), self._translation_of(self.finished[row])))
        return translations

    def _translation_of(self, finished: Sequence[Finished]) -> Translation:
        """Return up to `width` translations, those with most terms first, and then by their score."""
        longest = max(len(ended.tokens) for ended in finished)
        sequences = torch.full((len(finished), longest), self.settings.filling)
        for number, ended in enumerate(finished):
            sequences[number, : len(ended.tokens)] = torch.tensor(ended.tokens)
        return Translation(sequences, torch.tensor([ended.score for ended in finished]))

    def _translation(self, *parts: Tensor) -> Translation:
        raise NotImplementedError  # Translations are lists of tokens, which `_translations_of` reads.

    def _keep(self, rows: list[int], moved: list[int]) -> None:
        super()._keep(rows, moved)
        self.automata = [self.automata[row] for row in rows]
        self.states = [self.states[row] for row in rows]
        self.finished = [self.finished[row] for row in rows]


def _listed(scores: Tensor, places: Tensor) -> list[list[tuple[int, float]]]:
    """Return places with their scores for each sentence. Both tensors are `[sentences, ...]`."""
    pairs = zip(places.flatten(1).tolist(), scores.flatten(1).tolist(), strict=True)
    return [list(zip(*pair, strict=True)) for pair in pairs]


def _is_live(score: float) -> bool:
    """Whether a row with this score holds a hypothesis."""
    return score > _NEVER / 2


def _with_begun_terms(bank: Sequence[Candidate], width: int) -> list[Candidate]:
    """Return the candidates of a bank, so that half of its places are for those that have begun a term."""
    begun: list[Candidate] = []
    others: list[Candidate] = []
    for candidate in bank:
        has_place = len(begun) < max(1, width // 2)
        if candidate.state.walk and has_place:
            begun.append(candidate)
        else:
            others.append(candidate)
    return [*begun, *others]
