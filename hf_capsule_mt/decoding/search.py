"""Greedy search and beam search, step by step as `generate()` has them, over any model.

Every sentence ends by itself: once nothing can change what it returns, its rows leave the batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import StoppingCriteria

from .constraints import Constraints
from .vocabulary import Candidates, Vocabulary, best_of

_NEVER = -1e9
"""The score of what cannot be chosen."""
_DROPPED = 16
"""Rows leave once one sentence in so many is finished."""


class Decoding(Protocol):
    """Sentences that a model is decoding, with the same number of beams each."""

    def step(self, words: Tensor, position: int) -> Tensor:
        """Read the next words `[sentences, beams]`; return what predicts those after, `[sentences * beams, d]`."""

    def reorder(self, parents: Tensor) -> None:
        """Let beam b of a sentence go on from beam `parents[sentence, b]`."""

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Go on with the sentences `rows`, of which those at the places `moved` stand elsewhere now."""


@dataclass(frozen=True)
class Settings:
    """Settings of a search; the names are those of [`GenerationConfig`].

    Attributes:
        constraints: on the words.
        start: the token that every translation begins with.
        eos: the tokens that end one, `[1 or more]`.
        pad: what follows a finished translation in greedy search.
        max_length: of a translation, the start token included.
        num_beams: 1 for greedy search.
        num_return_sequences: translations of a sentence, at most `num_beams`.
        length_penalty: of beam search.
        early_stopping: of beam search: True, False or "never".
    """

    constraints: Constraints
    start: int
    eos: Tensor
    pad: int
    max_length: int
    num_beams: int = 1
    num_return_sequences: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False

    @property
    def filling(self) -> int:
        """Token after a translation that is shorter than the longest, as `generate()` has it."""
        return self.pad if self.num_beams == 1 else self.pad or int(self.eos[0])


class Translation(NamedTuple):
    """Translations of a sentence.

    Attributes:
        sequences: `[num_return_sequences, length]`, best first, each beginning with the start token.
        scores: `[num_return_sequences]`, as `sequences_scores` of `generate()`; None of greedy search.
    """

    sequences: Tensor
    scores: Tensor | None


class NewTokenLimits(StoppingCriteria):
    """A limit to the new tokens of every sentence, which `generate()` and the engine take as a stopping criterion.

    Args:
        limits: `[sentences]`.
    """

    def __init__(self, limits: Tensor) -> None:
        self.limits = limits

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        """Return which candidates `[sentences * n, length]`, start token included, are at the limit."""
        limits = self.limits.to(input_ids.device)
        return input_ids.shape[1] - 1 >= limits.repeat_interleave(len(input_ids) // len(limits))


class _Search:
    """Parts that greedy search and beam search share: the words so far, and the rows that are left of the batch."""

    def __init__(self, decoding: Decoding, vocabulary: Vocabulary, settings: Settings, limits: Tensor) -> None:
        self.decoding, self.vocabulary, self.settings = decoding, vocabulary, settings
        self.device = limits.device
        # Of new tokens, for every sentence.
        self.limits = limits.clamp(max=settings.max_length - 1)
        self.limit = int(self.limits.max())
        self.sentences = torch.arange(len(limits), device=self.device)
        shape = len(limits), settings.num_beams, self.limit + 1
        self.words = torch.full(shape, settings.filling, device=self.device)
        self.words[:, :, 0] = settings.start
        self.length = 1
        self.done = torch.zeros(len(limits), dtype=torch.bool, device=self.device)

    def run(self) -> Iterator[tuple[int, Translation]]:
        """Yield the index of every sentence with its translation, as they finish."""
        while len(self.sentences):
            hidden = self.decoding.step(self.words[:, :, self.length - 1], self.length - 1)
            self._extend(hidden)
            self.length += 1
            self.done |= self.limits < self.length
            yield from self._leave()

    def _extend(self, hidden: Tensor) -> None:
        raise NotImplementedError

    def _translation(self, row: int) -> Translation:
        raise NotImplementedError

    def _keep(self, rows: Tensor) -> None:
        self.sentences, self.words, self.limits, self.done = (
            tensor[rows] for tensor in (self.sentences, self.words, self.limits, self.done)
        )

    def _leave(self) -> Iterator[tuple[int, Translation]]:
        finished = self.done.nonzero().flatten().tolist()
        count, left = len(self.sentences), len(self.sentences) - len(finished)
        if not finished or (left and len(finished) * _DROPPED < count):
            return
        for row in finished:
            yield int(self.sentences[row]), self._translation(row)
        rows, moved = _fill(set(finished), count)
        rows = torch.tensor(rows, dtype=torch.long, device=self.device)
        self._keep(rows)
        if left:
            self.decoding.select(rows, torch.tensor(moved, dtype=torch.long, device=self.device))


def _fill(finished: set[int], count: int) -> tuple[list[int], list[int]]:
    """The rows that are left, the last ones in the places of those that are finished; and these places."""
    left = count - len(finished)
    last = [row for row in range(left, count) if row not in finished]
    moved = [row for row in range(left) if row in finished]
    into = dict(zip(moved, last))
    return [into.get(row, row) for row in range(left)], moved


class GreedySearch(_Search):
    """The best next word, always."""

    def _extend(self, hidden: Tensor) -> None:
        settings, constraints = self.settings, self.settings.constraints
        if constraints.need_all_scores(self.length):
            scores = self.vocabulary.scores(hidden).float()
            words = constraints(self.words[:, 0, : self.length], scores).argmax(-1)
        else:
            suppressed = constraints.suppressed(self.length, self.device)
            words = self.vocabulary.best_word(hidden, suppressed)
        words = words.masked_fill(self.done, settings.pad)
        self.words[:, 0, self.length] = words
        self.done |= torch.isin(words, settings.eos)

    def _translation(self, row: int) -> Translation:
        ends = torch.isin(self.words[row, 0, 1 : self.length], self.settings.eos).nonzero().flatten()
        length = min(int(ends[0]) + 1 if len(ends) else self.length, int(self.limits[row])) + 1
        return Translation(self.words[row, :, :length].clone(), None)


class BeamSearch(_Search):
    """The best translations, `num_beams` of them at a time."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        sentences, beams, _ = self.words.shape
        self.scores = torch.zeros(sentences, beams, device=self.device)
        # All beams of a sentence begin the same.
        self.scores[:, 1:] = _NEVER
        self.found = self.words.clone()
        self.found_scores = torch.full_like(self.scores, _NEVER)
        self.found_lengths = torch.ones_like(self.words[:, :, 0])
        self.complete = torch.zeros_like(self.scores, dtype=torch.bool)
        self.can_improve = torch.ones_like(self.done)
        self.num_candidates = max(2, 1 + len(self.settings.eos)) * beams
        self.first = torch.arange(self.num_candidates, device=self.device) < beams
        # On a CPU, where looking costs nothing, what changes nothing is left out.
        self.looks = self.device.type == "cpu"
        self.any_complete = not self.looks

    def _extend(self, hidden: Tensor) -> None:
        candidates = self._candidates(hidden)
        ending = torch.isin(candidates.words, self.settings.eos) | (self.limits <= self.length).unsqueeze(-1)
        any_ending = not self.looks or bool(ending.any())
        words = None
        if any_ending:
            words = self.words.gather(1, candidates.beams.unsqueeze(-1).expand(-1, -1, self.words.shape[2]))
            words[:, :, self.length] = candidates.words
            self._collect(candidates, ending, words)
        self._go_on(candidates, ending if any_ending else None)
        if any_ending or self.any_complete:
            self._judge()

    def _candidates(self, hidden: Tensor) -> Candidates:
        constraints = self.settings.constraints
        if not constraints.need_all_scores(self.length):
            suppressed = constraints.suppressed(self.length, self.device)
            return self.vocabulary.best(hidden, self.scores, self.num_candidates, suppressed)
        scores = self.vocabulary.scores(hidden).float().log_softmax(-1)
        scores = constraints(self.words[:, :, : self.length].flatten(0, 1), scores)
        return best_of(scores, self.scores, self.num_candidates)

    def _go_on(self, candidates: Candidates, ending: Tensor | None) -> None:
        """Continue the best candidates that do not end."""
        beams = self.scores.shape[1]
        if ending is None:
            scores, parents, words = (tensor[:, :beams] for tensor in candidates)
        else:
            running = candidates.scores + ending * _NEVER
            chosen = running.topk(beams).indices
            scores, parents, words = (t.gather(1, chosen) for t in candidates._replace(scores=running))
        self.scores = scores
        so_far = self.words[:, :, : self.length]
        so_far.copy_(so_far.gather(1, parents.unsqueeze(-1).expand(-1, -1, self.length)))
        self.words[:, :, self.length] = words
        self.decoding.reorder(parents)

    def _collect(self, candidates: Candidates, ending: Tensor, words: Tensor) -> None:
        """Add those of the first `num_beams` candidates that end to the best translations found so far."""
        ending = ending & self.first
        scores = candidates.scores / self.length**self.settings.length_penalty
        # A sentence that is finished collects no more, or its result would depend on when its rows leave.
        closed = ~self.can_improve | self.done
        if self.settings.early_stopping is True:
            closed = closed | self.complete.all(-1)
        scores = scores + closed.unsqueeze(-1) * _NEVER + ~ending * _NEVER
        merged = torch.cat([self.found_scores, scores], dim=1)
        self.found_scores, chosen = merged.topk(self.scores.shape[1])
        self.complete = torch.cat([self.complete, ending], dim=1).gather(1, chosen)
        lengths = torch.full_like(candidates.words, self.length + 1)
        self.found_lengths = torch.cat([self.found_lengths, lengths], dim=1).gather(1, chosen)
        places = chosen.unsqueeze(-1).expand(-1, -1, words.shape[2])
        self.found = torch.cat([self.found, words], dim=1).gather(1, places)
        self.any_complete = not self.looks or bool(self.complete.all(-1).any())

    def _judge(self) -> None:
        """Tell which sentences can still be improved, by the best score that a running beam may get."""
        settings = self.settings
        reaches_end = settings.early_stopping == "never" and settings.length_penalty > 0
        length = settings.max_length - 1 if reaches_end else self.length
        best = self.scores[:, :1] / length**settings.length_penalty
        worst = self.found_scores.amin(1, keepdim=True).where(self.complete, _NEVER)
        self.can_improve = self.can_improve & (best > worst).any(-1)
        self.done |= ~self.can_improve
        if settings.early_stopping is True:
            self.done |= self.complete.all(-1)

    def _translation(self, row: int) -> Translation:
        number = self.settings.num_return_sequences
        lengths = self.found_lengths[row, :number]
        sequences = self.found[row, :number, : int(lengths.max())].clone()
        places = torch.arange(sequences.shape[1], device=self.device)
        # Beyond its end a translation has the words of none.
        sequences.masked_fill_(places >= lengths.unsqueeze(-1), self.settings.filling)
        return Translation(sequences, self.found_scores[row, :number].clone())

    def _keep(self, rows: Tensor) -> None:
        super()._keep(rows)
        names = "scores", "found", "found_scores", "found_lengths", "complete", "can_improve"
        for name in names:
            setattr(self, name, getattr(self, name)[rows])


def search(
    decoding: Decoding, vocabulary: Vocabulary, settings: Settings, limits: Tensor
) -> Iterator[tuple[int, Translation]]:
    """Translate sentences.

    Args:
        decoding: of the sentences, before the first word.
        vocabulary: the model's output projection.
        settings: how to search.
        limits: of the new tokens of every sentence, `[sentences]`; none is longer than `settings.max_length` allows.

    Yields:
        The index of a sentence with its translation, as they finish.
    """
    kind = GreedySearch if settings.num_beams == 1 else BeamSearch
    yield from kind(decoding, vocabulary, settings, limits).run()


def in_order(translations: Iterator[tuple[int, Translation]]) -> list[Translation]:
    """Return translations in the order of their sentences."""
    return [translation for _, translation in sorted(translations, key=lambda pair: pair[0])]


def stacked(translations: list[Translation], filling: int) -> Tensor:
    """Return the sequences of all translations as one tensor `[translations * sequences, longest]`."""
    rows = [row for translation in translations for row in translation.sequences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=filling)
