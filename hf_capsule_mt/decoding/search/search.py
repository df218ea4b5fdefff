"""Greedy search and beam search, step by step as `generate()` has them, over any model.

Once nothing can change what a sentence returns, its rows leave the batch. On a CPU that is checked after every step.
Other devices would have to be waited for, so there it is checked after several. Until then a step is the same
operations on tensors of the same shapes, in the same memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hf_capsule_mt.long_work import next_step

from ..models.base import Decoding
from ..products.shortlist import ShortlistVocabulary
from ..products.vocabulary import Candidates, Vocabulary, best_of
from .constraints import Constraints
from .step_graph import StepGraph

NEVER = -1e9
"""The score of what cannot be chosen."""
_DROPPED = 16
"""Rows leave once one sentence in so many is finished."""
_DROPPED_FROM_GRAPH = 2
"""The same where a step is a graph, which is for one number of rows."""
_STEPS_TO_A_CHECK = {"cpu": 1, "cuda": 8}
"""Steps from one check of what is finished to the next, by the kind of device."""


@dataclass(frozen=True)
class Settings:
    """Settings of a search, with the names of [`GenerationConfig`]."""

    constraints: Constraints
    start: int
    eos: Tensor  # The tokens that end a translation, `[1 or more]`, on a CPU.
    pad: int  # It follows a finished translation in greedy search.
    max_length: int
    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False

    @property
    def filling(self) -> int:
        """Token after a translation that is shorter than the longest, as `generate()` has it."""
        if self.num_beams == 1:
            return self.pad
        return self.pad or int(self.eos[0])


class DecodedTokens(NamedTuple):
    """Translations of a sentence, best first, each with the start token."""

    sequences: Tensor  # `[num_return_sequences, length]`.
    scores: Tensor | None  # `[num_return_sequences]`, as `sequences_scores` of `generate()`. None for greedy search.


class Search(ABC):
    """Parts that greedy search and beam search share: the tokens so far, and the rows that are left of the batch.

    Args:
        decoding: runs the decoder for all sentences and beams.
        vocabulary: chooses the next tokens by the decoder's states.
        settings: those of `generate()`.
        limits: the most new tokens of every sentence, within `max_length`.
    """

    _ROWS: tuple[str, ...] = ("sentences", "tokens", "latest", "last_columns", "done")
    """Attributes with a row for every sentence that is left."""
    _RESULT: tuple[str, ...]
    """Attributes that make a translation."""

    def __init__(
        self,
        decoding: Decoding,
        vocabulary: Vocabulary | ShortlistVocabulary,
        settings: Settings,
        limits: Sequence[int],
    ) -> None:
        device = vocabulary.device
        sentences = len(limits)
        self.decoding = decoding
        self.vocabulary = vocabulary
        self.settings = settings
        self.device = device
        self.eos = settings.eos.to(device)
        self.steps_to_a_check = _STEPS_TO_A_CHECK[device.type]
        # Several steps without a check are the same, so they can be a graph. None: each step is checked. Then the host
        # reads what it likes, and leaves out operations that change nothing.
        self.graph = StepGraph(device) if self.steps_to_a_check > 1 else None
        # The indices of the sentences that are left, `[sentences]`.
        self.sentences = torch.arange(sentences, device=device)
        # The last column that a sentence can fill, `[sentences]`. The start token is in column 0.
        self.last_columns = torch.tensor(limits, device=device)
        # Tokens so far, `[sentences, beams, columns]`.
        columns = max(limits) + 1
        shape = (sentences, settings.num_beams, columns)
        self.tokens = torch.full(shape, settings.filling, device=device)
        self.tokens[:, :, 0] = settings.start
        # The tokens that the decoder reads next, `[sentences, beams]`.
        self.latest = self.tokens[:, :, 0].clone()
        # The column that is written next: a number for the host, and `[1]` for the device.
        self.column = 1
        self.device_column = torch.ones(1, dtype=torch.long, device=device)
        # Whether nothing can change what a sentence returns, `[sentences]`.
        self.done = torch.zeros(sentences, dtype=torch.bool, device=device)
        # What the constraints do to the next token.
        self._suppressed_tokens: Tensor | None = None
        self.suppressed: Tensor | None = None
        self.forced: int | None = None
        self.needs_all_scores = False

    def finish(self) -> list[DecodedTokens]:
        """Return the translations of all sentences, in their order."""
        translations = {}
        while len(self.sentences):
            next_step()
            translations.update(self.advance())
        return [translations[sentence] for sentence in sorted(translations)]

    def advance(self) -> list[tuple[int, DecodedTokens]]:
        """Write tokens up to the next check. Return the indices of sentences that leave, and translations on a CPU."""
        columns_left = self.tokens.shape[2] - self.column
        steps = min(self.steps_to_a_check, columns_left)
        self.decoding.reserve(steps, columns_left)
        if self.graph is not None:
            self.graph.prepare(self)
        for _ in range(steps):
            self._read_constraints()
            # Constraints that need all scores have other shapes in every step. A forced token needs no product.
            if self.graph is None or self.needs_all_scores or self.forced is not None:
                self._write()
            else:
                self.graph.run(self._write)
            self.column += 1
        return self._leave()

    def _read_constraints(self) -> None:
        """Find out what the constraints do to the next token."""
        self.forced, self.needs_all_scores, suppressed = self.settings.constraints.at(self.column)
        if suppressed is not self._suppressed_tokens:
            self._suppressed_tokens = suppressed
            self.suppressed = self.vocabulary.places_of(suppressed)
            if self.graph is not None:
                # A graph reads the tensor that it was recorded with.
                self.graph.prepare(self)

    def _write(self) -> None:
        """Write the next token of every sentence."""
        hidden = self.decoding.step(self.latest)
        self._extend(hidden)
        self.device_column += 1
        # Sentences whose last column was just written have no room for another token.
        self.done |= self.last_columns < self.device_column

    @abstractmethod
    def _extend(self, hidden: Tensor) -> None:
        """Write the best next tokens, given the decoder's states `[sentences * beams, d]`."""

    @abstractmethod
    def _translation(self, *parts: Tensor) -> DecodedTokens:
        """Return the translation of a sentence from the parts that `_RESULT` names, which are on a CPU."""

    def _constrained(self, scores: Tensor) -> Tensor:
        """Return scores `[rows, vocabulary]` of all tokens after the constraints."""
        prefixes = self.tokens[:, :, : self.column]
        return self.settings.constraints(prefixes.flatten(0, 1), scores)

    def _leave(self) -> list[tuple[int, DecodedTokens]]:
        """Let sentences that are done leave the batch, once they are enough. Return them with their indices."""
        is_done = self.done.tolist()
        count = len(is_done)
        num_finished = sum(is_done)
        one_in = _DROPPED if self.graph is None else _DROPPED_FROM_GRAPH
        are_enough = num_finished == count or num_finished * one_in >= count
        if num_finished == 0 or not are_enough:
            return []
        finished = [row for row in range(count) if is_done[row]]
        translations = self._translations_of(finished)
        rows, moved = _fill_places(finished, count)
        self._keep(rows, moved)
        return translations

    def _translations_of(self, rows: list[int]) -> list[tuple[int, DecodedTokens]]:
        """Return the translations of some rows, with the indices of their sentences."""
        selected = torch.tensor(rows, device=self.device)
        sentences = self.sentences[selected].tolist()
        parts = [getattr(self, name)[selected].cpu() for name in self._RESULT]
        translations = [self._translation(*of_sentence) for of_sentence in zip(*parts)]
        return list(zip(sentences, translations))

    def _keep(self, rows: list[int], moved: list[int]) -> None:
        """Keep only some rows of the batch, as [`_fill_places`] returns them."""
        kept = torch.tensor(rows, dtype=torch.long, device=self.device)
        for name in self._ROWS:
            setattr(self, name, getattr(self, name)[kept])
        if rows:
            self.decoding.select(kept, torch.tensor(moved, dtype=torch.long, device=self.device))


def rows_of(tensor: Tensor, rows: Tensor) -> Tensor:
    """Return some rows of each sentence, `[sentences, K, columns]`.

    Args:
        tensor: `[sentences, rows, columns]`.
        rows: the rows that are wanted, `[sentences, K]`.
    """
    columns = tensor.shape[2]
    indices = rows.unsqueeze(-1).expand(-1, -1, columns)
    return tensor.gather(1, indices)


def _fill_places(finished: list[int], count: int) -> tuple[list[int], list[int]]:
    """Let the last rows of a batch go to the places of those that are finished. So most rows need not be moved.

    Args:
        finished: the rows that leave, in ascending order.
        count: the number of rows, those that leave included.

    Returns:
        For each place that is left, the row that comes to it. And the places that get another row than they had.
    """
    left = count - len(finished)
    freed = [row for row in finished if row < left]
    moving = sorted(set(range(left, count)) - set(finished))
    rows = list(range(left))
    for place, row in zip(freed, moving, strict=True):
        rows[place] = row
    return rows, freed


class GreedySearch(Search):
    """Writes the best next token, always. The arguments are those of [`Search`]."""

    _RESULT = ("tokens", "last_columns")

    def _extend(self, hidden: Tensor) -> None:
        if self.forced is not None:
            self.vocabulary.finite_sum.add(hidden)
            tokens = torch.full_like(self.latest[:, 0], self.forced)
        elif self.needs_all_scores:
            scores = self._constrained(self.vocabulary.scores(hidden).float())
            tokens = scores.argmax(-1)
        else:
            tokens = self.vocabulary.best_token(hidden, self.suppressed)
        tokens = tokens.masked_fill(self.done, self.settings.pad)
        self.latest.copy_(tokens.unsqueeze(-1))
        self.tokens.index_copy_(2, self.device_column, self.latest.unsqueeze(-1))
        self.done |= torch.isin(tokens, self.eos)

    def _translation(self, tokens: Tensor, last_column: Tensor) -> DecodedTokens:
        """Cut tokens `[1, columns]` after the first end, or after the last column that is written and allowed."""
        last = min(self.column - 1, int(last_column))
        tokens = tokens[:, : last + 1]
        is_end = torch.isin(tokens[0, 1:], self.settings.eos)
        ends = is_end.nonzero().flatten()
        length = tokens.shape[1]
        if len(ends):
            # With the start token and the end.
            length = int(ends[0]) + 2
        return DecodedTokens(tokens[:, :length].clone(), None)


class BeamSearch(Search):
    """Writes the best translations, `num_beams` of them at a time. The arguments are those of [`Search`].

    A step finds the best continuations of all beams, its candidates. Those that end are collected as translations, and
    the best of the others are the next beams.
    """

    _ROWS = (*Search._ROWS, "scores", "ended", "ended_scores", "ended_lengths", "is_complete")
    _RESULT = ("ended", "ended_scores", "ended_lengths")

    def __init__(
        self,
        decoding: Decoding,
        vocabulary: Vocabulary | ShortlistVocabulary,
        settings: Settings,
        limits: Sequence[int],
    ) -> None:
        super().__init__(decoding, vocabulary, settings, limits)
        sentences, beams, _ = self.tokens.shape
        # Sums of log-probabilities of the running beams, `[sentences, beams]`. All of a sentence begin the same, so
        # only the first may be continued by the first step.
        self.scores = torch.zeros(sentences, beams, dtype=torch.float32, device=self.device)
        self.scores[:, 1:] = NEVER
        # The best translations that have ended, `[sentences, beams, columns]`, their scores, and their lengths with
        # the start token, both `[sentences, beams]`.
        self.ended = self.tokens.clone()
        self.ended_scores = torch.full_like(self.scores, NEVER)
        self.ended_lengths = torch.ones_like(self.tokens[:, :, 0])
        # Whether there is such a translation yet, `[sentences, beams]`.
        self.is_complete = torch.zeros_like(self.scores, dtype=torch.bool)
        # If all beams end, so many others are left to continue.
        self.num_candidates = max(2, 1 + len(self.settings.eos)) * beams
        # Only the best `beams` candidates may end, `[candidates]`.
        self.may_end = torch.arange(self.num_candidates, device=self.device) < beams
        # Whether a sentence may have as many ended translations as beams. Before that none can be finished.
        self.any_complete = self.graph is not None
        # The divisors of the scores of translations, by their length. There is none for no token.
        columns = self.tokens.shape[2]
        penalties = [1.0, *map(self._penalty, range(1, columns))]
        self.penalties = torch.tensor(penalties, dtype=torch.float32, device=self.device)

    def _extend(self, hidden: Tensor) -> None:
        candidates = self._candidates(hidden)
        is_at_limit = self.last_columns <= self.device_column
        is_ending = torch.isin(candidates.tokens, self.eos) | is_at_limit.unsqueeze(-1)
        any_ending = self.graph is not None or bool(is_ending.any())
        if any_ending:
            self._collect(candidates, is_ending)
            self._continue(self._best_running(candidates, is_ending))
        else:
            self._continue(candidates)
        if any_ending or self.any_complete:
            self._find_finished()

    def _candidates(self, hidden: Tensor) -> Candidates:
        """Return the best continuations of all sentences, given states `[sentences * beams, d]`."""
        if self.forced is not None:
            return self._forced_candidates(hidden, self.forced)
        if self.needs_all_scores:
            log_probabilities = self.vocabulary.scores(hidden).float().log_softmax(-1)
            return best_of(self._constrained(log_probabilities), self.scores, self.num_candidates)
        renormalizes = self.settings.constraints.renormalizes
        return self.vocabulary.best(hidden, self.scores, self.num_candidates, self.suppressed, renormalizes)

    def _forced_candidates(self, hidden: Tensor, token: int) -> Candidates:
        """Return continuations of every beam by one token with the log-probability 0. There are no others."""
        self.vocabulary.finite_sum.add(hidden)
        sentences, beams = self.scores.shape
        others = self.num_candidates - beams
        no_scores = self.scores.new_full((sentences, others), -torch.inf)
        places = torch.arange(self.num_candidates, device=self.device)
        parents = places.clamp(max=beams - 1)
        return Candidates(
            scores=torch.cat([self.scores, no_scores], dim=1),
            beams=parents.repeat(sentences, 1),
            tokens=self.latest.new_full((sentences, self.num_candidates), token),
        )

    def _best_running(self, candidates: Candidates, is_ending: Tensor) -> Candidates:
        """Return the best candidates that do not end. `is_ending` is `[sentences, candidates]`."""
        beams = self.scores.shape[1]
        running = candidates.scores + is_ending.float() * NEVER
        chosen = running.topk(beams).indices
        return Candidates(
            scores=running.gather(1, chosen),
            beams=candidates.beams.gather(1, chosen),
            tokens=candidates.tokens.gather(1, chosen),
        )

    def _continue(self, candidates: Candidates) -> None:
        """Let the first candidates, which are the best, be the next beams."""
        beams = self.scores.shape[1]
        parents = candidates.beams[:, :beams]
        self.scores.copy_(candidates.scores[:, :beams])
        self.latest.copy_(candidates.tokens[:, :beams])
        self.tokens.copy_(rows_of(self.tokens, parents))
        self.tokens.index_copy_(2, self.device_column, self.latest.unsqueeze(-1))
        self.decoding.reorder(parents)

    def _collect(self, candidates: Candidates, is_ending: Tensor) -> None:
        """Merge candidates that end with the best translations so far. `is_ending` is `[sentences, candidates]`."""
        beams = self.scores.shape[1]
        is_ending = is_ending & self.may_end
        scores = self._scores_of_ends(candidates, is_ending)
        lengths = (self.device_column + 1).expand_as(candidates.tokens)
        tokens = rows_of(self.tokens, candidates.beams)
        tokens.index_copy_(2, self.device_column, candidates.tokens.unsqueeze(-1))
        all_scores = torch.cat([self.ended_scores, scores], dim=1)
        merged_scores, chosen = all_scores.topk(beams)
        self.ended_scores.copy_(merged_scores)
        all_complete = torch.cat([self.is_complete, is_ending], dim=1)
        self.is_complete.copy_(all_complete.gather(1, chosen))
        all_lengths = torch.cat([self.ended_lengths, lengths], dim=1)
        self.ended_lengths.copy_(all_lengths.gather(1, chosen))
        all_tokens = torch.cat([self.ended, tokens], dim=1)
        self.ended.copy_(rows_of(all_tokens, chosen))
        if self.graph is None:
            self.any_complete = bool(self.is_complete.all(-1).any())

    def _scores_of_ends(self, candidates: Candidates, is_ending: Tensor) -> Tensor:
        """Return the scores of candidates as translations, `[sentences, candidates]`.

        Those that do not end, and those of sentences that collect no more, cannot be chosen.

        Args:
            candidates: the continuations of every sentence.
            is_ending: whether they end, `[sentences, candidates]`.
        """
        scores = candidates.scores / self._present_penalty()
        # Sums, as in `generate()`: with one score for all of them, others of those that cannot be chosen would follow.
        # A sentence that is finished collects no more, or its result would depend on when its rows leave.
        scores = scores + self.done.unsqueeze(-1).float() * NEVER
        return scores + (~is_ending).float() * NEVER

    def _find_finished(self) -> None:
        """Find out which sentences cannot be improved any more, by the best score that a running beam may get."""
        settings = self.settings
        if settings.early_stopping == "never" and settings.length_penalty > 0:
            # The longer a translation, the better is its score.
            best_running = self.scores[:, :1] / self._penalty(settings.max_length - 1)
        else:
            best_running = self.scores[:, :1] / self._present_penalty()
        # Every beam is better than a place that has no translation yet.
        worst_ended = self.ended_scores.amin(1, keepdim=True).where(self.is_complete, NEVER)
        can_improve = (best_running > worst_ended).any(-1)
        self.done |= ~can_improve
        if settings.early_stopping is True:
            self.done |= self.is_complete.all(-1)

    def _present_penalty(self) -> Tensor:
        """Return the divisor of the scores of translations that end with the next token, `[1]`."""
        return self.penalties.index_select(0, self.device_column)

    def _penalty(self, length: int) -> float:
        """Return the divisor of the scores of translations of a length."""
        # A power in float32 would make other translations the best ones.
        return length**self.settings.length_penalty

    def _translation(self, ended: Tensor, scores: Tensor, lengths: Tensor) -> DecodedTokens:
        """Cut the best of the translations `[beams, columns]`. Those that are shorter are filled up from the start."""
        number = self.settings.num_return_sequences
        longest = int(lengths[:number].max())
        return DecodedTokens(ended[:number, :longest].clone(), scores[:number].clone())
