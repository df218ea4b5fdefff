"""Requests whose sentences wait, and the choice of the next batch among them."""

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum

from hf_capsule_mt.translation.text_translator import Ranked
from hf_capsule_mt.translation.translation import Sentence

_WINDOW = 4
"""Sentences are sorted by length within so many budgets of a batch."""
_SHORT = 64
"""The most source tokens of a short sentence."""


class Lane(Enum):
    """Sentences of one lane share batches. Long ones take many steps, and give way to short ones between them."""

    SHORT = "short"
    LONG = "long"

    @classmethod
    def of(cls, sentence: Sentence) -> "Lane":
        """Return the lane of a sentence."""
        return cls.LONG if len(sentence.token_ids) > _SHORT else cls.SHORT


def tokens_by_lane(sentences: Sequence[Sentence]) -> dict[Lane, int]:
    """Return how many source tokens sentences have in each lane."""
    tokens = dict.fromkeys(Lane, 0)
    for sentence in sentences:
        tokens[Lane.of(sentence)] += len(sentence.token_ids)
    return tokens


@dataclass(eq=False)
class WaitingRequest:
    """The sentences of a request, and what became of them."""

    model: str
    sentences: Sequence[Sentence]
    arrival: float  # Of time.monotonic().
    last_batch: int  # The number of the last batch that had a sentence of it.
    alternatives: int = 0  # Other translations of each sentence.
    future: Future[list[Ranked]] = field(default_factory=Future)
    waiting: dict[Lane, deque[int]] = field(init=False)  # Indices of the sentences that no batch has had.
    waiting_tokens: dict[Lane, int] = field(init=False)  # Their source tokens.
    translations: dict[int, Ranked] = field(default_factory=dict)
    has_terms: bool = field(init=False)  # Of a glossary.

    def __post_init__(self) -> None:
        self.waiting = {lane: deque() for lane in Lane}
        for index, sentence in enumerate(self.sentences):
            self.waiting[Lane.of(sentence)].append(index)
        self.waiting_tokens = tokens_by_lane(self.sentences)
        self.has_terms = any(sentence.terms for sentence in self.sentences)

    @property
    def kind(self) -> tuple[str, int | None, bool]:
        """What a batch must have in common: the model, the target language if it has several, and terms.

        Some sentences with terms are searched twice. Others must not wait for that.
        """
        return self.model, self.sentences[0].direction.first_token, self.has_terms

    def length(self, index: int) -> int:
        """Return the number of source tokens of a sentence."""
        return len(self.sentences[index].token_ids)

    def take(self, index: int, batch: int) -> None:
        """Note that a batch has a sentence."""
        lane = Lane.of(self.sentences[index])
        self.last_batch = batch
        self.waiting[lane].remove(index)
        self.waiting_tokens[lane] -= self.length(index)

    def next_lane(self, lanes: Iterable[Lane]) -> Lane | None:
        """Return the lane of its first sentence that waits in one of some lanes, or None if there is none."""
        with_sentences = [lane for lane in lanes if self.waiting[lane]]
        return min(with_sentences, key=lambda lane: self.waiting[lane][0], default=None)


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

    @property
    def lane(self) -> Lane:
        """The lane of the sentence."""
        return Lane.of(self.sentence)


def take_batch(
    requests: Sequence[WaitingRequest], number: int, max_tokens: int, max_sentences: int, lanes: Sequence[Lane]
) -> list[Place]:
    """Take the next batch from the requests.

    The request that was in no batch for longest has a sentence in it, so nobody waits for ever. Its neighbours by
    length fill the batch, so that little is padded.

    Args:
        requests: those that wait.
        number: of the batch.
        max_tokens: the most source tokens of the batch, with padding. A longer sentence has a batch of
            its own.
        max_sentences: the most sentences of the batch.
        lanes: from which it is taken.

    Returns:
        The batch, empty if nothing waits in these lanes.
    """
    waiting = [request for request in requests if request.next_lane(lanes) is not None]
    if not waiting:
        return []

    in_turn = sorted(waiting, key=lambda request: request.last_batch)
    first = in_turn[0]
    lane = first.next_lane(lanes)

    window = _window([request for request in in_turn if request.kind == first.kind], lane, max_tokens)
    anchor = window[0]
    window.sort(key=lambda place: place.length)
    batch = _run_around(window, window.index(anchor), max_tokens, max_sentences)

    for place in batch:
        place.request.take(place.index, number)
    return batch


def _window(requests: Sequence[WaitingRequest], lane: Lane, max_tokens: int) -> list[Place]:
    """Return one sentence in a lane of each request in turn, until there are enough for some batches."""
    window: list[Place] = []
    tokens = 0
    rounds = [iter(tuple(request.waiting[lane])) for request in requests]
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
