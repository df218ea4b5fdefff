"""The protocol of LibreTranslate: its routes, what its clients send, and the answers that they read."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hf_capsule_mt.language_tags import name_of_language
from hf_capsule_mt.translation.preparation import TextOptions

from ..calls import Call, Fields, Protocol, check_known
from ..files import Files, StoredFile, file_response, supported_suffixes
from ..refusals import RequestError
from ..service import Service
from ..texts import SourceText, TranslatedText, TranslationRequest

LIBRETRANSLATE = Protocol("libretranslate", "error", lambda fields, authorization: fields.get("api_key"))

_FIELDS = frozenset(("q", "source", "target", "format", "alternatives", "api_key", "secret"))
"""`secret` is what LibreTranslate's own page sends."""
_FIELDS_OF_DETECTION = frozenset(("q", "api_key", "secret"))
_FIELDS_OF_FILE = frozenset(("source", "target", "api_key", "secret"))
_AUTO = "auto"
"""The source language of texts whose language is detected."""


def routes(service: Service, files: Files) -> list[Route]:
    """Return the routes."""
    route = partial(service.route, LIBRETRANSLATE)
    return [
        route("/translate", _translate, "POST"),
        route("/detect", _detect, "POST"),
        route("/languages", _languages, "GET", "POST"),
        route("/frontend/settings", _settings, "GET"),
        route("/translate_file", partial(_translate_file, files), "POST"),
        route("/download_file/{secret}", partial(_download_file, files), "GET"),
        route("/suggest", _suggest, "POST"),
    ]


async def _translate(service: Service, call: Call) -> Response:
    fields = await call.read_fields()
    request = await _request(fields, service)
    translated = await service.translate(call, request)
    return JSONResponse(_answer(fields, request, translated))


async def _request(fields: Fields, service: Service) -> TranslationRequest:
    """Return what a client asks for."""
    check_known(fields, _FIELDS)
    texts = _texts(fields)
    source = _text(fields, "source")
    target = _text(fields, "target")

    kind = fields.get("format", "text")
    if kind not in ("text", "html"):
        message = f"Invalid request: format {kind!r:.40} is neither text nor html"
        raise RequestError(400, message, reason="Invalid request: format is neither text nor html")

    options = TextOptions(tags=kind == "html", split="paragraphs" if kind == "html" else "lines")
    sources = await service.sources(texts, None if source == _AUTO else source, target, options)
    return TranslationRequest(sources, alternatives=_alternatives(fields, sources))


def _answer(fields: Fields, request: TranslationRequest, translated: Sequence[TranslatedText]) -> dict[str, Any]:
    """Return the answer to the fields of a client, which became a request."""
    results: dict[str, list[Any]] = {"translatedText": [text.text for text in translated]}
    if fields["source"] == _AUTO:
        results["detectedLanguage"] = [
            {"confidence": source.confidence, "language": source.model.source} for source in request.sources
        ]
    if request.alternatives:
        results["alternatives"] = [[*text.alternatives] for text in translated]
    if isinstance(fields["q"], list):
        return results
    # A client that sent one text reads one of each.
    return {name: values[0] for name, values in results.items()}


async def _detect(service: Service, call: Call) -> Response:
    fields = await call.read_fields()
    check_known(fields, _FIELDS_OF_DETECTION)
    texts = _texts(fields)
    if isinstance(fields["q"], list):
        raise RequestError(400, "Invalid request: q is a list")
    ranked = await service.detecting(service.detector.ranked, texts[0])
    return JSONResponse([{"confidence": detected.confidence, "language": detected.language} for detected in ranked])


async def _languages(service: Service, call: Call) -> Response:
    """Return all languages with the targets of each. Clients look for a target among the languages too."""
    codes: list[str] = []
    for model in service.models:
        codes += [model.source, model.target]
    entries = []
    for code in dict.fromkeys(codes):
        targets = [model.target for model in service.models if model.source == code]
        entries.append({**_entry(code), "targets": targets})
    return JSONResponse(entries)


async def _settings(service: Service, call: Call) -> Response:
    """Return what LibreTranslate tells its own page."""
    settings = service.settings
    first = service.models[0]
    file_formats = supported_suffixes() if settings.file_body.size else []
    return JSONResponse(
        {
            "apiKeys": settings.keys.are_needed,
            "charLimit": settings.char_limit,
            "filesTranslation": bool(file_formats),
            "frontendTimeout": 500,
            "keyRequired": settings.keys.are_needed,
            "language": {"source": _entry(first.source), "target": _entry(first.target)},
            "suggestions": False,
            "supportedFilesFormat": file_formats,
        }
    )


async def _translate_file(files: Files, service: Service, call: Call) -> Response:
    fields, upload = await call.read_upload()
    check_known(fields, _FIELDS_OF_FILE)
    source = _text(fields, "source")
    if source == _AUTO:
        source = service.detector.only_language()
    model = service.model(source, _text(fields, "target"))
    file = await files.read(call, upload, model)
    data = await call.answered(files.translate(call, file), service.settings.file_timeout)
    secret = files.store.add(StoredFile(file.name, data))
    return JSONResponse({"translatedFileUrl": f"{call.request.base_url}download_file/{secret}"})


async def _download_file(files: Files, service: Service, call: Call) -> Response:
    # Its name is as secret as a key.
    file = files.store.find(call.request.path_params["secret"])
    if file is None:
        raise RequestError(404, "There is no such file. It was never there, or too old.")
    return file_response(file)


async def _suggest(service: Service, call: Call) -> Response:
    raise RequestError(403, "Suggestions are not supported.")


def _entry(code: str) -> dict[str, str]:
    return {"code": code, "name": name_of_language(code)}


def _texts(fields: Fields) -> list[str]:
    """Return the texts of a client, also if it sent one and not a list."""
    texts = fields.get("q")
    if texts is None:
        raise RequestError(400, "Invalid request: missing q parameter")
    if not isinstance(texts, list):
        texts = [texts]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise RequestError(400, "Invalid request: q is neither a text nor a list of texts")
    return texts


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if value is None:
        raise RequestError(400, f"Invalid request: missing {name} parameter")
    if not isinstance(value, str) or not value:
        raise RequestError(400, f"Invalid request: {name} is no language")
    return value


def _alternatives(fields: Fields, sources: Sequence[SourceText]) -> int:
    """Return how many other translations are wanted. A search has as many as it has beams, with the best one."""
    value = fields.get("alternatives", 0)
    try:
        number = int(value)
    # JSON may have a number that is infinite.
    except (TypeError, ValueError, OverflowError) as error:
        raise RequestError(400, "Invalid request: alternatives is no number") from error
    most = min(source.model.num_beams for source in sources) - 1
    if number > most:
        raise RequestError(400, f"Invalid request: alternatives is {number}, and this server has at most {most}")
    return max(number, 0)
