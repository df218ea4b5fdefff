"""Greedy search and beam search, step by step as `generate()` has them, over any model.

Once nothing can change what a sentence returns, its rows leave the batch. On a CPU that is found out after every step.
Other devices would have to be waited for, so there it is found out after several. Until then a step is the same
operations on tensors of the same shapes, in the same memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .adapter import Decoding
from .constraints import Constraints
from .step_graph import StepGraph
from .vocabulary import Candidates, Vocabulary, best_of

_NEVER = -1e9
"""The score of what cannot be chosen."""
_DROPPED = 16
"""Rows leave once one sentence in so many is finished."""
_DROPPED_FROM_GRAPH = 2
"""The same where a step is a graph, which is for one number of rows."""
_STEPS_TO_A_LOOK = {"cpu": 1, "cuda": 8}
"""Steps from one look at what is finished to the next, by the kind of device."""


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
        return self.pad if self.num_beams == 1 else self.pad or int(self.eos[0])


class Translation(NamedTuple):
    """Translations of a sentence, best first, each with the start token."""

    sequences: Tensor  # `[num_return_sequences, length]`.
    scores: Tensor | None  # `[num_return_sequences]`, as `sequences_scores` of `generate()`. None for greedy search.


class Search(ABC):
    """Parts that greedy search and beam search share: the tokens so far, and the rows that are left of the batch.

    The column that tokens are written to is a number for the host, and a tensor for the device. `limits` has the most
    new tokens of every sentence, within `max_length`.
    """

    _ROWS: tuple[str, ...] = ("sentences", "tokens", "latest", "ends", "done")
    """Attributes with a row for every sentence."""
    _RESULT: tuple[str, ...]
    """Attributes that make a translation."""

    def __init__(self, decoding: Decoding, vocabulary: Vocabulary, settings: Settings, limits: Sequence[int]) -> None:
        self.decoding, self.vocabulary, self.settings = decoding, vocabulary, settings
        self.device = device = vocabulary.device
        self.eos = settings.eos.to(device)
        self.steps_to_a_look = _STEPS_TO_A_LOOK[device.type]
        # Where looking costs nothing, what changes nothing is left out.
        self.looks = self.steps_to_a_look == 1
        self.sentences = torch.arange(len(limits), device=device)
        # The last column that a sentence can fill. The start token is in column 0.
        self.ends = torch.tensor(limits, device=device)
        self.tokens = torch.full((len(limits), settings.num_beams, max(limits) + 1), settings.filling, device=device)
        self.tokens[:, :, 0] = settings.start
        self.latest = self.tokens[:, :, 0].clone()
        self.column, self.place = 1, torch.ones(1, dtype=torch.long, device=device)
        self.done = torch.zeros(len(limits), dtype=torch.bool, device=device)
        self.suppressed: Tensor | None = None
        self.needs_all_scores = False
        self.graph = StepGraph(device)

    def finish(self) -> list[Translation]:
        """Return the translations of all sentences, in their order."""
        translations = {}
        while len(self.sentences):
            translations.update(self.advance())
        return [translations[sentence] for sentence in sorted(translations)]

    def advance(self) -> list[tuple[int, Translation]]:
        """Write tokens up to the next look. Return the indices of sentences that leave, and translations on a CPU."""
        left = self.tokens.shape[2] - self.column
        steps = min(self.steps_to_a_look, left)
        self.decoding.reserve(steps, left)
        self.graph.prepare(self)
        constraints = self.settings.constraints
        for _ in range(steps):
            suppressed = constraints.suppressed(self.column)
            if suppressed is not self.suppressed:
                self.suppressed = suppressed
                self.graph.prepare(self)
            self.needs_all_scores = constraints.need_all_scores(self.column)
            # Constraints that need all scores have other shapes in every step.
            self._write() if self.looks or self.needs_all_scores else self.graph.run(self._write)
            self.column += 1
        return self._leave()

    def _write(self) -> None:
        """Write the next token of every sentence."""
        self._extend(self.decoding.step(self.latest))
        self.place += 1
        self.done |= self.ends < self.place

    @abstractmethod
    def _extend(self, hidden: Tensor) -> None:
        """Write the best next tokens, given the decoder's states."""

    @abstractmethod
    def _translation(self, *parts: Tensor) -> Translation:
        """The translation of a sentence from the parts that `_RESULT` names, which are on a CPU."""

    def _constrained(self, scores: Tensor) -> Tensor:
        """The scores `[rows, vocabulary]` of all tokens after the constraints."""
        return self.settings.constraints(self.tokens[:, :, : self.column].flatten(0, 1), scores)

    def _leave(self) -> list[tuple[int, Translation]]:
        finished = [row for row, is_done in enumerate(self.done.tolist()) if is_done]
        count = len(self.sentences)
        left = count - len(finished)
        if not finished or (left and len(finished) * (_DROPPED if self.looks else _DROPPED_FROM_GRAPH) < count):
            return []
        places = torch.tensor(finished, device=self.device)
        parts = [getattr(self, name)[places].cpu() for name in ("sentences", *self._RESULT)]
        translations = [(int(sentence), self._translation(*rest)) for sentence, *rest in zip(*parts)]
        # The last rows go to the places of those that are finished.
        moved = [row for row in finished if row < left]
        into = dict(zip(moved, sorted({*range(left, count)} - {*finished})))
        rows = torch.tensor([into.get(row, row) for row in range(left)], dtype=torch.long, device=self.device)
        for name in self._ROWS:
            setattr(self, name, getattr(self, name)[rows])
        if left:
            self.decoding.select(rows, torch.tensor(moved, dtype=torch.long, device=self.device))
        return translations


class GreedySearch(Search):
    """The best next token, always."""

    _RESULT = ("tokens", "ends")

    def _extend(self, hidden: Tensor) -> None:
        if self.needs_all_scores:
            tokens = self._constrained(self.vocabulary.scores(hidden).float()).argmax(-1)
        else:
            tokens = self.vocabulary.best_token(hidden, self.suppressed)
        tokens = tokens.masked_fill(self.done, self.settings.pad)
        self.latest.copy_(tokens.unsqueeze(-1))
        self.tokens.index_copy_(2, self.place, self.latest.unsqueeze(-1))
        self.done |= torch.isin(tokens, self.eos)

    def _translation(self, tokens: Tensor, end: Tensor) -> Translation:
        tokens = tokens[:, : min(self.column - 1, int(end)) + 1]
        ends = torch.isin(tokens[0, 1:], self.settings.eos).nonzero().flatten()
        length = int(ends[0]) + 2 if len(ends) else tokens.shape[1]
        return Translation(tokens[:, :length].clone(), None)


class BeamSearch(Search):
    """The best translations, `num_beams` of them at a time."""

    _ROWS = (*Search._ROWS, "scores", "found", "found_scores", "found_ends", "complete", "can_improve")
    _RESULT = ("found", "found_scores", "found_ends")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        sentences, beams, _ = self.tokens.shape
        self.scores = torch.zeros(sentences, beams, dtype=torch.float32, device=self.device)
        # All beams of a sentence begin the same.
        self.scores[:, 1:] = _NEVER
        self.found = self.tokens.clone()
        self.found_scores = torch.full_like(self.scores, _NEVER)
        # The columns after the last tokens.
        self.found_ends = torch.ones_like(self.tokens[:, :, 0])
        self.complete = torch.zeros_like(self.scores, dtype=torch.bool)
        self.can_improve = torch.ones_like(self.done)
        self.num_candidates = max(2, 1 + len(self.settings.eos)) * beams
        self.first = torch.arange(self.num_candidates, device=self.device) < beams
        self.any_complete = not self.looks

    def _extend(self, hidden: Tensor) -> None:
        candidates = self._candidates(hidden)
        ending = torch.isin(candidates.tokens, self.eos) | (self.ends <= self.place).unsqueeze(-1)
        any_ending = not self.looks or bool(ending.any())
        if any_ending:
            self._collect(candidates, ending)
        self._go_on(candidates, ending if any_ending else None)
        if any_ending or self.any_complete:
            self._judge()

    def _candidates(self, hidden: Tensor) -> Candidates:
        if self.needs_all_scores:
            scores = self._constrained(self.vocabulary.scores(hidden).float().log_softmax(-1))
            return best_of(scores, self.scores, self.num_candidates)
        renormalizes = self.settings.constraints.renormalizes
        return self.vocabulary.best(hidden, self.scores, self.num_candidates, self.suppressed, renormalizes)

    def _go_on(self, candidates: Candidates, ending: Tensor | None) -> None:
        """Continue the best candidates that do not end."""
        beams = self.scores.shape[1]
        if ending is None:
            scores, parents, tokens = (tensor[:, :beams] for tensor in candidates)
        else:
            running = candidates.scores + ending.float() * _NEVER
            chosen = running.topk(beams).indices
            scores, parents, tokens = (t.gather(1, chosen) for t in (running, candidates.beams, candidates.tokens))
        self.scores.copy_(scores)
        self.latest.copy_(tokens)
        so_far = self.tokens[:, :, : self.column] if self.looks else self.tokens
        so_far.copy_(so_far.gather(1, parents.unsqueeze(-1).expand(-1, -1, so_far.shape[2])))
        self.tokens.index_copy_(2, self.place, self.latest.unsqueeze(-1))
        self.decoding.reorder(parents)

    def _collect(self, candidates: Candidates, ending: Tensor) -> None:
        """Add candidates that end, of the first `num_beams`, to the best translations found so far."""
        tokens = self.tokens.gather(1, candidates.beams.unsqueeze(-1).expand(-1, -1, self.tokens.shape[2]))
        tokens.index_copy_(2, self.place, candidates.tokens.unsqueeze(-1))
        ending = ending & self.first
        scores = candidates.scores / self._penalty(self.column if self.looks else self.place)
        # A sentence that is finished collects no more, or its result would depend on when its rows leave.
        closed = ~self.can_improve | self.done
        if self.settings.early_stopping is True:
            closed = closed | self.complete.all(-1)
        scores = scores + closed.unsqueeze(-1).float() * _NEVER + (~ending).float() * _NEVER
        merged = torch.cat([self.found_scores, scores], dim=1)
        found_scores, chosen = merged.topk(self.scores.shape[1])
        self.found_scores.copy_(found_scores)
        self.complete.copy_(torch.cat([self.complete, ending], dim=1).gather(1, chosen))
        ends = (self.place + 1).expand_as(candidates.tokens)
        self.found_ends.copy_(torch.cat([self.found_ends, ends], dim=1).gather(1, chosen))
        places = chosen.unsqueeze(-1).expand(-1, -1, tokens.shape[2])
        self.found.copy_(torch.cat([self.found, tokens], dim=1).gather(1, places))
        self.any_complete = not self.looks or bool(self.complete.all(-1).any())

    def _judge(self) -> None:
        """Find out which sentences can still be improved, by the best score that a running beam may get."""
        settings = self.settings
        reaches_end = settings.early_stopping == "never" and settings.length_penalty > 0
        longest = self.column if self.looks else self.place
        best = self.scores[:, :1] / self._penalty(settings.max_length - 1 if reaches_end else longest)
        worst = self.found_scores.amin(1, keepdim=True).where(self.complete, _NEVER)
        self.can_improve &= (best > worst).any(-1)
        self.done |= ~self.can_improve
        if settings.early_stopping is True:
            self.done |= self.complete.all(-1)

    def _penalty(self, length: int | Tensor) -> float | Tensor:
        """Return the divisor of the scores of translations of a length, a number or `[1]`."""
        if isinstance(length, int):
            return length**self.settings.length_penalty
        # As Python computes it.
        return length.double().pow(self.settings.length_penalty).float()

    def _translation(self, found: Tensor, scores: Tensor, ends: Tensor) -> Translation:
        number = self.settings.num_return_sequences
        ends = ends[:number]
        sequences = found[:number, : int(ends.max())].clone()
        places = torch.arange(sequences.shape[1])
        # After the end there is only padding.
        sequences.masked_fill_(places >= ends.unsqueeze(-1), self.settings.filling)
        return Translation(sequences, scores[:number].clone())
