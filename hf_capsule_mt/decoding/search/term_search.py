"""Beam search that must write given terms, such as those of a glossary.

A term has forms, which are token sequences, and one of them must stand in the translation. A sentence with T terms has
T + 1 banks of beams: bank k holds hypotheses that have k terms (Post and Vilar 2018 share one beam between the banks,
and Hokamp and Liu 2017 have one for each token of a term). A hypothesis that wants to end before it has all terms is
closed, because the model would go on with a second sentence.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from ..models.base import Decoding
from ..products.vocabulary import Vocabulary
from .search import NEVER, DecodedTokens, Search, Settings, rows_of
from .term_automaton import State
from .term_banks import Candidate, Finished, Proposals, SentenceBanks, TermBanks, is_live


class TermSearch(Search):
    """Writes the terms of each sentence.

    A bank keeps its best `width` hypotheses. In a bank that lacks terms, half of the places are for hypotheses that are
    inside a term, and those that are furthest inside come first. A sentence is finished when `width` of its
    translations have ended with all terms, and no hypothesis with all terms can be better.

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
        self.scores = torch.full((sentences, rows), NEVER, dtype=torch.float32, device=self.device)
        self.scores[:, 0] = 0
        self.ends = frozenset(settings.eos.tolist())
        # In the order of the sentences that are left, as all tensors.
        self.banks = banks.of_sentences(rows)

    def _read_constraints(self) -> None:
        super()._read_constraints()
        is_simple = not self.needs_all_scores and self.forced is None
        # Whether constraints do nothing more. The processors of Transformers copy all scores.
        self.only_suppresses = is_simple and not self.settings.constraints.renormalizes
        # Terms are chosen on the host, from the scores of all tokens.
        self.needs_all_scores = True

    def _extend(self, hidden: Tensor) -> None:
        log_probabilities = self.vocabulary.scores(hidden).float().log_softmax(-1)
        if self.only_suppresses:
            if self.suppressed is not None:
                log_probabilities.index_fill_(1, self.suppressed, -torch.inf)
        else:
            log_probabilities = self._constrained(log_probabilities)
        log_probabilities = log_probabilities.unflatten(0, self.scores.shape)
        proposals = self._proposals(log_probabilities)
        probabilities_of_ends = log_probabilities[:, :, self.eos].exp()
        # Everything that the host reads. All else is done there, because states of terms are no tensors.
        end_probabilities = probabilities_of_ends.sum(-1).tolist()
        is_at_limit = (self.last_columns <= self.device_column).tolist()
        is_done = self.done.tolist()
        chosen: list[list[Candidate]] = []
        for sentence, scores in enumerate(self.scores.tolist()):
            if is_done[sentence]:
                # Its rows are still in the batch, but hold nothing.
                chosen.append([])
                continue
            banks = self.banks[sentence]
            closed = banks.closed_rows(scores, end_probabilities[sentence])
            candidates = banks.allowed(proposals[sentence], closed, self.ends, is_at_limit[sentence])
            if not candidates:
                self._give_up(sentence, scores)
            running = self._collect(sentence, candidates, is_at_limit[sentence])
            chosen.append(banks.fill(running))
        self._continue(chosen)
        self._find_finished(is_at_limit)

    def _proposals(self, log_probabilities: Tensor) -> list[Proposals]:
        """Return the scores of continuations, for each sentence.

        They are the best of all rows, the best of each row, and every continuation of a term.

        Args:
            log_probabilities: of all tokens, `[sentences, rows, vocabulary]`.
        """
        _, rows, size = log_probabilities.shape
        proposals: list[Proposals] = [{} for _ in self.banks]
        # The best of all rows are among so many of each row. To sort them all would read all scores twice.
        best_of_rows = log_probabilities.topk(min(2 * rows, size))
        totals = best_of_rows.values + self.scores.unsqueeze(-1)
        # A continuation is named by its place among rows times tokens.
        first_places = torch.arange(rows, device=self.device) * size
        places = best_of_rows.indices + first_places.unsqueeze(-1)
        best = totals.flatten(1).topk(2 * rows)
        best_places = places.flatten(1).gather(1, best.indices)
        most = [banks.num_proposals for banks in self.banks]
        _propose(proposals, best_places, best.values, size, most)
        first_of_rows = places[:, :, : self.width].flatten(1)
        their_scores = totals[:, :, : self.width].flatten(1)
        _propose(proposals, first_of_rows, their_scores, size)
        places_of_terms = self._continuations(size)
        scores_of_terms = log_probabilities.flatten(1).gather(1, places_of_terms)
        scores_of_terms += self.scores.gather(1, places_of_terms // size)
        _propose(proposals, places_of_terms, scores_of_terms, size)
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
            if is_live(score):
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

    def _continue(self, chosen: Sequence[Sequence[Candidate]]) -> None:
        """Let the rows of each sentence be the chosen candidates. Rows that are left over hold none."""
        rows = self.scores.shape[1]
        no_candidate = Candidate(NEVER, parent=0, token=self.settings.filling, state=State())
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

    def _find_finished(self, is_at_limit: Sequence[bool]) -> None:
        """Find out which sentences are finished."""
        for sentence, scores in enumerate(self.scores.tolist()):
            if is_at_limit[sentence] or self._cannot_improve(self.banks[sentence], scores):
                self.done[sentence] = True

    def _cannot_improve(self, banks: SentenceBanks, scores: Sequence[float]) -> bool:
        """Whether enough translations have ended, and no hypothesis with all terms may be better."""
        if not any(map(is_live, scores)):
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

    def _translations_of(self, rows: list[int]) -> list[tuple[int, DecodedTokens]]:
        translations = []
        for row in rows:
            sentence = int(self.sentences[row])
            translations.append((sentence, self._translation_of(self.banks[row].finished)))
        return translations

    def _translation_of(self, finished: Sequence[Finished]) -> DecodedTokens:
        """Return all that are kept, those with most terms first, and then by their score."""
        longest = max(len(ended.tokens) for ended in finished)
        sequences = torch.full((len(finished), longest), self.settings.filling)
        for number, ended in enumerate(finished):
            length = len(ended.tokens)
            sequences[number, :length] = torch.tensor(ended.tokens)
        scores = [ended.score for ended in finished]
        return DecodedTokens(sequences, torch.tensor(scores))

    def _translation(self, *parts: Tensor) -> DecodedTokens:
        raise NotImplementedError  # Translations are lists of tokens, which `_translations_of` reads.

    def _keep(self, rows: list[int], moved: list[int]) -> None:
        super()._keep(rows, moved)
        self.banks = [self.banks[row] for row in rows]


def _propose(
    proposals: Sequence[Proposals],
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
