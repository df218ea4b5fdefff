"""Documents of DeepL's protocol: sent in one request, asked about, and fetched when they are translated."""

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from hmac import compare_digest
from pathlib import PurePosixPath
from secrets import token_hex
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..calls import EXPECTED_ERRORS, FAILED, Call, Fields, check_known
from ..files import FileRequest, Files, StoredFile, file_response
from ..refusals import RequestError
from ..service import Service
from .deepl import DEEPL, REFUSED, check_refused, glossary_of, languages_of

_FIELDS = frozenset(
    {
        "source_lang",
        "target_lang",
        "filename",
        "output_format",
        "formality",
        "glossary_id",
        "glossary_ids",
        "auth_key",
    }
)
_MOST_DOCUMENTS = 1000
"""Documents that are remembered, with those that were fetched or have failed."""


def routes(service: Service, files: Files) -> list[Route]:
    """Return the routes."""
    route = partial(service.route, DEEPL)
    documents = _Documents(files)
    return [
        route("/v2/document", documents.upload, "POST"),
        route("/v2/document/{number}", documents.status, "POST"),
        route("/v2/document/{number}/result", documents.result, "POST"),
    ]


@dataclass(eq=False)
class _Document:
    """A document of a client."""

    owner: str
    """Of the API key that it came with."""
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


class _Documents:
    """The documents of all clients. They are forgotten when the server stops."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._documents: OrderedDict[str, _Document] = OrderedDict()

    async def upload(self, service: Service, call: Call) -> Response:
        """Take a document, and translate it in the background."""
        fields, upload = await call.read_upload()
        if isinstance(fields.get("filename"), str):
            upload = replace(upload, name=fields["filename"])
        _check_fields(fields, PurePosixPath(upload.name).suffix)

        source, target = languages_of(fields)
        glossary = glossary_of(fields, source, target, service.glossaries, call.owner)
        model = service.model(source or service.detector.only_language(), target)
        file = await self._files.read(call, upload, model, glossary)
        self._files.check_turns()

        number = token_hex(16).upper()
        document = _Document(call.owner, token_hex(32).upper(), file.characters)
        self._documents[number] = document
        self._files.in_background(self._translate(document, call, file))
        self._forget()
        return JSONResponse({"document_id": number, "document_key": document.key})

    async def status(self, service: Service, call: Call) -> Response:
        """Tell what became of a document."""
        document = await self._asked(call)
        return JSONResponse({"document_id": call.request.path_params["number"], **document.status()})

    async def result(self, service: Service, call: Call) -> Response:
        """Give a translated document to its client, once."""
        document = await self._asked(call)
        if not document.is_translated:
            raise RequestError(503, "The document is not translated yet.")
        if document.error is not None:
            raise RequestError(400, document.error, reason="The document was not translated.")

        file = self._files.store.find(document.secret)
        if file is None:
            raise RequestError(404, "The document was fetched already, or is too old.")

        document.is_fetched = True
        self._files.store.remove(document.secret)
        return file_response(file)

    async def _translate(self, document: _Document, call: Call, file: FileRequest) -> None:
        """Translate a document, and note what came of it."""
        try:
            data = await self._files.translate(call, file)
        except BaseException as error:
            # What a bug says is not for clients.
            document.error = str(error) if isinstance(error, EXPECTED_ERRORS) else FAILED
            raise
        document.secret = self._files.store.add(StoredFile(file.name, data))

    async def _asked(self, call: Call) -> _Document:
        """Return a document, whose key the client must know. Documents of other owners are not there."""
        fields = await call.read_fields()
        document = self._documents.get(call.request.path_params["number"])
        if document is None or document.owner != call.owner or not _is_key(document, fields.get("document_key")):
            raise RequestError(404, "Document not found.")
        return document

    def _forget(self) -> None:
        """Forget the oldest documents that are not being translated, if there are too many."""
        surplus = len(self._documents) - _MOST_DOCUMENTS
        for number, document in [*self._documents.items()]:
            if surplus > 0 and document.is_translated:
                del self._documents[number]
                surplus -= 1


def _is_key(document: _Document, key: object) -> bool:
    """Return whether this is the key of a document. JSON may have a key that is no text."""
    return isinstance(key, str) and compare_digest(document.key.encode(), key.encode())


def _check_fields(fields: Fields, suffix: str) -> None:
    """Refuse fields that are not for documents, and another format than that of the document."""
    check_known(fields, _FIELDS | REFUSED)
    output_format = fields.get("output_format")
    if output_format and f".{output_format}".lower() != suffix.lower():
        raise RequestError(400, "'output_format' is only supported with the format of the file.")
    check_refused(fields)
