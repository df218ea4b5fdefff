"""Requests whose sentences wait, and the choice of the next batch among them."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from hf_capsule_mt.translation.text_translator import Ranked
from hf_capsule_mt.translation.translation import Sentence

_WINDOW = 4
"""Sentences are sorted by length within so many budgets of a batch."""


@dataclass(eq=False)
class WaitingRequest:
    """The sentences of a request, and what became of them."""

    model: str
    sentences: Sequence[Sentence]
    deadline: float  # Of time.monotonic().
    arrival: float
    last_batch: int  # The number of the last batch that had a sentence of it.
    alternatives: int = 0  # Other translations of each sentence.
    rereads: bool = False  # Whether the model reads its translations again.
    future: Future[list[Ranked]] = field(default_factory=Future)
    waiting: deque[int] = field(init=False)  # Indices of the sentences that no batch has had.
    waiting_tokens: int = field(init=False)  # Their source tokens.
    translations: dict[int, Ranked] = field(default_factory=dict)
    has_terms: bool = field(init=False)  # Of a glossary.

    def __post_init__(self) -> None:
        self.waiting = deque(range(len(self.sentences)))
        self.waiting_tokens = sum(map(self.length, self.waiting))
        self.has_terms = any(sentence.terms for sentence in self.sentences)

    @property
    def kind(self) -> tuple[str, int | None, bool, bool]:
        """What a batch must have in common: the model, the target language if it has several, terms and judgements.

        Some sentences with terms are searched twice, and judgements cost a pass. Others must not wait for that.
        """
        return self.model, self.sentences[0].direction.first_token, self.has_terms, self.rereads

    def length(self, index: int) -> int:
        """Return the number of source tokens of a sentence."""
        return len(self.sentences[index].token_ids)

    def take(self, index: int, batch: int) -> None:
        """Note that a batch has a sentence."""
        self.last_batch = batch
        self.waiting.remove(index)
        self.waiting_tokens -= self.length(index)


@dataclass(frozen=True)
class Place:
    """A sentence of a request, and so where its translation goes."""

    request: WaitingRequest
    index: int

    @property
    def length(self) -> int:
        """The number of source tokens."""
        return self.request.length(self.index)

    @property
    def sentence(self) -> Sentence:
        """The sentence."""
        return self.request.sentences[self.index]


def take_batch(requests: Sequence[WaitingRequest], number: int, max_tokens: int, max_sentences: int) -> list[Place]:
    """Take the next batch from the requests.

    The request that was in no batch for longest has a sentence in it, so nobody waits for ever. Its neighbours by
    length fill the batch, so that little is padded.

    Args:
        requests: those that wait, at least one.
        number: of the batch.
        max_tokens: the most source tokens of the batch, with padding. A longer sentence has a batch of
            its own.
        max_sentences: the most sentences of the batch.
    """
    in_turn = sorted(requests, key=lambda request: request.last_batch)
    first = in_turn[0]
    window = _window([request for request in in_turn if request.kind == first.kind], max_tokens)
    anchor = window[0]
    window.sort(key=lambda place: place.length)
    batch = _run_around(window, window.index(anchor), max_tokens, max_sentences)
    for place in batch:
        place.request.take(place.index, number)
    return batch


def _window(requests: Sequence[WaitingRequest], max_tokens: int) -> list[Place]:
    """Return one sentence of each request in turn, until there are enough for some batches."""
    window: list[Place] = []
    tokens = 0
    rounds = [iter(tuple(request.waiting)) for request in requests]
    remaining = list(zip(requests, rounds, strict=True))
    while remaining and tokens < _WINDOW * max_tokens:
        still_remaining = []
        for request, indices in remaining:
            index = next(indices, None)
            if index is None:
                continue
            window.append(Place(request, index))
            tokens += request.length(index)
            still_remaining.append((request, indices))
        remaining = still_remaining
    return window


def _run_around(window: Sequence[Place], anchor: int, max_tokens: int, max_sentences: int) -> list[Place]:
    """Return the sentences around the one at `anchor`, in a window sorted by length, that fit a batch.

    The shorter ones come first, because a longer one makes the whole batch wider.
    """
    start = anchor
    end = anchor + 1
    longest = window[anchor].length
    while end - start < max_sentences:
        count = end - start + 1
        if start > 0 and longest * count <= max_tokens:
            start -= 1
        elif end < len(window) and window[end].length * count <= max_tokens:
            longest = window[end].length
            end += 1
        else:
            break
    return list(window[start:end])
