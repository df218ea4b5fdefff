"""Why a request is not answered as its client wishes. Errors have a status of HTTP, and a message for clients."""

import math


class RequestError(Exception):
    """A request that is not answered as its client wishes.

    Args:
        status: of HTTP.
        message: says what is wrong.
        reason: says it in the log, where no words of clients are. It is the message, unless that quotes a client.
    """

    def __init__(self, status: int, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = message if reason is None else reason


class GoneError(RequestError):
    """The client has closed the connection. Nobody reads the status: it is for logs and metrics."""

    def __init__(self) -> None:
        super().__init__(499, "The client has closed the connection.")


class BusyError(RequestError):
    """A request would wait too long. It may come again after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(429, f"Slowdown: the server is busy. Try again in {math.ceil(seconds)} seconds.")
        self.seconds = seconds


class StoppedError(RequestError):
    """The batcher takes no more requests, because it was closed or its thread has died."""

    def __init__(self, message: str) -> None:
        super().__init__(503, message)


class LateError(RequestError):
    """A request was not translated in time."""

    def __init__(self) -> None:
        super().__init__(504, "The translation took too long.")


class FailedSentenceError(RequestError):
    """A sentence cannot be decoded. The cause is the error that it raised. Other requests are not concerned."""

    def __init__(self) -> None:
        super().__init__(500, "A sentence cannot be translated.")
