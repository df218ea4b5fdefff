"""Files of clients: read by the formats of the command `translate`, translated in turn, and kept until fetched."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from secrets import token_urlsafe
from typing import Any
from urllib.parse import quote

from regex import Pattern
from starlette.responses import Response

from hf_capsule_mt.environment import is_installed
from hf_capsule_mt.errors import UserError
from hf_capsule_mt.translation.files.sources import byte_order_mark, options_of
from hf_capsule_mt.translation.formats import FORMATS, FileFormat
from hf_capsule_mt.translation.formats.base import decoded, warn_of_left
from hf_capsule_mt.translation.formats.recognition import HEAD_BYTES, recognise_contents
from hf_capsule_mt.translation.preparation import TextOptions
from hf_capsule_mt.translation.terms.glossary import Glossary
from hf_capsule_mt.translation.text_translator import Ranked

from .calls import EXPECTED_ERRORS, Call, Upload
from .models import ServedModel
from .refusals import BusyError, LateError, RequestError
from .service import Service, in_pool
from .texts import SourceText, TranslationRequest, join, prepare, sentences_to_decode

logger = logging.getLogger(__name__)

PLAIN = ".txt"
_PART = 64
"""Sentences of a file that wait at a time. All of them would fill the queue, and others would be refused."""
_AT_ONCE = 4
"""Files that are translated at the same time."""
_MOST_FILES = 32
"""Files that are translated or wait for their turn."""
_SECONDS_OF_FILES = 30.0
"""After which a client may send a file again, if there are too many."""
_MOST_BYTES = 64 * 1024 * 1024
"""Of the translated files that wait to be fetched."""
_MOST_SECONDS = 1800.0
"""After which a translated file is dropped."""


@dataclass(frozen=True)
class FileRequest(TranslationRequest):
    """A file that is translated."""

    model: ServedModel  # That of all texts.
    name: str
    written: Callable[[Sequence[str]], bytes]
    """Returns the file with a translation instead of each text."""


class Files:
    """Reads and translates files, in a thread of their own so that texts do not wait for them.

    Args:
        service: has the models and the queue.
    """

    def __init__(self, service: Service) -> None:
        self.store = FileStore()
        self._service = service
        self._thread = ThreadPoolExecutor(1, "files")
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._count = 0
        """Files that are being translated, or wait for their turn."""
        self._background: set[asyncio.Task] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Translate files. At the end, those that no call waits for are given up."""
        yield
        for task in self._background:
            task.cancel()
        # Meanwhile the loop runs, so that the thread notices it.
        await asyncio.to_thread(self._thread.shutdown)

    async def read(
        self, call: Call, upload: Upload, model: ServedModel, glossary: Glossary | None = None
    ) -> FileRequest:
        """Read the file of a call, unless the client goes away.

        Args:
            call: of the client.
            upload: the file.
            model: translates it.
            glossary: terms that the translation must have.

        Raises:
            RequestError: if its format is not supported, it takes longer than a file may, or the client has gone.
            UserError: if it is damaged.
        """
        settings = self._service.settings
        reading = in_pool(self._thread, read_file, upload, model, settings.keep, glossary)
        file = await call.answered(reading, settings.file_timeout)
        call.asked = file
        return file

    async def translate(self, call: Call, file: FileRequest) -> bytes:
        """Translate a file. Its sentences go to the queue in small parts, so that others do not wait for them.

        Raises:
            UserError: if a text of it cannot be read.
            RequestError: if too many files are being translated, it takes longer than a file may, or fails.
        """
        self.check_turns()
        self._count += 1

        try:
            async with asyncio.timeout(self._service.settings.file_timeout), self._turns:
                prepared = await in_pool(self._thread, prepare, file)
                sentences = sentences_to_decode(prepared)
                call.sentences = len(sentences)
                ranked: list[Ranked] = []
                for start in range(0, len(sentences), _PART):
                    future = self._service.batcher.submit(file.model.name, sentences[start : start + _PART])
                    ranked += await asyncio.wrap_future(future)
                translated = await in_pool(self._thread, join, file, prepared, {file.model.name: ranked})
                self._service.note(file, translated)
                return await in_pool(self._thread, file.written, [text.text for text in translated])
        except TimeoutError as error:
            raise LateError from error
        finally:
            self._count -= 1

    def check_turns(self) -> None:
        """Refuse a file if too many are translated or wait.

        Raises:
            BusyError: if there are too many.
        """
        if self._count >= _MOST_FILES:
            raise BusyError(_SECONDS_OF_FILES)

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work that no call waits for. It is given up when the server stops."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._end_of_background)

    def _end_of_background(self, task: asyncio.Task) -> None:
        self._background.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, EXPECTED_ERRORS):
            logger.error("A file failed.", exc_info=error)


def read_file(
    upload: Upload, model: ServedModel, keep: Pattern | None = None, glossary: Glossary | None = None
) -> FileRequest:
    """Read a file.

    Args:
        upload: the file.
        model: translates it.
        keep: finds parts that are not translated.
        glossary: terms that the translation must have.

    Raises:
        RequestError: if it is of a format that is not supported.
        UserError: if it is damaged.
    """
    # A client may send any path, of which only the last name is used.
    name = PurePosixPath(upload.name.replace("\\", "/")).name
    mark = byte_order_mark(upload.data)
    data = upload.data.removeprefix(mark)
    file_format = _format_of(name, upload.data)

    if file_format is None:
        options = TextOptions(keep=keep, split="lines", glossary=glossary)
        sources = [SourceText(decoded(data), model, options)]
        return FileRequest(sources, model, name, lambda translations: mark + translations[0].encode())

    document = file_format.read(data, model.target)
    of_all = TextOptions(keep=keep, split="paragraphs", glossary=glossary)
    sources = []
    for text in document.texts:
        sources.append(SourceText(text.text, model, options_of(text, of_all), markup=text.markup))

    def written(translations: Sequence[str]) -> bytes:
        content = mark + document.written(translations)
        warn_of_left(name, document)
        return content

    return FileRequest(sources, model, name, written)


def supported_suffixes() -> list[str]:
    """Return the endings of the files that can be translated with the libraries that are installed."""
    suffixes = [PLAIN]
    for file_format in FORMATS.values():
        if _is_readable(file_format):
            suffixes += file_format.suffixes
    return suffixes


def _format_of(name: str, data: bytes) -> FileFormat | None:
    """Return the format of a file, None for plain text."""
    try:
        # In a folder of its own, because names of folders may tell the format, too.
        file_format = recognise_contents(Path("/", name), data[:HEAD_BYTES])
    except UserError as error:
        # Its remedies are options of the command.
        raise _unsupported(name) from error

    if file_format is not None and not _is_readable(file_format):
        missing = f"{file_format.package} is not installed on this server"
        raise RequestError(400, f"{missing}, so {name:.80} cannot be read.", reason=f"{missing}.")
    if file_format is None and not name.lower().endswith(PLAIN):
        raise _unsupported(name)
    return file_format


def _unsupported(name: str) -> RequestError:
    suffixes = ", ".join(supported_suffixes())
    message = f"{name:.80} is not supported. Files may be {suffixes}."
    return RequestError(400, message, reason=f"The format of the file is not one of {suffixes}.")


def _is_readable(file_format: FileFormat) -> bool:
    return file_format.package is None or is_installed(file_format.package)


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

    def __init__(self, most_bytes: int = _MOST_BYTES, seconds: float = _MOST_SECONDS) -> None:
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
