"""How long batches take: what is known of the last ones tells about the next."""

from collections import deque

_REMEMBERED_BATCHES = 50
"""The last batches, from which the time of the next ones is predicted."""


class BatchSpeed:
    """Predicts the time of batches: a constant for each, and a time for each token."""

    def __init__(self) -> None:
        self._batches: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED_BATCHES)
        self._constant = 0.0
        self._for_token = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        """Remember a batch."""
        self._batches.append((tokens, seconds))
        self._constant, self._for_token = self._fit()

    def seconds(self, tokens: int, batches: int) -> float:
        """Return the predicted time of so many tokens in so many batches, 0 if nothing is known yet."""
        return self._constant * batches + self._for_token * tokens

    def _fit(self) -> tuple[float, float]:
        """Return the constant and the time for a token that fit the last batches best, by least squares."""
        count = len(self._batches)
        mean_tokens = sum(tokens for tokens, _ in self._batches) / count
        mean_seconds = sum(seconds for _, seconds in self._batches) / count
        variance = sum((tokens - mean_tokens) ** 2 for tokens, _ in self._batches)
        covariance = sum((tokens - mean_tokens) * (seconds - mean_seconds) for tokens, seconds in self._batches)
        if variance == 0 or covariance <= 0:
            # All batches are alike, or the measurements are only noise.
            return 0.0, mean_seconds / mean_tokens
        for_token = covariance / variance
        constant = mean_seconds - for_token * mean_tokens
        if constant < 0:
            return 0.0, mean_seconds / mean_tokens
        return constant, for_token
