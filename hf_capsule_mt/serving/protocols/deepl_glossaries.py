"""The routes of DeepL's glossaries: version 2 with one pair of languages, version 3 with several."""

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ..endpoints import DEEPL, Logged, protocol_route
from ..glossaries import ClientGlossary, Dictionary, language_pairs, read_dictionary
from ..requests import Fields, RequestError, check_known
from ..service import Service
from .deepl import FieldsOfKey

_OF_DICTIONARY = frozenset(("source_lang", "target_lang", "entries", "entries_format"))
_TSV = "text/tab-separated-values"


class GlossaryRoutes:
    """Makes, shows and deletes glossaries.

    Args:
        service: has the glossaries and the models.
        fields: reads the fields of a request with a key.
    """

    def __init__(self, service: Service, fields: FieldsOfKey) -> None:
        self._service = service
        self._glossaries = service.glossaries
        self._fields = fields

    def routes(self) -> list[Route]:
        """Return the routes."""
        route = partial(protocol_route, DEEPL, self._service.metrics)
        return [
            route("/v2/glossary-language-pairs", self._pairs, "GET"),
            route("/v2/glossaries", self._create, "POST"),
            route("/v2/glossaries", self._list, "GET"),
            route("/v2/glossaries/{number}", self._show, "GET"),
            route("/v2/glossaries/{number}", self._delete, "DELETE"),
            route("/v2/glossaries/{number}/entries", self._entries, "GET"),
            route("/v3/glossaries", self._create_multilingual, "POST"),
            route("/v3/glossaries", self._list_multilingual, "GET"),
            route("/v3/glossaries/{number}", self._show_multilingual, "GET"),
            route("/v3/glossaries/{number}", self._delete, "DELETE"),
            route("/v3/glossaries/{number}/entries", self._entries_multilingual, "GET"),
        ]

    async def _pairs(self, request: Request, logged: Logged) -> Response:
        await self._fields(request, logged)
        pairs = language_pairs(self._service.models)
        supported = [{"source_lang": source, "target_lang": target} for source, target in pairs]
        return JSONResponse({"supported_languages": supported})

    async def _create(self, request: Request, logged: Logged) -> Response:
        fields = await self._fields(request, logged)
        check_known(fields, _OF_DICTIONARY | {"name", "auth_key"})
        dictionary = await self._read(fields)
        glossary = ClientGlossary(logged.key, _text(fields, "name"), [dictionary])
        self._glossaries.add(glossary)
        return JSONResponse(_described(glossary), 201)

    async def _create_multilingual(self, request: Request, logged: Logged) -> Response:
        fields = await self._fields(request, logged)
        check_known(fields, frozenset(("name", "dictionaries", "auth_key")))
        asked = fields.get("dictionaries")
        if not isinstance(asked, list) or not asked or not all(isinstance(item, dict) for item in asked):
            raise RequestError(400, "Value for 'dictionaries' not supported.")
        dictionaries: list[Dictionary] = []
        for item in asked:
            check_known(item, _OF_DICTIONARY)
            dictionary = await self._read(item)
            if any(other.is_for(dictionary.source, dictionary.target) for other in dictionaries):
                raise RequestError(400, f"There are two dictionaries from {dictionary.source} to {dictionary.target}.")
            dictionaries.append(dictionary)
        glossary = ClientGlossary(logged.key, _text(fields, "name"), dictionaries)
        self._glossaries.add(glossary)
        return JSONResponse(_described_multilingual(glossary), 201)

    async def _list(self, request: Request, logged: Logged) -> Response:
        await self._fields(request, logged)
        # Version 2 has no glossaries of several pairs.
        described = []
        for glossary in self._glossaries.of(logged.key):
            if len(glossary.dictionaries) == 1:
                described.append(_described(glossary))
        return JSONResponse({"glossaries": described})

    async def _list_multilingual(self, request: Request, logged: Logged) -> Response:
        await self._fields(request, logged)
        glossaries = self._glossaries.of(logged.key)
        return JSONResponse({"glossaries": [_described_multilingual(glossary) for glossary in glossaries]})

    async def _show(self, request: Request, logged: Logged) -> Response:
        return JSONResponse(_described(await self._with_one_pair(request, logged)))

    async def _show_multilingual(self, request: Request, logged: Logged) -> Response:
        return JSONResponse(_described_multilingual(await self._asked(request, logged)))

    async def _entries(self, request: Request, logged: Logged) -> Response:
        glossary = await self._with_one_pair(request, logged)
        return PlainTextResponse(glossary.dictionaries[0].entries, media_type=_TSV)

    async def _entries_multilingual(self, request: Request, logged: Logged) -> Response:
        glossary = await self._asked(request, logged)
        source = request.query_params.get("source_lang", "")
        target = request.query_params.get("target_lang", "")
        dictionary = glossary.dictionary(source, target)
        described = {**_pair(dictionary), "entries": dictionary.entries, "entries_format": "tsv"}
        return JSONResponse({"dictionaries": [described]})

    async def _delete(self, request: Request, logged: Logged) -> Response:
        await self._fields(request, logged)
        self._glossaries.remove(logged.key, request.path_params["number"])
        return Response(status_code=204)

    async def _asked(self, request: Request, logged: Logged) -> ClientGlossary:
        await self._fields(request, logged)
        return self._glossaries.find(logged.key, request.path_params["number"])

    async def _with_one_pair(self, request: Request, logged: Logged) -> ClientGlossary:
        glossary = await self._asked(request, logged)
        if len(glossary.dictionaries) != 1:
            raise RequestError(404, "The glossary has several pairs of languages. Ask with version 3.")
        return glossary

    async def _read(self, fields: Fields) -> Dictionary:
        """Read a dictionary in a thread, because it may have thousands of entries."""
        names = ("source_lang", "target_lang", "entries", "entries_format")
        texts = [_text(fields, name) for name in names]
        return await self._service.in_thread(read_dictionary, *texts, self._service.models)


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RequestError(400, f"Value for '{name}' not supported.")
    return value


def _described(glossary: ClientGlossary) -> dict[str, Any]:
    [dictionary] = glossary.dictionaries
    described = {"glossary_id": glossary.number, "name": glossary.name, "ready": True}
    return {**described, **_pair(dictionary), **_creation(glossary), "entry_count": _count(dictionary)}


def _described_multilingual(glossary: ClientGlossary) -> dict[str, Any]:
    dictionaries = []
    for dictionary in glossary.dictionaries:
        dictionaries.append({**_pair(dictionary), "entry_count": _count(dictionary)})
    described = {"glossary_id": glossary.number, "name": glossary.name}
    return {**described, **_creation(glossary), "dictionaries": dictionaries}


def _pair(dictionary: Dictionary) -> dict[str, str]:
    return {"source_lang": dictionary.source, "target_lang": dictionary.target}


def _count(dictionary: Dictionary) -> int:
    return len(dictionary.glossary.entries)


def _creation(glossary: ClientGlossary) -> dict[str, str]:
    return {"creation_time": glossary.created.isoformat(timespec="microseconds")}
