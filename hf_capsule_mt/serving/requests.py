"""What a client sends: the fields of a request, within limits of size and time, and its key."""

import asyncio
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

from hf_capsule_mt.errors import UserError

CLIENT_GONE = 499
"""Nobody reads this status. It is for logs and metrics."""
Fields = dict[str, Any]
_DIGEST = re.compile(r"[0-9a-f]{64}")


class RequestError(Exception):
    """A request that is not answered with a translation.

    Args:
        status: of HTTP.
        message: says what is wrong.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def client_gone() -> RequestError:
    """Return the error of a request whose client has closed the connection."""
    return RequestError(CLIENT_GONE, "The client has closed the connection.")


@dataclass(frozen=True)
class BodyLimits:
    """The largest body in bytes, and the most seconds that it may take to come."""

    size: int = 131_072
    seconds: float = 10.0


@dataclass(frozen=True)
class Upload:
    """A file that a client sent."""

    name: str
    data: bytes

    def renamed(self, name: str) -> "Upload":
        """Return the file with another name."""
        return replace(self, name=name)


async def read_upload(request: Request, limits: BodyLimits) -> tuple[Fields, Upload]:
    """Return the fields of a form and the file in its field `file`.

    Raises:
        RequestError: if there is no file, or the body is too large, too slow or compressed.
    """
    body = await _read_body(request, limits)
    items = await _multipart(request, body) if _content_type(request) == "multipart/form-data" else []
    uploads = [value for name, value in items if name == "file" and isinstance(value, Upload)]
    if len(uploads) != 1 or not uploads[0].name:
        raise RequestError(400, "Invalid request: file is missing. Send it as multipart/form-data, with its name.")
    texts = [(name, value) for name, value in items if isinstance(value, str)]
    return _checked(_joined(texts)), uploads[0]


async def read_fields(request: Request, limits: BodyLimits) -> Fields:
    """Return the fields of the query and of the body, which is an object of JSON, or a form. A GET may have one too.

    A field that comes several times in a form has a list of texts.

    Raises:
        RequestError: if the body is too large, too slow, compressed, or neither of the two.
    """
    body = await _read_body(request, limits)
    kind = _content_type(request)
    fields = _joined(request.query_params.multi_items())
    if not body.strip():
        return _checked(fields)
    if kind == "multipart/form-data":
        items = await _multipart(request, body)
        if any(isinstance(value, Upload) for _, value in items):
            raise RequestError(400, "Invalid request: a file is not supported here.")
        fields |= _joined(items)
    elif kind == "application/x-www-form-urlencoded":
        fields |= _joined(_decoded_form(body))
    else:
        fields |= _json(body)
    return _checked(fields)


def check_known(fields: Fields, names: frozenset[str]) -> None:
    """Refuse a field that the server does not know, because it may change what the client expects.

    Raises:
        RequestError: if a field is not one of the names.
    """
    for name in fields:
        if name not in names:
            raise RequestError(400, f"Invalid request: {name!r:.40} is not supported")


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
        raise client_gone() from error
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


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


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


class ApiKeys:
    """The keys that clients need, by their hashes.

    Args:
        digests: the SHA-256 of each key in hexadecimal digits, by the name of its owner. None needs no key.
    """

    def __init__(self, digests: Mapping[str, str] | None = None) -> None:
        self.digests = digests

    @classmethod
    def read(cls, path: Path) -> "ApiKeys":
        """Read a file with a name and a digest in each line.

        Raises:
            UserError: if a line is wrong, or there is none.
        """
        digests = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            name, _, digest = line.strip().rpartition(" ")
            if not name or not _DIGEST.fullmatch(digest):
                raise UserError(
                    f"{path}:{number}: a line has a name and the SHA-256 of a key in 64 hexadecimal digits."
                )
            digests[name.strip()] = digest
        if not digests:
            raise UserError(f"{path} has no keys. Each line has a name and the SHA-256 of a key.")
        return cls(digests)

    @property
    def are_needed(self) -> bool:
        """Whether clients need a key."""
        return self.digests is not None

    def owner(self, key: object) -> str:
        """Return the name of the owner of a key, or "-" if none is needed. JSON may have a key that is no text.

        Raises:
            RequestError: if the key is missing or wrong.
        """
        if self.digests is None:
            return "-"
        if not key:
            raise RequestError(403, "An API key is needed.")
        if not isinstance(key, str):
            raise RequestError(403, "Invalid API key")
        digest = hashlib.sha256(key.encode()).hexdigest()
        owners = [name for name, known in self.digests.items() if hmac.compare_digest(digest, known)]
        if not owners:
            raise RequestError(403, "Invalid API key")
        return owners[0]
