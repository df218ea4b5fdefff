"""Numbers about a server, for Prometheus. No text, key or address is a label.

Labels are names of models and of owners of keys, which the operator chose. No client can make new ones.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..queue.waiting import Place

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram

_PREFIX = "hf_capsule_mt_"
_SENTENCES = (1, 2, 4, 8, 16, 32, 64)
_SHARES = (0.05, 0.1, 0.2, 0.3, 0.5)
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)


class Metrics:
    """Counters, histograms and gauges in a registry of their own. It needs prometheus_client, of the extra `serve`."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, ProcessCollector

        self._registry = CollectorRegistry()
        # Memory, CPU seconds and open files, where the system has /proc.
        ProcessCollector(registry=self._registry)

        of_request = ["api", "pair", "key", "status"]
        self._requests = self._counter("requests", "Requests by protocol, languages, owner and status.", of_request)
        self._refused = self._counter("refused", "Requests that would have waited too long.")
        self._cancelled = self._counter("cancelled", "Requests whose client went away.")
        self._sentences = self._counter("sentences", "Sentences that were decoded.", ["pair"])
        self._tokens = self._counter("source_tokens", "Source tokens that were decoded.", ["pair"])

        self._request_seconds = self._histogram("request_seconds", "Seconds of a request.", ["api", "pair"])
        self._queue_seconds = self._histogram("queue_seconds", "Seconds that a sentence waits.")
        self._batch_seconds = self._histogram("batch_seconds", "Seconds of a batch.", ["pair"])
        self._batch_sentences = self._histogram("batch_sentences", "Sentences of a batch.", buckets=_SENTENCES)
        self._padding = self._histogram("batch_padding_ratio", "Share of padding in a batch.", buckets=_SHARES)

    def watch(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Show a number that is asked for when the metrics are read."""
        from prometheus_client import Gauge

        Gauge(_PREFIX + name, description, registry=self._registry).set_function(value)

    def add_request(self, api: str, pairs: str, owner: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            api: the protocol.
            pairs: the pairs of languages, with commas between several.
            owner: of the key.
            status: of the answer.
            seconds: until there was one.
        """
        # A client can write texts of several languages in any order, and each order would be another label.
        pair = "several" if "," in pairs else pairs
        self._requests.labels(api, pair, owner, str(status)).inc()
        self._request_seconds.labels(api, pair).observe(seconds)
        if status == 429:
            self._refused.inc()
        if status == 499:
            self._cancelled.inc()

    def add_batch(self, batch: Sequence[Place], started: float, seconds: float) -> None:
        """Count a batch.

        Args:
            batch: its sentences.
            started: when its decoding began.
            seconds: that the decoding took.
        """
        lengths = [place.length for place in batch]
        tokens = sum(lengths)
        padded_tokens = len(batch) * max(lengths)
        pair = batch[0].request.model

        self._sentences.labels(pair).inc(len(batch))
        self._tokens.labels(pair).inc(tokens)
        self._batch_seconds.labels(pair).observe(seconds)
        self._batch_sentences.observe(len(batch))
        self._padding.observe(1 - tokens / padded_tokens)
        for place in batch:
            self._queue_seconds.observe(started - place.request.arrival)

    def text(self) -> bytes:
        """Return all numbers in the format of Prometheus."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)

    def _counter(self, name: str, description: str, labels: Sequence[str] = ()) -> "Counter":
        from prometheus_client import Counter

        return Counter(_PREFIX + name, description, labels, registry=self._registry)

    def _histogram(
        self,
        name: str,
        description: str,
        labels: Sequence[str] = (),
        buckets: tuple[float, ...] = _SECONDS,
    ) -> "Histogram":
        from prometheus_client import Histogram

        return Histogram(_PREFIX + name, description, labels, registry=self._registry, buckets=buckets)
