"""Why sentences are not translated."""

import math


class BusyError(Exception):
    """A request would wait too long. It may come again after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Slowdown: the server is busy. Try again in {math.ceil(seconds)} seconds.")
        self.seconds = seconds


class StoppedError(Exception):
    """The batcher takes no more requests, because it was closed or its thread has died."""


class LateError(Exception):
    """A request was not translated in time."""


class FailedSentenceError(Exception):
    """A sentence cannot be decoded. The cause is the error that it raised. Other requests are not concerned."""
