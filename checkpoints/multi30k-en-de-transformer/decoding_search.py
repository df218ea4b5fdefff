# Copyright 2026 The hf-capsule-mt authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
# From hf-capsule-mt 0.1.0, hf_capsule_mt/decoding/search.py.
"""Greedy search and beam search, step by step as `generate()` has them, over any model.

Every sentence ends by itself: once nothing can change what it returns, its rows leave the batch. On a CPU that is found
out after every step. On other devices, which would have to be waited for, it is after several, and until then a step is
the same operations on tensors of the same shapes, in the same memory.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import StoppingCriteria

from .decoding_constraints import Constraints
from .decoding_vocabulary import Candidates, Vocabulary, best_of

_NEVER = -1e9
"""The score of what cannot be chosen."""
_DROPPED = 16
"""Rows leave once one sentence in so many is finished."""
_STEPS_TO_A_LOOK = {"cpu": 1, "cuda": 8}
"""Steps from one look at what is finished to the next, by the kind of device."""


class Decoding(Protocol):
    """Sentences that a model is decoding, with the same number of beams each.

    Between two calls of the other methods every step is the same operations, if several are reserved: they change
    tensors where they are.
    """

    def reserve(self, steps: int, left: int) -> None:
        """Make room for as many steps, all of which are made before any other method but `reorder` is called.

        So many are left until all these sentences are at their limits.
        """

    def step(self, words: Tensor) -> Tensor:
        """Read the next words `[sentences, beams]`; return what predicts those after, `[sentences * beams, d]`."""

    def reorder(self, parents: Tensor) -> None:
        """Let beam b of a sentence go on from beam `parents[sentence, b]`."""

    def select(self, rows: Tensor, moved: Tensor) -> None:
        """Go on with the sentences `rows`, of which those at the places `moved` stand elsewhere now."""

    def admit(self, new: "Decoding") -> None:
        """Go on with the sentences of `new` too, after those that are here; none of them has been given a word."""


@dataclass(frozen=True)
class Settings:
    """Settings of a search; the names are those of [`GenerationConfig`].

    Attributes:
        constraints: on the words.
        start: the token that every translation begins with.
        eos: the tokens that end one, `[1 or more]`, on a CPU.
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
        limits: `[sentences]`, or `[1]` for all.
        prefix_length: of the `decoder_input_ids` that `generate()` is given; 1 without.
    """

    def __init__(self, limits: Tensor, prefix_length: int = 1) -> None:
        self.limits, self.prefix_length = limits, prefix_length

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        """Return which candidates `[sentences * n, length]`, prefix included, are at the limit.

        Raises:
            ValueError: if so many candidates cannot be those of as many sentences as there are limits.
        """
        candidates, limits = len(input_ids), self.limits.to(input_ids.device)
        if len(limits) == 0 or candidates % len(limits):
            raise ValueError(
                f"NewTokenLimits has {len(limits)} limits for {candidates} candidates, of which every sentence has as "
                "many; give a limit for every sentence"
            )
        return input_ids.shape[1] - self.prefix_length >= limits.repeat_interleave(candidates // len(limits))

    def check(self, sentences: int) -> None:
        """Raise a ValueError unless there are limits for so many sentences."""
        if self.limits.numel() not in (1, sentences):
            raise ValueError(
                f"NewTokenLimits has {self.limits.numel()} limits for {sentences} sentences; give a limit for every "
                "sentence"
            )


class Search:
    """Parts that greedy search and beam search share: the words so far, and the rows that are left of the batch.

    All sentences write their next word to the same column, whenever they began. Which one it is, the host counts, and a
    tensor, so that the host need not tell the device.

    Args:
        decoding: of the sentences, before the first word.
        vocabulary: the model's output projection.
        settings: how to search.
        limits: of the new tokens of every sentence.
        index: of the first sentence; the others follow.
    """

    _ROWS: tuple[str, ...] = ("sentences", "words", "latest", "begins", "ends", "done")
    """What has a row for every sentence."""
    _WORDS: tuple[str, ...] = ("words",)
    """What of it has the columns of the words."""
    _COLUMNS: tuple[str, ...] = ("begins", "ends")
    """What of it are numbers of columns."""
    _RESULT: tuple[str, ...]
    """What of it makes the translation of a sentence."""

    def __init__(
        self, decoding: Decoding, vocabulary: Vocabulary, settings: Settings, limits: Sequence[int], index: int = 0
    ) -> None:
        self.decoding, self.vocabulary, self.settings = decoding, vocabulary, settings
        self.device = vocabulary.device
        self.eos = settings.eos.to(self.device)
        self.steps_to_a_look = _STEPS_TO_A_LOOK[self.device.type]
        # Where looking costs nothing, what changes nothing is left out.
        self.looks = self.steps_to_a_look == 1
        self.sentences = torch.arange(index, index + len(limits), device=self.device)
        # The column of the start token, and the last that a sentence can fill.
        self.begins = torch.zeros_like(self.sentences)
        ends = [min(limit, settings.max_length - 1) for limit in limits]
        self.ends = torch.tensor(ends, device=self.device)
        shape = len(ends), settings.num_beams, max(ends) + 1
        self.words = torch.full(shape, settings.filling, device=self.device)
        self.words[:, :, 0] = settings.start
        self.latest = self.words[:, :, 0].clone()
        self.column, self.place = 1, torch.ones(1, dtype=torch.long, device=self.device)
        self.done = torch.zeros(len(limits), dtype=torch.bool, device=self.device)
        self.suppressed: Tensor | None = None
        self.needs_all_scores = False
        # The sentences that began at the same column have as many words.
        self.groups: dict[int, Tensor | slice] = {0: slice(None)}

    def __len__(self) -> int:
        return len(self.sentences)

    def advance(self) -> list[tuple[int, Translation]]:
        """Write words up to the next look; return the indices of sentences that leave, and translations on a CPU."""
        left = self.words.shape[2] - self.column
        steps = min(self.steps_to_a_look, left)
        self.decoding.reserve(steps, left)
        for _ in range(steps):
            self._find_constraints()
            self.write()
            self.column += 1
        return self._leave()

    def write(self) -> None:
        """Write the next word of every sentence."""
        self._extend(self.decoding.step(self.latest))
        self.place += 1
        self.done |= self.ends < self.place

    def admit(self, new: "Search") -> None:
        """Go on with the sentences of another search too, which has not begun."""
        oldest = int(self.begins.min())
        width = max(int(self.ends.max()) - oldest, self.column - 1 - oldest + int(new.ends.max())) + 1
        self._move(-oldest, width)
        new._move(self.column - 1, width)
        for name in self._ROWS:
            setattr(self, name, torch.cat([getattr(self, name), getattr(new, name)]))
        self.decoding.admit(new.decoding)
        self._group()

    @property
    def lengths(self) -> int | Tensor:
        """Words of the sentences so far, the start included: a number where all have as many, or `[sentences, 1]`."""
        if self.looks and len(self.groups) == 1:
            return self.column - next(iter(self.groups))
        return (self.place - self.begins).unsqueeze(-1)

    def _extend(self, hidden: Tensor) -> None:
        raise NotImplementedError

    def _translation(self, begin: int, *parts: Tensor) -> Translation:
        """The translation of a sentence from the parts that `_RESULT` names, which are on a CPU."""
        raise NotImplementedError

    def _scores(self, hidden: Tensor) -> Tensor:
        """What constraints are for: logits of greedy search, log-probabilities of beam search; `[rows, vocabulary]`."""
        raise NotImplementedError

    def _find_constraints(self) -> None:
        """Find what constrains the next words: a few that are suppressed, or more, for which all scores are needed."""
        constraints = self.settings.constraints
        lengths = [self.column - begin for begin in self.groups]
        suppressed = [constraints.suppressed(length) for length in lengths]
        self.suppressed = suppressed[0]
        # The same tensor for the same words.
        same = all(words is self.suppressed for words in suppressed)
        self.needs_all_scores = not same or any(map(constraints.need_all_scores, lengths))

    def _constrained(self, hidden: Tensor) -> Tensor:
        """The scores of all words after the constraints."""
        scores = self._scores(hidden).view(*self.words.shape[:2], -1)
        for begin, rows in self.groups.items():
            prefixes, of_group = self.words[rows, :, begin : self.column], scores[rows]
            found = self.settings.constraints(prefixes.flatten(0, 1), of_group.flatten(0, 1))
            scores[rows] = found.view_as(of_group)
        return scores.flatten(0, 1)

    def _keep(self, rows: Tensor) -> None:
        for name in self._ROWS:
            setattr(self, name, getattr(self, name)[rows])
        if len(self.groups) > 1:
            self._group()

    def _group(self) -> None:
        begins = self.begins.tolist()
        groups = {begin: [row for row, other in enumerate(begins) if other == begin] for begin in dict.fromkeys(begins)}
        self.groups = {begin: torch.tensor(rows, device=self.device) for begin, rows in groups.items()}
        if len(groups) == 1:
            self.groups = {begins[0]: slice(None)}

    def _move(self, columns: int, width: int) -> None:
        """Put the words so many columns to the right, and make as much room for them."""
        for name in self._WORDS:
            words = getattr(self, name)
            places = columns, width - columns - words.shape[2]
            setattr(self, name, F.pad(words, places, value=self.settings.filling))
        for name in self._COLUMNS:
            setattr(self, name, getattr(self, name) + columns)
        self.column += columns
        self.place += columns

    def _leave(self) -> list[tuple[int, Translation]]:
        finished = [row for row, is_done in enumerate(self.done.tolist()) if is_done]
        count, left = len(self.sentences), len(self.sentences) - len(finished)
        if not finished or (left and len(finished) * _DROPPED < count):
            return []
        translations = self._translations(finished)
        rows, moved = (torch.tensor(places, dtype=torch.long, device=self.device) for places in _fill(finished, count))
        self._keep(rows)
        if left:
            self.decoding.select(rows, moved)
        return translations

    def _translations(self, rows: list[int]) -> list[tuple[int, Translation]]:
        places = torch.tensor(rows, device=self.device)
        parts = [getattr(self, name)[places].cpu() for name in ("sentences", "begins", *self._RESULT)]
        return [(int(sentence), self._translation(int(begin), *rest)) for sentence, begin, *rest in zip(*parts)]


def _fill(finished: Collection[int], count: int) -> tuple[list[int], list[int]]:
    """The rows that are left, the last ones in the places of those that are finished; and these places."""
    finished = set(finished)
    left = count - len(finished)
    last = [row for row in range(left, count) if row not in finished]
    moved = [row for row in range(left) if row in finished]
    into = dict(zip(moved, last))
    return [into.get(row, row) for row in range(left)], moved


class GreedySearch(Search):
    """The best next word, always."""

    _RESULT = ("words", "ends")

    def _extend(self, hidden: Tensor) -> None:
        if self.needs_all_scores:
            words = self._constrained(hidden).argmax(-1)
        else:
            words = self.vocabulary.best_word(hidden, self.suppressed)
        words = words.masked_fill(self.done, self.settings.pad)
        self.latest.copy_(words.unsqueeze(-1))
        self.words.index_copy_(2, self.place, self.latest.unsqueeze(-1))
        self.done |= torch.isin(words, self.eos)

    def _scores(self, hidden: Tensor) -> Tensor:
        return self.vocabulary.scores(hidden).float()

    def _translation(self, begin: int, words: Tensor, end: Tensor) -> Translation:
        words = words[:, begin : min(self.column - 1, int(end)) + 1]
        ends = torch.isin(words[0, 1:], self.settings.eos).nonzero().flatten()
        length = int(ends[0]) + 2 if len(ends) else words.shape[1]
        return Translation(words[:, :length].clone(), None)


class BeamSearch(Search):
    """The best translations, `num_beams` of them at a time."""

    _ROWS = (*Search._ROWS, "scores", "found", "found_scores", "found_ends", "complete", "can_improve")
    _WORDS = (*Search._WORDS, "found")
    _COLUMNS = (*Search._COLUMNS, "found_ends")
    _RESULT = ("found", "found_scores", "found_ends")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        sentences, beams, _ = self.words.shape
        self.scores = torch.zeros(sentences, beams, dtype=torch.float32, device=self.device)
        # All beams of a sentence begin the same.
        self.scores[:, 1:] = _NEVER
        self.found = self.words.clone()
        self.found_scores = torch.full_like(self.scores, _NEVER)
        # The columns after the last words.
        self.found_ends = torch.ones_like(self.words[:, :, 0])
        self.complete = torch.zeros_like(self.scores, dtype=torch.bool)
        self.can_improve = torch.ones_like(self.done)
        self.num_candidates = max(2, 1 + len(self.settings.eos)) * beams
        self.first = torch.arange(self.num_candidates, device=self.device) < beams
        self.any_complete = not self.looks

    def _extend(self, hidden: Tensor) -> None:
        candidates = self._candidates(hidden)
        ending = torch.isin(candidates.words, self.eos) | (self.ends <= self.place).unsqueeze(-1)
        any_ending = not self.looks or bool(ending.any())
        words = None
        if any_ending:
            words = self.words.gather(1, candidates.beams.unsqueeze(-1).expand(-1, -1, self.words.shape[2]))
            words.index_copy_(2, self.place, candidates.words.unsqueeze(-1))
            self._collect(candidates, ending, words)
        self._go_on(candidates, ending if any_ending else None)
        if any_ending or self.any_complete:
            self._judge()

    def _scores(self, hidden: Tensor) -> Tensor:
        return self.vocabulary.scores(hidden).float().log_softmax(-1)

    def _candidates(self, hidden: Tensor) -> Candidates:
        if self.needs_all_scores:
            return best_of(self._constrained(hidden), self.scores, self.num_candidates)
        renormalizes = self.settings.constraints.renormalizes
        return self.vocabulary.best(hidden, self.scores, self.num_candidates, self.suppressed, renormalizes)

    def _go_on(self, candidates: Candidates, ending: Tensor | None) -> None:
        """Continue the best candidates that do not end."""
        beams = self.scores.shape[1]
        if ending is None:
            scores, parents, words = (tensor[:, :beams] for tensor in candidates)
        else:
            running = candidates.scores + ending.float() * _NEVER
            chosen = running.topk(beams).indices
            scores, parents, words = (t.gather(1, chosen) for t in (running, candidates.beams, candidates.words))
        self.scores.copy_(scores)
        self.latest.copy_(words)
        so_far = self.words[:, :, : self.column] if self.looks else self.words
        so_far.copy_(so_far.gather(1, parents.unsqueeze(-1).expand(-1, -1, so_far.shape[2])))
        self.words.index_copy_(2, self.place, self.latest.unsqueeze(-1))
        self.decoding.reorder(parents)

    def _collect(self, candidates: Candidates, ending: Tensor, words: Tensor) -> None:
        """Add those of the first `num_beams` candidates that end to the best translations found so far."""
        ending = ending & self.first
        scores = candidates.scores / self._penalty(self.lengths)
        # A sentence that is finished collects no more, or its result would depend on when its rows leave.
        closed = ~self.can_improve | self.done
        if self.settings.early_stopping is True:
            closed = closed | self.complete.all(-1)
        scores = scores + closed.unsqueeze(-1).float() * _NEVER + (~ending).float() * _NEVER
        merged = torch.cat([self.found_scores, scores], dim=1)
        found_scores, chosen = merged.topk(self.scores.shape[1])
        self.found_scores.copy_(found_scores)
        self.complete.copy_(torch.cat([self.complete, ending], dim=1).gather(1, chosen))
        ends = (self.place + 1).expand_as(candidates.words)
        self.found_ends.copy_(torch.cat([self.found_ends, ends], dim=1).gather(1, chosen))
        places = chosen.unsqueeze(-1).expand(-1, -1, words.shape[2])
        self.found.copy_(torch.cat([self.found, words], dim=1).gather(1, places))
        self.any_complete = not self.looks or bool(self.complete.all(-1).any())

    def _judge(self) -> None:
        """Tell which sentences can still be improved, by the best score that a running beam may get."""
        settings = self.settings
        reaches_end = settings.early_stopping == "never" and settings.length_penalty > 0
        lengths = settings.max_length - 1 if reaches_end else self.lengths
        best = self.scores[:, :1] / self._penalty(lengths)
        worst = self.found_scores.amin(1, keepdim=True).where(self.complete, _NEVER)
        self.can_improve &= (best > worst).any(-1)
        self.done |= ~self.can_improve
        if settings.early_stopping is True:
            self.done |= self.complete.all(-1)

    def _penalty(self, lengths: int | Tensor) -> float | Tensor:
        """What scores are divided by; see [`BeamSearch.lengths`]."""
        if isinstance(lengths, int):
            return lengths**self.settings.length_penalty
        # As Python computes it.
        return lengths.double().pow(self.settings.length_penalty).float()

    def _translation(self, begin: int, found: Tensor, scores: Tensor, ends: Tensor) -> Translation:
        number = self.settings.num_return_sequences
        ends = ends[:number]
        sequences = found[:number, begin : int(ends.max())].clone()
        places = torch.arange(begin, begin + sequences.shape[1])
        # Beyond its end a translation has the words of none.
        sequences.masked_fill_(places >= ends.unsqueeze(-1), self.settings.filling)
        return Translation(sequences, scores[:number].clone())


def begin_search(
    decoding: Decoding, vocabulary: Vocabulary, settings: Settings, limits: Sequence[int], index: int = 0
) -> Search:
    """Return a search for translations; the arguments are those of [`Search`]."""
    kind = GreedySearch if settings.num_beams == 1 else BeamSearch
    return kind(decoding, vocabulary, settings, limits, index)


def finish(search: Search) -> list[Translation]:
    """Return the translations of all sentences, in their order."""
    translations = []
    while len(search):
        translations += search.advance()
    return [translation for _, translation in sorted(translations, key=lambda pair: pair[0])]


def stacked(translations: list[Translation], filling: int) -> Tensor:
    """Return the sequences of all translations as one tensor `[translations * sequences, longest]`."""
    rows = [row for translation in translations for row in translation.sequences]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=filling)
