"""The routes of DeepL's documents: sent in one request, asked about, and fetched when they are translated."""

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from hmac import compare_digest
from pathlib import PurePosixPath
from secrets import token_hex
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..endpoints import DEEPL, EXPECTED_ERRORS, FAILED, Logged, protocol_route
from ..file_jobs import FileJob
from ..file_store import StoredFile, file_response
from ..requests import RequestError, read_upload
from ..service import Service
from . import deepl
from .deepl import FieldsOfKey

_MOST_DOCUMENTS = 1000
"""Documents that are remembered, with those that were fetched or have failed."""


@dataclass(eq=False)
class _Document:
    """A document of a client."""

    key: str
    characters: int
    secret: str | None = None  # The name of the translated file.
    error: str | None = None  # Why there is none. The exception itself would keep all that was read of the document.
    is_fetched: bool = False

    @property
    def is_translated(self) -> bool:
        """Whether its translation is there, or has failed."""
        return self.secret is not None or self.error is not None

    def status(self) -> dict[str, Any]:
        """Return what DeepL says of a document."""
        if not self.is_translated:
            return {"status": "translating"}
        if self.error is not None:
            return {"status": "error", "error_message": self.error}
        return {"status": "downloaded" if self.is_fetched else "done", "billed_characters": self.characters}


class DocumentRoutes:
    """Translates documents.

    Args:
        service: translates.
        fields: reads the fields of a request with a key.
    """

    def __init__(self, service: Service, fields: FieldsOfKey) -> None:
        self._service = service
        self._fields = fields
        self._documents: OrderedDict[str, _Document] = OrderedDict()

    def routes(self) -> list[Route]:
        """Return the routes."""
        route = partial(protocol_route, DEEPL, self._service.metrics)
        return [
            route("/v2/document", self._upload, "POST"),
            route("/v2/document/{number}", self._status, "POST"),
            route("/v2/document/{number}/result", self._result, "POST"),
        ]

    async def _upload(self, request: Request, logged: Logged) -> Response:
        service = self._service
        settings = service.settings
        if not settings.file_body.size:
            raise RequestError(403, "Documents are switched off on this server.")
        fields, upload = await read_upload(request, settings.file_body)
        logged.key = settings.keys.owner(deepl.key_of(fields, request.headers.get("authorization", "")))
        if isinstance(fields.get("filename"), str):
            upload = upload.renamed(fields["filename"])
        deepl.check_fields_of_document(fields, PurePosixPath(upload.name).suffix)
        model, glossary = deepl.model_and_glossary(
            fields, service.models, service.detector, service.glossaries, logged.key
        )
        job = await service.read_file(request, upload, model, glossary)
        service.check_file_turns()

        number = token_hex(16).upper()
        document = _Document(token_hex(32).upper(), job.characters)
        self._documents[number] = document
        service.in_background(self._translate(document, job, logged))
        self._forget()
        return JSONResponse({"document_id": number, "document_key": document.key})

    async def _translate(self, document: _Document, job: FileJob, logged: Logged) -> None:
        """Translate a document, and note what came of it."""
        try:
            data = await self._service.translate_file(job, logged)
        except BaseException as error:
            # What a bug says is not for clients.
            document.error = str(error) if isinstance(error, EXPECTED_ERRORS) else FAILED
            raise
        document.secret = self._service.files.add(StoredFile(job.name, data))

    async def _status(self, request: Request, logged: Logged) -> Response:
        document = await self._asked(request, logged)
        return JSONResponse({"document_id": request.path_params["number"], **document.status()})

    async def _result(self, request: Request, logged: Logged) -> Response:
        document = await self._asked(request, logged)
        status = document.status()
        if status["status"] == "translating":
            raise RequestError(503, "The document is not translated yet.")
        if status["status"] == "error":
            raise RequestError(400, status["error_message"])
        file = self._service.files.find(document.secret)
        if file is None:
            raise RequestError(404, "The document was fetched already, or is too old.")
        document.is_fetched = True
        self._service.files.remove(document.secret)
        return file_response(file)

    async def _asked(self, request: Request, logged: Logged) -> _Document:
        """Return a document, whose key the client must know."""
        fields = await self._fields(request, logged)
        document = self._documents.get(request.path_params["number"])
        key = fields.get("document_key")
        if document is None or not isinstance(key, str) or not compare_digest(document.key.encode(), key.encode()):
            raise RequestError(404, "Document not found.")
        return document

    def _forget(self) -> None:
        """Forget the oldest documents that are not being translated, if there are too many."""
        surplus = len(self._documents) - _MOST_DOCUMENTS
        for number, document in [*self._documents.items()]:
            if surplus > 0 and document.is_translated:
                del self._documents[number]
                surplus -= 1
