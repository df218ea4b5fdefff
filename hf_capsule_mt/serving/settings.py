"""Limits and doors of a server, and the keys of its clients."""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from regex import Pattern

from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.text.words import with_addresses

from .refusals import RequestError

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class BodyLimits:
    """The largest body in bytes, and the most seconds that it may take to come."""

    size: int = 131_072
    seconds: float = 10.0


class ApiKeys:
    """The keys that clients need, by their hashes.

    Args:
        digests: the SHA-256 of each key in hexadecimal digits, by the name of its owner. None needs no key.
        path: the file that has them.
    """

    def __init__(self, digests: Mapping[str, str] | None = None, path: Path | None = None) -> None:
        self.digests = digests
        self._path = path

    @classmethod
    def read(cls, path: Path) -> "ApiKeys":
        """Read a file with a name and a digest in each line.

        Raises:
            UserError: if a line is wrong, or there is none.
            OSError: if there is no such file.
        """
        digests = {}
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not UTF-8.") from error

        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            name, _, digest = line.strip().rpartition(" ")
            if not name or not _DIGEST.fullmatch(digest):
                raise UserError(
                    f"{path}:{number}: a line has a name and the SHA-256 of a key in 64 hexadecimal digits."
                )

            name = name.strip()
            if name in digests:
                raise UserError(f"{path}:{number}: {name} has a key already. Give each key a name of its own.")
            digests[name] = digest

        if not digests:
            raise UserError(f"{path} has no keys. Each line has a name and the SHA-256 of a key.")
        return cls(digests, path)

    def read_again(self) -> None:
        """Take the keys that the file has now, for all calls that follow.

        Raises:
            UserError: if a line is wrong, or there is none. The keys stay as they were.
            OSError: if there is no such file.
        """
        self.digests = ApiKeys.read(self._path).digests

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


@dataclass(frozen=True)
class ServerSettings:
    """Limits and doors of a server.

    Args:
        max_texts: the most texts of a request.
        char_limit: the most characters of a text, -1 for no limit.
        body: limits of the body of a request.
        file_body: limits of a request with a file. A size of 0 switches files off.
        file_timeout: the most seconds until a file is read, and then until it is translated.
        timeout: the most seconds of a request.
        max_wait: the most seconds that a new request may have to wait for others.
        max_waiting_tokens: the most source tokens that may wait.
        max_tokens_per_batch: the most source tokens of a batch.
        keep: finds parts of all texts that are not translated, by default addresses of the Web and of e-mail.
        keys: the keys of clients.
        hosts: names by which the server may be called.
        cors_origins: sites whose pages may call it.
        log_texts: whether texts and translations are in the log.
    """

    max_texts: int = 50
    char_limit: int = -1
    body: BodyLimits = field(default_factory=BodyLimits)
    file_body: BodyLimits = field(default_factory=partial(BodyLimits, size=1_048_576, seconds=60.0))
    file_timeout: float = 600.0
    timeout: float = 60.0
    max_wait: float = 8.0
    max_waiting_tokens: int = 65_536
    max_tokens_per_batch: int = 1024
    keep: Pattern | None = field(default_factory=with_addresses)
    keys: ApiKeys = field(default_factory=ApiKeys)
    hosts: Sequence[str] = ("*",)
    cors_origins: Sequence[str] = ()
    log_texts: bool = False
