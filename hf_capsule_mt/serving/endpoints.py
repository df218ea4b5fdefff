"""What all routes have in common: errors as each protocol writes them, and a line in the log."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hf_capsule_mt.errors import UserError

from .jobs import ClientJob
from .queue.refusals import BusyError, FailedSentenceError, LateError, StoppedError
from .requests import RequestError

if TYPE_CHECKING:
    from .metrics import Metrics

logger = logging.getLogger(__name__)

LIBRETRANSLATE = "libretranslate"
DEEPL = "deepl"
_ERROR_FIELDS = {LIBRETRANSLATE: "error", DEEPL: "message"}
"""The protocols, and the field of an error in each."""
EXPECTED_ERRORS = (RequestError, UserError, BusyError, LateError, StoppedError, FailedSentenceError)
"""Errors whose messages are for clients. All others are bugs."""
FAILED = "The server failed. Its log says why."
"""What clients are told of bugs."""


@dataclass
class Logged:
    """What the log says of a request."""

    api: str
    key: str = "-"
    pairs: str = "-"
    texts: int = 0
    characters: int = 0
    sentences: int = 0

    def describe(self, job: ClientJob) -> None:
        """Note what a job asks for."""
        self.pairs = job.pairs
        self.texts = len(job.sources)
        self.characters = job.characters

    def write(self, status: int, seconds: float) -> None:
        """Write the line."""
        logger.info(
            "%s %s %d texts=%d characters=%d sentences=%d ms=%d key=%s",
            self.api,
            self.pairs,
            status,
            self.texts,
            self.characters,
            self.sentences,
            round(1000 * seconds),
            self.key,
        )


Handler = Callable[[Request, Logged], Awaitable[Response]]


def protocol_route(api: str, metrics: "Metrics | None", path: str, handler: Handler, *methods: str) -> Route:
    """Return a route of a protocol.

    Args:
        api: the protocol.
        metrics: counts the requests, if given.
        path: of the route.
        handler: answers, or raises.
        methods: of HTTP, that the route takes.
    """
    return Route(path, _endpoint(handler, api, metrics), methods=[*methods])


def _endpoint(handler: Handler, api: str, metrics: "Metrics | None") -> Callable[[Request], Awaitable[Response]]:
    """Return a handler with errors as the protocol writes them, and a line in the log."""

    async def respond(request: Request) -> Response:
        started = time.monotonic()
        logged = Logged(api)
        try:
            response = await handler(request, logged)
        except asyncio.CancelledError:
            # uvicorn cancels what is not answered when the server has to end.
            response = _refusal(StoppedError("The server stops."), _ERROR_FIELDS[api])
        except Exception as error:
            response = _refusal(error, _ERROR_FIELDS[api])
        seconds = time.monotonic() - started
        logged.write(response.status_code, seconds)
        if metrics is not None:
            metrics.add_request(api, response.status_code, seconds)
        return response

    return respond


def _refusal(error: Exception, name: str) -> Response:
    """Return the answer to a request that failed, with the message in the field `name`."""
    headers = {}
    if isinstance(error, RequestError):
        status = error.status
        message = error.message
        if status in (408, 413, 415):
            # The rest of the body was not read.
            headers["Connection"] = "close"
    elif isinstance(error, BusyError):
        status = 429
        message = str(error)
        headers["Retry-After"] = str(max(round(error.seconds), 1))
    elif isinstance(error, UserError):
        status = 400
        message = f"Invalid request: {error}"
    elif isinstance(error, StoppedError):
        status = 503
        message = str(error)
    elif isinstance(error, LateError):
        status = 504
        message = str(error)
    elif isinstance(error, FailedSentenceError):
        # The batcher has logged its cause.
        status = 500
        message = str(error)
    else:
        logger.error("A request failed.", exc_info=error)
        status = 500
        message = FAILED
    return JSONResponse({name: message}, status_code=status, headers=headers)
