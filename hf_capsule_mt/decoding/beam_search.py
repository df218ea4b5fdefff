"""Beam search, as `generate()` has it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .adapter import Decoding
from .search import NEVER, DecodedTokens, Search, Settings, rows_of
from .vocabulary import Candidates, Vocabulary, best_of
from .words import VocabularyOfWords


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
        vocabulary: Vocabulary | VocabularyOfWords,
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
        self.any_complete = not self.checks_every_step

    def _extend(self, hidden: Tensor) -> None:
        candidates = self._candidates(hidden)
        is_at_limit = self.last_columns <= self.device_column
        is_ending = torch.isin(candidates.tokens, self.eos) | is_at_limit.unsqueeze(-1)
        any_ending = not self.checks_every_step or bool(is_ending.any())
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
        self.vocabulary.watch(hidden)
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
        so_far = self.tokens[:, :, : self.column] if self.checks_every_step else self.tokens
        so_far.copy_(rows_of(so_far, parents))
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
        if self.checks_every_step:
            self.any_complete = bool(self.is_complete.all(-1).any())

    def _scores_of_ends(self, candidates: Candidates, is_ending: Tensor) -> Tensor:
        """Return the scores of candidates as translations, `[sentences, candidates]`.

        Those that do not end, and those of sentences that collect no more, cannot be chosen.

        Args:
            candidates: the continuations of every sentence.
            is_ending: whether they end, `[sentences, candidates]`.
        """
        length = self.column if self.checks_every_step else self.device_column
        scores = candidates.scores / self._penalty(length)
        # Sums, as in `generate()`: with one score for all of them, others of those that cannot be chosen would follow.
        # A sentence that is finished collects no more, or its result would depend on when its rows leave.
        scores = scores + self.done.unsqueeze(-1).float() * NEVER
        return scores + (~is_ending).float() * NEVER

    def _find_finished(self) -> None:
        """Find out which sentences cannot be improved any more, by the best score that a running beam may get."""
        settings = self.settings
        if settings.early_stopping == "never" and settings.length_penalty > 0:
            # The longer a translation, the better is its score.
            longest: int | Tensor = settings.max_length - 1
        else:
            longest = self.column if self.checks_every_step else self.device_column
        best_running = self.scores[:, :1] / self._penalty(longest)
        # Every beam is better than a place that has no translation yet.
        worst_ended = self.ended_scores.amin(1, keepdim=True).where(self.is_complete, NEVER)
        can_improve = (best_running > worst_ended).any(-1)
        self.done |= ~can_improve
        if settings.early_stopping is True:
            self.done |= self.is_complete.all(-1)

    def _penalty(self, length: int | Tensor) -> float | Tensor:
        """Return the divisor of the scores of translations of a length, a number or `[1]`."""
        if isinstance(length, int):
            return length**self.settings.length_penalty
        # In float64, as Python computes it. In float32 other translations would be the best ones.
        return length.double().pow(self.settings.length_penalty).float()

    def _translation(self, ended: Tensor, scores: Tensor, lengths: Tensor) -> DecodedTokens:
        """Cut the best of the translations `[beams, columns]`. Those that are shorter are filled up from the start."""
        number = self.settings.num_return_sequences
        longest = int(lengths[:number].max())
        return DecodedTokens(ended[:number, :longest].clone(), scores[:number].clone())
