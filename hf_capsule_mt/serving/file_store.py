"""Translated files, in memory until they are fetched or too old."""

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from secrets import token_urlsafe
from urllib.parse import quote

from starlette.responses import Response

_MOST_BYTES = 64 * 1024 * 1024
_SECONDS = 1800.0


@dataclass(frozen=True)
class StoredFile:
    """A translated file."""

    name: str
    data: bytes
    made: float = field(default_factory=time.monotonic)


class FileStore:
    """Keeps files by names that nobody can guess. The oldest go first.

    Args:
        most_bytes: of all files.
        seconds: after which a file is dropped.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES, seconds: float = _SECONDS) -> None:
        self._most_bytes = most_bytes
        self._seconds = seconds
        self._files: OrderedDict[str, StoredFile] = OrderedDict()

    def add(self, file: StoredFile) -> str:
        """Keep a file, and return the secret name by which it is found."""
        secret = token_urlsafe(32)
        self._files[secret] = file
        self._drop()
        return secret

    def find(self, secret: str) -> StoredFile | None:
        """Return a file, or None if there is no such name or it was dropped."""
        self._drop()
        return self._files.get(secret)

    def remove(self, secret: str) -> None:
        """Drop a file."""
        self._files.pop(secret, None)

    def _drop(self) -> None:
        """Drop files that are too old, and the oldest if there are too many."""
        now = time.monotonic()
        size = sum(len(file.data) for file in self._files.values())
        for secret, file in [*self._files.items()]:
            if size <= self._most_bytes and now - file.made <= self._seconds:
                return
            del self._files[secret]
            size -= len(file.data)


def file_response(file: StoredFile) -> Response:
    """Return the answer that gives a file to its client, as a file to save and not as a page to show."""
    headers = {
        "content-disposition": f"attachment; filename*=utf-8''{quote(file.name)}",
        "x-content-type-options": "nosniff",
        "cache-control": "no-store",
    }
    return Response(file.data, media_type="application/octet-stream", headers=headers)
