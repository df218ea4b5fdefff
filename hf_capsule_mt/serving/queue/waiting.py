"""Requests whose sentences wait for a batch, and which of them go well together."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from hf_capsule_mt.translation.text_translator import Ranked
from hf_capsule_mt.translation.translation import Sentence


@dataclass(eq=False)
class WaitingRequest:
    """The sentences of a request, and what became of them."""

    model: str
    sentences: Sequence[Sentence]
    deadline: float  # Of time.monotonic().
    arrival: float
    last_batch: int  # The number of the last batch that had a sentence of it.
    future: Future[list[Ranked]] = field(default_factory=Future)
    waiting: deque[int] = field(init=False)  # Indices of the sentences that no batch has had.
    waiting_tokens: int = field(init=False)  # Their source tokens.
    translations: dict[int, Ranked] = field(default_factory=dict)
    has_terms: bool = False  # Of a glossary.
    alternatives: int = 0  # Other translations of each sentence.
    rereads: bool = False  # Whether the model reads its translations again.

    def __post_init__(self) -> None:
        self.waiting = deque(range(len(self.sentences)))
        self.waiting_tokens = sum(map(self.length, self.waiting))

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
    """A sentence of a request."""

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


def run_around(window: Sequence[Place], anchor: int, max_tokens: int, max_sentences: int) -> list[Place]:
    """Return the sentences around the one at `anchor`, in a window sorted by length, that fit a batch.

    The shorter ones come first, because a longer one makes the whole batch wider.

    Args:
        window: sentences, sorted by length.
        anchor: the index in the window of the sentence whose turn it is. It is always in the batch.
        max_tokens: the most source tokens of the batch, with padding.
        max_sentences: the most sentences of the batch.
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
