"""Glossaries of DeepL's protocol: version 2 with one pair of languages, version 3 with several."""

from functools import partial
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ..calls import Call, Fields, check_known
from ..glossaries import ClientGlossary, Dictionary, language_pairs, read_dictionary
from ..refusals import RequestError
from ..service import Service
from .deepl import DEEPL

_OF_DICTIONARY = frozenset(("source_lang", "target_lang", "entries", "entries_format"))
_TSV = "text/tab-separated-values"


def routes(service: Service) -> list[Route]:
    """Return the routes."""
    route = partial(service.route, DEEPL)
    return [
        route("/v2/glossary-language-pairs", _pairs, "GET"),
        route("/v2/glossaries", _create, "POST"),
        route("/v2/glossaries", _list, "GET"),
        route("/v2/glossaries/{number}", _show, "GET"),
        route("/v2/glossaries/{number}", _delete, "DELETE"),
        route("/v2/glossaries/{number}/entries", _entries, "GET"),
        route("/v3/glossaries", _create_multilingual, "POST"),
        route("/v3/glossaries", _list_multilingual, "GET"),
        route("/v3/glossaries/{number}", _show_multilingual, "GET"),
        route("/v3/glossaries/{number}", _delete, "DELETE"),
        route("/v3/glossaries/{number}/entries", _entries_multilingual, "GET"),
    ]


async def _pairs(service: Service, call: Call) -> Response:
    await call.read_fields()
    pairs = language_pairs(service.models)
    supported = [{"source_lang": source, "target_lang": target} for source, target in pairs]
    return JSONResponse({"supported_languages": supported})


async def _create(service: Service, call: Call) -> Response:
    fields = await call.read_fields()
    check_known(fields, _OF_DICTIONARY | {"name", "auth_key"})
    dictionary = await _read(service, fields)
    glossary = ClientGlossary(call.owner, _text(fields, "name"), [dictionary])
    service.glossaries.add(glossary)
    return JSONResponse(_described(glossary), 201)


async def _create_multilingual(service: Service, call: Call) -> Response:
    fields = await call.read_fields()
    check_known(fields, frozenset(("name", "dictionaries", "auth_key")))
    asked = fields.get("dictionaries")
    if not isinstance(asked, list) or not asked or not all(isinstance(item, dict) for item in asked):
        raise RequestError(400, "Value for 'dictionaries' not supported.")

    dictionaries: list[Dictionary] = []
    for item in asked:
        check_known(item, _OF_DICTIONARY)
        dictionary = await _read(service, item)
        if any(other.is_for(dictionary.source, dictionary.target) for other in dictionaries):
            message = f"There are two dictionaries from {dictionary.source} to {dictionary.target}."
            raise RequestError(400, message, reason="There are two dictionaries for the same languages.")
        dictionaries.append(dictionary)

    glossary = ClientGlossary(call.owner, _text(fields, "name"), dictionaries)
    service.glossaries.add(glossary)
    return JSONResponse(_described_multilingual(glossary), 201)


async def _list(service: Service, call: Call) -> Response:
    await call.read_fields()
    # Version 2 has no glossaries of several pairs.
    described = []
    for glossary in service.glossaries.of(call.owner):
        if len(glossary.dictionaries) == 1:
            described.append(_described(glossary))
    return JSONResponse({"glossaries": described})


async def _list_multilingual(service: Service, call: Call) -> Response:
    await call.read_fields()
    glossaries = service.glossaries.of(call.owner)
    return JSONResponse({"glossaries": [_described_multilingual(glossary) for glossary in glossaries]})


async def _show(service: Service, call: Call) -> Response:
    return JSONResponse(_described(await _with_one_pair(service, call)))


async def _show_multilingual(service: Service, call: Call) -> Response:
    return JSONResponse(_described_multilingual(await _asked(service, call)))


async def _entries(service: Service, call: Call) -> Response:
    glossary = await _with_one_pair(service, call)
    return PlainTextResponse(glossary.dictionaries[0].entries, media_type=_TSV)


async def _entries_multilingual(service: Service, call: Call) -> Response:
    glossary = await _asked(service, call)
    source = call.request.query_params.get("source_lang", "")
    target = call.request.query_params.get("target_lang", "")
    dictionary = glossary.dictionary(source, target)
    described = {**_pair(dictionary), "entries": dictionary.entries, "entries_format": "tsv"}
    return JSONResponse({"dictionaries": [described]})


async def _delete(service: Service, call: Call) -> Response:
    await call.read_fields()
    service.glossaries.remove(call.owner, call.request.path_params["number"])
    return Response(status_code=204)


async def _asked(service: Service, call: Call) -> ClientGlossary:
    await call.read_fields()
    return service.glossaries.find(call.owner, call.request.path_params["number"])


async def _with_one_pair(service: Service, call: Call) -> ClientGlossary:
    glossary = await _asked(service, call)
    if len(glossary.dictionaries) != 1:
        raise RequestError(404, "The glossary has several pairs of languages. Ask with version 3.")
    return glossary


async def _read(service: Service, fields: Fields) -> Dictionary:
    """Read a dictionary in a thread, because it may have thousands of entries."""
    names = ("source_lang", "target_lang", "entries", "entries_format")
    texts = [_text(fields, name) for name in names]
    return await service.in_thread(read_dictionary, *texts, service.models)


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
