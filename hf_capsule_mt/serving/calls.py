"""A client's call of a route: its fields within limits, its key, errors as its protocol writes them, and its log."""

import asyncio
import json
import logging
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from hf_capsule_mt.errors import UserError

from .operators.metrics import Metrics
from .refusals import BusyError, GoneError, LateError, RequestError, StoppedError
from .settings import BodyLimits, ServerSettings
from .texts import TranslationRequest

logger = logging.getLogger(__name__)

Fields = dict[str, Any]
EXPECTED_ERRORS = (RequestError, UserError)
"""Errors whose messages are for clients. All others are bugs."""
FAILED = "The server failed. Its log says why."
"""What clients are told of bugs."""
_BAD_CONTENT = "A text, a file or an entry is not valid. The answer says why."
"""What the log says of a UserError, whose message may quote a text."""
_LINE = (
    "%(api)s %(pair)s %(status)d texts=%(texts)d characters=%(characters)d sentences=%(sentences)d ms=%(ms)d "
    "key=%(key)s"
)
"""What the log says of a call."""
_WHY = "path=%(path)s reason=%(reason)r"
"""What it also says of one that failed."""
_SHORT_PART = re.compile(r"[A-Za-z0-9_.-]{1,20}")
"""A part of an unknown path that the log shows. Secret names of files and documents are longer."""
_WITH_UNREAD_BODY = (408, 413, 415)
"""Statuses of requests whose body was not read to its end."""


@dataclass(frozen=True)
class Protocol:
    """What all routes of a protocol have in common."""

    name: str  # In logs and metrics.
    error_field: str  # The field of an answer that has the message of an error.
    key_of: Callable[[Fields, str], object]  # Finds a client's key in its fields, or in the header `Authorization`.


@dataclass(frozen=True)
class Upload:
    """A file that a client sent."""

    name: str
    data: bytes


class Call:
    """A call of a route by a client, and what the log says of it.

    Args:
        request: of HTTP.
        protocol: of the route.
        path: of the route, with the names of its parameters. Their values may be secret.
        settings: have the limits of the body, and the keys.
    """

    def __init__(self, request: Request, protocol: Protocol, path: str, settings: ServerSettings) -> None:
        self.request = request
        self.owner = "-"
        """Of the key. It is known when the fields are read."""
        self.asked: TranslationRequest | None = None
        """What is translated. It is known when the fields are understood, and the log describes it."""
        self.sentences = 0
        """How many sentences the model reads."""
        self._protocol = protocol
        self._path = path
        self._settings = settings

    @property
    def pairs(self) -> str:
        """The pairs of languages, or "-" as long as they are not known."""
        return self.asked.pairs if self.asked else "-"

    async def read_fields(self) -> Fields:
        """Return the fields of the query and of the body, which is an object of JSON, or a form. A GET may have one.

        The key is one of them, or in a header, and is checked.

        A field that comes several times in a form has a list of texts.

        Raises:
            RequestError: if the body is too large, too slow, compressed, or neither of the two, or the key is wrong.
        """
        body = await _read_body(self.request, self._settings.body)
        fields = _joined(self.request.query_params.multi_items())
        if body.strip():
            fields |= await self._fields_of_body(body)
        self._authorize(_checked(fields))
        return fields

    async def read_upload(self) -> tuple[Fields, Upload]:
        """Return the fields of a form and the file in its field `file`. The key is checked.

        Raises:
            RequestError: if there is no file, the body is too large, too slow or compressed, or the key is wrong.
        """
        limits = self._settings.file_body
        if not limits.size:
            raise RequestError(403, "Files are switched off on this server.")

        body = await _read_body(self.request, limits)
        items = await _multipart(self.request, body) if self._content_type == "multipart/form-data" else []
        uploads = [value for name, value in items if name == "file" and isinstance(value, Upload)]
        if len(uploads) != 1 or not uploads[0].name:
            raise RequestError(400, "Invalid request: file is missing. Send it as multipart/form-data, with its name.")

        fields = _joined([(name, value) for name, value in items if isinstance(value, str)])
        self._authorize(_checked(fields))
        return fields, uploads[0]

    async def answered(self, work: Awaitable[Any], seconds: float) -> Any:
        """Wait for a result, or until the client goes away or the time is over. These drop what waits.

        Raises:
            GoneError: if the client has gone.
            LateError: if the time is over.
        """
        future = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self._disconnected())
        try:
            await asyncio.wait({future, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            if gone.done():
                raise GoneError
            raise LateError
        finally:
            future.cancel()
            gone.cancel()

    def write_log(self, status: int, seconds: float, reason: str | None) -> None:
        """Write the line of the log.

        Args:
            status: of the answer.
            seconds: until there was one.
            reason: why the call failed, without words of the client. None if it did not.
        """
        asked = self.asked
        fields = {
            "api": self._protocol.name,
            "pair": self.pairs,
            "status": status,
            "texts": len(asked.sources) if asked else 0,
            "characters": asked.characters if asked else 0,
            "sentences": self.sentences,
            "ms": round(1000 * seconds),
            "key": self.owner,
        }

        line = _LINE
        if reason is not None:
            fields |= {"path": self._path, "reason": reason}
            line = f"{_LINE} {_WHY}"
        logger.info(line, fields)

    @property
    def _content_type(self) -> str:
        return self.request.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def _fields_of_body(self, body: bytes) -> Fields:
        kind = self._content_type
        if kind == "multipart/form-data":
            items = await _multipart(self.request, body)
            if any(isinstance(value, Upload) for _, value in items):
                raise RequestError(400, "Invalid request: a file is not supported here.")
            return _joined(items)
        if kind == "application/x-www-form-urlencoded":
            return _joined(_decoded_form(body))
        return _json(body)

    def _authorize(self, fields: Fields) -> None:
        key = self._protocol.key_of(fields, self.request.headers.get("authorization", ""))
        self.owner = self._settings.keys.owner(key)

    async def _disconnected(self) -> None:
        """Wait until the client closes the connection."""
        while True:
            message = await self.request.receive()
            if message["type"] == "http.disconnect":
                return


Handler = Callable[[Call], Awaitable[Response]]


def endpoint(
    protocol: Protocol, path: str, handler: Handler, settings: ServerSettings, metrics: Metrics | None
) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers a route: with errors as its protocol writes them, and a line in the log.

    Args:
        protocol: of the route.
        path: of the route.
        handler: answers a call, or raises.
        settings: of the server.
        metrics: count the calls, if given.
    """

    async def respond(request: Request) -> Response:
        started = time.monotonic()
        call = Call(request, protocol, path, settings)
        reason = None

        try:
            response = await handler(call)
        except asyncio.CancelledError:
            # uvicorn cancels what is not answered when the server has to end.
            response, reason = _refusal(StoppedError("The server stops."), protocol.error_field)
        except Exception as error:
            response, reason = _refusal(error, protocol.error_field)

        seconds = time.monotonic() - started
        call.write_log(response.status_code, seconds, reason)
        if metrics is not None:
            metrics.add_request(protocol.name, call.pairs, call.owner, response.status_code, seconds)
        return response

    return respond


def _refusal(error: Exception, field: str) -> tuple[Response, str]:
    """Return the answer to a call that failed, with the message in a field of the protocol, and the log's reason."""
    if isinstance(error, UserError):
        return JSONResponse({field: f"Invalid request: {error}"}, status_code=400), _BAD_CONTENT
    if not isinstance(error, RequestError):
        logger.error("A request failed.", exc_info=error)
        return JSONResponse({field: FAILED}, status_code=500), type(error).__name__

    headers = {}
    if isinstance(error, BusyError):
        headers["Retry-After"] = str(max(round(error.seconds), 1))
    if error.status in _WITH_UNREAD_BODY:
        headers["Connection"] = "close"
    return JSONResponse({field: str(error)}, status_code=error.status, headers=headers), error.reason


def log_refused(scope: Scope, status: int, reason: str) -> None:
    """Write a line about a request that was refused before any protocol had it.

    Args:
        scope: of the request. Its path may be any words, so at most two short parts of it are in the log.
        status: of the answer.
        reason: says why, without words of the client.
    """
    _, *parts = scope["path"].split("/")
    shown = []
    for part in parts[:2]:
        is_short = _SHORT_PART.fullmatch(part)
        shown.append(part if is_short else "…")
    if len(parts) > 2:
        shown.append("…")
    fields = {"status": status, "path": "/" + "/".join(shown), "reason": reason}
    logger.info(f"- - %(status)d {_WHY}", fields)


def check_known(fields: Fields, names: frozenset[str]) -> None:
    """Refuse a field that the server does not know, because it may change what the client expects.

    Raises:
        RequestError: if a field is not one of the names.
    """
    for name in fields:
        if name not in names:
            message = f"Invalid request: {name!r:.40} is not supported"
            raise RequestError(400, message, reason="Invalid request: a field is not supported")


async def _read_body(request: Request, limits: BodyLimits) -> bytes:
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise RequestError(415, "A compressed body is not read.")

    body = bytearray()

    async def read() -> None:
        async for part in request.stream():
            body.extend(part)
            if len(body) > limits.size:
                raise RequestError(413, f"The body is larger than {limits.size} bytes.")

    try:
        await asyncio.wait_for(read(), limits.seconds)
    except ClientDisconnect as error:
        raise GoneError from error
    except TimeoutError as error:
        raise RequestError(408, f"The body did not come within {limits.seconds:g} seconds.") from error
    return bytes(body)


def _json(body: bytes) -> Fields:
    try:
        fields = json.loads(body)
    # Half of a character, wrong syntax, and lists in lists without end.
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise RequestError(400, "Invalid request: the body is neither JSON in UTF-8 nor a form.") from error
    if not isinstance(fields, dict):
        raise RequestError(400, "Invalid request: the body is no JSON object.")
    return fields


def _decoded_form(body: bytes) -> list[tuple[str, str]]:
    if body.lstrip().startswith(b"{"):
        # curl -d calls everything a form.
        raise RequestError(400, "Invalid request: the body is JSON. Send it with Content-Type: application/json.")
    try:
        return parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1000)
    except (UnicodeDecodeError, ValueError) as error:
        raise RequestError(400, "Invalid request: the form is not UTF-8, or has too many fields.") from error


async def _multipart(request: Request, body: bytes) -> list[tuple[str, str | Upload]]:
    """Return the texts and files of a form."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    try:
        # Starlette's parser reads a request. The limits were checked before.
        async with Request(request.scope, receive).form(max_files=1, max_fields=1000) as form:
            items: list[tuple[str, str | Upload]] = []
            for name, value in form.multi_items():
                if not isinstance(value, str):
                    value = Upload(value.filename or "", await value.read())
                items.append((name, value))
            return items
    # The parser raises an error of its own class for each mistake.
    except Exception as error:
        raise RequestError(400, "Invalid request: the form cannot be read.") from error


def _joined(items: list[tuple[str, str]]) -> Fields:
    """Return the fields of a form. Line ends of a form are CR and LF."""
    fields: Fields = {}
    for name, text in items:
        value = text.replace("\r\n", "\n")
        if name not in fields:
            fields[name] = value
        elif isinstance(fields[name], list):
            fields[name].append(value)
        else:
            fields[name] = [fields[name], value]
    return fields


def _checked(fields: Fields) -> Fields:
    try:
        # Texts may be in objects in lists, as the entries of glossaries are.
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        # JSON can name half of a character, which no tokenizer reads.
        raise RequestError(400, "Invalid request: a text has half of a surrogate pair.") from error
    return fields
