"""Beam search that must write given terms, such as those of a glossary.

A term has forms, which are token sequences, and one of them must stand in the translation. A sentence with T terms has
T + 1 banks of beams: bank k holds hypotheses that have k terms (Post and Vilar 2018 share one beam between the banks,
and Hokamp and Liu 2017 have one for each token of a term). A hypothesis that wants to end before it has all terms is
closed, because the model would go on with a second sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from .adapter import Decoding
from .search import Search, Settings, Translation, rows_of
from .term_automaton import Forms, State, TermAutomaton, WordBoundaries
from .vocabulary import Vocabulary

_MOST_ROWS = 32
"""Hypotheses of a sentence, in all banks."""
_LEAST_WIDTH = 2
"""Hypotheses of a bank."""
_SURE_OF_END = 0.5
"""A hypothesis without all terms is closed if the end has more probability."""
_NEVER = -1e9
"""The score of a row that holds no hypothesis."""


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
        live = [row for row, score in enumerate(scores) if _is_live(score)]
        closed = set()
        for row in live:
            if end_probabilities[row] > _SURE_OF_END and self.missing(self.states[row]):
                closed.add(row)
        return closed if len(closed) < len(live) else set()

    def allowed(
        self, proposed: dict[tuple[int, int], float], closed: set[int], ends: frozenset[int], is_at_limit: bool
    ) -> list[Candidate]:
        """Return the continuations that may be written, best first.

        Args:
            proposed: scores by row and token.
            closed: the rows that have no continuation.
            ends: the tokens that end a translation.
            is_at_limit: whether the translation ends with this token.
        """
        candidates = []
        for (row, token), score in proposed.items():
            if not _is_live(score):
                continue
            state: State | None = self.states[row]
            if token not in ends:
                state = self.automaton.after(self.states[row], token)
            if state is None:
                continue
            is_too_early = row in closed or (token in ends and self.missing(state) > 0)
            if is_at_limit or not is_too_early:
                candidates.append(Candidate(score, row, token, state))
        return sorted(candidates, key=_best_first)

    def finish(self, ended: Finished) -> None:
        """Keep the best translations that have ended."""
        self.finished.append(ended)
        self.finished.sort(key=lambda finished: finished.rank)
        del self.finished[self.width :]

    def fill(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Choose the hypotheses of every bank from candidates, best first."""
        chosen = []
        for missing in range(self.automaton.num_terms, -1, -1):
            bank = [candidate for candidate in candidates if self.missing(candidate.state) == missing]
            if missing:
                bank = _with_begun_terms(bank, self.width)
            chosen += bank[: self.width]
        return chosen

    def complete_scores(self) -> list[float]:
        """Return the scores of the translations that have ended with all terms."""
        return [ended.score for ended in self.finished if not ended.missing]

    def best_complete(self, scores: Sequence[float]) -> float:
        """Return the best score of a hypothesis that has all terms."""
        best = _NEVER
        for state, score in zip(self.states, scores, strict=True):
            if not self.missing(state):
                best = max(best, score)
        return best


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
        self.ends = frozenset(settings.eos.tolist())
        # In the order of the sentences that are left, as all tensors.
        self.banks = [SentenceBanks(automaton, rows, self.width) for automaton in banks.automata]

    def _read_constraints(self) -> None:
        super()._read_constraints()
        # Terms are chosen on the host, from the scores of all tokens.
        self.needs_all_scores = True

    def _extend(self, hidden: Tensor) -> None:
        scores_of_tokens = self.vocabulary.scores(hidden).float()
        log_probabilities = self._constrained(scores_of_tokens.log_softmax(-1))
        log_probabilities = log_probabilities.unflatten(0, self.scores.shape)
        proposals = self._proposals(log_probabilities)
        probabilities_of_ends = log_probabilities[:, :, self.eos].exp()
        end_probabilities = probabilities_of_ends.sum(-1).tolist()
        scores = self.scores.tolist()
        is_at_limit = (self.last_columns <= self.device_column).tolist()
        is_done = self.done.tolist()
        chosen: list[list[Candidate]] = []
        for sentence, banks in enumerate(self.banks):
            if is_done[sentence]:
                chosen.append([])
                continue
            closed = banks.closed_rows(scores[sentence], end_probabilities[sentence])
            candidates = banks.allowed(proposals[sentence], closed, self.ends, is_at_limit[sentence])
            if not candidates:
                self._give_up(sentence, scores[sentence])
            running = self._collect(sentence, candidates, is_at_limit[sentence])
            chosen.append(banks.fill(running))
        self._go_on(chosen)
        self._judge(is_at_limit)

    def _proposals(self, log_probabilities: Tensor) -> list[dict[tuple[int, int], float]]:
        """Return the scores of continuations by their row and token, for each sentence.

        They are the best of all rows, the best of each row, and every continuation of a term.

        Args:
            log_probabilities: of all tokens, `[sentences, rows, vocabulary]`.
        """
        totals = log_probabilities + self.scores.unsqueeze(-1)
        _, rows, size = totals.shape
        of_all_rows = totals.flatten(1)
        best = of_all_rows.topk(2 * rows)
        best_of_rows = totals.topk(self.width)
        first_places = torch.arange(rows, device=self.device) * size
        places_of_rows = best_of_rows.indices + first_places.unsqueeze(-1)
        terms = self._continuations(size)
        proposals: list[dict[tuple[int, int], float]] = [{} for _ in self.banks]
        _propose(proposals, best.indices, best.values, size, [banks.num_proposals for banks in self.banks])
        _propose(proposals, places_of_rows.flatten(1), best_of_rows.values.flatten(1), size)
        _propose(proposals, terms, of_all_rows.gather(1, terms), size)
        return proposals

    def _continuations(self, size: int) -> Tensor:
        """Return the places of all continuations of terms among rows times `size` tokens, `[sentences, places]`."""
        places = []
        for banks in self.banks:
            places.append([row * size + token for row, token in banks.continuations()])
        most = max(map(len, places))
        for of_sentence in places:
            # A sentence with fewer repeats one of its places, which changes nothing.
            filling = of_sentence[:1] or [0]
            of_sentence += filling * (most - len(of_sentence))
        return torch.tensor(places, dtype=torch.long, device=self.device)

    def _give_up(self, sentence: int, scores: Sequence[float]) -> None:
        """End the hypotheses of a sentence where they are, because nothing may follow them."""
        banks = self.banks[sentence]
        end = int(self.settings.eos[0])
        for row, score in enumerate(scores):
            if _is_live(score):
                missing = banks.missing(banks.states[row])
                penalized = score / self._penalty(self.column)
                banks.finish(Finished(missing, penalized, [*self._tokens_of(sentence, row), end]))

    def _collect(self, sentence: int, candidates: Sequence[Candidate], is_at_limit: bool) -> list[Candidate]:
        """Finish the translations that end here. Return the other candidates."""
        banks = self.banks[sentence]
        running = []
        for candidate in candidates:
            if not is_at_limit and candidate.token not in self.ends:
                running.append(candidate)
                continue
            missing = banks.missing(candidate.state)
            score = candidate.score / self._penalty(self.column)
            tokens = self._tokens_of(sentence, candidate.parent)
            banks.finish(Finished(missing, score, [*tokens, candidate.token]))
        return running

    def _tokens_of(self, sentence: int, row: int) -> list[int]:
        """Return the tokens of a hypothesis so far, with the start token."""
        return self.tokens[sentence, row, : self.column].tolist()

    def _go_on(self, chosen: Sequence[Sequence[Candidate]]) -> None:
        """Let the rows of each sentence be the chosen candidates. Rows that are left over hold none."""
        rows = self.scores.shape[1]
        no_candidate = Candidate(_NEVER, parent=0, token=self.settings.filling, state=State())
        scores = []
        parents = []
        tokens = []
        for banks, candidates in zip(self.banks, chosen, strict=True):
            empty = rows - len(candidates)
            filled = [*candidates, *[no_candidate] * empty]
            banks.states = [candidate.state for candidate in filled]
            scores.append([candidate.score for candidate in filled])
            parents.append([candidate.parent for candidate in filled])
            tokens.append([candidate.token for candidate in filled])
        self.scores.copy_(torch.tensor(scores))
        self.latest.copy_(torch.tensor(tokens))
        continued = torch.tensor(parents, device=self.device)
        so_far = self.tokens[:, :, : self.column]
        so_far.copy_(rows_of(so_far, continued))
        self.tokens[:, :, self.column] = self.latest
        self.decoding.reorder(continued)

    def _judge(self, is_at_limit: Sequence[bool]) -> None:
        """Find out which sentences are finished."""
        for sentence, scores in enumerate(self.scores.tolist()):
            if is_at_limit[sentence] or self._cannot_improve(self.banks[sentence], scores):
                self.done[sentence] = True

    def _cannot_improve(self, banks: SentenceBanks, scores: Sequence[float]) -> bool:
        """Whether enough translations have ended, and no hypothesis with all terms may be better."""
        if not any(map(_is_live, scores)):
            return True
        complete = banks.complete_scores()
        if len(complete) < self.width:
            return False
        if self.settings.early_stopping is True:
            return True
        longest = self.column
        if self.settings.early_stopping == "never" and self.settings.length_penalty > 0:
            longest = self.settings.max_length - 1
        return banks.best_complete(scores) / self._penalty(longest) <= min(complete)

    def _penalty(self, length: int) -> float:
        """Return the divisor of the scores of translations of a length."""
        return length**self.settings.length_penalty

    def _translations_of(self, rows: list[int]) -> list[tuple[int, Translation]]:
        translations = []
        for row in rows:
            sentence = int(self.sentences[row])
            translations.append((sentence, self._translation_of(self.banks[row].finished)))
        return translations

    def _translation_of(self, finished: Sequence[Finished]) -> Translation:
        """Return up to `width` translations, those with most terms first, and then by their score."""
        longest = max(len(ended.tokens) for ended in finished)
        sequences = torch.full((len(finished), longest), self.settings.filling)
        for number, ended in enumerate(finished):
            length = len(ended.tokens)
            sequences[number, :length] = torch.tensor(ended.tokens)
        scores = [ended.score for ended in finished]
        return Translation(sequences, torch.tensor(scores))

    def _translation(self, *parts: Tensor) -> Translation:
        raise NotImplementedError  # Translations are lists of tokens, which `_translations_of` reads.

    def _keep(self, rows: list[int], moved: list[int]) -> None:
        super()._keep(rows, moved)
        self.banks = [self.banks[row] for row in rows]


def _propose(
    proposals: Sequence[dict[tuple[int, int], float]],
    places: Tensor,
    scores: Tensor,
    size: int,
    most: Sequence[int] | None = None,
) -> None:
    """Add the scores of continuations to the proposals of each sentence.

    Args:
        proposals: scores by row and token.
        places: places among rows times tokens, `[sentences, places]`.
        scores: their scores, `[sentences, places]`.
        size: the number of tokens.
        most: how many of the places count for each sentence. Other sentences of the batch may have more rows, and must
            not change what is proposed. By default all count.
    """
    scores_of_sentences = scores.tolist()
    for sentence, of_sentence in enumerate(places.tolist()):
        values = scores_of_sentences[sentence]
        count = len(of_sentence) if most is None else most[sentence]
        for place, score in zip(of_sentence[:count], values[:count], strict=True):
            row, token = divmod(place, size)
            proposals[sentence][row, token] = score


def _is_live(score: float) -> bool:
    """Whether a row with this score holds a hypothesis."""
    return score > _NEVER / 2


def _best_first(candidate: Candidate) -> tuple[float, int, int]:
    """Return the key that sorts candidates. Those with equal scores have the order of their rows."""
    return -candidate.score, candidate.parent, candidate.token


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
