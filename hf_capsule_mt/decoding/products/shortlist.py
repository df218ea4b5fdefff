"""A shortlist: the tokens that translations are written with, such as those of one language. Others need no scores."""

from collections.abc import Iterable
from copy import copy

import torch
from torch import Tensor
from transformers import LogitsProcessor

from hf_capsule_mt.errors import UserError

from .vocabulary import Candidates, FiniteSum, Vocabulary


class ShortlistLogitsProcessor(LogitsProcessor):
    """Lets a model write only some tokens, whose probabilities sum to 1.

    It is `suppress_tokens` of all others with `renormalize_logits=True`. The engine computes the scores of these tokens
    only. Without the engine `generate()` writes the same.

    Args:
        token_ids: the tokens. The end of translations must be among them, and a language that they begin with.

    Raises:
        UserError: if there are none, or one is negative.
    """

    def __init__(self, token_ids: Iterable[int]) -> None:
        self.token_ids = tuple(sorted({int(token_id) for token_id in token_ids}))
        if not self.token_ids or self.token_ids[0] < 0:
            raise UserError("A shortlist needs token ids, and none below 0.")

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the log-probabilities of the tokens, `[rows, vocabulary]`, which are -inf for all others."""
        self.check_within(scores.shape[1])
        allowed = torch.tensor(self.token_ids, device=scores.device)
        kept = torch.full_like(scores, -torch.inf)
        kept[:, allowed] = scores[:, allowed]
        if (kept.amax(-1) == -torch.inf).any():
            raise UserError(_NO_FORCED_TOKEN)
        return kept.log_softmax(-1)

    def check_within(self, size: int) -> None:
        """Raise a UserError if a token is not in a vocabulary of this size."""
        if self.token_ids[-1] >= size:
            raise UserError(
                f"The shortlist has token {self.token_ids[-1]}, but the model has {size} tokens. It is another "
                "model's shortlist."
            )

    def check_begins_with(self, token: int | None) -> None:
        """Raise a UserError if translations are made to begin with a token that is not in the shortlist."""
        if token is not None and token not in self.token_ids:
            raise UserError(_NO_FORCED_TOKEN)


_NO_FORCED_TOKEN = (
    "The shortlist lacks the token that a translation must have, such as its language. Make it with the same "
    "--target_lang."
)


class ShortlistVocabulary:
    """The output projection of a shortlist. To a search it is a [`Vocabulary`].

    Args:
        whole: that of the model. Only constraints that need all scores use it.
        part: that of the tokens.
        token_ids: the tokens in ascending order, `[tokens]`.
    """

    def __init__(self, whole: Vocabulary, part: Vocabulary, token_ids: Tensor) -> None:
        self.size = whole.size
        self.device = whole.device
        self._whole = whole
        self._part = part
        self._token_ids = token_ids.to(whole.device)

    @property
    def finite_sum(self) -> FiniteSum:
        """The sum of hidden states and best scores."""
        return self._whole.finite_sum

    def for_one_call(self) -> "ShortlistVocabulary":
        """Return the same vocabulary with a new `finite_sum`, which calls in other threads do not add to."""
        copied = copy(self)
        copied._whole = self._whole.for_one_call()
        copied._part = self._part.for_one_call()
        # Only one sum is checked.
        copied._part.finite_sum = copied._whole.finite_sum
        return copied

    def places_of(self, tokens: Tensor | None) -> Tensor | None:
        """Return the places of those of some tokens `[tokens]` that are in the shortlist, or None if there are none."""
        if tokens is None:
            return None
        places = torch.isin(self._token_ids, tokens).nonzero().flatten()
        return places if len(places) else None

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the scores `[rows, vocabulary]` of all tokens by hidden states `[rows, d]`."""
        return self._whole.scores(hidden)

    def best_token(self, hidden: Tensor, suppressed: Tensor | None) -> Tensor:
        """Return the best token of each row. The arguments are those of [`Vocabulary.best_token`], but for places."""
        return self._token_ids[self._part.best_token(hidden, suppressed)]

    def best(
        self, hidden: Tensor, beam_scores: Tensor, count: int, suppressed: Tensor | None, renormalizes: bool = True
    ) -> Candidates:
        """Return the best continuations of each sentence. Probabilities sum to 1 over the shortlist.

        Args:
            hidden: states, `[sentences * beams, d]`.
            beam_scores: the scores of the beams so far, `[sentences, beams]`.
            count: the number of continuations.
            suppressed: places in the shortlist that cannot be chosen, `[places]`, or None.
            renormalizes: has no effect, because a shortlist is always normalised.
        """
        candidates = self._part.best(hidden, beam_scores, count, suppressed, renormalizes=True)
        return candidates._replace(tokens=self._token_ids[candidates.tokens])
