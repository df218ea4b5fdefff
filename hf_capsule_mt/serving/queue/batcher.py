"""Decodes the sentences of many requests in common batches, in one thread, and treats the requests fairly.

A batch is what waits when the engine becomes free. Nothing waits for a batch to fill. Each request has its turn, so a
document of five hundred sentences does not hold up a single sentence. Long sentences have batches of their own. Short
ones are decoded between the steps of such a batch.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Condition, Thread
from typing import Any

from hf_capsule_mt.long_work import GivenUpError, LongWork
from hf_capsule_mt.translation.text_translator import Ranked
from hf_capsule_mt.translation.translation import Sentence

from ..refusals import BusyError, FailedSentenceError, StoppedError
from .waiting import Lane, Place, WaitingRequest, take_batch, tokens_by_lane

logger = logging.getLogger(__name__)

Decode = Callable[..., Sequence[Ranked]]
"""Decodes sentences with token ids, all in one batch. `num_return_sequences` says how many translations each has.

It calls [`hf_capsule_mt.long_work.next_step`] at each step. There it is given up if nobody waits for the batch.
"""

_REMEMBERED_BATCHES = 50
"""The last batches, from which the time of the next ones is predicted."""
_SMALL_IN_FULL = 16
"""A full batch is thought to take as long as so many small ones, until one was seen."""


class Batcher:
    """Decodes the sentences of many requests, in a thread of its own.

    Example:

        with Batcher({"en-de": translator.decode}) as batcher:
            prepared = translator.reader.prepare("A dog runs.")
            sentences = [sentence for sentence in prepared.sentences if sentence.token_ids]
            [translation] = batcher.submit("en-de", sentences).result()

    Args:
        decoders: for each model, what decodes a batch of its sentences.
        max_tokens_per_batch: the most source tokens of a batch, padding included. A longer sentence has a
            batch of its own.
        max_sentences_per_batch: the most sentences of a batch.
        max_wait: the most seconds that a new request may have to wait.
        max_waiting_tokens: the most source tokens that may wait.
        on_batch: is called after each batch, in the thread of the engine: with the batch, the time when its decoding
            began, and the seconds that it took.
    """

    def __init__(
        self,
        decoders: Mapping[str, Decode],
        *,
        max_tokens_per_batch: int = 1024,
        max_sentences_per_batch: int = 64,
        max_wait: float = 8.0,
        max_waiting_tokens: int = 65_536,
        on_batch: Callable[[Sequence[Place], float, float], None] | None = None,
    ) -> None:
        self._decoders = dict(decoders)
        self._max_tokens = max_tokens_per_batch
        self._max_sentences = max_sentences_per_batch
        self._max_wait = max_wait
        self._max_waiting_tokens = max_waiting_tokens
        self._on_batch = on_batch
        # It guards all that follows.
        self._changed = Condition()
        self._requests: list[WaitingRequest] = []
        """Those that are not answered, in the order of their arrival."""
        self._admitted: list[int] = []
        """The tokens of requests that were admitted, and whose sentences are not there yet."""

        self._taken_batches = 0
        self._speeds = {lane: BatchSpeed(max_tokens_per_batch) for lane in Lane}
        self._batch_ends = dict.fromkeys(Lane, 0.0)
        """When the batch of a lane that is decoded now should end, 0 if there is none."""

        self._is_closed = False
        self._is_dead = False
        self._thread = Thread(target=self._run, name="translation engine", daemon=True)

    def __enter__(self) -> "Batcher":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def is_alive(self) -> bool:
        """Whether requests are taken and decoded."""
        with self._changed:
            return not self._is_closed and not self._is_dead

    def waiting_sentences(self) -> int:
        """Return the number of sentences that no batch has had."""
        with self._changed:
            self._drop_done()
            return sum(len(indices) for request in self._requests for indices in request.waiting.values())

    def predicted_wait(self, tokens: int) -> float:
        """Return the seconds that a new request of so many source tokens in short sentences would wait for others.

        While it is decoded, each other request gets at most as many tokens as it has itself, because they take turns.
        """
        with self._changed:
            self._drop_done()
            return self._predicted_wait(tokens, Lane.SHORT)

    @contextmanager
    def admitted(self, tokens: int) -> Iterator[None]:
        """Refuse a request that would have to wait too long, or admit it.

        Its sentences are made and submitted in the context. Others wait for them too, so they count already. Otherwise
        many requests would be admitted at once, and wait much longer than was predicted.

        Args:
            tokens: its source tokens. An estimate is enough.

        Raises:
            BusyError: if it would wait over `max_wait`, or too many tokens wait.
            StoppedError: if the batcher is closed or dead.
        """
        # The shortest text has a token, too.
        tokens = max(tokens, 1)

        with self._changed:
            self._check_is_alive()
            self._drop_done()
            seconds = self._predicted_wait(tokens, Lane.SHORT)
            waiting_tokens = sum(of_request for lane in Lane for of_request, _ in self._waiting_of_each(lane))
            if seconds > self._max_wait or waiting_tokens > self._max_waiting_tokens:
                raise BusyError(max(seconds, 1.0))
            self._admitted.append(tokens)

        try:
            yield
        finally:
            with self._changed:
                self._admitted.remove(tokens)

    def check_wait(self, sentences: Sequence[Sentence]) -> None:
        """Refuse a request that was admitted, if its long sentences would wait too long for those of others.

        Raises:
            BusyError: if they would wait over `max_wait`.
        """
        tokens = tokens_by_lane(sentences)[Lane.LONG]
        if not tokens:
            return
        with self._changed:
            self._drop_done()
            seconds = self._predicted_wait(tokens, Lane.LONG)
        if seconds > self._max_wait:
            raise BusyError(seconds)

    def submit(
        self,
        model: str,
        sentences: Sequence[Sentence],
        *,
        alternatives: int = 0,
    ) -> Future[list[Ranked]]:
        """Give sentences to the engine.

        Args:
            model: the name of one of the decoders.
            sentences: those of one request, with token ids, and with one target language.
            alternatives: how many other translations each sentence has, less than there are beams.

        Returns:
            A future of the translations in the order of the sentences. Cancel it to drop those that still wait, and
            to give up a batch that nobody else waits for. Its exception is a FailedSentenceError or a StoppedError.

        Raises:
            StoppedError: if the batcher is closed or dead.
        """
        with self._changed:
            self._check_is_alive()

            # It comes before those that are in the batch that is decoded now.
            last_batch = self._taken_batches - 1
            request = WaitingRequest(
                model,
                sentences,
                arrival=time.monotonic(),
                last_batch=last_batch,
                alternatives=alternatives,
            )

            if sentences:
                self._requests.append(request)
                self._changed.notify_all()
            else:
                request.future.set_result([])
        return request.future

    def close(self) -> None:
        """Take no more requests, decode those that wait, and return when all are answered."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        """Decode batches until the batcher is closed and nothing waits."""
        try:
            while True:
                batch = self._next_batch()
                if batch is None:
                    return
                self._decode(batch)
        except BaseException:
            # Whoever waits must not wait for ever.
            logger.exception("The thread of the translation engine has died.")
        finally:
            with self._changed:
                self._is_dead = True
                for request in self._requests:
                    self._fail(request, StoppedError("The translation engine has stopped."))
                self._requests = []

    def _next_batch(self) -> list[Place] | None:
        """Wait for sentences, and return a batch of them, or None if the batcher is closed."""
        with self._changed:
            while True:
                batch = self._take([*Lane])
                if batch:
                    return batch
                if self._is_closed:
                    return None
                self._changed.wait()

    def _take(self, lanes: Sequence[Lane]) -> list[Place]:
        """Return the next batch of some lanes, empty if nothing waits there."""
        self._drop_done()
        batch = take_batch(self._requests, self._taken_batches + 1, self._max_tokens, self._max_sentences, lanes)
        if batch:
            self._taken_batches += 1
            lane = batch[0].lane
            tokens = sum(place.length for place in batch)
            self._batch_ends[lane] = time.monotonic() + self._speeds[lane].seconds(tokens, 1)
        return batch

    def _decode(self, batch: Sequence[Place]) -> None:
        """Decode a batch, in halves where a sentence fails, and answer the requests that are complete."""
        lane = batch[0].lane
        decode = self._decoders[batch[0].request.model]
        work = _BatchWork(batch, self._decode_short if lane is Lane.LONG else None)

        started = time.monotonic()
        translations: Sequence[Ranked | Exception] = ()
        with suppress(GivenUpError):
            translations = work.run(self._decode_or_halve, decode, batch)
        seconds = time.monotonic() - started - work.seconds_of_others

        with self._changed:
            # It may have been thought to take much longer, and an engine that is free lets nobody wait.
            self._batch_ends[lane] = 0.0
            if not translations:
                return
            self._speeds[lane].add(sum(place.length for place in batch), seconds)
            for place, translation in zip(batch, translations, strict=True):
                self._deliver(place, translation)
        if self._on_batch is not None:
            self._on_batch(batch, started, seconds)

    def _decode_short(self) -> None:
        """Decode a batch of the short sentences that wait, if there are any. A batch of long ones waits meanwhile."""
        with self._changed:
            batch = self._take([Lane.SHORT])
        if batch:
            self._decode(batch)

    def _decode_or_halve(self, decode: Decode, batch: Sequence[Place]) -> list[Ranked | Exception]:
        """Return a translation for each sentence, or the error of a sentence that cannot be decoded alone either."""
        try:
            sentences = [place.sentence for place in batch]
            counts = [1 + place.request.alternatives for place in batch]
            options: dict[str, Any] = {}
            if max(counts) > 1:
                # One search for all. Only those who asked get more of what it has found.
                options["num_return_sequences"] = counts
            return [*decode(sentences, **options)]
        except GivenUpError:
            raise
        except Exception as error:
            if len(batch) == 1:
                logger.exception("A sentence cannot be decoded.")
                return [error]

        middle = len(batch) // 2
        return [*self._decode_or_halve(decode, batch[:middle]), *self._decode_or_halve(decode, batch[middle:])]

    def _deliver(self, place: Place, translation: Ranked | Exception) -> None:
        request = place.request
        if isinstance(translation, Exception):
            error = FailedSentenceError()
            error.__cause__ = translation
            self._fail(request, error)
            return

        request.translations[place.index] = translation
        is_complete = len(request.translations) == len(request.sentences)
        # False if the caller has cancelled it.
        if is_complete and not request.future.done() and request.future.set_running_or_notify_cancel():
            ordered = [request.translations[index] for index in range(len(request.sentences))]
            request.future.set_result(ordered)

    def _predicted_wait(self, tokens: int, lane: Lane) -> float:
        tokens_before = 0
        sentences_before = 0
        for waiting_tokens, waiting_sentences in self._waiting_of_each(lane):
            before = min(tokens, waiting_tokens)
            tokens_before += before
            sentences_before += math.ceil(waiting_sentences * before / waiting_tokens)

        batches = math.ceil(max(tokens_before / self._max_tokens, sentences_before / self._max_sentences))
        rest_of_batch = max(self._batch_ends[lane] - time.monotonic(), 0.0)
        return rest_of_batch + self._speeds[lane].seconds(tokens_before, batches)

    def _waiting_of_each(self, lane: Lane) -> list[tuple[int, int]]:
        """Return the tokens and sentences in a lane that each request still waits for, or will."""
        requests = [request for request in self._requests if request.waiting[lane]]
        waiting = [(request.waiting_tokens[lane], len(request.waiting[lane])) for request in requests]
        if lane is Lane.SHORT:
            # Most sentences are short. How many there are is not known yet.
            waiting += [(tokens, 1) for tokens in self._admitted]
        return waiting

    def _drop_done(self) -> None:
        """Drop the requests that are answered or were cancelled."""
        self._requests = [request for request in self._requests if not request.future.done()]

    def _check_is_alive(self) -> None:
        if self._is_closed or self._is_dead:
            raise StoppedError("The server takes no more requests.")

    def _fail(self, request: WaitingRequest, error: Exception) -> None:
        if not request.future.done() and request.future.set_running_or_notify_cancel():
            request.future.set_exception(error)


class _BatchWork(LongWork):
    """The decoding of a batch, which is given up when all of its requests are cancelled.

    Args:
        batch: the batch.
        decode_others: decodes what need not wait until the batch is decoded, if there is such a thing.
    """

    def __init__(self, batch: Sequence[Place], decode_others: Callable[[], None] | None) -> None:
        super().__init__()
        self.seconds_of_others = 0.0
        """How long others were decoded meanwhile."""
        self._batch = batch
        self._decode_others = decode_others
        self._next_turn = 0.0
        """When others may be decoded again."""

    def check(self) -> None:
        """Decode others between two steps, for half of the time. So the batch ends, however many others come.

        Raises:
            GivenUpError: if nobody waits for the batch.
        """
        if all(place.request.future.done() for place in self._batch):
            raise GivenUpError("Nobody waits for this batch any more.")

        started = time.monotonic()
        if self._decode_others is None or started < self._next_turn:
            return

        self._decode_others()
        ended = time.monotonic()
        seconds = ended - started
        self.seconds_of_others += seconds
        self._next_turn = ended + seconds


class BatchSpeed:
    """Predicts the time of batches: a constant for each, and a time for each token.

    A batch of one sentence takes its time for the steps of the search. Many sentences together take few steps more.
    So batches of one sentence do not say what a token takes. Until a large batch was seen, a full one is imagined.

    Args:
        full: the tokens of a full batch.
    """

    def __init__(self, full: int) -> None:
        self._full = full
        self._batches: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED_BATCHES)
        self._constant = 0.0
        self._for_token = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Remember a batch."""
        self._batches.append((tokens, seconds))
        batches = [*self._batches]
        if max(of_batch for of_batch, _ in batches) < self._full / 2:
            batches.append(self._imagined())
        self._constant, self._for_token = _fit(batches)

    def seconds(self, tokens: int, batches: int) -> float:
        """Return the predicted time of so many tokens in so many batches, 0 if nothing is known yet."""
        return self._constant * batches + self._for_token * tokens

    def _imagined(self) -> tuple[int, float]:
        """Return the tokens and the time of a full batch. Its sentences would not take longer one after the other."""
        mean_tokens, mean_seconds = _means(self._batches)
        small_batches = min(self._full / mean_tokens, _SMALL_IN_FULL)
        return self._full, small_batches * mean_seconds


def _means(batches: Collection[tuple[int, float]]) -> tuple[float, float]:
    """Return the mean tokens and the mean time of batches."""
    tokens = sum(of_batch for of_batch, _ in batches)
    seconds = sum(of_batch for _, of_batch in batches)
    return tokens / len(batches), seconds / len(batches)


def _fit(batches: Collection[tuple[int, float]]) -> tuple[float, float]:
    """Return the constant and the time for a token that fit batches best, by least squares."""
    mean_tokens, mean_seconds = _means(batches)
    variance = sum((tokens - mean_tokens) ** 2 for tokens, _ in batches)
    covariance = sum((tokens - mean_tokens) * (seconds - mean_seconds) for tokens, seconds in batches)
    if variance == 0 or covariance <= 0:
        # All batches are alike, or more tokens take no longer.
        return mean_seconds, 0.0

    for_token = covariance / variance
    constant = mean_seconds - for_token * mean_tokens
    if constant < 0:
        return 0.0, mean_seconds / mean_tokens
    return constant, for_token
